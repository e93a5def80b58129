"""Generators and asynchronous generators as nodes (failure scenarios A5, A9, A11)."""

from __future__ import annotations

import asyncio
import collections.abc
import concurrent.futures
import contextlib
import copy
import gc
import inspect
import pickle
import sys
import textwrap
import time
import types
import warnings
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any

import pytest

import cprofiling as cp
from calls import (
    NEVER,
    SLEPT_MS,
    TICK,
    Stopwatch,
    by_name,
    counts,
    outcomes,
    profiler_on,
    run_python,
    spin,
    spin_meanwhile,
)

pytestmark = pytest.mark.native

# ---- generators ----------------------------------------------------------------------------------


def _three() -> Iterator[int]:
    yield from range(3)


def _slow() -> Iterator[int]:
    for i in range(3):
        time.sleep(TICK)
        yield i


async def _ticks(number: int = 3) -> AsyncGenerator[int, Any]:
    for i in range(number):
        await asyncio.sleep(TICK)
        yield i


async def _step(iterator: Any) -> Any:
    """The next item of either kind of generator, or None."""
    return await anext(iterator, None) if isinstance(iterator, AsyncIterator) else next(iterator, None)


@pytest.mark.parametrize("function", [_slow, _ticks])
def test_the_consumers_time_is_not_the_generators(p: cp.Profiler, function: Any) -> None:
    """A5."""
    watch = Stopwatch()

    async def main() -> None:
        iterator = p.profile_node("node")(function)()
        spinning = asyncio.create_task(spin_meanwhile())
        await asyncio.sleep(3 * TICK)
        for i in range(3):
            with watch:
                assert await _step(iterator) == i
            await asyncio.sleep(3 * TICK)
        assert by_name(p) == {}
        with watch:
            assert await _step(iterator) is None
        spinning.cancel()

    asyncio.run(main())
    stats = by_name(p)["node"]
    assert stats.count == 1
    assert 0.95e3 * 3 * TICK <= stats.total_ms <= watch.limit_ms
    if function is _ticks:
        assert stats.active_total_ms is not None
        assert stats.active_total_ms <= stats.total_ms - 0.95e3 * 3 * TICK


@pytest.mark.parametrize("end", ["exhausted", "closed", "collected", "thrown"])
@pytest.mark.parametrize("is_begun", [True, False])
@pytest.mark.parametrize("function", [_three, _ticks])
def test_one_sample_per_iteration_however_it_ends(p: cp.Profiler, function: Any, is_begun: bool, end: str) -> None:
    """None of what was closed, collected or thrown into before it began."""

    async def main() -> None:
        iterator = p.profile_node("node")(function)()
        prefix = "a" if function is _ticks else ""
        steps = [await _step(iterator) for _ in range((5 if end == "exhausted" else 0) + is_begun)]
        assert steps == [0, 1, 2, None, None, None][: len(steps)]
        if end == "closed":
            for _ in range(2):
                closing = getattr(iterator, prefix + "close")()
                assert function is _three or await closing is None
            assert await _step(iterator) is None
        elif end == "thrown":
            with pytest.raises(KeyError):
                await getattr(iterator, prefix + "throw")(KeyError("text"))
        del iterator
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(main())
    if not is_begun and end != "exhausted":
        assert by_name(p) == {}
    else:
        assert outcomes(p, "node") == ((0, 1, 0, 0, 0) if end == "thrown" else (1, 0, 0, 0, 0))


def test_a_generator_behaves_as_the_original(p: cp.Profiler) -> None:
    def original() -> Generator[Any, Any, str]:
        """Document original."""
        received: list[Any] = []
        while len(received) < 3:
            try:
                received.append((yield len(received)))
            except KeyError as error:
                received.append(error.args)
        return str(received)

    results = []
    for function in (original, p.profile_node(original)):
        iterator: Any = function()
        assert issubclass(type(iterator), Generator)
        assert iter(iterator) is iterator
        steps = [
            inspect.getgeneratorstate(iterator),
            next(iterator),
            iterator.send("sent"),
            iterator.throw(KeyError("in")),
        ]
        steps += [inspect.getgeneratorstate(iterator), iterator.gi_code, iterator.__name__, iterator.__qualname__]
        with pytest.raises(StopIteration) as stop:
            iterator.send(None)
        results.append([*steps, stop.value.value, inspect.getgeneratorstate(iterator)])
    assert results[0] == results[1]
    assert outcomes(p, "original") == (1, 0, 0, 0, 0)


