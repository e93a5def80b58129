"""Leaks of blocks, stages and bound Profilers, left in order, out of order, elsewhere, and never."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import pickle
import threading
from collections.abc import Iterator
from enum import Enum

import cprofiling as cp
from isolated import leaks_harness
from isolated.leaks_harness import by_name, refused

profiler = cp.Profiler()
profiler.set_profiling(True)
site = profiler.profile_node("block")
nameless = profiler.profile_node()
off = cp.Profiler().profile_node("off")


class PlannedError(Exception):
    """What a block raises on purpose."""


class Stage(Enum):
    """Stages, and what is none."""

    TRAIN = "train"
    WRONG = 3


def leave(manager: object) -> None:
    manager.__exit__(None, None, None)  # type: ignore[attr-defined]


def nested() -> None:
    with site, site, profiler.profile_node("another"), off:
        pass


def raised() -> None:
    with contextlib.suppress(PlannedError), site, off, cp.stage("val"), profiler:
        raise PlannedError


def out_of_order() -> None:
    first, second = profiler.profile_node("first"), profiler.profile_node("second")
    first.__enter__()
    second.__enter__()
    leave(first)
    leave(second)


def switched_inside() -> None:
    with site:
        profiler.set_profiling(False)
        with site:
            profiler.set_profiling(True)
            with site:
                profiler.reset_profiling()


def in_contexts() -> None:
    context = contextvars.copy_context()
    context.run(site.__enter__)
    leave(site)
    context.run(site.__enter__)
    context.run(leave, site)
    with site:
        contextvars.copy_context().run(nested)


def dropped_generator() -> None:
    def opens() -> Iterator[None]:
        with site:
            yield

    running = opens()
    contextvars.copy_context().run(next, running)
    del running


def dropped_coroutine() -> None:
    async def opens() -> None:
        async with site:
            await asyncio.sleep(0)

    running = opens()
    contextvars.copy_context().run(running.send, None)
    running.close()


def never_left() -> None:
    def body() -> None:
        profiler.profile_node("left open").__enter__()

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def dropped_while_open() -> None:
    thread = threading.Thread(target=site.__enter__)
    thread.start()
    thread.join()
    contextvars.copy_context().run(profiler.profile_node("left open").__enter__)
    leave(site)


@cp.stage("train")
def generate() -> Iterator[None]:
    with site:
        yield


@cp.stage("train")
async def wait() -> None:
    await asyncio.sleep(0)


def decorated() -> None:
    for running in (generate(), generate()):
        next(running)
    loop.run_until_complete(wait())


def tasks() -> None:
    async def work() -> None:
        async with site:
            await asyncio.sleep(0)
            with cp.stage("val"), profiler:
                await asyncio.sleep(0)

    async def main() -> None:
        running = [asyncio.create_task(work()) for _ in range(3)]
        await asyncio.sleep(0)
        running[0].cancel()
        await asyncio.gather(*running, return_exceptions=True)

    loop.run_until_complete(main())


def stages() -> None:
    with cp.stage("train"), cp.stage(Stage.TRAIN), cp.stage("a stage"[:3]), cp.stage("val", default=True), site:
        pass
    outer, inner = cp.stage("outer"), cp.stage("inner")
    outer.__enter__()
    inner.__enter__()
    leave(outer)  # takes the inner one off, too


def bindings() -> None:
    bound = cp.Profiler()
    bound.set_profiling(True)
    with bound, bound, profiler:
        cp.profile_node("in force")(len)(())
        with cp.profile_node("block in force"):
            pass


def copies() -> None:
    copy.copy(site)
    copy.deepcopy(off)
    copy.deepcopy([cp.stage("val", default=True), cp.record("label"), profiler])
    pickle.loads(pickle.dumps(cp.profile_node("block")))
    assert repr(site)
    assert site.name == "block"
    assert site.profiler is profiler
    assert site.stage is None


def elsewhere() -> None:
    site.__enter__()
    stage = cp.stage("elsewhere")
    stage.__enter__()
    profiler.__enter__()
    for manager in (site, stage, profiler):
        thread = threading.Thread(target=leave, args=(manager,))
        thread.start()
        thread.join()


loop = asyncio.new_event_loop()

SCENARIOS: dict[str, leaks_harness.Scenario] = {
    **by_name(
        nested, raised, out_of_order, switched_inside, in_contexts, dropped_generator, dropped_coroutine, never_left,
        tasks, stages, bindings, copies, elsewhere, dropped_while_open, decorated,
    ),
    "without a name": refused(nameless.__enter__, TypeError),
    "left without entry": refused(lambda: leave(site), RuntimeError),
    "stage left without entry": refused(lambda: leave(cp.stage("train")), RuntimeError),
    "default stage left without entry": refused(lambda: leave(cp.stage("train", default=True)), RuntimeError),
    "profiler left without entry": refused(lambda: leave(profiler), RuntimeError),
    "wrong stage": refused(lambda: cp.stage(Stage.WRONG), TypeError),
    "long stage": refused(lambda: cp.stage("x" * 5000), ValueError),
    "stage with NUL": refused(lambda: cp.stage("\0"), ValueError),
}  # fmt: skip

if __name__ == "__main__":
    leaks_harness.main(SCENARIOS)
    loop.close()
