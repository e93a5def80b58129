"""Runs one operation again and again, with the first, the second, the third ... allocation of Python failing (A4, G7).

    python no_memory.py OPERATION...     (or `3/8`: the third of eight parts of all operations)

Each operation must give its result, or MemoryError with everything as it was; a node must give what the bare function
gives, however little memory the profiler gets. At first many later allocations fail, too, and then it alone,
three times: what the failures leave behind must not grow.
"""

from __future__ import annotations

import _imp
import _testcapi  # type: ignore[import-not-found]
import _thread
import contextlib
import contextvars
import functools
import gc
import io
import operator
import os
import sys
import tempfile
import types
from array import array
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cprofiling as cp
from cprofiling import _core
from cprofiling.devices import cupti, in_use  # noqa: F401
from cprofiling.nodes import decorators, probe_callbacks  # noqa: F401
from cprofiling.nodes import profiler as control
from cprofiling.recording import call_details

MANY = 50  # allocations that fail in turn: without any at all, CPython's handlers of exceptions do not come to an end
ENOUGH = 40  # allocations beyond the last that made a difference
TRIES = 3
MEMORY_ERROR = "MemoryError"
# CPython 3.10 makes a cache at a function's 1,024th call, and ends the call in this way when it cannot.
WITHOUT_CACHE = "_PyEval_EvalFrameDefault returned NULL without setting an exception"
PLANNED = ValueError("planned")
tried = 0  # allocations that failed


def accept(outcome: Any) -> None:
    """Take any outcome."""


class Round(NamedTuple):
    """What one attempt does. ``check`` gets the outcome, and asserts what must hold after it."""

    operate: Callable[[], Any]
    check: Callable[[Any], None] = accept


def outcome_without(nth: int, is_lasting: bool, operate: Callable[[], Any]) -> Any:
    """Run an operation while allocation number ``nth`` fails, and perhaps many later ones.

    Returns its result, MEMORY_ERROR, or another error.
    """
    PLANNED.__traceback__ = None
    gc.disable()  # without memory it writes to stderr, wherever it happens to run
    _testcapi.set_nomemory(nth, nth + (MANY if is_lasting else 1))
    try:
        return operate()
    except MemoryError:
        return MEMORY_ERROR
    except BaseException as error:
        return MEMORY_ERROR if sys.version_info < (3, 11) and str(error) == WITHOUT_CACHE else error
    finally:
        _testcapi.remove_mem_hooks()
        gc.enable()


def count_threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def run_in_new_thread(target: Callable[[], Any]) -> Any:
    """Run in a thread of its own, which the profiler has never seen; return the result.

    The failures would hit this thread, too: it sleeps in C before the other begins, as nobody asks it to give way.
    It waits for the other's end, in which Python frees memory without the GIL: no allocator may change meanwhile.
    """
    threads = count_threads()
    results: list[Any] = []
    over = _thread.allocate_lock()
    over.acquire()

    def body() -> None:
        contextvars.copy_context()  # makes the thread's context: without memory for that, Python itself crashes
        try:
            results.append(target())
        finally:
            over.release()

    _thread.start_new_thread(body, ())
    over.acquire()
    while count_threads() > threads:
        os.sched_yield()
    assert results, "see the traceback above"
    return results[0]


def sweep(make: Callable[[], Round], is_lasting: bool) -> list[Any]:
    """Let every allocation of an operation fail in turn; return all outcomes."""
    global tried  # noqa: PLW0603 a count for all
    outcomes: list[Any] = []
    while MEMORY_ERROR in map(str, outcomes[-ENOUGH:]) or len(outcomes) < ENOUGH:
        round_ = make()
        outcome = run_in_new_thread(functools.partial(outcome_without, len(outcomes), is_lasting, round_.operate))
        round_.check(outcome)
        outcomes.append(outcome)
    tried += len(outcomes) - ENOUGH
    return outcomes


def on(**configuration: Any) -> cp.Profiler:
    profiler = cp.Profiler()
    profiler.set_profiling(True, **configuration)
    return profiler


