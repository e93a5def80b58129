"""``profile``: what is recorded, when, and what a recording says of the rest."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from calls import by_name, in_new_thread, profiler_on, run_python
from cprofiling import _core
from cprofiling.recording.result import Recording
from recorded import check_nesting, inner, names, outer

pytestmark = pytest.mark.native

anything: Any = cp


def tree(prof: cp.profile | Recording) -> list[tuple[str, str | None]]:
    """The name of each event, and of its parent."""
    events = prof.events()
    by_row = {event.row: event.name for event in events}
    return [(event.name, None if event.parent is None else by_row[event.parent]) for event in events]


def test_nodes_and_labels_are_recorded_with_their_parents() -> None:
    with cp.profile() as prof:
        outer()
        with cp.stage("train"):
            inner()
    assert tree(prof) == [("outer", None), ("inner", "outer"), ("label", "outer"), ("inner", "label"), ("inner", None)]
    events = prof.events()
    check_nesting(events)
    assert [event.stage for event in events] == ["inference"] * 4 + ["train"]
    assert [event.kind for event in events] == ["node", "node", "record", "node", "node"]
    assert [event.cat for event in events] == ["cpu_op", "cpu_op", "user_annotation", "cpu_op", "cpu_op"]
    assert {event.thread_id for event in events} == {threading.get_native_id()}
    assert {event.thread_name for event in events} == {"MainThread"}
    assert {event.outcome for event in events} == {"success"}
    assert prof.dropped == 0


def test_ids_are_those_of_w3c() -> None:
    with cp.profile() as prof:
        outer()
        outer()
    events = prof.events()
    for event in events:
        assert event.trace_id is not None
        assert event.span_id is not None
        assert re.fullmatch("[0-9a-f]{32}", event.trace_id)
        assert re.fullmatch("[0-9a-f]{16}", event.span_id)
        assert event.parent_span_id is None or re.fullmatch("[0-9a-f]{16}", event.parent_span_id)
    assert len({event.span_id for event in events}) == len(events)
    assert len({event.trace_id for event in events}) == 2


def test_times_are_those_of_the_day_and_of_the_calls() -> None:
    @cp.profile_node("sleeper")
    def sleeper() -> None:
        time.sleep(0.01)

    before = time.time_ns()
    with cp.profile() as prof:
        sleeper()
    after = time.time_ns()
    (event,) = prof.events()
    assert 9_900_000 <= event.dur == event.end - event.start
    near_ns = 10**9  # the clocks may be read far apart on a busy machine
    assert before - near_ns <= event.start <= event.end <= after + near_ns


def test_statistics_and_recordings_are_independent() -> None:
    p = profiler_on()

    @p.profile_node("node")
    def node() -> None:
        with cp.record("between"):
            child()

    @cp.profile_node("child")
    def child() -> None:
        inner()

    node()
    without = by_name(p)
    p.reset_profiling()
    with cp.profile() as prof:
        node()
    with_recording = by_name(p)
    assert list(without) == list(with_recording) == ["inner", "child", "node"]
    assert [stats.count for stats in with_recording.values()] == [1, 1, 1]
    node_stats = with_recording["node"]
    assert node_stats.self_total_ms is not None
    assert node_stats.self_total_ms == pytest.approx(node_stats.total_ms - with_recording["child"].total_ms)
    assert names(prof) == ["node", "between", "child", "inner"]
    assert not cp.profiling_enabled()
    assert cp.get_profiling_summary() == []


def test_who_records_does_not_change_who_counts() -> None:
    """A node whose own Profiler is off does not own the calls inside it, recorded or not."""
    counting, off = profiler_on(), cp.Profiler()

    @off.profile_node("outside")
    def outside() -> None:
        inside()

    @cp.profile_node("inside")
    def inside() -> None:
        pass

    for recorded in (False, True):
        counting.reset_profiling()
        with counting:
            if recorded:
                with cp.profile() as prof:
                    outside()
                assert names(prof) == ["outside", "inside"]
            else:
                outside()
        assert list(by_name(counting)) == ["inside"]


def test_one_at_a_time() -> None:
    with cp.profile() as prof:
        inner()
        other = cp.profile()
        with pytest.raises(RuntimeError, match="one at a time"):
            other.start()
        with pytest.raises(RuntimeError, match="one at a time"), cp.profile():
            pass
        inner()
    assert names(prof) == ["inner", "inner"]
    with other:
        inner()
    assert names(other) == ["inner"]


def test_start_and_stop() -> None:
    prof = cp.profile()
    with pytest.raises(RuntimeError, match=r"start\(\)"):
        prof.stop()
    with pytest.raises(RuntimeError, match="nothing is recorded yet"):
        prof.events()
    prof.start()
    inner()
    with pytest.raises(RuntimeError, match="stop"):
        prof.key_averages()
    prof.stop()
    inner()
    assert names(prof) == ["inner"]
    prof.start()
    prof.stop()
    assert names(prof) == []
    with prof:
        prof.stop()  # its block may still end
    with pytest.raises(RuntimeError, match="running"):
        prof.stop()


@pytest.mark.parametrize("make", [lambda: cp.record("block"), lambda: cp.profile_node("block")])
def test_a_block_left_in_another_thread_is_one_event(make: Callable[[], Any]) -> None:
    site = make()
    with cp.profile(operators=False) as prof:
        for run in (in_new_thread, lambda function: function()):
            site.__enter__()
            inner()
            in_new_thread(lambda: site.__exit__(None, None, None))
            run(site.__enter__)
            outer()
            site.__exit__(None, None, None)
        with pytest.raises(RuntimeError, match="block"):
            site.__exit__(None, None, None)
    names = [event.name for event in prof.events()]
    assert names.count("block") == 4
    assert {event.outcome for event in prof.events()} == {"success"}
    check_nesting([event for event in prof.events() if event.name != "block"])


def test_generators_are_one_event() -> None:
    @cp.profile_node("numbers")
    def numbers() -> Iterator[int]:
        for i in range(3):
            inner()
            yield i

    with cp.profile() as prof:
        for _ in numbers():
            outer()
    assert [name for name in names(prof) if name == "numbers"] == ["numbers"]
    assert [pair for pair in tree(prof) if pair == ("inner", "numbers")] == [("inner", "numbers")] * 3
    assert [pair for pair in tree(prof) if pair[0] == "outer"] == [("outer", None)] * 3


# ---- Labelled blocks


def test_record_as_a_decorator() -> None:
    class Loader:
        @cp.record("method")
        def load(self, value: int) -> int:
            return value + 1

        prop = cp.record("property")(property(lambda self: 5))

    @cp.record("async")
    async def coroutine() -> int:
        await asyncio.sleep(0)
        return 7

    @cp.record("generator")
    def generator() -> Iterator[int]:
        yield from range(3)

    def run() -> list[Any]:
        loader = Loader()
        return [loader.load(1), loader.prop, asyncio.run(coroutine()), [*generator()]]

    expected = [2, 5, 7, [0, 1, 2]]
    assert run() == expected
    with cp.profile() as prof:
        assert run() == expected
    assert names(prof) == ["method", "property", "async", "generator"]
    assert cp.get_profiling_summary() == []
    assert {event.kind for event in prof.events()} == {"record"}
    assert Loader.load.__name__ == "load"
    with pytest.raises(TypeError, match="class"):
        cp.record("x")(Loader)
    with pytest.raises(TypeError, match="callable"):
        cp.record("x")(3)


def test_one_record_may_be_entered_anywhere() -> None:
    label = cp.record("label")

    def enter_and_leave() -> None:
        with label:
            pass

    with cp.profile() as prof:
        with label, label:
            in_new_thread(enter_and_leave)

        async def run() -> None:
            async with label:
                inner()

        asyncio.run(run())
    assert names(prof) == ["label", "label", "label", "label", "inner"]
    with pytest.raises(RuntimeError, match="label"):
        label.__exit__(None, None, None)


def test_record_across_the_ends_of_a_recording() -> None:
    early, late = cp.record("early"), cp.record("late")
    prof = cp.profile()
    with early:
        prof.start()
    late.__enter__()
    prof.stop()
    late.__exit__(None, None, None)
    assert [(event.name, event.unfinished) for event in prof.events()] == [("late", True)]


@pytest.mark.parametrize("warm", [True, False])
def test_warm_up_leaves_out_what_is_inside(warm: bool) -> None:
    @cp.record("decorated", warm_up=warm)
    def decorated() -> None:
        inner()

    with cp.profile() as prof:
        with prof.record("warm up", warm_up=warm):
            outer()
            asyncio.run(asyncio.sleep(0))
        decorated()
        inner()
    assert len(names(prof)) == (1 if warm else 8)
    assert repr(cp.record("x", warm_up=warm)) == ("record('x', warm_up=True)" if warm else "record('x')")
    assert cp.record("x", warm_up=warm).warm_up is warm


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ((None,), TypeError, "name must be a str, got None"),
        (("x" * 4097,), ValueError, "at most 4096 bytes of UTF-8, got 4097"),
        (("\U0001f600" * 1025,), ValueError, "at most 4096 bytes"),
        (("a\0b",), ValueError, "NUL"),
        ((lambda: None,), TypeError, r"name must be a str, got <function .*: as a decorator, record\(\) is"),
        ((), TypeError, "name"), (("a", 1), TypeError, "args must be a str or None, got"),
        (("a", True), TypeError, "args must be"), (("a", b"text"), TypeError, "args must be"),
        (("a", "b", "c"), TypeError, "argument"),
    ],
)  # fmt: skip
def test_labels_that_are_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        anything.record(*given)
    with cp.profile(operators=False) as prof, pytest.raises(error, match=message):
        anything.record(*given)
    assert names(prof) == []


def test_names_of_all_kinds_survive() -> None:
    strange = ["", " ", 'quote " and \\', "\n\t\x01\x7f", "\U0001f600", "\udcff lone", "x" * 4096, "\u2028", "e\u0301"]
    with cp.profile() as prof:
        for name in strange:
            with cp.record(name):
                pass
    assert names(prof) == strange


# ---- pause, resume


def test_pausing_follows_its_rule() -> None:
    with cp.profile() as prof:
        inner()
        whole = cp.record("whole").__enter__()
        cut = cp.record("cut").__enter__()
        prof.pause()
        time.sleep(0.01)
        outer()
        late = cp.record("late").__enter__()
        cut.__exit__(None, None, None)
        prof.resume()
        late.__exit__(None, None, None)
        inner()
        whole.__exit__(None, None, None)
    assert tree(prof) == [("inner", None), ("whole", None), ("cut", "whole"), ("inner", "whole")]
    events = {event.name: event for event in prof.events()}
    assert events["whole"].dur - events["cut"].dur > 9_000_000
    assert events["cut"].cut
    assert not events["whole"].cut


def test_nothing_is_asked_while_paused() -> None:
    asked = []

    class Array:
        dtype = "float32"

        @property
        def shape(self) -> tuple[int, ...]:
            asked.append(1)
            return (2, 3)

    @cp.profile_node("node")
    def node(array: Array) -> None:
        pass

    with cp.profile(record_shapes=True, operators=False) as prof:
        node(Array())
        assert len(asked) == 1
        prof.pause()
        node(Array())
        assert len(asked) == 1
        prof.resume()
        node(Array())
    node(Array())
    assert len(asked) == 2
    assert [event.shapes for event in prof.events()] == ["[[2, 3]]"] * 2


def test_pause_and_resume_in_the_wrong_order() -> None:
    prof = cp.profile()
    for call in (prof.pause, prof.resume):
        with pytest.raises(RuntimeError, match="needs a recording that is"):
            call()
    with prof:
        with pytest.raises(RuntimeError, match=r"resume\(\) needs a recording that is paused"):
            prof.resume()
        prof.pause()
        with pytest.raises(RuntimeError, match=r"pause\(\)"):
            prof.pause()
        prof.resume()
        inner()
    assert names(prof) == ["inner"]


# ---- Schedules


def run_steps(steps: int, **configuration: Any) -> tuple[cp.profile, list[list[str]]]:
    """What the handler saw in each cycle of a loop that calls a node in each step."""
    cycles: list[list[str]] = []
    with cp.profile(on_trace_ready=lambda prof: cycles.append(names(prof)), **configuration) as prof:
        for step in range(steps):
            with cp.record(f"work {step}"):
                pass
            prof.step()
    return prof, cycles


def test_a_schedule_records_in_cycles() -> None:
    schedule = cp.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    prof, cycles = run_steps(12, schedule=schedule)
    assert cycles == [
        ["ProfilerStep#3", "work 3", "ProfilerStep#4", "work 4"],
        ["ProfilerStep#7", "work 7", "ProfilerStep#8", "work 8"],
    ]
    assert names(prof) == cycles[1]
    assert prof.step_num == 12
    steps = [event for event in prof.events() if event.kind == "step"]
    assert [event.cat for event in steps] == ["user_annotation"] * 2
    work = [event for event in prof.events() if event.kind == "record"]
    for step, inside in zip(steps, work, strict=True):
        assert step.start <= inside.start <= inside.end <= step.end


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [(cp.schedule(1, 0, 1), [[1], [3], [5]]), (cp.schedule(wait=0, warmup=0, active=2, repeat=2), [[0, 1], [2, 3]])],
)
def test_a_schedule_that_goes_on_and_one_without_a_gap(schedule: Any, steps: list[list[int]]) -> None:
    _, cycles = run_steps(6, schedule=schedule)
    assert cycles == [[name for n in cycle for name in (f"ProfilerStep#{n}", f"work {n}")] for cycle in steps]


@pytest.mark.parametrize(
    ("steps", "message", "cycles"),
    [
        (1, "stopped in step 1 .cycle 1 of 2: warmup 1 of 1.: no cycle of its schedule was recorded", 0),
        (3, "stopped in step 3 .cycle 1 of 2: record 2 of 2.*: the cycle is incomplete", 1),
        (4, None, 1),
        (5, "cycle 2 of 2: warmup 1 of 1.: nothing of this cycle was recorded", 1),
        (6, "cycle 2 of 2: record 1 of 2.: nothing of this cycle was recorded; reports cover the cycle before", 1),
        (7, "cycle 2 of 2: record 2 of 2, then.*: the cycle is incomplete", 2),
        (8, None, 2),
        (9, None, 2),
    ],
)
def test_a_run_that_ends_inside_a_cycle_says_what_is_missing(steps: int, message: str | None, cycles: int) -> None:
    seen: list[list[str]] = []
    prof = cp.profile(
        schedule=cp.schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=lambda p: seen.append(names(p))
    )
    prof.start()
    for _ in range(steps):
        inner()
        prof.step()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prof.stop()
    assert len(seen) == cycles
    assert len(caught) == (message is not None)
    if message is not None:
        assert re.search(message, str(caught[0].message))
        assert caught[0].category is RuntimeWarning
        assert caught[0].filename == __file__
    assert (names(prof) == []) is (cycles == 0)


def test_reports_after_a_loop_cover_its_last_cycle() -> None:
    """Although its last step() has begun another one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prof, cycles = run_steps(3, schedule=cp.schedule(wait=0, warmup=0, active=1))
    assert cycles == [[f"ProfilerStep#{i}", f"work {i}"] for i in range(3)]
    assert names(prof) == cycles[2]
    prof.start()
    for _ in range(2):
        prof.step()
    inner()
    with pytest.warns(RuntimeWarning, match="the cycle is incomplete"):
        prof.stop()
    assert names(prof) == ["ProfilerStep#2", "inner"]


