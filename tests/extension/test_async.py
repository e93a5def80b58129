"""Coroutines as nodes, and nodes in tasks and greenlets (failure scenarios A1 to A11, C8)."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import inspect
import random
import sys
import time
import traceback
import types
import weakref
from collections.abc import Awaitable, Generator
from typing import Any

import pytest

import cprofiling as cp
from calls import NEVER, TICK, Stopwatch, by_name, counts, outcomes, spin, spin_meanwhile

pytestmark = pytest.mark.native

PYTHON_3_11 = sys.version_info >= (3, 11)


# ---- coroutines ----------------------------------------------------------------------------------


def test_a_coroutine_is_timed_from_its_first_resumption_to_its_end(p: cp.Profiler) -> None:
    @p.profile_node
    async def node() -> str:
        await asyncio.sleep(TICK)
        spin(TICK)
        return "result"

    async def main() -> None:
        made = node()
        spinning = asyncio.create_task(spin_meanwhile())
        await asyncio.sleep(3 * TICK)
        assert by_name(p) == {}
        with watch:
            assert await made == "result"
        spinning.cancel()

    watch = Stopwatch()
    asyncio.run(main())
    stats = by_name(p)["node"]
    assert stats.count == 1
    assert 0.95e3 * 2 * TICK <= stats.total_ms <= watch.limit_ms
    assert stats.active_total_ms is not None
    assert 0.95e3 * TICK <= stats.active_total_ms <= stats.total_ms - 0.95e3 * TICK
    assert stats.self_total_ms == stats.total_ms


def test_active_time_of_what_never_waits_is_all_its_time(p: cp.Profiler) -> None:
    @p.profile_node
    async def node() -> None:
        pass

    asyncio.run(node())
    p.profile_node("sync")(int.__add__)(1, 1)
    stats = by_name(p)
    assert stats["node"].active_total_ms == stats["node"].total_ms
    assert stats["sync"].active_total_ms in (None, stats["sync"].total_ms)


@pytest.mark.parametrize(
    "value", [None, 0, (), (1, 2), StopIteration(3), ValueError("x"), StopAsyncIteration(), GeneratorExit, object()]
)
@pytest.mark.parametrize("is_on", [True, False])
def test_results_pass_untouched(p: cp.Profiler, value: Any, is_on: bool) -> None:
    p.set_profiling(is_on)

    @p.profile_node
    async def coroutine(x: Any) -> Any:
        await asyncio.sleep(0)
        return x

    @p.profile_node
    def generator(x: Any) -> Generator[Any, Any, Any]:
        received = yield x
        assert received is x
        return x

    def delegate() -> Generator[Any, Any, Any]:
        return (yield from generator(value))

    async def main() -> Any:
        return await coroutine(value)

    assert asyncio.run(main()) is value
    outer = delegate()
    assert next(outer) is value
    with pytest.raises(StopIteration) as stop:
        outer.send(value)
    assert stop.value.value is value


@pytest.mark.parametrize(
    "error", [ValueError, KeyError, GeneratorExit, StopAsyncIteration, TimeoutError, RecursionError]
)
@pytest.mark.parametrize("depth", [0, 1])
def test_the_exception_of_a_coroutine_is_the_very_same(p: cp.Profiler, error: type[BaseException], depth: int) -> None:
    """A1."""
    raised = error("text")

    async def node() -> None:
        for _ in range(depth):
            await asyncio.sleep(0)
        raise raised

    async def main() -> None:
        await p.profile_node(node)()

    coroutine = main()
    for _ in range(depth):
        coroutine.send(None)
    with pytest.raises(error) as caught:
        coroutine.send(None)
    assert caught.value is raised
    assert raised.__context__ is None
    assert raised.__cause__ is None
    names = [frame.name for frame in traceback.extract_tb(raised.__traceback__)]
    assert names == ["test_the_exception_of_a_coroutine_is_the_very_same", "main", "node"]
    assert outcomes(p, "node") == (0, 1, 0, 0, 0)


def test_a_class_of_errors_that_becomes_one_of_cancellations(p: cp.Profiler) -> None:
    class Base(BaseException):
        pass

    class Stopped(Base, asyncio.CancelledError):
        pass

    class Late(Base):
        pass

    @p.profile_node
    def node(error: type[BaseException]) -> None:
        raise error

    for error in (Late, Late, Stopped, Late):
        with pytest.raises(error), p.profile_node("block"):
            node(error)
    Late.__bases__ = (Stopped,)
    later: tuple[type[BaseException], ...] = (Late, ValueError, Late)
    for each in later:
        with pytest.raises(each), p.profile_node("block"):
            node(each)
    assert outcomes(p, "node") == outcomes(p, "block") == (0, 4, 3, 0, 0)


def test_stop_iteration_out_of_a_coroutine_is_pythons_runtime_error(p: cp.Profiler) -> None:
    @p.profile_node
    async def node() -> None:
        raise StopIteration(5)

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(node())
    assert outcomes(p, "node") == (0, 1, 0, 0, 0)


def test_a_coroutine_that_is_never_awaited_warns_as_ever_and_counts_nothing(p: cp.Profiler) -> None:
    @p.profile_node
    async def node() -> None:
        pass

    with pytest.warns(RuntimeWarning, match=r"coroutine .*node.* was never awaited"):
        node()  # type: ignore[unused-coroutine]
    assert by_name(p) == {}


def test_a_coroutine_that_is_closed_before_its_start_counts_nothing(p: cp.Profiler) -> None:
    async def node() -> None:
        pass

    made = p.profile_node(node)()
    made.close()
    made.close()
    with pytest.raises(RuntimeError, match="cannot reuse"):
        made.send(None)
    thrown = p.profile_node(node)()
    with pytest.raises(KeyError):
        thrown.throw(KeyError())
    assert by_name(p) == {}


def test_a_begun_coroutine_that_is_closed_or_collected_counts_as_cancelled(p: cp.Profiler) -> None:
    @p.profile_node
    async def node() -> None:
        with p.profile_node("block"):
            await _once()

    closed, collected = node(), node()
    closed.send(None)
    collected.send(None)
    closed.close()
    assert outcomes(p, "node") == (0, 0, 1, 0, 0)
    del collected
    gc.collect()
    assert outcomes(p, "node") == (0, 0, 2, 0, 0)
    assert outcomes(p, "block") == (0, 2, 0, 0, 0)


@types.coroutine
def _once() -> Generator[None, None, None]:
    """Suspend the awaiting coroutine once."""
    yield


def test_a_coroutine_that_will_not_close_is_an_error(p: cp.Profiler) -> None:
    @p.profile_node
    async def node() -> None:
        with contextlib.suppress(GeneratorExit):
            await _once()
        await _once()

    made = node()
    made.send(None)
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        made.close()
    with pytest.raises(StopIteration):
        made.send(None)
    assert outcomes(p, "node") == (1, 0, 0, 0, 0)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def test_two_tasks_that_await_one_coroutine(p: cp.Profiler) -> None:
    @p.profile_node
    async def node() -> int:
        await asyncio.sleep(TICK)
        return 5

    async def main() -> list[Any]:
        made = node()
        return list(await asyncio.gather(_await(made), _await(made), return_exceptions=True))

    first, second = asyncio.run(main())
    assert first == 5
    assert isinstance(second, RuntimeError)
    assert "already" in str(second)
    assert outcomes(p, "node") == (1, 0, 0, 0, 0)
    assert by_name(p)["node"].total_ms >= 0.95e3 * TICK


def test_throwing_into_a_coroutine(p: cp.Profiler) -> None:
    @p.profile_node
    async def node() -> str:
        try:
            await _once()
        except KeyError:
            await _once()
        return "end"

    handled, unhandled = node(), node()
    handled.send(None)
    unhandled.send(None)
    assert handled.throw(KeyError()) is None
    error = IndexError("text")
    with pytest.raises(IndexError) as caught:
        unhandled.throw(error)
    assert caught.value is error
    assert outcomes(p, "node") == (0, 1, 0, 0, 0)
    with pytest.raises(StopIteration):
        handled.send(None)
    assert outcomes(p, "node") == (1, 1, 0, 0, 0)


def test_a_function_that_returns_a_coroutine_is_a_call(p: cp.Profiler) -> None:
    async def inner() -> int:
        await asyncio.sleep(TICK)
        return 1

    made = p.profile_node("node")(lambda: inner())()
    assert type(made) is types.CoroutineType
    assert counts(p) == {"node": 1}
    assert asyncio.run(_await(made)) == 1


def test_a_generator_of_types_coroutine_yields_from_a_coroutine(p: cp.Profiler) -> None:
    async def wait() -> int:
        await asyncio.sleep(0)
        return 5

    node: Any = p.profile_node(name="n")(wait)

    @types.coroutine
    def generate() -> Generator[Any, Any, int]:
        result: int = yield from node()
        return result

    async def main() -> int:
        return await generate()

    assert asyncio.run(main()) == 5
    assert outcomes(p, "n") == (1, 0, 0, 0, 0)


class Waits:
    """Can be awaited, and is no coroutine."""

    def __await__(self) -> Generator[Any, Any, int]:
        yield from asyncio.sleep(TICK).__await__()
        return 5


@pytest.mark.skipif(sys.version_info < (3, 12), reason="inspect.markcoroutinefunction came with Python 3.12")
@pytest.mark.parametrize("is_on", [True, False])
def test_functions_marked_as_coroutine_functions_may_return_any_awaitable(p: cp.Profiler, is_on: bool) -> None:
    p.set_profiling(is_on)
    mark: Any = inspect.markcoroutinefunction  # type: ignore[attr-defined, unused-ignore]

    def returning(awaitable: Any) -> Any:
        return p.profile_node("n")(mark(lambda: awaitable))

    async def main() -> list[int]:
        future = asyncio.get_running_loop().create_future()
        future.get_loop().call_later(TICK, future.set_result, 5)
        return [await returning(one)() for one in (Waits(), future, asyncio.sleep(TICK, 5))]

    assert asyncio.run(main()) == [5, 5, 5]
    if is_on:
        assert outcomes(p, "n") == (3, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "run", ["asyncio.run", "create_task", "gather", "wait_for", "shield", "ensure_future", "threadsafe"]
)
def test_whatever_asyncio_does_with_coroutines(p: cp.Profiler, run: str) -> None:
    @p.profile_node
    async def node() -> int:
        await asyncio.sleep(0)
        return 7

    async def main() -> Any:
        if run == "create_task":
            return await asyncio.create_task(node())
        if run == "gather":
            return (await asyncio.gather(node()))[0]
        if run == "wait_for":
            return await asyncio.wait_for(node(), NEVER)
        if run == "shield":
            return await asyncio.shield(node())
        if run == "threadsafe":
            loop = asyncio.get_running_loop()
            return await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(node(), loop).result(NEVER))
        return await asyncio.ensure_future(node())

    assert asyncio.run(node() if run == "asyncio.run" else main(), debug=True) == 7
    assert counts(p) == {"node": 1}


# ---- tasks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["asyncio", "trio", "uvloop"])
def test_hundreds_of_interleaved_tasks(p: cp.Profiler, scheduler: str) -> None:
    """A7, A10: each sample belongs to its own task; the block inside is the node's child, whatever ran in between."""
    package: Any = pytest.importorskip(scheduler)
    rng = random.Random(7)
    sleeps = {f"task {i}": rng.randint(1, 50) / 1000 for i in range(500)}  # uvloop rounds them to milliseconds
    watches = {name: Stopwatch() for name in sleeps}
    sleep = package.sleep if scheduler == "trio" else asyncio.sleep
    resolution_s = 0.001 if scheduler == "uvloop" else 0.0  # of its clock

    async def work(name: str) -> None:
        async with p.profile_node("block of " + name):
            await sleep(sleeps[name])
        await sleep(0)

    async def timed(name: str) -> None:
        with watches[name]:
            await p.profile_node(name)(work)(name)

    @p.profile_node
    async def main() -> None:
        if scheduler != "trio":
            await asyncio.gather(*map(timed, sleeps))
            return
        async with package.open_nursery() as nursery:
            for name in sleeps:
                nursery.start_soon(timed, name)

    if scheduler == "trio":
        package.run(main)
    else:
        loop = package.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
    stats = by_name(p)
    assert len(stats) == 1001
    assert stats["main"].self_total_ms == stats["main"].total_ms
    for name, seconds in sleeps.items():
        node, block = stats[name], stats["block of " + name]
        assert (node.count, block.count) == (1, 1)
        assert 0.95e3 * (seconds - resolution_s) <= block.total_ms <= node.total_ms <= watches[name].limit_ms
        assert node.self_total_ms == pytest.approx(node.total_ms - block.total_ms, abs=2e-6)
        assert block.self_total_ms == block.total_ms


