"""GPU time of devices that are not CUDA's: pairs of PyTorch's events, on devices with a virtual clock."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cprofiling.devices import events, in_use, operations
from cprofiling.devices.events import MOST_WAITING, DeviceMark
from fakes.fake_torch import FakeTorch

KINDS = ("rocm", "xpu", "mps", "npu", "brand")
Told = list[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(operations, "_found", None)
    monkeypatch.setattr(in_use, "_cuda", None)
    events.forget()
    yield
    events.forget()


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeTorch]:
    def put(*arguments: Any, **keywords: Any) -> FakeTorch:
        torch = FakeTorch(*arguments, **keywords)
        torch.allocate(1)
        monkeypatch.setitem(sys.modules, "torch", torch)
        return torch

    return put


def begun(*arguments: Any, stream: object | None = None) -> DeviceMark:
    mark = in_use.gpu_place(arguments, stream)
    assert isinstance(mark, DeviceMark), mark
    return mark


def timed(torch: FakeTorch, ms: float, told: Told) -> None:
    mark = begun()
    torch.launch(ms)
    mark.end(lambda *answer: told.append(answer))


# ---- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("accelerator", [True, False])
def test_the_time_of_a_node(use: Callable[..., FakeTorch], kind: str, accelerator: bool) -> None:
    torch = use(kind, accelerator=accelerator)
    told: Told = []
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


def test_a_thousand_nodes(use: Callable[..., FakeTorch]) -> None:
    """Exact times, in order, with no more events than are waiting at a time."""
    torch = use("xpu")
    told: Told = []
    for number in range(1000):
        timed(torch, number, told)
        torch.advance(number / 2)
    assert len(told) < 1000
    torch.advance(math.inf)
    events.poll()
    assert told == [(number, None) for number in range(1000)]
    assert torch.events < 1500


def test_events_are_used_again(use: Callable[..., FakeTorch]) -> None:
    torch = use("xpu")
    told: Told = []
    for _ in range(100):
        timed(torch, 1, told)
        torch.advance(5)
    assert len(told) == 99
    assert torch.events <= 4


def test_nodes_in_nodes(use: Callable[..., FakeTorch]) -> None:
    torch = use("npu")
    told: Told = []
    outer = begun()
    torch.launch(1)
    timed(torch, 2, told)
    torch.launch(4)
    outer.end(lambda *answer: told.append(answer))
    torch.advance(7)
    events.poll()
    assert told == [(2, None), (7, None)]


@pytest.mark.parametrize("kind", ["rocm", "xpu", "npu"])
def test_the_device_of_a_call_among_several(use: Callable[..., FakeTorch], kind: str) -> None:
    """H6: each is timed on its own device, whichever is current."""
    torch = use(kind, devices=3)
    told: Told = []
    for index in (2, 0, None):
        mark = begun(*([] if index is None else [torch.tensor(index)]))
        torch.launch(10 + (index or 0), torch.stream(index or 0))
        mark.end(lambda *answer: told.append(answer))
        torch.current = 1
        torch.advance(20)
        events.poll()
        torch.current = 0
    assert told == [(12, None), (10, None), (10, None)]


def test_a_stream_that_is_given(use: Callable[..., FakeTorch]) -> None:
    torch = use("xpu", devices=2)
    told: Told = []
    side = torch.stream(1, 5)
    mark = begun(stream=in_use.checked_stream(side))
    torch.launch(100)
    torch.launch(6, side)
    mark.end(lambda *answer: told.append(answer))
    torch.advance(6)
    events.poll()
    assert told == [(6, None)]
    rocm = use("rocm", devices=2)
    mark = begun(stream=in_use.checked_stream(rocm.stream(0, 3)))
    rocm.launch(2, rocm.stream(0, 3))
    mark.end(lambda *answer: told.append(answer))
    rocm.advance(2)
    events.poll()
    assert told[1:] == [(2, None)]


def test_a_stream_that_changes_within_a_node(use: Callable[..., FakeTorch]) -> None:
    """The end of one stream says nothing of the other: both events must have been passed."""
    torch = use("xpu")
    told: Told = []
    torch.launch(9)
    mark = begun()
    torch.use(torch.stream(0, 1))
    mark.end(lambda *answer: told.append(answer))
    events.poll()
    assert told == []
    torch.advance(9)
    events.poll()
    assert told == [(None, "failed", "xpu:0: ValueError: an elapsed time of -9.0 ms")]


# ---- what is left out ----------------------------------------------------------------------------


def test_marks_that_do_not_count(use: Callable[..., FakeTorch]) -> None:
    torch = use("xpu")
    told: Told = []
    mark = begun()
    mark.cancel()
    mark.cancel()
    mark.end(lambda *answer: told.append(answer))
    timed(torch, 1, told)
    torch.advance(1)
    events.poll()
    assert told == [(1, None)]
    mark = begun()
    mark.end(lambda *answer: told.append(answer))
    mark.end(lambda *answer: told.append(answer))
    events.poll()
    assert len(told) == 2


def test_no_more_than_a_number_wait(use: Callable[..., FakeTorch]) -> None:
    torch = use("xpu")
    told: Told = []
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
def test_a_stream_that_is_captured(use: Callable[..., FakeTorch], kind: str) -> None:
    """H4: no event is recorded and none is asked for meanwhile; the fake would not have it."""
    torch = use(kind)
    told: Told = []
    timed(torch, 1, told)
    torch.advance(1)
    torch.capturing = True
    assert in_use.gpu_place(()) == ("captured", None)
    events.poll()
    assert told == []
    torch.capturing = False
    mark = begun()
    torch.capturing = True
    mark.end(lambda *answer: told.append(answer))
    assert told == [(None, "captured")]
    torch.capturing = False
    events.poll()
    assert told == [(None, "captured"), (1, None)]


@pytest.mark.parametrize("name", ["event", "record", "query", "elapsed", "is_capturing", "current_stream"])
def test_every_call_may_fail(use: Callable[..., FakeTorch], name: str) -> None:
    """H2, H3: at each place the node goes on without a time, the reason is kept, and what comes later is timed."""
    for when in ("begin", "end", "poll"):
        torch = use("xpu", devices=2)
        told: Told = []
        events.forget()
        error: dict[str, Exception] = {name: RuntimeError("lost device")}
        torch.failing = error if when == "begin" else {}
        mark = in_use.gpu_place(())
        torch.failing = error if when == "end" else {}
        if isinstance(mark, DeviceMark):
            torch.launch(2)
            mark.end(lambda *answer, told=told: told.append(answer))
        torch.advance(2)
        torch.failing = error if when == "poll" else {}
        events.poll()
        torch.failing = {}
        events.poll()
        if isinstance(mark, tuple):
            told.append((None, *mark))
        assert told in ([(None, "failed", "xpu:0: RuntimeError: lost device")], [(2, None)])
        assert len(told) == 1
        timed(torch, 1, told)
        torch.advance(1)
        events.poll()
        assert told[1:] == [(1, None)]


@pytest.mark.parametrize(
    ("name", "when"),
    [("record", "begin"), ("event", "begin"), ("current_stream", "end"), ("query", "poll"), ("elapsed", "poll")],
)
def test_failures_are_told(use: Callable[..., FakeTorch], name: str, when: str) -> None:
    torch = use("xpu", devices=2)
    told: Told = []
    torch.failing = {name: RuntimeError("lost")} if when == "begin" else {}
    mark = in_use.gpu_place(())
    if when == "begin":
        assert mark == ("failed", "xpu:0: RuntimeError: lost")
        return
    assert isinstance(mark, DeviceMark)
    torch.failing = {name: RuntimeError("lost")}
    mark.end(lambda *answer: told.append(answer))
    events.poll()
    assert told == [(None, "failed", "xpu:0: RuntimeError: lost")]


def test_an_error_that_stays_turns_the_device_off(use: Callable[..., FakeTorch]) -> None:
    """H2: it is not asked any more; another device goes on."""
    torch = use("xpu", devices=2)
    told: Told = []
    torch.failing = {"event": RuntimeError("lost")}
    for _ in range(16):
        assert in_use.gpu_place(()) == ("failed", "xpu:0: RuntimeError: lost")
    torch.log.clear()
    torch.failing = {}
    for _ in range(3):
        assert in_use.gpu_place(()) == ("failed", "xpu:0: RuntimeError: lost: no GPU time from there any more")
    assert torch.calls("event") == torch.calls("record") == 0
    mark = begun(torch.tensor(1))
    mark.end(lambda *answer: told.append(answer))
    events.poll()
    assert told == [(0, None)]


@pytest.mark.parametrize("answer", [math.nan, math.inf, -0.5, None, "2"])
def test_times_that_are_none(use: Callable[..., FakeTorch], answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = use("xpu")
    told: Told = []
    monkeypatch.setattr("fakes.fake_torch.FakeEvent.elapsed_time", lambda *_: answer)
    timed(torch, 0, told)
    events.poll()
    assert [each[:2] for each in told] == ([(None, "failed")] if answer != "2" else [(2, None)])


def test_a_receiver_that_fails(use: Callable[..., FakeTorch]) -> None:
    torch = use("xpu")
    told: Told = []

    def receive(*_: object) -> None:
        raise RuntimeError("not now")

    begun().end(receive)
    timed(torch, 0, told)
    events.poll()
    assert told == [(0, None)]


def test_a_receiver_that_comes_back(use: Callable[..., FakeTorch]) -> None:
    """B5: nothing is locked while it is called."""
    torch = use("xpu")
    told: Told = []

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


def test_a_device_without_events(use: Callable[..., FakeTorch]) -> None:
    torch = use("mps", accelerator=False)
    del torch.mps.event
    assert in_use.gpu_place(()) == ("unsupported", "PyTorch's mps has no events")
    torch = use("brand", accelerator=False)
    torch.brand.Event = None  # type: ignore[attr-defined]
    assert in_use.gpu_place(()) == ("unsupported", "PyTorch's brand has no events")


def test_a_device_that_cannot_be_counted(use: Callable[..., FakeTorch]) -> None:
    torch = use("xpu")
    told: Told = []
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


def test_many_threads(use: Callable[..., FakeTorch]) -> None:
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


def test_a_pair_that_another_thread_takes_meanwhile(use: Callable[..., FakeTorch]) -> None:
    """The one that resolves finds fewer pairs than there were."""
    torch = use("xpu")
    told: Told = []
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
def test_the_child_of_a_fork_forgets_all(use: Callable[..., FakeTorch], kind: str) -> None:
    """H5: no call of the parent's device, neither for pairs that wait nor for marks that are open."""
    torch = use(kind)
    told: Told = []
    timed(torch, 1, told)
    ended, cancelled = begun(), begun()
    torch.advance(1)
    child = os.fork()
    if child == 0:
        torch.log.clear()
        ended.end(lambda *answer: told.append(answer))
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
    ended.end(lambda *answer: told.append(answer))
    events.poll()
    assert len(told) == 2


def test_marks_from_before_all_was_forgotten(use: Callable[..., FakeTorch]) -> None:
    """H5: as in a child, an event is neither recorded nor given up."""
    torch = use("xpu")
    told: Told = []
    ended, cancelled = begun(), begun()
    kept = len(events._of_the_parent)
    events.forget()
    torch.log.clear()
    ended.end(lambda *answer: told.append(answer))
    cancelled.cancel()
    events.poll()
    assert (told, torch.log) == ([], [])
    assert len(events._of_the_parent) == kept + 3
