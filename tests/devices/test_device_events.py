"""GPU time of devices that are not CUDA's: pairs of PyTorch's events, on devices with a virtual clock."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from cprofiling.devices import events, in_use, operations
from cprofiling.devices.events import MOST_WAITING, DeviceMark
from fakes.fake_torch import FakeTorch

pytestmark = pytest.mark.usefixtures("forgotten")

KINDS = ("rocm", "xpu", "mps", "npu", "brand")
Use = Callable[..., FakeTorch]


class Told(list[tuple[Any, ...]]):
    """What a mark's receiver is told."""

    def __call__(self, *answer: Any) -> None:
        self.append(answer)


@pytest.fixture
def told() -> Told:
    return Told()


def begun(*arguments: Any, stream: object | None = None) -> DeviceMark:
    mark = in_use.gpu_place(arguments, stream)
    assert isinstance(mark, DeviceMark), mark
    return mark


def timed(torch: FakeTorch, ms: float, told: Told) -> None:
    mark = begun()
    torch.launch(ms)
    mark.end(told)


# ---- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("accelerator", [True, False])
def test_the_time_of_a_node(use: Use, told: Told, kind: str, accelerator: bool) -> None:
    torch = use(kind, accelerator=accelerator)
    torch.launch(3)
    timed(torch, 8, told)
    events.poll()
    assert (told, len(events._waiting)) == ([], 1)
    torch.advance(10.999)
    events.poll()
    assert told == []
    torch.advance(0.001)
    events.poll()
    assert told == [(8, None)]
    events.poll()
    assert (len(told), len(events._waiting)) == (1, 0)
    assert torch.calls("synchronize") == 0


def test_events_are_used_again(use: Use, told: Told) -> None:
    """Times are exact and in order all the same."""
    torch = use("xpu")
    for number in range(100):
        timed(torch, number, told)
        torch.advance(100)
    assert told == [(number, None) for number in range(99)]
    assert torch.events <= 4


def test_nodes_in_nodes(use: Use, told: Told) -> None:
    torch = use("npu")
    outer = begun()
    torch.launch(1)
    timed(torch, 2, told)
    torch.launch(4)
    outer.end(told)
    torch.advance(7)
    events.poll()
    assert told == [(2, None), (7, None)]


@pytest.mark.parametrize("kind", ["rocm", "xpu", "npu"])
def test_the_device_of_a_call_among_several(use: Use, told: Told, kind: str) -> None:
    """H6: each is timed on its own device, whichever is current."""
    torch = use(kind, devices=3)
    for index in (2, 0, None):
        mark = begun(*([] if index is None else [torch.tensor(index)]))
        torch.launch(10 + (index or 0), torch.stream(index or 0))
        mark.end(told)
        torch.current = 1
        torch.advance(20)
        events.poll()
        torch.current = 0
    assert told == [(12, None), (10, None), (10, None)]


def test_a_stream_that_is_given(use: Use, told: Told) -> None:
    torch = use("xpu", devices=2)
    side = torch.stream(1, 5)
    mark = begun(stream=in_use.checked_stream(side))
    torch.launch(100)
    torch.launch(6, side)
    mark.end(told)
    torch.advance(6)
    events.poll()
    assert told == [(6, None)]
    rocm = use("rocm", devices=2)
    mark = begun(stream=in_use.checked_stream(rocm.stream(0, 3)))
    rocm.launch(2, rocm.stream(0, 3))
    mark.end(told)
    rocm.advance(2)
    events.poll()
    assert told[1:] == [(2, None)]


def test_a_stream_that_changes_within_a_node(use: Use, told: Told) -> None:
    """The end of one stream says nothing of the other: both events must have been passed."""
    torch = use("xpu")
    torch.launch(9)
    mark = begun()
    torch.use(torch.stream(0, 1))
    mark.end(told)
    events.poll()
    assert told == []
    torch.advance(9)
    events.poll()
    assert told == [(None, "failed", "xpu:0: ValueError: an elapsed time of -9.0 ms")]