def finished(profiler: cp.Profiler) -> int:
    return sum(stats.count + stats.error_count for stats in profiler.get_profiling_summary())


# --- nodes: as the bare function, whatever fails ---


def raises() -> None:
    raise PLANNED


class Named:
    """An instance whose name is asked for by a callable that allocates nothing."""

    name = "named"


NAME = operator.attrgetter("name")
EVERYTHING: dict[str, Any] = {
    "gpu_time": True,
    "memory": "peak",
    "counters": ("cpu_time", "page_faults"),
    "nvtx": True,
}


class Pipeline(cp.PipelineProfiling):
    """A pipeline whose node is bound to no Profiler."""

    __hash__ = object.__hash__


def node_round(wrap: Callable[[cp.Profiler], Callable[[], Any]]) -> Callable[[], Round]:
    def make() -> Round:
        profiler = on()
        before = profiler.get_profiling_summary().internal_errors

        def check(outcome: Any) -> None:
            summary = profiler.get_profiling_summary()
            assert finished(profiler) <= 1
            if outcome != MEMORY_ERROR:
                faults = summary.internal_errors - before
                assert finished(profiler) + faults >= 1, "neither counted nor a counted fault"

        return Round(wrap(profiler), check)

    return make


def bound(function: Callable[..., Any], *args: Any, **site: Any) -> Callable[[cp.Profiler], Callable[[], Any]]:
    return lambda profiler: functools.partial(profiler.profile_node(**site)(function), *args)


def pipelines(function: Callable[..., Any]) -> Callable[[cp.Profiler], Callable[[], Any]]:
    node = cp.profile_node(function, name="node")

    def wrap(profiler: cp.Profiler) -> Callable[[], Any]:
        pipeline = Pipeline()
        pipeline.set_profiling(True)
        profiler.record("train", "stands for the pipeline's", 1.0)
        return functools.partial(node, pipeline)

    return wrap


def blocks(profiler: cp.Profiler) -> Callable[[], Any]:
    return functools.partial(run_in, profiler.profile_node("block"))


def run_in(manager: Any) -> str:
    with manager:
        return "ran"


class Mark:
    """A mark of a device, which gets its sink and keeps it not."""

    end = callable
    cancel = dict


def marked(wrap: Callable[[cp.Profiler], Callable[[], Any]]) -> Callable[[cp.Profiler], Callable[[], Any]]:
    """The same, with a device that has marks of its own."""
    mark = Mark()

    def wrap_marked(profiler: cp.Profiler) -> Callable[[], Any]:
        answers = (probe_callbacks.PROBERS[0], lambda *_: mark, *probe_callbacks.PROBERS[2:])
        control.set_up_core(answers)
        return asked(wrap, gpu_time=True)(profiler)

    return wrap_marked


def asked(
    wrap: Callable[[cp.Profiler], Callable[[], Any]], **options: Any
) -> Callable[[cp.Profiler], Callable[[], Any]]:
    """The same, with more than times asked for."""

    def wrap_asked(profiler: cp.Profiler) -> Callable[[], Any]:
        profiler.set_profiling(True, **options)
        return wrap(profiler)

    return wrap_asked


def bare(function: Callable[..., Any], *args: Any) -> Callable[[], Round]:
    """The bare function, whatever comes of it."""
    return lambda: Round(functools.partial(function, *args))


def locked() -> Round:
    """A block with a lock of its own: without memory it may stay locked."""
    return Round(functools.partial(run_in, _thread.allocate_lock()))


