"""profile_node as a context manager: blocks in threads, tasks, frames, in any order (failure scenario A11)."""

# Nodes are made of lambdas here, which have no types.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import functools
import gc
import pickle
import queue
import random
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import cprofiling as cp
from calls import NEVER, TICK, by_name, counts, in_new_thread, outcomes, profiler_on

pytestmark = pytest.mark.native

# ---- blocks --------------------------------------------------------------------------------------


def test_a_block_counts(p: cp.Profiler) -> None:
    site = p.profile_node("block")
    with site as entered:
        assert counts(p) == {}
    assert entered is site
    assert counts(p) == {"block": 1}
    assert asyncio.run(_enter_and_leave(site)) is site
    assert counts(p) == {"block": 2}


async def _enter_and_leave(site: Any) -> Any:
    async with site as entered:
        await asyncio.sleep(0)
    return entered


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("name", [None, str, lambda self: "x"])
def test_a_block_without_a_name_is_a_type_error(p: cp.Profiler, is_on: bool, name: Any) -> None:
    p.set_profiling(is_on)
    site = p.profile_node(name=name)
    with pytest.raises(TypeError, match="name"), site:
        pytest.fail("the block was entered")
    with pytest.raises(TypeError, match="name"):
        asyncio.run(_enter_and_leave(site))
    assert p.get_profiling_summary() == []


@pytest.mark.parametrize(
    "error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, asyncio.CancelledError]
)
def test_an_exception_leaves_a_block_untouched(p: cp.Profiler, error: type[BaseException]) -> None:
    raised = error("text")
    with pytest.raises(error) as caught, p.profile_node("block"):
        raise raised
    assert caught.value is raised
    assert raised.__context__ is None
    assert len(traceback.extract_tb(raised.__traceback__)) == 1
    cancelled = error is asyncio.CancelledError
    assert outcomes(p, "block") == (0, int(not cancelled), int(cancelled), 0, 0)


def test_a_site_is_a_decorator_for_many_functions_and_a_block_at_once(p: cp.Profiler) -> None:
    site = p.profile_node("shared", stage="val")
    one, two = site(lambda: 1), site(lambda: 2)
    with site:
        assert (one(), two()) == (1, 2)
    (stats,) = p.get_profiling_summary()
    assert (stats.node_name, stats.stage, stats.count) == ("shared", "val", 3)


def test_a_site_nested_in_itself(p: cp.Profiler) -> None:
    site = p.profile_node("block")
    with site, site, site:
        pass
    stats = by_name(p)["block"]
    assert stats.count == 3
    assert stats.self_total_ms == pytest.approx(stats.max_ms, abs=1e-5)


def test_blocks_that_exit_out_of_order(p: cp.Profiler) -> None:
    first, second = p.profile_node("first"), p.profile_node("second")
    with p.profile_node("around"):
        first.__enter__()
        time.sleep(TICK)
        second.__enter__()
        first.__exit__(None, None, None)
        time.sleep(TICK)
        second.__exit__(None, None, None)
    stats = by_name(p)
    assert stats["first"].total_ms >= 0.95e3 * TICK
    assert stats["second"].total_ms >= 0.95e3 * TICK
    assert stats["first"].total_ms + stats["second"].total_ms <= 1.001 * stats["around"].total_ms
    assert (stats["first"].self_total_ms, stats["second"].self_total_ms) == (None, None)
    with p.profile_node("first"):
        pass
    assert by_name(p)["first"].count == 2


@pytest.mark.parametrize("is_node", [False, True])
def test_one_site_open_in_a_suspended_generator_and_around_its_end(p: cp.Profiler, is_node: bool) -> None:
    """Each opening is left by the frame that entered it: both are open for two ticks, none for three."""
    site = p.profile_node("block")

    def suspended() -> Iterator[int]:
        with site:
            yield 1
        yield 2

    running = (p.profile_node("generator")(suspended) if is_node else suspended)()
    assert next(running) == 1
    time.sleep(TICK)
    with site:
        time.sleep(TICK)
        assert next(running) == 2
        time.sleep(TICK)
    assert list(running) == []
    stats = by_name(p)["block"]
    assert stats.count == 2
    assert stats.min_ms >= 0.95e3 * 2 * TICK