# ---- what is left out ----------------------------------------------------------------------------


def test_marks_that_do_not_count(use: Use, told: Told) -> None:
    torch = use("xpu")
    mark = begun()
    mark.cancel()
    mark.cancel()
    mark.end(told)
    timed(torch, 1, told)
    torch.advance(1)
    events.poll()
    assert told == [(1, None)]
    mark = begun()
    mark.end(told)
    mark.end(told)
    events.poll()
    assert len(told) == 2


def test_no_more_than_a_number_wait(use: Use, told: Told) -> None:
    torch = use("xpu")
    torch.launch(1)
    for _ in range(MOST_WAITING + 3):
        timed(torch, 0, told)
    assert told == [(None, "full")] * 3
    assert len(events._waiting) == MOST_WAITING
    torch.advance(1)
    timed(torch, 0, told)
    assert told[3:] == [(0, None)] * 4
    events.poll()
    assert told[3:] == [(0, None)] * (MOST_WAITING + 1)


@pytest.mark.parametrize("kind", ["rocm", "xpu", "npu"])
def test_a_stream_that_is_captured(use: Use, told: Told, kind: str) -> None:
    """H4: no event is recorded and none is asked for meanwhile; the fake would not have it."""
    torch = use(kind)
    timed(torch, 1, told)
    torch.advance(1)
    torch.capturing = True
    assert in_use.gpu_place(()) == ("captured", None)
    events.poll()
    assert told == []
    torch.capturing = False
    mark = begun()
    torch.capturing = True
    mark.end(told)
    assert told == [(None, "captured")]
    torch.capturing = False
    events.poll()
    assert told == [(None, "captured"), (1, None)]


@pytest.mark.parametrize(
    ("name", "fails"),
    [
        ("event", ("begin", "end")),
        ("record", ("begin", "end")),
        ("current_stream", ("begin", "end")),
        ("is_capturing", ("begin", "end", "poll")),
        ("query", ("poll",)),
        ("elapsed", ("poll",)),
    ],
)
@pytest.mark.parametrize("when", ["begin", "end", "poll"])
def test_every_call_may_fail(use: Use, told: Told, name: str, fails: tuple[str, ...], when: str) -> None:
    """H2, H3: at each place the node goes on without a time, the reason is kept, and what comes later is timed."""
    torch = use("xpu", devices=2)
    error: dict[str, Exception] = {name: RuntimeError("lost device")}
    torch.failing = error if when == "begin" else {}
    mark = in_use.gpu_place(())
    torch.failing = error if when == "end" else {}
    if isinstance(mark, DeviceMark):
        torch.launch(2)
        mark.end(told)
    torch.advance(2)
    torch.failing = error if when == "poll" else {}
    events.poll()
    torch.failing = {}
    events.poll()
    if isinstance(mark, tuple):
        told(None, *mark)
    assert told == [(None, "failed", "xpu:0: RuntimeError: lost device") if when in fails else (2, None)]
    timed(torch, 1, told)
    torch.advance(1)
    events.poll()
    assert told[1:] == [(1, None)]


def test_an_error_that_stays_turns_the_device_off(use: Use, told: Told) -> None:
    """H2: it is not asked any more; another device goes on."""
    torch = use("xpu", devices=2)
    torch.failing = {"event": RuntimeError("lost")}
    for _ in range(16):
        assert in_use.gpu_place(()) == ("failed", "xpu:0: RuntimeError: lost")
    torch.log.clear()
    torch.failing = {}
    for _ in range(3):
        assert in_use.gpu_place(()) == ("failed", "xpu:0: RuntimeError: lost: no GPU time from there any more")
    assert torch.calls("event") == torch.calls("record") == 0
    mark = begun(torch.tensor(1))
    mark.end(told)
    events.poll()
    assert told == [(0, None)]