LENGTH, RAISES = bare(len, ()), bare(raises)
LENGTH_NODE = bound(len, (), name="node")
RAISING_NODE = bound(raises, name="node")
# How the node is made of a Profiler, and the bare function.
NODES: dict[str, tuple[Callable[[cp.Profiler], Callable[[], Any]], Callable[[], Round]]] = {
    "node": (LENGTH_NODE, LENGTH),
    "node in a stage": (bound(len, (), name="node", stage="train"), LENGTH),
    "raising node": (RAISING_NODE, RAISES),
    "named node": (bound(id, Named, name=NAME), bare(id, Named)),
    "named instance": (bound(callable, Named(), name=NAME), bare(callable, Named())),
    "block": (blocks, locked),
    "node of a pipeline": (pipelines(callable), bare(callable, Pipeline())),
    "asked node": (asked(LENGTH_NODE, **EVERYTHING), LENGTH),
    "asked raising node": (asked(RAISING_NODE, **EVERYTHING), RAISES),
    "asked block": (asked(blocks, **EVERYTHING), locked),
    "node with a stream": (asked(LENGTH_NODE, **EVERYTHING, gpu_stream=5), LENGTH),
    "node with a mark": (marked(LENGTH_NODE), LENGTH),
    "raising node with a mark": (marked(RAISING_NODE), RAISES),
}


def test_node(name: str, is_lasting: bool) -> None:
    wrap, bare_round = NODES[name]
    assert_as_bare(sweep(node_round(wrap), is_lasting), sweep(bare_round, is_lasting), is_lasting)


def kind_of(outcome: Any) -> object:
    return outcome if isinstance(outcome, str) else type(outcome)


def assert_as_bare(actual: list[Any], expected: list[Any], is_lasting: bool) -> None:
    """Assert that no failure reached the caller but those that the bare function meets.

    Lasting ones meet it, too, if they begin before it is called.
    """
    result = expected[-1]
    assert actual[-1] is result or actual[-1] == result
    failures = [outcome for outcome in actual if outcome is not result and outcome != result]
    assert set(map(kind_of, failures)) <= set(map(kind_of, expected)), (failures, expected)
    if not is_lasting:
        assert len(failures) <= sum(outcome is not result and outcome != result for outcome in expected), failures


# --- everything else: done, or MemoryError and nothing done ---


def records() -> Round:
    profiler = on()

    def check(outcome: Any) -> None:
        assert outcome in (None, MEMORY_ERROR), outcome
        assert finished(profiler) == (outcome is None)

    return Round(functools.partial(profiler.record, "train", "node", 1.5), check)


def switches() -> Round:
    profiler = on(skip_first_n=1)
    profiler.record("train", "node", 1.0)
    operate = functools.partial(profiler.set_profiling, False, reset=True, skip_first_n=3)

    def check(outcome: Any) -> None:
        assert outcome in (None, MEMORY_ERROR), outcome
        summary = profiler.get_profiling_summary()
        state = profiler.profiling_enabled, summary.skip_first_n, len(summary)
        assert state == ((False, 3, 0) if outcome is None else (True, 1, 1)), state

    return Round(operate, check)


def switches_everything_on() -> Round:
    profiler = on(skip_first_n=1)
    profiler.record("train", "node", 1.0)
    operate = functools.partial(profiler.set_profiling, True, **EVERYTHING, gpu_stream=5, reset=True)

    def check(outcome: Any) -> None:
        assert outcome in (None, MEMORY_ERROR), outcome
        summary = profiler.get_profiling_summary()
        with profiler.profile_node("block"):
            pass
        asked_for = bool(profiler.get_profiling_summary()[-1].counters)
        state = asked_for, summary.skip_first_n, len(summary)
        assert state == ((True, 0, 0) if outcome is None else (False, 1, 1)), state

    return Round(operate, check)


def with_figures() -> Callable[[], Any]:
    profiler = on(**EVERYTHING, gpu_stream=5)
    for name in ("first", "second"):
        with profiler.profile_node(name):
            pass
    return profiler.get_profiling_summary


def resets() -> Round:
    profiler = on()
    profiler.record("train", "node", 1.0)

    def check(outcome: Any) -> None:
        assert outcome is None
        assert profiler.get_profiling_summary() == []

    return Round(profiler.reset_profiling, check)


def gives(kind: type, operate: Callable[[], Callable[[], Any]]) -> Callable[[], Round]:
    """An operation that gives an object of some type, or MemoryError."""

    def check(outcome: Any) -> None:
        assert outcome == MEMORY_ERROR or isinstance(outcome, kind), outcome

    return lambda: Round(operate(), check)


