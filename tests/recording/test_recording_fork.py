"""Recordings and forks (D1): the recording is the parent's, the child starts without, and may have its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import GeneratorType

import pytest

import cprofiling as cp
from calls import HAS_NO_GIL, NEVER, beside
from forks import fork, in_child, wait_for
from recorded import inner, names, outer, profile

pytestmark = [
    pytest.mark.native,
    pytest.mark.forks,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:the recording was stopped in step:RuntimeWarning"),
]


CALLS_OF_OUTER = ["outer", "inner", "label", "inner"]


def check_own_recording() -> None:
    """A recording of this process has what happens in it, and nothing else."""
    with profile(with_stack=True, profile_memory=True) as own:
        outer()
        thread = threading.Thread(target=outer)
        thread.start()
        thread.join()
    assert names(own) == CALLS_OF_OUTER * 2
    assert own.dropped == 0
    assert {track[0] for track in own.recording.tracks} == {os.getpid()}


def test_a_child_has_no_part_in_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    seen: list[list[str]] = []
    prof = profile(file=path, on_trace_ready=lambda prof: seen.append(names(prof)))

    def child() -> None:
        outer()
        with pytest.raises(RuntimeError, match="nothing is recorded yet"):
            prof.events()
        prof.pause()
        prof.resume()
        prof.stop()
        prof.__exit__(None, None, None)
        assert seen == []
        assert [*tmp_path.iterdir()] == []
        check_own_recording()

    with prof:
        outer()
        fork(child)
        inner()
    assert names(prof) == [*CALLS_OF_OUTER, "inner"]
    assert seen == [names(prof)]
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {os.getpid()}


def test_steps_of_a_child_are_nothing() -> None:
    seen: list[list[str]] = []
    schedule = cp.schedule(wait=0, warmup=0, active=1)

    def child() -> None:
        for _ in range(3):
            inner()
            prof.step()
        assert seen == []

    with profile(schedule=schedule, on_trace_ready=lambda prof: seen.append(names(prof))) as prof:
        inner()
        fork(child)
        prof.step()
        inner()
    assert seen == [["ProfilerStep#0", "inner"], ["ProfilerStep#1", "inner"]]


def test_the_recording_may_start_anew_in_a_child() -> None:
    def child() -> None:
        with pytest.raises(RuntimeError, match="nothing is recorded yet"):
            prof.events()
        prof.start()
        outer()
        prof.stop()
        assert names(prof) == CALLS_OF_OUTER
        with pytest.raises(RuntimeError, match="needs a recording that is running"):
            prof.stop()

    with profile() as prof:
        inner()
        fork(child)
    assert names(prof) == ["inner"]


def test_what_is_open_at_the_fork_is_the_parents() -> None:
    @cp.profile_node("generator")
    def generator() -> Iterator[int]:
        yield 1
        inner()

    def child() -> None:
        with profile() as own:
            label.__exit__(None, None, None)
            assert [*running] == []
            inner()
        label.__enter__()
        label.__exit__(None, None, None)
        assert names(own) == ["inner", "inner"]
        assert {event.parent_span_id for event in own.events()} == {None}

    with profile() as prof:
        label = cp.record("label").__enter__()
        running = generator()
        next(running)
        with cp.profile_node("node"):
            fork(child)
            inner()
        label.__exit__(None, None, None)
        assert [*running] == []
    assert names(prof) == ["label", "generator", "node", "inner", "inner"]


def test_gates_are_closed_in_a_child() -> None:
    """What is not recorded costs nothing, and wrapped functions give the user's own objects again."""

    @cp.profile_node("generator")
    def generator() -> Iterator[int]:
        yield 1

    def child() -> None:
        assert type(generator()) is GeneratorType
        assert not cp.profiling_enabled()
        statistics.set_profiling(True)
        inner_of_statistics()
        assert [stats.count for stats in statistics.get_profiling_summary()] == [1]

    statistics = cp.Profiler()
    inner_of_statistics = statistics.profile_node("node")(inner.__wrapped__)  # type: ignore[attr-defined]
    with profile():
        assert type(generator()) is not GeneratorType
        fork(child)


@pytest.mark.parametrize("paused", [False, True])
def test_forks_of_forks(paused: bool) -> None:
    def grandchild() -> None:
        prof.stop()
        check_own_recording()

    def child() -> None:
        with profile() as own:
            inner()
            fork(grandchild)
            inner()
        assert names(own) == ["inner", "inner"]
        fork(grandchild)

    with profile() as prof:
        if paused:
            prof.pause()
        for _ in range(3):
            fork(child)
        inner()
    assert names(prof) == ([] if paused else ["inner"])


@pytest.mark.unsanitized
@pytest.mark.slow
@pytest.mark.skipif(
    HAS_NO_GIL and sys.version_info < (3, 14),
    reason="this CPython's threading waits in a child for others'",
)
def test_forks_while_others_record_and_control() -> None:
    """Whatever the other threads are doing at that moment, the child is fine, and the parent notices nothing."""
    recorded: set[str] = set()
    prof = profile(
        capacity=50,
        schedule=cp.schedule(wait=0, warmup=0, active=1),
        on_trace_ready=lambda prof: recorded.update(names(prof)),
        record_shapes=True,
    )

    def control() -> None:
        for call in (prof.start, prof.step, prof.pause, prof.resume, prof.stop):
            call()
            time.sleep(1e-4)

    def work() -> None:
        outer()
        with cp.record(f"label {threading.get_ident()}"):
            outer()

    control()  # a child cannot import what another thread was importing at the fork
    work()
    with beside(control, work, work):
        for _ in range(30):
            fork(check_own_recording)
    assert {"outer", "inner", "label"} < recorded
    check_own_recording()


def test_a_fork_inside_a_handler() -> None:
    done: list[str] = []

    def handler(prof: cp.profile) -> None:
        before = names(prof)

        def child() -> None:
            outer()
            check_own_recording()

        fork(child)
        assert names(prof) == before
        done.append("handled")

    with profile(schedule=cp.schedule(wait=0, warmup=0, active=1), on_trace_ready=handler) as prof:
        for _ in range(2):
            inner()
            prof.step()
    assert done == ["handled"] * 2


def test_a_fork_while_the_recording_is_being_started() -> None:
    def schedule(step: int) -> cp.ProfilerAction:
        pids.append(os.fork())
        if pids[-1] == 0:
            in_child(check_own_recording)
        return cp.ProfilerAction.RECORD

    pids: list[int] = []
    with profile(schedule=schedule) as prof:
        inner()
    wait_for(*pids)
    assert names(prof) == ["ProfilerStep#0", "inner"]


def record_in_worker(number: int) -> list[str]:
    with profile() as prof:
        for _ in range(number):
            inner()
    return names(prof)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_record_for_themselves(method: str) -> None:
    with profile() as prof:
        inner()
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map_async(record_in_worker, [1, 2, 3]).get(NEVER) == [["inner"] * i for i in (1, 2, 3)]
    assert names(prof) == ["inner"]


def test_memory_of_forked_recordings_is_given_back() -> None:
    """Each child has a copy of what the parent had recorded, and lets go of it."""

    def mapped() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[0]) * os.sysconf("SC_PAGESIZE")

    def child() -> None:
        assert mapped() < before + size / 2

    before = mapped()
    size = 500_000 * 64
    with profile() as prof:
        for _ in range(125_000):
            outer()
        assert mapped() > before + size / 2
        fork(child)
    assert len(prof.events()) == 500_000