def test_a_schedule_answers_as_that_of_torch_does() -> None:
    torch_schedule = pytest.importorskip("torch.profiler").schedule
    rng = random.Random(1)
    for _ in range(200):
        options = {name: rng.randrange(4) for name in ("wait", "warmup", "repeat", "skip_first", "skip_first_wait")}
        options["active"] = rng.randrange(1, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch's of what has no warm-up
            theirs = torch_schedule(**options)
        ours = cp.schedule(**options)
        assert [ours(i).name for i in range(40)] == [theirs(i).name for i in range(40)]


def test_step_needs_a_schedule_and_a_run() -> None:
    prof = cp.profile()
    with prof:
        inner()
        with pytest.raises(RuntimeError, match=r"step\(\) needs a schedule"):
            prof.step()
        inner()
    assert names(prof) == ["inner", "inner"]
    with pytest.raises(RuntimeError, match="running"):
        cp.profile(schedule=cp.schedule(wait=0, warmup=0, active=1)).step()


def test_a_schedule_may_be_any_callable() -> None:
    class ProfilerAction:
        """As another profiler's."""

        name = "RECORD_AND_SAVE"

    def of_ours(step: int) -> cp.ProfilerAction:
        return cp.ProfilerAction.RECORD_AND_SAVE if step == 1 else cp.ProfilerAction.NONE

    def of_others(step: int) -> Any:
        return ProfilerAction() if step == 1 else SimpleNamespace(name="NONE")

    for schedule in (of_ours, of_others):
        _, cycles = run_steps(4, schedule=schedule)
        assert cycles == [["ProfilerStep#1", "work 1"]]
    with (
        pytest.raises(TypeError, match="schedule must answer with a ProfilerAction, got 3"),
        cp.profile(schedule=lambda step: 3),
    ):
        pass
    with cp.profile() as prof:  # the one before has let go
        inner()
    assert names(prof) == ["inner"]


def test_a_handler_that_raises_keeps_nothing_from_the_file(tmp_path: Path) -> None:
    def handler(_prof: cp.profile) -> None:
        raise KeyError("the handler's")

    with pytest.raises(KeyError), cp.profile(file=tmp_path / "trace.json", on_trace_ready=handler):
        inner()
    assert [event.name for event in cp.load_trace(tmp_path / "trace.json").events()] == ["inner"]


def test_a_recording_that_nobody_can_stop_any_more_ends() -> None:
    def cell() -> None:
        prof = cp.profile(with_stack=True)
        prof.start()
        inner()
        raise ValueError("the cell's")

    with pytest.warns(RuntimeWarning, match="nobody can stop any more"), pytest.raises(ValueError, match="the cell's"):
        cell()
    cycle: list[object] = [cp.profile()]
    cycle.append(cycle)
    cycle[0].start()  # type: ignore[attr-defined]
    cycle[0].itself = cycle  # type: ignore[attr-defined]
    del cycle
    with pytest.warns(RuntimeWarning, match="nobody can stop any more"):
        gc.collect()
    with cp.profile() as prof:
        inner()
    assert names(prof) == ["inner"]


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise KeyError(3)"])
def test_a_recording_that_runs_at_the_end_of_the_program_is_stopped(end: str, tmp_path: Path) -> None:
    script = f"""
        import sys
        import cprofiling as cp
        prof = cp.profile(file={str(tmp_path / "trace.json")!r}, on_trace_ready=lambda prof: print(len(prof.events())))
        prof.start()
        with cp.record("label"):
            pass
        {end}
    """
    done = run_python(dedent(script))
    assert done.stdout == "1\n"
    assert done.returncode == {"sys.exit(3)": 3, "raise KeyError(3)": 1}.get(end, 0)
    assert done.stderr == "" or end.startswith("raise")
    assert [event.name for event in cp.load_trace(tmp_path / "trace.json").events()] == ["label"]


def test_a_handler_that_fails_at_the_end_of_the_program_is_told_of() -> None:
    script = """
        import cprofiling as cp
        prof = cp.profile(on_trace_ready=lambda prof: 1 / 0)
        prof.start()
    """
    done = run_python(dedent(script))
    assert (done.returncode, done.stdout) == (0, "")
    assert "the recording was not finished as it should have been: ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        (3, "1", TypeError, "key must be a str, got 3"),
        ("traceEvents", "[]", ValueError, "key is set by the trace itself, choose another: 'traceEvents'"),
        ("schemaVersion", "1", ValueError, "key is set by"),
        ("mine", "NaN", ValueError, "value must be a JSON text, got 'NaN' (str): there is no NaN in JSON"),
        ("mine", "{", ValueError, "value must be a JSON text, got '{'"),
        ("mine", "", ValueError, "value must be a JSON text, got ''"),
        ("mine", 3, TypeError, "value must be a JSON text, got 3"),
    ],
)
def test_wrong_metadata_is_refused_at_once(key: Any, value: Any, error: type[Exception], message: str) -> None:
    prof = cp.profile()
    with pytest.raises(error, match=re.escape(message)):
        prof.add_metadata_json(key, value)