def with_rows(method: str, *args: Any) -> Callable[[], Callable[[], Any]]:
    profiler = on()
    for i in range(20):
        profiler.record("train" if i % 2 else "val", f"node {i}", 1.5 + i)
    return lambda: functools.partial(getattr(profiler, method), *args)


def with_groups() -> Callable[[], Any]:
    profiler = on()
    for i in range(20):
        profiler.record("train", "node", 1.5 + i)
    return functools.partial(profiler.snapshot()._groups, (300, 1000, 1500))


def entered(make: Callable[[], Any], node: Callable[[], Any]) -> Callable[[], Round]:
    """A context manager that is entered and left by hand: one may fail, and then the other must not have to happen."""

    def make_round() -> Round:
        manager = make()

        def operate() -> str:
            with manager:
                return "ran"

        def check(outcome: Any) -> None:
            assert outcome in ("ran", MEMORY_ERROR), outcome
            node()

        return Round(operate, check)

    return make_round


def generators(profiler: cp.Profiler) -> Round:
    @profiler.profile_node(name="generator")
    def count() -> Generator[int, None, None]:
        yield 1
        yield 2

    running = count()

    def operate() -> int:
        return next(running) + next(running) + next(running, 3)

    def check(outcome: Any) -> None:
        assert outcome in (6, MEMORY_ERROR), outcome
        running.close()
        assert finished(profiler) <= 1

    return Round(operate, check)


def coroutines(profiler: cp.Profiler) -> Round:
    @types.coroutine
    def pause() -> Iterator[None]:
        yield

    paused = pause()

    @profiler.profile_node(name="coroutine")
    async def wait() -> str:
        await paused
        return "waited"

    running = wait()

    def operate() -> str:
        running.send(None)
        try:
            running.send(None)
        except StopIteration as stop:
            return str(stop.value)
        return "did not stop"

    def check(outcome: Any) -> None:
        assert outcome in ("waited", MEMORY_ERROR), outcome
        running.close()
        assert finished(profiler) <= 1

    return Round(operate, check)


def async_generators() -> Round:
    profiler = on()

    @profiler.profile_node(name="async generator")
    async def count() -> Any:
        yield 1

    step = count().__anext__()

    def operate() -> Any:
        try:
            step.send(None)
        except StopIteration as stop:
            return stop.value
        return "did not stop"

    def check(outcome: Any) -> None:
        assert outcome in (1, MEMORY_ERROR), outcome
        step.close()

    return Round(operate, check)


def decorations() -> Round:
    profiler = on()

    def check(outcome: Any) -> None:
        if outcome != MEMORY_ERROR:
            assert outcome(()) == 0
            assert finished(profiler) == 1

    return Round(functools.partial(cp.profile_node, len, profiler=profiler), check)


class Filter:
    """Somebody else's class."""

    def apply(self) -> int:
        return 42


def instrumentations() -> Round:
    profiler = on()
    target = Filter()

    def check(outcome: Any) -> None:
        assert target.apply() == 42
        if outcome == MEMORY_ERROR:
            assert vars(target) == {}, "half instrumented"
        else:
            outcome.remove()
            assert finished(profiler) == 1
        assert vars(target) == {}

    return Round(functools.partial(profiler.instrument, target, "apply"), check)


def pipeline_profilers() -> Round:
    pipeline = Pipeline()

    def check(outcome: Any) -> None:
        assert outcome == MEMORY_ERROR or outcome is pipeline.profiler, outcome
        pipeline.set_profiling(True)
        assert pipeline.profiling_enabled

    return Round(functools.partial(getattr, pipeline, "profiler"), check)


# --- recordings: no outcome changes; what the recording lacks is counted, as dropped or as a fault ---

CAPACITY = 1000
IN_DETAIL = (lambda arguments: ("[[1]]", '["float"]', "file.py(1): caller"), True, lambda: (1, 2))
AS_THE_PACKAGE = (call_details.describer(shapes=True, stack=True), True, None)
COUNTERS = 6  # from this kind on, rows are no spans
LABEL = "\udc80"  # its UTF-8 is made anew each time