def test_two_blocks_entered_inside_a_generator_and_left_outside_of_it(p: cp.Profiler) -> None:
    """Each opening is closed by the frame that made it."""

    def plain() -> Iterator[None]:
        with site:
            yield

    site = p.profile_node("block")
    others = [plain(), plain()]

    def advance() -> Iterator[None]:
        next(others[0])
        time.sleep(TICK)
        next(others[1])
        yield

    running = p.profile_node("generator")(advance)()
    next(running)
    assert next(others[0], "end") == "end"
    time.sleep(3 * TICK)
    assert next(others[1], "end") == "end"
    stats = by_name(p)["block"]
    assert stats.count == 2
    assert stats.min_ms >= 0.95e3 * TICK
    assert stats.max_ms >= 0.95e3 * 3 * TICK


def test_a_block_left_in_another_context_while_another_thread_has_it_open_from_when_it_was_off(p: cp.Profiler) -> None:
    site = p.profile_node("block")
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with site:
            inside.set()
            leave.wait(NEVER)

    def generate() -> Iterator[None]:
        with site:
            yield

    p.set_profiling(False)
    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(NEVER)
    p.set_profiling(True)
    running = generate()
    contextvars.copy_context().run(next, running)
    running.close()  # type: ignore[attr-defined]
    leave.set()
    thread.join(NEVER)
    assert outcomes(p, "block") == (0, 1, 0, 0, 0)


@pytest.mark.parametrize("is_on", [True, False])
def test_a_block_left_without_having_been_entered(p: cp.Profiler, is_on: bool) -> None:
    """A11: RuntimeError with the name, state unchanged."""
    p.set_profiling(is_on)
    site = p.profile_node("block \x1b")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"block \\x1b"):
            site.__exit__(None, None, None)
    with site:
        pass
    with pytest.raises(RuntimeError, match="block"):
        site.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="block"):
        asyncio.run(_leave(site))
    with site:
        pass
    assert counts(p) == ({"block \x1b": 2} if is_on else {})


async def _leave(site: Any) -> None:
    await site.__aexit__(None, None, None)


# ---- left elsewhere ------------------------------------------------------------------------------


def leave(site: Any) -> None:
    site.__exit__(None, None, None)


@pytest.mark.parametrize("is_on", [True, False])
def test_a_block_left_in_another_thread(p: cp.Profiler, is_on: bool) -> None:
    """A11: its time is known, its self time is not; the entry is used up."""
    p.set_profiling(is_on)
    site = p.profile_node("block")
    site.__enter__()
    time.sleep(TICK)
    in_new_thread(lambda: leave(site))
    with pytest.raises(RuntimeError, match="block"):
        leave(site)
    with site:
        pass
    if is_on:
        stats = by_name(p)["block"]
        assert (stats.count, stats.self_total_ms) == (2, None)
        assert stats.max_ms >= 0.95e3 * TICK
    else:
        assert p.get_profiling_summary() == []


def test_a_block_left_in_another_thread_is_not_around_later_calls(p: cp.Profiler) -> None:
    """Nor does it name their Profiler; the block that is around it has no known self time."""
    unbound, site = cp.profile_node("unbound")(int.__add__), p.profile_node("block")
    with profiler_on() as other, p.profile_node("around"):
        site.__enter__()
        in_new_thread(lambda: leave(site))
    with other:
        unbound(1, 2)
        site.__enter__()
        in_new_thread(lambda: leave(site))
        unbound(1, 2)
    assert counts(p) == {"block": 2, "around": 1}
    assert counts(other) == {"unbound": 2}
    assert by_name(p)["around"].self_total_ms is None


@pytest.mark.parametrize("kind", ["thread", "context"])
def test_a_block_is_left_when_the_thread_or_context_that_entered_it_is_no_more(p: cp.Profiler, kind: str) -> None:
    site = p.profile_node("block")
    run = in_new_thread if kind == "thread" else lambda function: contextvars.copy_context().run(function)
    for _ in range(3):
        run(site.__enter__)
    p.profile_node("other")(int.__add__)(1, 2)
    time.sleep(TICK)
    for _ in range(3):
        in_new_thread(lambda: leave(site))
    with pytest.raises(RuntimeError, match="block"):
        leave(site)
    stats = by_name(p)["block"]
    assert (stats.count, stats.self_total_ms) == (3, None)
    assert stats.min_ms >= 0.95e3 * TICK