@pytest.mark.parametrize("option", [{"with_modules": True}, {"acc_events": True}, {"experimental_config": object()}])
def test_options_of_torch_that_do_nothing_say_so(option: dict[str, Any]) -> None:
    with pytest.warns(RuntimeWarning, match=f"{next(iter(option))} does nothing here"), cp.profile(**option) as prof:
        inner()
    assert names(prof) == ["inner"]


def test_a_trace_says_why_the_clock_is_the_slower_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "clock", lambda: ("clock_gettime", "the reason"))
    with cp.profile() as prof:
        inner()
    own = json.loads(prof.recording.facts["cprofiling"])
    assert (own["clock"], own["clock_reason"]) == ("clock_gettime", "the reason")


def test_labels_are_made_as_torch_makes_them() -> None:
    assert cp.record_function is cp.record
    prof = cp.profile(operators=False)
    with prof, cp.record_function("positional", "lr=0.1"), cp.record_function("keyword", args="lr=0.1"):
        pass
    assert names(prof) == ["positional", "keyword"]
    assert cp.record(name="x").name == "x"
    with pytest.raises(TypeError):
        anything.record("a", warm=True)


def test_a_recording_shows_how_it_stands() -> None:
    prof = cp.profile(operators=False)
    assert repr(prof) == "<profile: not started>"
    with prof:
        assert repr(prof) == "<profile: running>"
        prof.pause()
        assert repr(prof) == "<profile: paused>"
        prof.resume()
        inner()
    assert repr(prof) == "<profile: stopped, <Recording of 1 events>>"