class Array:
    """What has a shape and a type."""

    shape = (2, 3)
    dtype = "float32"


def recorder(describer: Any = None, memory: bool = False, device_memory: Any = None) -> _core.Recorder:
    return _core.Recorder(CAPACITY, False, describer, memory, device_memory, True)


def end(running: _core.Recorder) -> _core.Recording:
    recording = running.finish(_core.Recording)
    recording._finish()
    return recording


def spans_of(recording: _core.Recording) -> int:
    return sum(kind != COUNTERS for kind in recording.column("kind") or ())


def recorded(make: Callable[[cp.Profiler], Round], *questions: Any) -> Callable[[], Round]:
    """A round while a recording runs, in which it leaves one span, or a count of what is missing."""

    def make_recorded() -> Round:
        profiler = on()
        running = recorder(*questions)
        round_ = make(profiler)
        faults = profiler.get_profiling_summary().internal_errors

        def check(outcome: Any) -> None:
            round_.check(outcome)
            recording = end(running)
            spans = spans_of(recording)
            assert spans <= 1, spans
            if outcome != MEMORY_ERROR:
                faults_since = profiler.get_profiling_summary().internal_errors - faults
                assert spans + recording.dropped + faults_since >= 1, "neither recorded nor counted as missing"

        return Round(round_.operate, check)

    return make_recorded


def recorded_call(wrap: Callable[[cp.Profiler], Callable[[], Any]], *questions: Any) -> Callable[[], Round]:
    return recorded(lambda profiler: Round(wrap(profiler)), *questions)


def labels(profiler: cp.Profiler) -> Callable[[], Any]:
    return functools.partial(run_in, cp.record(LABEL))


def labelled(profiler: cp.Profiler) -> Callable[[], Any]:
    return functools.partial(cp.record(LABEL)(len), ())


def not_recorded(wrap: Callable[[cp.Profiler], Callable[[], Any]]) -> Callable[[], Round]:
    return lambda: Round(wrap(cp.Profiler()))


WITH_ARRAY = bare(callable, Array())
# How each is tried, and the bare function.
RECORDED: dict[str, tuple[Callable[[], Round], Callable[[], Round]]] = {
    "label": (not_recorded(labels), locked),
    "labelled function": (not_recorded(labelled), LENGTH),
    "recorded label": (recorded_call(labels), locked),
    "recorded label in detail": (recorded_call(labels, *IN_DETAIL), locked),
    "recorded labelled function": (recorded_call(labelled), LENGTH),
    "recorded node": (recorded_call(LENGTH_NODE), LENGTH),
    "recorded raising node": (recorded_call(RAISING_NODE, *IN_DETAIL), RAISES),
    "recorded node in detail": (recorded_call(bound(callable, Array(), name="node"), *IN_DETAIL), WITH_ARRAY),
}
RECORDED_IN_PYTHON: dict[str, tuple[Callable[[], Round], Callable[[], Round]]] = {
    "recorded node with shapes and stack": (
        recorded_call(bound(callable, Array(), name="node"), *AS_THE_PACKAGE),
        WITH_ARRAY,
    ),
}


def test_recorded(name: str, is_lasting: bool) -> None:
    make, bare_round = RECORDED[name]
    assert_as_bare(sweep(make, is_lasting), sweep(bare_round, is_lasting), is_lasting)


def starts() -> Round:
    def check(outcome: Any) -> None:
        if outcome != MEMORY_ERROR:
            end(outcome)
        end(recorder())

    return Round(functools.partial(_core.Recorder, CAPACITY, False, *IN_DETAIL, True), check)


def finishes() -> Round:
    running = recorder()
    with cp.record("label"):
        pass

    def check(outcome: Any) -> None:
        nonlocal running
        if outcome != MEMORY_ERROR:
            outcome._finish()
            assert spans_of(outcome) + outcome.dropped == 1
        del running  # which ends it, if it goes on
        end(recorder())

    return Round(functools.partial(running.finish, _core.Recording), check)