@pytest.mark.parametrize("is_on", [True, False])
def test_closing_gives_what_closing_gives(p: cp.Profiler, is_on: bool) -> None:
    """Since 3.13 it is the value that the generator returns."""
    p.set_profiling(is_on)

    def original() -> Generator[int, None, str]:
        try:
            yield 1
        except GeneratorExit:
            return "returned"
        return "end"

    results = []
    for function in (original, p.profile_node(original)):
        iterator: Any = function()
        next(iterator)
        results.append(iterator.close())
    assert results[0] == results[1]


def test_a_generator_that_does_not_close_as_it_should(p: cp.Profiler) -> None:
    @p.profile_node
    def stays() -> Iterator[int]:
        try:
            yield 1
        except GeneratorExit:
            yield 2

    @p.profile_node
    def fails() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise KeyError("cleanup")

    iterators: list[Any] = [stays(), fails()]
    for iterator, error in zip(iterators, (RuntimeError, KeyError), strict=True):
        next(iterator)
        with pytest.raises(error, match=r"ignored GeneratorExit|cleanup"):
            iterator.close()
        assert list(iterator) == []
    assert sum(outcomes(p, "stays")) == 1
    assert outcomes(p, "fails") == (0, 1, 0, 0, 0)


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_what_resumes_itself_goes_on(p: cp.Profiler, kind: str) -> None:
    """A refused resumption is no end, nor a second one."""

    @types.coroutine
    def generator() -> Generator[None, None, int]:
        with pytest.raises(ValueError, match="already executing"):
            made.send(None)
        yield
        return 5

    async def coroutine() -> int:
        return await generator()

    function: Any = p.profile_node("node")(generator if kind == "generator" else coroutine)
    made = function()
    made.send(None)
    with pytest.raises(StopIteration) as stop:
        made.send(None)
    assert stop.value.value == 5
    for _ in range(2):
        with pytest.raises(StopIteration if kind == "generator" else RuntimeError):
            made.send(None)
    assert outcomes(p, "node") == (1, 0, 0, 0, 0)


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_stage_and_switch_are_those_of_the_first_resumption(p: cp.Profiler, kind: str) -> None:
    """And a call that is suspended over a reset is dropped."""
    function: Any = p.profile_node("node")(_three if kind == "generator" else _coroutine)

    def finish(running: Any) -> None:
        with contextlib.suppress(StopIteration):
            while True:
                running.send(None)

    with cp.stage("train"):
        over_reset, over_switch, begun_on, begun_off = function(), function(), function(), function()
    over_reset.send(None)
    p.reset_profiling()
    with cp.stage("val"):
        over_switch.send(None)
    p.set_profiling(False)
    made_off = function()
    for running in (over_reset, over_switch, begun_off):
        finish(running)
    p.set_profiling(True)
    finish(begun_on)
    finish(made_off)
    begun, dropped = sorted(p.get_profiling_summary(), key=lambda stats: stats.dropped_count)
    assert (dropped.stage, dropped.count, dropped.dropped_count) == ("inference", 1, 1)
    assert (begun.stage, begun.count, begun.dropped_count) == ("val", 1, 0)