@pytest.mark.parametrize("answer", [math.nan, math.inf, -0.5, None, "2"])
def test_times_that_are_none(use: Use, told: Told, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = use("xpu")
    monkeypatch.setattr("fakes.fake_torch.FakeEvent.elapsed_time", lambda *_: answer)
    timed(torch, 0, told)
    events.poll()
    assert [each[:2] for each in told] == ([(None, "failed")] if answer != "2" else [(2, None)])


def test_a_receiver_that_fails(use: Use, told: Told) -> None:
    torch = use("xpu")

    def receive(*_: object) -> None:
        raise RuntimeError("not now")

    begun().end(receive)
    timed(torch, 0, told)
    events.poll()
    assert told == [(0, None)]


def test_a_receiver_that_comes_back(use: Use, told: Told) -> None:
    """B5: nothing is locked while it is called."""
    torch = use("xpu")

    def receive(*answer: Any) -> None:
        told.append(answer)
        events.poll()
        if len(told) < 50:
            begun().end(receive)

    begun().end(receive)
    for _ in range(60):
        events.poll()
    assert told == [(0, None)] * 50
    assert len(events._waiting) == 0
    assert torch.violations == []


def test_a_device_that_cannot_be_counted(use: Use, told: Told) -> None:
    torch = use("xpu")
    del torch.xpu.device_count
    timed(torch, 0, told)
    events.poll()
    assert told == [(0, None)]
    torch = use("xpu")
    row = operations.in_use()
    assert isinstance(row, operations.DeviceOperations)
    torch.failing = {"device_count": RuntimeError("lost")}
    assert events.begin(row, 0) == ("failed", "xpu:0: RuntimeError: lost")


# ---- threads and processes -----------------------------------------------------------------------


def test_many_threads(use: Use) -> None:
    """Each pair is told once, while all add and all resolve."""
    use("xpu")
    told: list[int] = []

    def work(thread: int) -> None:
        for number in range(200):
            begun().end(lambda *_, at=(thread * 200 + number): told.append(at))
            if number % 7 == 0:
                events.poll()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    events.poll()
    assert sorted(told) == list(range(1600))


def test_a_pair_that_another_thread_takes_meanwhile(use: Use, told: Told) -> None:
    """The one that resolves finds fewer pairs than there were."""
    torch = use("xpu")
    torch.launch(1)
    timed(torch, 0, told)
    timed(torch, 0, told)
    torch.advance(1)
    first = events._waiting[0]
    source, begin, end, _ = first
    events._waiting[0] = (source, begin, end, lambda *_: events._waiting.clear())
    events.poll()
    assert (told, len(events._waiting)) == ([], 0)


@pytest.mark.parametrize("kind", ["xpu", "mps"])
def test_the_child_of_a_fork_forgets_all(use: Use, told: Told, kind: str) -> None:
    """H5: no call of the parent's device, neither for pairs that wait nor for marks that are open."""
    torch = use(kind)
    timed(torch, 1, told)
    ended, cancelled = begun(), begun()
    torch.advance(1)
    child = os.fork()
    if child == 0:
        torch.log.clear()
        ended.end(told)
        cancelled.cancel()
        events.poll()
        kept = len(events._of_the_parent)
        is_good = not told and not torch.log and len(events._waiting) == 0 and kept >= 3
        torch.begun = False
        torch.bytes[0][0] = 0
        os._exit(0 if is_good and in_use.gpu_place(()) is None and not torch.log else 1)
    assert os.waitpid(child, 0)[1] == 0
    events.poll()
    assert told == [(1, None)]
    ended.end(told)
    events.poll()
    assert len(told) == 2


def test_marks_from_before_all_was_forgotten(use: Use, told: Told) -> None:
    """H5: as in a child, an event is neither recorded nor given up."""
    torch = use("xpu")
    ended, cancelled = begun(), begun()
    kept = len(events._of_the_parent)
    events.forget()
    torch.log.clear()
    ended.end(told)
    cancelled.cancel()
    events.poll()
    assert (told, torch.log) == ([], [])
    assert len(events._of_the_parent) == kept + 3