def steps() -> Round:
    running = recorder()
    running.step("first")

    def check(outcome: Any) -> None:
        assert outcome in (None, MEMORY_ERROR), outcome
        assert spans_of(end(running)) == (2 if outcome is None else 1)

    return Round(functools.partial(running.step, LABEL), check)


def pauses() -> Round:
    running = recorder()

    def operate() -> None:
        running.pause()
        running.resume()

    def check(outcome: Any) -> None:
        assert outcome in (None, MEMORY_ERROR), outcome
        running.resume()
        with cp.record("label"):
            pass
        assert spans_of(end(running)) == 1

    return Round(operate, check)


def a_recording() -> cp.Recording:
    running = recorder(*IN_DETAIL)
    for _ in range(3):
        with cp.record("label"):
            cp.profile_node(len, name="node")(())
    recording = running.finish(cp.Recording)
    recording._finish()
    return recording


RECORDING = a_recording()
IN_MEMORY = "/dev/shm"
FOLDER = tempfile.TemporaryDirectory(dir=IN_MEMORY if Path(IN_MEMORY).is_dir() else None)
TRACE = f"{FOLDER.name}/trace.json"
RECORDING.export_chrome_trace(TRACE)


def trace_of(recording: _core.Recording) -> bytes:
    written = io.BytesIO()
    recording.write_chrome(written.write)
    return written.getvalue()


WRITTEN = trace_of(RECORDING)


ROWS: list[dict[str, Any]] = [
    {
        "name": f"{LABEL}{i}", "kind": 3, "start_ns": i, "end_ns": i + 10, "pid": 1, "tid": 2, "cat": "c", "span": i,
        "bytes": i, "args": '{"a": 1}',
    }
    for i in range(20)
]  # fmt: skip


def build() -> _core.Recording:
    recording = _core.Recording.empty()
    for row in ROWS:
        recording._add(**row)
    recording._set_fact(LABEL, "1")
    recording._name_process(1, f"{LABEL} process", "x", 1)
    recording._name_thread(1, 2, f"{LABEL} thread", 1)
    recording._finish()
    return recording


BUILT = build()
SPANS = array("i", [0] * len(ROWS))


def attribute(name: str) -> Callable[[], Callable[[], Any]]:
    """Ask a new recording for an attribute."""
    return lambda: functools.partial(getattr, build(), name)


def writes() -> Round:
    written = io.BytesIO()

    def check(outcome: Any) -> None:
        assert outcome in (None, MEMORY_ERROR), outcome
        assert outcome is not None or written.getvalue() == WRITTEN

    return Round(functools.partial(RECORDING.write_chrome, written.write), check)


def reads() -> Round:
    recording = _core.Recording.empty()

    def check(outcome: Any) -> None:
        if outcome != MEMORY_ERROR:
            recording._finish()
            assert spans_of(recording) == spans_of(RECORDING)

    return Round(functools.partial(recording._load, io.BytesIO(WRITTEN).read, 0), check)


def has_failed(outcome: Any) -> bool:
    """Whether this is MemoryError, or what Python itself makes of one in some places: in paths, files, ``get()``."""
    words = ("can't allocate", "without exception set", "not PosixPath")
    return outcome == MEMORY_ERROR or (isinstance(outcome, Exception) and any(each in str(outcome) for each in words))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def exports() -> Round:
    exported = Path(FOLDER.name, "exported.json")
    before = open_files()

    def check(outcome: Any) -> None:
        gc.collect()
        assert outcome is None or has_failed(outcome), outcome
        assert outcome is not None or exported.exists()
        assert not exported.exists() or exported.read_bytes() == WRITTEN
        for left in Path(FOLDER.name).iterdir():
            assert left.name in ("trace.json", "exported.json"), "a file without its name is left"
        assert open_files() == before
        exported.unlink(missing_ok=True)

    return Round(functools.partial(RECORDING.export_chrome_trace, str(exported)), check)