def test_a_generators_time_is_its_consumers_childs_time(p: cp.Profiler) -> None:
    @p.profile_node
    def produce() -> Iterator[int]:
        for i in range(3):
            with p.profile_node("inside"):
                time.sleep(TICK)
            yield i

    @p.profile_node
    def consume() -> None:
        for _ in produce():
            spin(1e-4)
            with p.profile_node("beside"):
                spin(1e-4)

    consume()
    stats = by_name(p)
    assert {name: stats[name].count for name in stats} == {"inside": 3, "beside": 3, "produce": 1, "consume": 1}
    assert stats["produce"].self_total_ms == pytest.approx(
        stats["produce"].total_ms - stats["inside"].total_ms, abs=1e-5
    )
    children = stats["produce"].total_ms + stats["beside"].total_ms
    assert stats["consume"].self_total_ms == pytest.approx(stats["consume"].total_ms - children, abs=1e-5)


def test_what_the_consumer_calls_is_not_the_generators_child_nor_its_profilers(p: cp.Profiler) -> None:
    other = profiler_on()
    unbound = cp.profile_node("unbound")(int.__add__)

    @p.profile_node
    def produce() -> Iterator[int]:
        unbound(1, 1)
        yield 1
        unbound(1, 1)

    with other:
        for _ in produce():
            unbound(1, 1)
    assert counts(p) == {"unbound": 2, "produce": 1}
    assert counts(other) == {"unbound": 1}


def test_generators_advanced_in_turn(p: cp.Profiler) -> None:
    @p.profile_node("node")
    def node(seconds: float) -> Iterator[int]:
        for i in range(3):
            time.sleep(seconds)
            yield i

    assert list(zip(node(TICK), node(2 * TICK), strict=False)) == [(0, 0), (1, 1), (2, 2)]
    gc.collect()
    stats = by_name(p)["node"]
    assert stats.count == 2
    assert stats.min_ms >= 0.95e3 * 3 * TICK
    assert stats.max_ms >= 0.95e3 * 6 * TICK
    assert stats.self_total_ms == stats.total_ms


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_what_different_threads_resume(p: cp.Profiler, kind: str) -> None:
    @types.coroutine
    def generator() -> Generator[None, None, None]:
        for _ in range(4):
            with p.profile_node("block"):
                spin(1e-4)
            yield

    async def coroutine() -> None:
        await generator()

    function: Any = p.profile_node("node")(generator if kind == "generator" else coroutine)
    made = function()
    with contextlib.suppress(StopIteration):
        while True:
            with concurrent.futures.ThreadPoolExecutor(1) as executor:
                executor.submit(made.send, None).result(NEVER)
    stats = by_name(p)
    assert (stats["node"].count, stats["block"].count) == (1, 4)
    assert stats["node"].self_total_ms is None or (
        stats["node"].self_total_ms <= stats["node"].total_ms - stats["block"].total_ms + 1e-5
    )


@types.coroutine
def _iterable_coroutine() -> Generator[None, None, int]:
    yield
    return 5


async def _coroutine() -> int:
    return await _iterable_coroutine()


KINDS = {
    "generator": _three,
    "coroutine": _coroutine,
    "iterable coroutine": _iterable_coroutine,
    "asynchronous generator": _ticks,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 2])
def test_what_functions_return_passes_for_the_real_thing(p: cp.Profiler, kind: str, times: int) -> None:
    function: Any = KINDS[kind]
    node = function
    for _ in range(times):
        node = p.profile_node(node)
    original, profiled = function(), node()
    assert type(original) is not type(profiled)
    for question in (
        inspect.isgenerator,
        inspect.iscoroutine,
        inspect.isasyncgen,
        inspect.isawaitable,
        asyncio.iscoroutine,
    ):
        assert question(profiled) == question(original), question
    kinds = [getattr(collections.abc, name) for name in collections.abc.__all__ if name != "ByteString"]  # deprecated
    for kind_ in (*kinds, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType):
        assert isinstance(profiled, kind_) == isinstance(original, kind_), kind_
    assert dir(profiled) == dir(original)
    for name in dir(original):
        assert hasattr(profiled, name), name
        assert callable(getattr(profiled, name)) == callable(getattr(original, name)), name
    for name in ("__iter__", "__next__", "__await__", "__aiter__", "send", "asend"):
        assert hasattr(profiled, name) == hasattr(original, name), name

    def outcome(of: Any, question: Any) -> Any:
        try:
            return question(of)
        except (AttributeError, TypeError) as error:
            return type(error)

    questions: list[Any] = [
        lambda of: [of.__setattr__("__name__", "name"), of.__name__],
        lambda of: [of.__setattr__("__qualname__", "a.name"), of.__qualname__],
        lambda of: setattr(of, "gi_frame", None),
        lambda of: setattr(of, "new", 1),
        lambda of: delattr(of, "__name__"),
        lambda of: setattr(of, "__class__", int),
        lambda of: of.gi_code.co_name,
        lambda of: of.cr_origin,
        lambda of: of.ag_await,
        lambda of: dict(inspect.getgeneratorlocals(of)),  # a proxy from CPython 3.13 on
        lambda of: dict(inspect.getcoroutinelocals(of)),
        lambda of: iter(of) is of,
        lambda of: [type(one) for one in zip(of, strict=False)],
        pickle.dumps,
        copy.copy,
    ]
    for question in questions:
        assert outcome(profiled, question) == outcome(original, question), question
    assert "name" in repr(profiled)
    for one in (original, profiled):
        getattr(one, "close", gc.collect)()