def test_nodes_in_other_tasks_are_no_children(p: cp.Profiler) -> None:
    @p.profile_node
    async def child() -> None:
        await asyncio.sleep(TICK)
        spin(TICK)

    @p.profile_node
    async def gathers() -> None:
        await asyncio.gather(child(), child())

    @p.profile_node
    async def awaits() -> None:
        await child()

    async def main() -> None:
        await gathers()
        await awaits()

    asyncio.run(main())
    stats = by_name(p)
    assert stats["gathers"].self_total_ms == stats["gathers"].total_ms
    assert stats["awaits"].self_total_ms == pytest.approx(stats["awaits"].total_ms - stats["child"].last_ms, abs=2e-6)


def test_cancelled_at_every_await(p: cp.Profiler) -> None:
    """A8: whatever the moment, each begun call is closed once, as a sample or as cancelled."""
    begun = {"outer": 0, "inner": 0, "block": 0}

    @p.profile_node
    async def inner() -> None:
        begun["inner"] += 1
        for _ in range(3):
            await asyncio.sleep(0)

    @p.profile_node
    async def outer() -> None:
        begun["outer"] += 1
        for _ in range(3):
            await inner()
            async with p.profile_node("block"):
                begun["block"] += 1
                await asyncio.sleep(0)

    async def cancel_after(steps: int) -> bool:
        task = asyncio.create_task(outer())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return task.cancelled()

    async def main() -> int:
        return sum([await cancel_after(i % 16) for i in range(1000)])

    cancelled = asyncio.run(main())
    assert 0 < cancelled < 1000
    for name, total in begun.items():
        recorded, errors, cancellations, skips, drops = outcomes(p, name)
        assert recorded + cancellations == total, name
        assert (errors, skips, drops) == (0, 0, 0)
        assert recorded
        assert cancellations