def loads() -> Round:
    before = open_files()

    def check(outcome: Any) -> None:
        gc.collect()
        assert has_failed(outcome) or spans_of(outcome) == spans_of(RECORDING), outcome
        assert open_files() == before

    return Round(functools.partial(cp.load_trace, TRACE), check)


def assert_free() -> None:
    """Assert that a recording can be started, and has what happens in it."""
    with cp.profile(operators=False) as prof, cp.record("label"):
        pass
    assert [event.name for event in prof.events()] == ["label"]


def profiles() -> Round:
    prof = cp.profile(operators=False)

    def operate() -> int:
        prof.start()
        with cp.record("label"):
            pass
        prof.stop()
        return len(prof.recording)

    def check(outcome: Any) -> None:
        assert outcome in (0, 1) or has_failed(outcome), outcome
        with contextlib.suppress(RuntimeError):  # it has stopped
            prof.stop()
        assert_free()

    return Round(operate, check)


def schedules() -> Round:
    prof = cp.profile(operators=False, schedule=cp.schedule(wait=0, warmup=0, active=2, repeat=1))
    prof.start()

    def check(outcome: Any) -> None:
        assert outcome is None or has_failed(outcome), outcome
        while prof.current_action is not cp.ProfilerAction.NONE:
            prof.step()
        prof.stop()
        assert {"ProfilerStep#0"} <= {event.name for event in prof.events()} <= {"ProfilerStep#0", "ProfilerStep#1"}
        assert_free()

    return Round(prof.step, check)


def profile_pauses() -> Round:
    prof = cp.profile(operators=False)
    prof.start()

    def operate() -> None:
        prof.pause()
        prof.resume()

    def check(outcome: Any) -> None:
        assert outcome is None or has_failed(outcome), outcome
        with contextlib.suppress(RuntimeError):  # it is not paused
            prof.resume()
        with cp.record("label"):
            pass
        prof.stop()
        assert [event.name for event in prof.events()] == ["label"]

    return Round(operate, check)


NODE_IN_FORCE = cp.profile_node(len, name="node in force")

OPERATIONS: dict[str, Callable[[], Round]] = {
    "record": records,
    "set_profiling": switches,
    "set_profiling with everything": switches_everything_on,
    "reset_profiling": resets,
    "profiling_enabled": gives(bool, with_rows("__getattribute__", "profiling_enabled")),
    "Profiler": gives(cp.Profiler, lambda: cp.Profiler),
    "summary": gives(list, with_rows("get_profiling_summary")),
    "summary of a stage": gives(list, with_rows("get_profiling_summary", "train")),
    "reduce": gives(tuple, with_rows("__reduce__")),
    "repr": gives(str, with_rows("__repr__")),
    "groups": gives(list, with_groups),
    "stage": gives(cp.stage, lambda: functools.partial(cp.stage, "train")),
    "default stage": gives(cp.stage, lambda: functools.partial(cp.stage, "train", default=True)),
    "in a stage": entered(lambda: cp.stage("train"), lambda: NODE_IN_FORCE(())),
    "in a default stage": entered(lambda: cp.stage("train", default=True), lambda: NODE_IN_FORCE(())),
    "in a bound profiler": entered(on, lambda: NODE_IN_FORCE(())),
    "site": gives(object, lambda: functools.partial(cp.profile_node, "block")),
    "perf_status": gives(list, lambda: _core.perf_status),
    "decoration": decorations,
    "instrument": instrumentations,
    "pipeline's profiler": pipeline_profilers,
    "generator": lambda: generators(on()),
    "coroutine": lambda: coroutines(on()),
    "async generator": async_generators,
    "asked generator": lambda: generators(on(**EVERYTHING)),
    "asked coroutine": lambda: coroutines(on(**EVERYTHING)),
    "recorded generator": recorded(generators),
    "recorded generator in detail": recorded(generators, *IN_DETAIL),
    "recorded coroutine": recorded(coroutines),
    "recorded coroutine in detail": recorded(coroutines, *IN_DETAIL),
    "record()": gives(cp.record, lambda: functools.partial(cp.record, LABEL)),
    "Recorder": starts,
    "finish": finishes,
    "step": steps,
    "pause": pauses,
    "write_chrome": writes,
    "_load": reads,
    "_load of a cut trace": gives(
        cp.FormatError, lambda: functools.partial(_core.Recording.empty()._load, io.BytesIO(WRITTEN[:100]).read, 0)
    ),
    "_add": gives(_core.Recording, lambda: build),
    "_add of what is refused": gives(
        TypeError, lambda: functools.partial(_core.Recording.empty()._add, **{**ROWS[0], "stage": 5})
    ),
    "column": gives(memoryview, lambda: functools.partial(BUILT.column, "bytes")),
    "column names": gives(tuple, attribute("column_names")),
    "strings": gives(list, attribute("strings")),
    "tracks": gives(list, attribute("tracks")),
    "facts": gives(dict, attribute("facts")),
    "args": gives(str, lambda: functools.partial(BUILT.args, 3)),
    "Arrow": gives(object, lambda: functools.partial(BUILT._arrow_stream, spans=SPANS)),
}
# What is written in Python. There, Python itself leaks references when allocations fail; 3.10 ends some frames without
# an exception, and versions after 3.11 crash when they cannot have a generator's frame.
IN_PYTHON: dict[str, Callable[[], Round]] = {
    "summary of figures": gives(list, with_figures),
    "table": gives(str, with_rows("format_profiling_summary")),
    "html": gives(str, with_rows("_repr_html_")),
    "profile": profiles,
    "profile's step": schedules,
    "profile's pause": profile_pauses,
    "events": gives(list, lambda: RECORDING.events),
    "export": exports,
    "load_trace": loads,
}
if sys.version_info < (3, 13):  # which crashes when the dictionary of a type cannot grow
    OPERATIONS["module"] = gives(int, lambda: functools.partial(_imp.exec_dynamic, _imp.create_dynamic(_core.__spec__)))