@pytest.mark.parametrize("kind", ["generator", "coroutine", "asyncgen"])
def test_states_are_the_real_ones(p: cp.Profiler, kind: str) -> None:
    """Before, inside, between and after resumptions."""
    state = getattr(inspect, f"get{kind}state", None)
    if state is None:
        assert sys.version_info < (3, 12)
        return
    seen: list[str] = []
    made: Any = None

    def generate() -> Iterator[int]:
        seen.append(state(made))
        yield 1

    async def run() -> None:
        seen.append(state(made))
        await _iterable_coroutine()

    async def generate_asynchronously() -> AsyncIterator[int]:
        seen.append(state(made))
        yield 1

    function: Any = {"generator": generate, "coroutine": run, "asyncgen": generate_asynchronously}[kind]
    made = p.profile_node(function)()
    seen.append(state(made))
    with contextlib.suppress(StopIteration):
        (made.asend(None) if kind == "asyncgen" else made).send(None)
    seen.append(state(made))
    with contextlib.suppress(StopIteration):
        made.aclose().send(None) if kind == "asyncgen" else made.close()
    seen.append(state(made))
    assert [name.rpartition("_")[2] for name in seen] == ["CREATED", "RUNNING", "SUSPENDED", "CLOSED"]


def test_a_generator_cannot_be_awaited_and_a_coroutine_not_iterated(p: cp.Profiler) -> None:
    async def waits(awaitable: Any) -> None:
        await awaitable

    def delegates(iterable: Any) -> Iterator[Any]:
        yield from iterable

    generator, coroutine = p.profile_node(_three)(), p.profile_node(_coroutine)()
    with pytest.raises(TypeError, match="can't be used in 'await' expression"):
        waits(generator).send(None)
    uses: list[Any] = [iter, list, lambda of: next(delegates(of))]
    for use in uses:
        with pytest.raises(TypeError, match="coroutine"):
            use(coroutine)
    iterator = coroutine.__await__()
    assert isinstance(iterator, collections.abc.Iterator)
    delegating = delegates(iterator)
    assert next(delegating) is None
    with pytest.raises(StopIteration) as stop:
        iterator.send(None)
    assert stop.value.value == 5
    assert gc.is_tracked(iterator)
    for end in ("close", "throw"):
        iterator = p.profile_node(_coroutine)().__await__()
        assert next(iterator) is None
        with pytest.raises(KeyError) if end == "throw" else contextlib.nullcontext():
            getattr(iterator, end)(*([KeyError] if end == "throw" else []))
    assert outcomes(p, "_coroutine") == (1, 1, 1, 0, 0)