def test_a_task_cancelled_before_its_start_counts_nothing(p: cp.Profiler) -> None:
    async def node() -> None:
        pytest.fail("it ran")

    async def main() -> None:
        task = asyncio.create_task(p.profile_node(node)())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert by_name(p) == {}


def test_a_swallowed_cancellation_is_a_success(p: cp.Profiler) -> None:
    @p.profile_node
    async def node() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(NEVER)

    async def main() -> None:
        task = asyncio.create_task(node())
        await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(main())
    assert outcomes(p, "node") == (1, 0, 0, 0, 0)


def test_a_type_of_errors_that_becomes_one_of_cancellations(p: cp.Profiler) -> None:
    class Base(BaseException):
        pass

    class Error(Base):
        value = 0

    @p.profile_node
    def node() -> None:
        raise Error

    def call() -> None:
        with contextlib.suppress(Error):
            node()

    for i in range(2000):  # CPython 3.13 gives a class only so many versions
        Error.value = i
        assert Error.value == i
    call()
    call()
    Error.__bases__ = (asyncio.CancelledError,)
    call()
    assert outcomes(p, "node") == (0, 2, 1, 0, 0)


def test_timeouts_cancel_the_node_that_waits(p: cp.Profiler) -> None:
    @p.profile_node
    async def node() -> None:
        await asyncio.sleep(NEVER)

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(node(), 0.001)
        if PYTHON_3_11:
            timeout: Any = asyncio.timeout  # type: ignore[attr-defined, unused-ignore]
            with pytest.raises(TimeoutError):
                async with timeout(0.001):
                    await node()
            with pytest.raises(TimeoutError):
                async with p.profile_node("block"), timeout(0.001):
                    await asyncio.sleep(NEVER)

    asyncio.run(main())
    assert outcomes(p, "node") == (0, 0, 1 + PYTHON_3_11, 0, 0)
    assert not PYTHON_3_11 or outcomes(p, "block") == (0, 1, 0, 0, 0)