def test_each_frame_leaves_its_own_block_in_whichever_thread_it_goes_on(p: cp.Profiler) -> None:
    site = p.profile_node("block")

    def suspended() -> Iterator[None]:
        with site:
            yield

    running: list[Any] = [suspended() for _ in range(3)]
    for generator_ in running:
        in_new_thread(functools.partial(next, generator_))
        time.sleep(TICK)
    for ticks, generator_ in zip((1, 2, 3), reversed(running), strict=True):
        with pytest.raises(KeyError):
            in_new_thread(functools.partial(generator_.throw, KeyError))
        assert outcomes(p, "block")[:2] == (0, ticks)
    entered: list[tuple[Any, float, float]] = []
    for generator_ in [suspended() for _ in range(3)]:
        before = time.perf_counter()
        in_new_thread(functools.partial(next, generator_))
        entered.append((generator_, before, time.perf_counter()))
        time.sleep(TICK)
    for generator_, before, after in reversed(entered):
        left = time.perf_counter()
        in_new_thread(functools.partial(next, generator_, None))
        assert 0.99 * (left - after) <= by_name(p)["block"].last_ms / 1e3 <= 1.01 * (time.perf_counter() - before)


@pytest.mark.parametrize("kind", ["generator", "asynchronous generator", "coroutine"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_another_thread_collects_leaves_its_blocks(p: cp.Profiler, kind: str, wrapped: bool) -> None:
    site, log = p.profile_node("block"), []

    def generate() -> Iterator[None]:
        with site:
            try:
                yield
            finally:
                log.append("left")

    async def iterate() -> Any:
        async with site:
            try:
                yield
            finally:
                log.append("left")

    async def wait() -> None:
        with site:
            try:
                await asyncio.sleep(0)
            finally:
                log.append("left")

    made: Any = {"generator": generate, "asynchronous generator": iterate, "coroutine": wait}[kind]
    running = [(p.profile_node("node")(made) if wrapped else made)()]
    unraisable: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        if kind == "asynchronous generator":
            with pytest.raises(StopIteration):
                running[0].__anext__().send(None)
        else:
            running[0].send(None)
        in_new_thread(running.clear)
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert (log, unraisable) == (["left"], [])
    assert sum(outcomes(p, "block")) == 1
    assert "node" not in by_name(p) or sum(outcomes(p, "node")) == 1


def enter_by_hand(stack: contextlib.ExitStack, site: Any) -> None:
    stack.push(site.__enter__().__exit__)


def turn_over(stacks: queue.SimpleQueue[contextlib.ExitStack], site: Any, seed: int) -> None:
    """Enter the Site, or leave all entries of a stack, in this context or another one."""
    rng = random.Random(seed)
    for _ in range(300):
        stack = stacks.get(timeout=NEVER)
        context = contextvars.copy_context()
        acts: list[Callable[[], Any]] = [
            stack.close,
            functools.partial(stack.enter_context, site),
            functools.partial(enter_by_hand, stack, site),
            functools.partial(context.run, stack.close),
            functools.partial(context.run, stack.enter_context, site),
        ]
        rng.choice(acts)()
        stacks.put(stack)


def test_blocks_entered_and_left_in_any_thread(p: cp.Profiler) -> None:
    """No exit fails, and all are counted, while profiling is switched on and off."""
    site = p.profile_node("shared")
    stacks: queue.SimpleQueue[contextlib.ExitStack] = queue.SimpleQueue()
    for _ in range(20):
        stacks.put(contextlib.ExitStack())
    for turn in range(6):
        p.set_profiling(turn % 3 != 0)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(turn_over, [stacks] * 4, [site] * 4, range(4)))
    while not stacks.empty():
        stacks.get().close()
    with pytest.raises(RuntimeError, match="shared"):
        leave(site)
    assert by_name(p)["shared"].count > 0
    assert p.get_profiling_summary().internal_errors == 0


@pytest.mark.parametrize(
    "configuration", [{"counters": ["cpu_time"], "memory": True}, {"nvtx": True, "gpu_time": True}]
)
def test_a_block_of_which_more_is_asked_left_in_another_thread(p: cp.Profiler, configuration: Any) -> None:
    p.set_profiling(True, **configuration)
    site = p.profile_node("block")
    with p.profile_node("around"):
        site.__enter__()
        in_new_thread(lambda: leave(site))
        with site:
            pass
    assert counts(p) == {"block": 2, "around": 1}


def test_entering_without_leaving_keeps_no_context_alive(p: cp.Profiler) -> None:
    site, contexts = p.profile_node("block"), []
    for _ in range(50):
        context = contextvars.copy_context()
        contexts.append(weakref.ref(context))
        context.run(site.__enter__)
        del context
    p.profile_node("other")(int.__add__)(1, 2)
    gc.collect()
    assert [context() for context in contexts] == [None] * 50


def test_a_block_that_is_dropped_while_it_is_open_is_nothing(p: cp.Profiler) -> None:
    unbound = cp.profile_node("unbound")(int.__add__)
    references = sys.getrefcount(p)
    with profiler_on() as other:
        p.profile_node("dropped").__enter__()
        in_new_thread(lambda: p.profile_node("dropped").__enter__())
        unbound(1, 2)
        with p.profile_node("block"):
            pass
    assert (counts(p), counts(other)) == ({"block": 1}, {"unbound": 1})
    assert sys.getrefcount(p) == references


def test_leaving_one_of_many_openings_takes_no_longer(p: cp.Profiler) -> None:
    """16,000 suspended generators are left in a fraction of a second; it was 3.8 s."""
    site = p.profile_node("block")

    def suspended() -> Iterator[None]:
        with site:
            yield

    def time_of(number: int) -> float:
        running = [suspended() for _ in range(number)]
        for generator_ in running:
            next(generator_)
        start = time.thread_time()
        for generator_ in running:
            next(generator_, None)
        return time.thread_time() - start

    assert min(time_of(16_000) for _ in range(3)) < 0.8
    assert counts(p) == {"block": 48_000}


# ---- open in a suspended generator ---------------------------------------------------------------


def test_a_block_in_a_suspended_generator_owns_no_calls_of_its_consumer(p: cp.Profiler) -> None:
    unbound = cp.profile_node("unbound")(int.__add__)

    def deeper() -> None:
        unbound(1, 1)

    def produce() -> Iterator[int]:
        with p.profile_node("block"):
            unbound(1, 1)
            for number in range(2):
                yield number
                deeper()

    async def produce_later() -> Any:
        with p.profile_node("block"):
            unbound(1, 1)
            for number in range(2):
                yield number
                await asyncio.sleep(0)
                deeper()

    async def consume() -> None:
        async for _ in produce_later():
            unbound(1, 1)

    with profiler_on() as other:
        for _ in produce():
            unbound(1, 1)
        asyncio.run(consume())
    assert counts(p) == {"unbound": 6, "block": 2}
    assert counts(other) == {"unbound": 4}


def test_a_block_in_a_generator_that_is_no_more_owns_no_calls(p: cp.Profiler) -> None:
    unbound, site = cp.profile_node("unbound")(int.__add__), p.profile_node("block")

    def produce() -> Iterator[None]:
        site.__enter__()
        yield

    with profiler_on() as other:
        next(produce())
        unbound(1, 1)
        leave(site)
    assert (counts(p), counts(other)) == ({"block": 1}, {"unbound": 1})


def test_a_block_in_a_context_manager_made_of_a_generator_owns_the_calls_of_the_body(p: cp.Profiler) -> None:
    unbound = cp.profile_node("unbound")(int.__add__)

    @contextlib.contextmanager
    def manage() -> Iterator[None]:
        with p.profile_node("block"):
            yield

    @contextlib.asynccontextmanager
    async def manage_later() -> Any:
        with p.profile_node("block"):
            yield

    async def main() -> None:
        async with manage_later():
            unbound(1, 1)

    with profiler_on() as other:
        with manage():
            unbound(1, 1)
        asyncio.run(main())
    assert counts(p) == {"unbound": 2, "block": 2}
    assert counts(other) == {}


def test_a_block_entered_while_off_does_not_leave_that_of_another_task(p: cp.Profiler) -> None:
    site = p.profile_node("block")
    seen: list[dict[str, int]] = []

    async def early() -> None:
        with site:
            switched_on.set()
            await entered.wait()
        seen.append(counts(p))
        left.set()

    async def late() -> None:
        await switched_on.wait()
        p.set_profiling(True)
        with site:
            entered.set()
            await left.wait()

    async def main() -> None:
        await asyncio.gather(early(), late())

    p.set_profiling(False)
    switched_on, entered, left = asyncio.Event(), asyncio.Event(), asyncio.Event()
    asyncio.run(main())
    assert seen == [{}]
    assert counts(p) == {"block": 1}


# ---- one Site, open many times, while profiling is switched on and off ------------------------------


class Opening:
    """One use of the shared Site: whether it counts, and bounds of how long it was open."""

    def __init__(self, p: cp.Profiler, openings: list[Opening]) -> None:
        self.p = p
        self.openings = openings
        self.is_on = False
        self.bounds = [0.0, 0.0]

    def __enter__(self) -> Opening:
        self.bounds[1] = -time.perf_counter()
        self.is_on = self.p.profiling_enabled
        return self

    def entered(self) -> None:
        self.bounds[0] = -time.perf_counter()

    def leaving(self) -> None:
        self.bounds[0] += time.perf_counter()

    def __exit__(self, *exception: object) -> None:
        self.bounds[1] += time.perf_counter()
        if self.is_on:
            self.openings.append(self)


def check_openings(p: cp.Profiler, openings: list[Opening]) -> None:
    """As many samples as openings while on, and each of its own length: also the squares add up."""
    stats = by_name(p)["shared"]
    assert outcomes(p, "shared") == (len(openings), 0, 0, 0, 0)
    squares = stats.count * (stats.std_ms**2 + stats.mean_ms**2)
    lower, upper = (sum((1e3 * opening.bounds[i]) ** 2 for opening in openings) for i in (0, 1))
    assert 0.995 * lower <= squares <= 1.005 * upper + 1e-3
    longest = max(1e3 * opening.bounds[0] for opening in openings)
    assert stats.max_ms >= 0.995 * longest


def suspended(p: cp.Profiler, site: Any, rng: random.Random, openings: list[Opening]) -> Iterator[None]:
    """Open the Site again and again, and be suspended inside."""
    for _ in range(5):
        with Opening(p, openings) as opening, site:
            opening.entered()
            yield
            if rng.random() < 0.3:
                with Opening(p, openings) as inner, site:
                    inner.entered()
                    yield
                    inner.leaving()
            opening.leaving()
        yield


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("switching", [False, True])
def test_one_site_in_many_frames(p: cp.Profiler, seed: int, switching: bool) -> None:
    rng, site = random.Random(seed), p.profile_node("shared")
    openings: list[Opening] = []
    running = [suspended(p, site, rng, openings) for _ in range(6)]
    while running:
        frame = rng.choice(running)
        if next(frame, "end") == "end":
            running.remove(frame)
        if switching and rng.random() < 0.2:
            p.set_profiling(rng.random() < 0.6)
        time.sleep(rng.choice([0.0, 1e-4, 1e-3]))
    check_openings(p, openings)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", ["with", "async with", "stack"])
def test_one_site_in_many_tasks(p: cp.Profiler, seed: int, form: str) -> None:
    rng = random.Random(seed)
    site: Any = p.profile_node("shared")
    openings: list[Opening] = []

    async def pause() -> None:
        await asyncio.sleep(rng.choice([0.0, 0.0, 1e-4, 1e-3]))

    async def work() -> None:
        for _ in range(10):
            async with contextlib.AsyncExitStack() as stack:
                opening = stack.enter_context(Opening(p, openings))
                if form == "stack":
                    stack.enter_context(site)
                elif form == "with":
                    stack.push(site.__exit__)
                    site.__enter__()
                else:
                    await stack.enter_async_context(site)
                opening.entered()
                await pause()
                opening.leaving()
            await pause()

    async def switch() -> None:
        for _ in range(50):
            p.set_profiling(rng.random() < 0.6)
            await pause()
        p.set_profiling(True)

    async def main() -> None:
        await asyncio.gather(switch(), *(work() for _ in range(8)))

    asyncio.run(main())
    check_openings(p, openings)


def test_coroutines_with_the_memory_of_others_leave_what_their_context_entered(p: cp.Profiler) -> None:
    site = p.profile_node("block")
    leaving = functools.partial(site.__exit__, None, None, None)
    contexts = [contextvars.copy_context() for _ in range(2)]

    async def enter() -> None:
        site.__enter__()

    async def leave() -> None:
        leaving.__call__()

    for step in (enter, leave):
        for context in contexts:  # each coroutine ends, and the next one may lie where it lay
            time.sleep(0.02)
            with contextlib.suppress(StopIteration):
                context.run(step().send, None)
    stats = by_name(p)["block"]
    assert (stats.count, stats.min_ms >= 30) == (2, True)


def test_copies_and_pickles_of_a_site_are_new_sites_with_its_settings() -> None:
    site = cp.profile_node("block", stage="train")
    for other in (copy.copy(site), copy.deepcopy(site), pickle.loads(pickle.dumps(site))):
        assert other is not site
        assert (other.name, other.stage, other.profiler) == ("block", "train", None)


def test_a_shallow_copy_of_a_site_has_the_same_profiler(p: cp.Profiler) -> None:
    with copy.copy(p.profile_node("block")):
        pass
    assert counts(p) == {"block": 1}