def test_twisted_inline_callbacks(p: cp.Profiler) -> None:
    defer: Any = pytest.importorskip("twisted.internet.defer")

    @defer.inlineCallbacks  # type: ignore[untyped-decorator, unused-ignore]
    @p.profile_node("node")
    def node(fails: bool) -> Generator[Any, Any, int]:
        value: int = yield defer.succeed(5)
        try:
            yield defer.fail(KeyError("key"))
        except KeyError:
            value += 1
        if fails:
            raise IndexError
        return value

    @p.profile_node("coroutine")
    async def awaits() -> int:
        result: int = await node(False)
        return result

    results: list[Any] = []
    for deferred in (node(False), node(True), defer.Deferred.fromCoroutine(awaits()), defer.ensureDeferred(awaits())):
        deferred.addBoth(results.append)
    assert results[::2] == [6, 6]
    assert results[1].check(IndexError)
    assert results[3] == 6
    assert outcomes(p, "node") == (3, 1, 0, 0, 0)
    assert counts(p)["coroutine"] == 2


def test_a_generator_expression_is_a_call(p: cp.Profiler) -> None:
    made = p.profile_node("node")(lambda: (i for i in range(3)))()
    assert type(made) is types.GeneratorType
    assert counts(p) == {"node": 1}


def test_an_error_of_the_first_step_is_the_originals(p: cp.Profiler) -> None:
    """Python 3.12 and later warn of athrow() with two arguments."""

    async def iterate() -> AsyncIterator[int]:
        yield 1

    def error_of(generator: Any) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                generator.athrow(ValueError, ValueError("x"))
            except BaseException as error:
                return repr(error)
            return "none"

    assert error_of(p.profile_node("node")(iterate)()) == error_of(iterate())
    with pytest.raises(TypeError, match="asend"):
        p.profile_node("node")(iterate)().asend()  # type: ignore[attr-defined]


def test_blocks_that_are_never_left_go_with_the_call_that_they_are_in(p: cp.Profiler) -> None:
    async def iterate() -> AsyncIterator[int]:
        p.profile_node("never left").__enter__()
        yield 1

    running: Any = p.profile_node("node")(iterate)()
    with pytest.raises(StopIteration):
        running.__anext__().send(None)
    references = sys.getrefcount(p)
    del running
    gc.collect()
    assert sys.getrefcount(p) < references
    assert counts(p) == {"node": 1}


def test_a_generator_in_a_cycle_is_collected_and_counted(p: cp.Profiler) -> None:
    def node() -> Iterator[Any]:
        holder: list[Any] = []
        holder.append((yield holder))
        yield holder

    iterator: Any = p.profile_node(node)()
    next(iterator)
    iterator.send(iterator)
    reference = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert reference() is None
    assert counts(p) == {"node": 1}


# ---- asynchronous generators ---------------------------------------------------------------------


def test_an_asynchronous_generator_that_is_cancelled(p: cp.Profiler) -> None:
    async def main() -> None:
        iterator: Any = p.profile_node("node")(_ticks)()
        assert await iterator.__anext__() == 0
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(iterator.__anext__(), 0.001)

    asyncio.run(main())
    assert outcomes(p, "node") == (0, 0, 1, 0, 0)


def test_an_asynchronous_generator_behaves_as_the_original(p: cp.Profiler) -> None:
    async def original() -> AsyncGenerator[Any, Any]:
        received: list[Any] = []
        while len(received) < 3:
            try:
                received.append((yield len(received)))
            except KeyError as error:
                received.append(error.args)
            await asyncio.sleep(0)
        yield received

    async def use(iterator: Any) -> list[Any]:
        assert issubclass(type(iterator), AsyncGenerator)
        assert iterator.__aiter__() is iterator
        steps = [await iterator.__anext__(), await iterator.asend("sent"), await iterator.athrow(KeyError("in"))]
        steps += [iterator.ag_code, iterator.ag_running, iterator.__name__, await iterator.asend("last")]
        with pytest.raises(StopAsyncIteration):
            await iterator.__anext__()
        return [*steps, iterator.ag_frame]

    assert asyncio.run(use(original())) == asyncio.run(use(p.profile_node(original)()))
    assert outcomes(p, "original") == (1, 0, 0, 0, 0)