def test_activities_that_can_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert cp.supported_activities() == {cp.ProfilerActivity.CPU}


def test_a_selection_of_which_nothing_is_there_says_so() -> None:
    prof = cp.profile(resource=cp.Resource.NPU, operators=False)
    with pytest.warns(RuntimeWarning, match="resource .*NPU.* selects nothing that can be recorded here") as caught:
        prof.start()
    inner()
    prof.stop()
    assert (names(prof), caught[0].filename) == ([], __file__)


def test_a_handler_that_raises_ends_nothing() -> None:
    calls = []

    def handler(prof: cp.profile) -> None:
        calls.append(names(prof))
        raise KeyError("the handler's")

    prof = cp.profile(schedule=cp.schedule(wait=0, warmup=0, active=1), on_trace_ready=handler)
    prof.start()
    for _ in range(3):
        inner()
        with pytest.raises(KeyError):
            prof.step()
    inner()
    with pytest.warns(RuntimeWarning, match="incomplete"), pytest.raises(KeyError):
        prof.stop()
    assert calls == [[f"ProfilerStep#{i}", "inner"] for i in range(4)]
    failing = cp.profile(on_trace_ready=handler)
    with pytest.raises(ValueError, match="mine"), pytest.warns(RuntimeWarning, match="the handler's"), failing:
        raise ValueError("mine")
    with cp.profile():
        pass