@pytest.mark.skipif(not PYTHON_3_11, reason="TaskGroup came with Python 3.11")
def test_a_failing_task_group_cancels_its_nodes(p: cp.Profiler) -> None:
    @p.profile_node
    async def waits() -> None:
        await asyncio.sleep(NEVER)

    @p.profile_node
    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError

    @p.profile_node
    async def group() -> None:
        task_group: Any = asyncio.TaskGroup  # type: ignore[attr-defined, unused-ignore]
        async with task_group() as tasks:
            for function in (waits, fails, waits):
                tasks.create_task(function())

    with pytest.raises(Exception, match="unhandled errors in a TaskGroup"):
        asyncio.run(group())
    assert (outcomes(p, "waits"), outcomes(p, "fails")) == ((0, 0, 2, 0, 0), (0, 1, 0, 0, 0))
    assert outcomes(p, "group") == (0, 1, 0, 0, 0)


def test_tasks_left_behind_when_their_loop_is_closed(p: cp.Profiler) -> None:
    """Their blocks end when they are collected; nothing of theirs is kept alive."""
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")

    class Mark:
        pass

    def make() -> weakref.ref[Any]:
        mark = Mark()

        async def work() -> None:
            variable.set(mark)
            with p.profile_node("block"):
                await p.profile_node("node")(_forever)()

        loop = asyncio.new_event_loop()
        task = loop.create_task(work())
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(0))
        loop.set_exception_handler(lambda *_: None)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        return weakref.ref(mark)

    reference = make()
    gc.collect()
    p.profile_node("afterwards")(int.__add__)(1, 1)
    assert reference() is None
    assert outcomes(p, "node") == (0, 0, 1, 0, 0)
    assert outcomes(p, "block") == (0, 1, 0, 0, 0)
    assert by_name(p)["afterwards"].self_total_ms == by_name(p)["afterwards"].total_ms


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