def test_steps_are_awaitables_like_the_originals(p: cp.Profiler) -> None:
    async def original() -> AsyncGenerator[int, None]:
        yield 1

    for function in (original, p.profile_node(original)):
        iterator = function()
        step: Any = iterator.__anext__()
        assert issubclass(type(step), collections.abc.Awaitable)
        with pytest.raises(StopIteration) as stop:
            step.send(None)
        assert stop.value.value == 1
        with pytest.raises(RuntimeError):
            step.send(None)
        closing: Any = iterator.aclose()
        with pytest.raises(StopIteration):
            closing.send(None)
    assert counts(p) == {"original": 1}


def test_a_step_that_is_refused_takes_no_time_off_the_one_that_runs(p: cp.Profiler) -> None:
    async def slow() -> AsyncIterator[int]:
        await asyncio.sleep(3 * TICK)
        yield 1

    async def main() -> None:
        iterator: Any = p.profile_node("node")(slow)()
        first = asyncio.ensure_future(_step(iterator))
        await asyncio.sleep(TICK)
        with pytest.raises(RuntimeError, match="already running"):
            await _step(iterator)
        assert await first == 1
        assert await _step(iterator) is None

    asyncio.run(main())
    assert outcomes(p, "node") == (1, 0, 0, 0, 0)
    assert by_name(p)["node"].total_ms >= 0.95e3 * 3 * TICK


def test_an_asynchronous_generator_is_its_consumers_child(p: cp.Profiler) -> None:
    @p.profile_node
    async def consume() -> None:
        async for _ in p.profile_node("produce")(_ticks)():
            spin(1e-4)

    async def main() -> None:
        await asyncio.gather(consume(), asyncio.sleep(0), asyncio.sleep(TICK))

    asyncio.run(main())
    stats = by_name(p)
    assert stats["consume"].self_total_ms == pytest.approx(
        stats["consume"].total_ms - stats["produce"].total_ms, abs=1e-5
    )


# ---- never finished, and other shutdowns (A9) ----------------------------------------------------

UNFINISHED = """
import asyncio, cprofiling as cp, gc, logging, sys
logging.getLogger("asyncio").setLevel("ERROR")  # no warnings of callbacks that a busy machine makes slow
cp.set_profiling(True)

@cp.profile_node
async def agen():
    try:
        while True:
            await asyncio.sleep(0)
            yield 1
    finally:
        await asyncio.sleep(0)

@cp.profile_node
async def waits():
    await asyncio.sleep(3600)
"""

