"""Runs one operation again and again, with the first, the second, the third ... allocation of Python failing (G7).

    python no_memory.py OPERATION     (or `list`, which prints the names of all operations)

Each operation must give its result, or MemoryError with everything as it was; a node must give what the bare function
gives, however little memory the profiler gets. All is done three times: what the failures leave behind must not grow.
"""

from __future__ import annotations

import _testcapi  # type: ignore[import-not-found]
import _thread
import contextvars
import functools
import gc
import operator
import sys
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import cprofiling as cp

ENOUGH = 40  # allocations beyond the last that made a difference
MEMORY_ERROR = "MemoryError"
PLANNED = ValueError("planned")


class Round(NamedTuple):
    """What one attempt does. ``check`` gets the outcome, and asserts what must hold after it."""

    operate: Callable[[], Any]
    check: Callable[[Any], None]


def outcome_without(nth: int, operate: Callable[[], Any]) -> Any:
    """Run an operation while allocation number ``nth`` fails; return its result, MEMORY_ERROR, or another error."""
    PLANNED.__traceback__ = None
    _testcapi.set_nomemory(nth, nth + 1)
    try:
        return operate()
    except MemoryError:
        return MEMORY_ERROR
    except BaseException as error:
        return error
    finally:
        _testcapi.remove_mem_hooks()


def run_in_new_thread(target: Callable[[], Any]) -> Any:
    """Run in a thread of its own, which the profiler has never seen; return the result.

    The failures would hit this thread, too: it sleeps in C before the other begins, as nobody asks it to give way.
    """
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
    assert results, "see the traceback above"
    return results[0]


def sweep(make: Callable[[], Round]) -> list[Any]:
    """Let every allocation of an operation fail in turn; return all outcomes."""
    outcomes: list[Any] = []
    while MEMORY_ERROR in map(str, outcomes[-ENOUGH:]) or len(outcomes) < ENOUGH:
        round_ = make()
        outcome = run_in_new_thread(functools.partial(outcome_without, len(outcomes), round_.operate))
        round_.check(outcome)
        outcomes.append(outcome)
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


# How the node is made of a Profiler, and how the bare function is made.
NODES: dict[str, tuple[Callable[[cp.Profiler], Callable[[], Any]], Callable[[], Callable[[], Any]]]] = {
    "node": (bound(len, (), name="node"), lambda: functools.partial(len, ())),
    "node in a stage": (bound(len, (), name="node", stage="train"), lambda: functools.partial(len, ())),
    "raising node": (bound(raises, name="node"), lambda: raises),
    "named node": (bound(id, Named, name=NAME), lambda: functools.partial(id, Named)),
    "named instance": (bound(callable, Named(), name=NAME), lambda: functools.partial(callable, Named())),
    "block": (blocks, lambda: functools.partial(run_in, _thread.allocate_lock())),
    "node of a pipeline": (pipelines(callable), lambda: functools.partial(callable, Pipeline())),
}


def test_node(name: str) -> None:
    wrap, bare = NODES[name]
    assert_as_bare(sweep(node_round(wrap)), sweep(lambda: Round(bare(), lambda outcome: None)))


def kind_of(outcome: Any) -> object:
    return outcome if isinstance(outcome, str) else type(outcome)


def assert_as_bare(actual: list[Any], expected: list[Any]) -> None:
    """Assert that no failure reached the caller but those that the bare function meets."""
    result = expected[-1]
    assert actual[-1] is result or actual[-1] == result
    failures = [outcome for outcome in actual if outcome is not result and outcome != result]
    assert set(map(kind_of, failures)) <= set(map(kind_of, expected)), (failures, expected)
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


def generators() -> Round:
    profiler = on()

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


def coroutines() -> Round:
    profiler = on()

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


NODE_IN_FORCE = cp.profile_node(len, name="node in force")

OPERATIONS: dict[str, Callable[[], Round]] = {
    "record": records,
    "set_profiling": switches,
    "reset_profiling": resets,
    "profiling_enabled": gives(bool, with_rows("__getattribute__", "profiling_enabled")),
    "Profiler": gives(cp.Profiler, lambda: cp.Profiler),
    "summary": gives(list, with_rows("get_profiling_summary")),
    "summary of a stage": gives(list, with_rows("get_profiling_summary", "train")),
    "reduce": gives(tuple, with_rows("__reduce__")),
    "repr": gives(str, with_rows("__repr__")),
    "stage": gives(cp.stage, lambda: functools.partial(cp.stage, "train")),
    "default stage": gives(cp.stage, lambda: functools.partial(cp.stage, "train", default=True)),
    "in a stage": entered(lambda: cp.stage("train"), lambda: NODE_IN_FORCE(())),
    "in a default stage": entered(lambda: cp.stage("train", default=True), lambda: NODE_IN_FORCE(())),
    "in a bound profiler": entered(on, lambda: NODE_IN_FORCE(())),
    "site": gives(object, lambda: functools.partial(cp.profile_node, "block")),
    "decoration": decorations,
    "instrument": instrumentations,
    "pipeline's profiler": pipeline_profilers,
    "generator": generators,
    "coroutine": coroutines,
    "async generator": async_generators,
}
# What is written in Python. There, Python itself leaks references when allocations fail; 3.10 ends some frames without
# an exception, and versions after 3.11 crash when they cannot have a generator's frame.
IN_PYTHON: dict[str, Callable[[], Round]] = {
    "table": gives(str, with_rows("format_profiling_summary")),
    "html": gives(str, with_rows("_repr_html_")),
}
if sys.version_info[:2] == (3, 11):
    OPERATIONS.update(IN_PYTHON)


def test_operation(name: str) -> None:
    outcomes = sweep(OPERATIONS[name])
    assert MEMORY_ERROR not in outcomes[-ENOUGH:]


def blocks_after(run: Callable[[str], None], name: str) -> int:
    run(name)
    gc.collect()
    sys._clear_type_cache()  # it holds on to the names of attributes
    return sys.getallocatedblocks()


def main(name: str) -> None:
    if name == "list":
        print("\n".join([*NODES, *OPERATIONS]))
        return
    sys.setswitchinterval(1000)
    cp.set_profiling(True)
    run = test_node if name in NODES else test_operation
    run(name)  # caches fill
    if name in IN_PYTHON:
        return
    before = blocks_after(run, name)
    after = blocks_after(run, name)
    assert after - before < ENOUGH / 2, f"{after - before} blocks are left behind"


if __name__ == "__main__":
    main(sys.argv[1])