def test_a_schedule_shows_what_will_happen() -> None:
    schedule = cp.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=1)
    assert str(schedule).splitlines() == [
        "schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1)",
        "  step 0: skipped",
        "  step 1: cycle 1 of 1: wait 1 of 1",
        "  step 2: cycle 1 of 1: warmup 1 of 1",
        "  step 3: cycle 1 of 1: record 1 of 2",
        "  step 4: cycle 1 of 1: record 2 of 2, then the trace is ready",
        "  from step 5 on: nothing any more",
    ]
    assert str(cp.schedule(50, 1, 2, repeat=2, skip_first=9, skip_first_wait=1)).splitlines()[5] == (
        "  steps 12 to 61: cycle 2 of 2: wait 1 to 50 of 50"
    )
    many = str(cp.schedule(1, 1, 3, repeat=100)).splitlines()
    assert (len(many), many[-1]) == (42, "  and so on, up to step 499")
    endless = str(cp.schedule(wait=1, warmup=0, active=1)).splitlines()
    assert endless[-2:] == [
        "  step 3: cycle 2: record 1 of 1, then the trace is ready",
        "  and so on, until the recording is stopped",
    ]
    assert len(str(cp.schedule(wait=1000, warmup=0, active=1)).splitlines()) < 60
    assert schedule.describe(7) == "nothing any more"


@pytest.mark.parametrize(
    ("parameter", "value", "error"),
    [
        ("wait", -1, ValueError),
        ("warmup", -1, ValueError),
        ("active", 0, ValueError),
        ("repeat", -1, ValueError),
        ("skip_first", -1, ValueError),
        ("wait", 1.0, TypeError),
        ("active", True, TypeError),
        ("active", "1", TypeError),
        ("repeat", None, TypeError),
    ],
)
def test_wrong_schedules(parameter: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"{parameter} must be"):
        cp.schedule(**{"wait": 0, "warmup": 0, "active": 1} | {parameter: value})