SCENARIOS = {
    "asyncio.run shuts the generator down": (
        """
        async def main():
            global kept
            kept = agen()
            async for _ in kept:
                break
        asyncio.run(main())
        """,
        {"agen": (1, 0, 0)},
    ),
    "forgotten in the loop": (
        """
        async def main():
            async for _ in agen():
                break
            gc.collect()
            await asyncio.sleep(0.01)
        asyncio.run(main())
        """,
        {"agen": (1, 0, 0)},
    ),
    "a task is left to asyncio.run": (
        """
        async def main():
            global task
            task = asyncio.ensure_future(waits())
            await asyncio.sleep(0)
        asyncio.run(main())
        """,
        {"waits": (0, 0, 1)},
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_never_finished_in_development_mode_is_silent(scenario: str) -> None:
    """A9: no warning, no message, no crash, and the call counted."""
    script, expected = SCENARIOS[scenario]
    report = """
print({s.node_name: (s.count, s.error_count, s.cancelled_count) for s in cp.get_profiling_summary()})
"""
    done = run_python(UNFINISHED + textwrap.dedent(script) + report, "-X", "dev", "-W", "error")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{expected}\n"


@pytest.mark.parametrize("step", ["made.__anext__()", "begin(made)"])  # where the loop does not run, and where it does
def test_a_loop_closed_over_an_unfinished_generator_is_as_silent_as_without_us(step: str) -> None:
    script = """
async def begin(made):
    await made.__anext__()

loop = asyncio.new_event_loop()
made = AGEN
loop.run_until_complete(STEP)
loop.close()
del made
gc.collect()
"""
    plain, profiled = (
        run_python(
            UNFINISHED + script.replace("AGEN", agen).replace("STEP", step), "-X", "dev", "-W", "default"
        ).stderr.replace("profiled ", "")
        for agen in ("agen.__wrapped__()", "agen()")
    )
    assert [line.split(" at 0x")[0] for line in profiled.splitlines()] == [
        line.split(" at 0x")[0] for line in plain.splitlines()
    ]


# ---- contextlib (A11) ----------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["outside", "inside"])
def test_context_managers_made_of_generators(p: cp.Profiler, order: str) -> None:
    """Outside, the whole ``with`` counts; inside, the generator, without the body."""
    log: list[str] = []

    def generator() -> Iterator[str]:
        log.append("entered")
        try:
            yield "value"
        finally:
            log.append("left")

    node = p.profile_node("node")
    manager = (
        node(contextlib.contextmanager(generator)) if order == "outside" else contextlib.contextmanager(node(generator))
    )
    with manager() as value:
        assert value == "value"
        time.sleep(TICK)
    with pytest.raises(KeyError), manager():
        raise KeyError
    assert log == ["entered", "left"] * 2
    assert outcomes(p, "node") == (1, 1, 0, 0, 0)
    assert (by_name(p)["node"].total_ms >= SLEPT_MS) == (order == "outside")


@pytest.mark.parametrize("order", ["outside", "inside"])
def test_asynchronous_context_managers_made_of_generators(p: cp.Profiler, order: str) -> None:
    async def generator() -> AsyncIterator[str]:
        await asyncio.sleep(0)
        yield "value"

    node = p.profile_node("node")
    made = contextlib.asynccontextmanager
    manager = node(made(generator)) if order == "outside" else made(node(generator))

    async def main() -> None:
        async with manager() as value:
            assert value == "value"
            await asyncio.sleep(TICK)
        with pytest.raises(KeyError):
            async with manager():
                raise KeyError

    asyncio.run(main())
    assert outcomes(p, "node") == (1, 1, 0, 0, 0)
    assert (by_name(p)["node"].total_ms >= SLEPT_MS) == (order == "outside")


def test_a_decorated_context_manager_stays_what_it_is(p: cp.Profiler) -> None:
    """Methods, names, decorators made of it, nesting, and what is never left."""

    class Things(cp.PipelineProfiling):
        name = "asked"

        @cp.profile_node(name=lambda self: self.name)
        @contextlib.contextmanager
        def section(self, handles: bool = False) -> Iterator[int]:
            """Document section."""
            try:
                yield 5
            except KeyError:
                if not handles:
                    raise

        @cp.profile_node
        @cp.profile_node("inner")
        @contextlib.contextmanager
        def twice(self) -> Iterator[None]:
            with self.section():
                yield

    assert Things.section.__doc__ == "Document section."
    assert list(inspect.signature(Things.section).parameters) == ["self", "handles"]
    things = Things()
    with things.section():
        pass
    things.set_profiling(True)
    with things.section(handles=True) as value:
        assert value == 5
        raise KeyError
    with things.twice():
        pass

    @things.section()
    def decorated() -> int:
        return 6

    assert (decorated(), decorated()) == (6, 6)
    things.section().__enter__()
    gc.collect()
    assert outcomes(things.profiler, "asked") == (4, 0, 1, 0, 0)
    assert outcomes(things.profiler, "Things.twice") == (1, 0, 0, 0, 0)


def test_a_block_open_over_the_yield_of_a_plain_generator(p: cp.Profiler) -> None:
    """As pytest's fixtures do: entered and left in one frame, with other calls in between."""

    def fixture() -> Iterator[None]:
        with p.profile_node("fixture"):
            yield

    open_ = fixture()
    next(open_)
    with p.profile_node("test"):
        time.sleep(TICK)
    next(open_, None)
    stats = by_name(p)
    assert stats["fixture"].self_total_ms == pytest.approx(stats["fixture"].total_ms - stats["test"].total_ms, abs=2e-6)