if sys.version_info[:2] == (3, 11):
    OPERATIONS.update(IN_PYTHON)
    RECORDED.update(RECORDED_IN_PYTHON)


# PyContextVar_Set() crashes when two of its allocations fail.
NO_CONTEXT = ("in a stage", "in a default stage", "in a bound profiler")


def test_operation(name: str, is_lasting: bool) -> None:
    outcomes = sweep(OPERATIONS[name], is_lasting)
    assert MEMORY_ERROR not in outcomes[-ENOUGH:]


def blocks_after(run: Callable[[str, bool], None], name: str) -> int:
    run(name, False)
    gc.collect()
    (getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache)()  # they hold on to names of attributes
    return sys.getallocatedblocks()


def growth_in(run: Callable[[str, bool], None], name: str) -> int:
    before = blocks_after(run, name)
    return blocks_after(run, name) - before


def try_operation(name: str) -> None:
    run = test_node if name in NODES else test_recorded if name in RECORDED else test_operation
    in_python = name in IN_PYTHON or name in RECORDED_IN_PYTHON
    if in_python:
        sys.unraisablehook = lambda unraisable: None  # for generators that are closed without memory
    if sys.version_info[:2] == (3, 11) and not in_python and name not in NO_CONTEXT:
        run(name, True)
    run(name, False)  # caches fill
    if in_python:
        return
    growth = [growth_in(run, name)]
    while growth[-1] >= ENOUGH / 2:  # a cache that fills once is forgiven, a leak comes again
        assert len(growth) < TRIES, f"{name}: {growth} blocks are left behind"
        growth.append(growth_in(run, name))


def main(names: list[str]) -> None:
    number, _, parts = names[0].partition("/")
    if parts:
        names = [*NODES, *RECORDED, *OPERATIONS][int(number) - 1 :: int(parts)]
    sys.setswitchinterval(1000)
    cp.set_profiling(True)
    for name in names:
        print(f"{name}...", end=" ", flush=True)
        try_operation(name)
        control.set_up_core()
        sys.unraisablehook = sys.__unraisablehook__
    print(f"{tried} allocations failed, done")


if __name__ == "__main__":
    main(sys.argv[1:])