def test_a_loop_inside_a_node_inside_a_loop(p: cp.Profiler) -> None:
    """A10: nested loops."""

    async def deep() -> None:
        await asyncio.gather(*(p.profile_node("deep")(asyncio.sleep)(TICK) for _ in range(3)))

    @p.profile_node
    def nested() -> None:
        running, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        asyncio.tasks._leave_task(running, task)  # CPython 3.14 lets a thread be in one task only
        asyncio.events._set_running_loop(None)
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(deep())
        finally:
            loop.close()
            asyncio.events._set_running_loop(running)
            asyncio.tasks._enter_task(running, task)

    @p.profile_node
    async def main() -> None:
        other = asyncio.create_task(p.profile_node("other")(asyncio.sleep)(0))
        await asyncio.sleep(0)
        nested()
        await other

    asyncio.run(main())
    assert counts(p) == {"deep": 3, "nested": 1, "other": 1, "main": 1}
    stats = by_name(p)
    assert stats["main"].total_ms >= stats["nested"].total_ms >= stats["deep"].max_ms >= 0.95e3 * TICK


class Weave:
    """Suspendable calls, resumed in random order, each with blocks inside: what is known of each must be exact."""

    def __init__(self, p: cp.Profiler, seed: int) -> None:
        self.p, self.rng = p, random.Random(seed)
        self.blocks: dict[str, list[str]] = {}
        self.calls: dict[str, int] = {}

    def block(self, name: str, depth: int = 0) -> str:
        """Run a block, with children, without being suspended."""
        label = f"block {len(self.blocks)}"
        self.blocks.setdefault(name, []).append(label)
        self.blocks[label] = []
        with self.p.profile_node(label):
            spin(2e-5)
            for _ in range(self.rng.randrange(2) if depth < 3 else 0):
                self.block(label, depth + 1)
        return label

    async def coroutine(self, name: str) -> None:
        self.blocks[name] = []
        for _ in range(self.rng.randrange(1, 5)):
            self.block(name)
            label = f"open {len(self.blocks)}"
            self.blocks[name].append(label)
            self.blocks[label] = []
            with self.p.profile_node(label):
                await _once()
                self.block(label)

    def run(self, number: int) -> None:
        running = {}
        for i in range(number):
            name = f"coroutine {i}"
            running[name] = self.p.profile_node(name)(self.coroutine)(name)
        while running:
            name = self.rng.choice(list(running))
            try:
                running[name].send(None)
            except StopIteration:
                del running[name]
            spin(1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_coroutines_resumed_in_any_order_match_the_model(p: cp.Profiler, seed: int) -> None:
    weave = Weave(p, seed)
    with p.profile_node("all"):
        weave.run(12)
    stats = by_name(p)
    assert set(stats) == {*weave.blocks, "all"}
    for name, children in weave.blocks.items():
        nested = sum(stats[child].total_ms for child in children)
        assert stats[name].count == 1
        assert stats[name].self_total_ms == pytest.approx(
            stats[name].total_ms - nested, abs=1e-6 * (1 + len(children))
        ), name
    active = sum(stats[name].active_total_ms or 0.0 for name in weave.blocks if name.startswith("coroutine"))
    assert active <= stats["all"].total_ms


# ---- other schedulers (A10, C8) ------------------------------------------------------------------


def test_cancelled_by_trio(p: cp.Profiler) -> None:
    """Also where a nursery makes a group of it; other errors beside it are errors."""
    trio = pytest.importorskip("trio")

    @p.profile_node
    async def node() -> None:
        with p.profile_node("block"):
            await trio.sleep_forever()

    @p.profile_node
    async def nursery() -> None:
        async with trio.open_nursery() as opened, trio.open_nursery() as inner:
            opened.start_soon(node)
            inner.start_soon(trio.sleep_forever)
            await node()

    @p.profile_node
    async def mixed() -> None:
        async with trio.open_nursery() as opened:
            opened.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise KeyError

    async def main() -> None:
        for function in (node, nursery, mixed):
            with (
                trio.move_on_after(TICK),
                contextlib.suppress(BaseException) if function is mixed else trio.CancelScope(),
            ):
                await function()

    trio.run(main)
    assert outcomes(p, "node") == (0, 0, 3, 0, 0)
    assert outcomes(p, "block") == (0, 0, 3, 0, 0)
    assert outcomes(p, "nursery") == (0, 0, 1, 0, 0)
    assert outcomes(p, "mixed") == (0, 1, 0, 0, 0)


@pytest.mark.unsanitized
def test_greenlets(p: cp.Profiler) -> None:
    """C8: each has samples of its own, switched in the middle of a node and of a block, in any order."""
    greenlet = pytest.importorskip("greenlet")
    main = greenlet.getcurrent()

    def work(name: str, ticks: int) -> None:
        with p.profile_node("block of " + name):
            for _ in range(ticks):
                main.switch()

    def start(name: str, ticks: int) -> Any:
        green = greenlet.greenlet(lambda: p.profile_node(name)(work)(name, ticks))
        green.switch()
        return green

    running = {name: start(name, ticks) for name, ticks in (("one", 3), ("two", 1), ("three", 2))}
    watches = {name: time.perf_counter() for name in running}
    ended: dict[str, float] = {}
    while running:
        time.sleep(TICK)
        for name, green in list(running.items()):
            green.switch()
            if green.dead:
                ended[name] = (time.perf_counter() - watches[name]) * 1e3
                del running[name]
    stats = by_name(p)
    assert set(stats) == {f"{prefix}{name}" for name in ended for prefix in ("", "block of ")}
    for name, ticks in (("one", 3), ("two", 1), ("three", 2)):
        node, block = stats[name], stats["block of " + name]
        assert (node.count, block.count) == (1, 1)
        assert block.total_ms >= 0.95e3 * ticks * TICK
        assert node.self_total_ms == pytest.approx(node.total_ms - block.total_ms, abs=2e-6)


@pytest.mark.unsanitized
def test_greenlets_that_die_in_the_middle_of_a_node(p: cp.Profiler) -> None:
    greenlet = pytest.importorskip("greenlet")
    main = greenlet.getcurrent()

    def start() -> None:
        green = greenlet.greenlet(p.profile_node("node")(lambda: main.switch()))
        green.switch()

    for _ in range(10):
        start()
    gc.collect()
    assert outcomes(p, "node") == (0, 10, 0, 0, 0)


# ---- stage and Profiler of tasks -----------------------------------------------------------------


def test_each_task_has_the_stage_that_it_was_created_in(p: cp.Profiler) -> None:
    async def work() -> None:
        with p.profile_node("before"):
            await asyncio.sleep(TICK)
        with cp.stage("test"), p.profile_node("inside"):
            await asyncio.sleep(0)
        with p.profile_node("after"):
            pass

    async def main() -> None:
        tasks = []
        for stage in ("train", "val"):
            with cp.stage(stage):
                tasks.append(asyncio.create_task(work()))
        await asyncio.gather(*tasks)

    asyncio.run(main())
    keys = {(stats.node_name, stats.stage): stats.count for stats in p.get_profiling_summary()}
    assert keys == {
        ("before", "train"): 1, ("before", "val"): 1, ("inside", "test"): 2, ("after", "train"): 1, ("after", "val"): 1,
    }  # fmt: skip
