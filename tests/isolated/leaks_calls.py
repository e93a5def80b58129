"""Leaks of every kind of callable, on good paths and on bad ones."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import cprofiling as cp
from isolated import leaks_harness

profiler = cp.Profiler()
profiler.set_profiling(True)
other = cp.Profiler()
other.set_profiling(True, skip_first_n=3)
off = cp.Profiler()
node = functools.partial(profiler.profile_node, stage="train")


class PlannedError(Exception):
    """What a node raises on purpose."""


@types.coroutine
def pause() -> Generator[None, object, object]:
    return (yield)


def drive(awaitable: Any, *, steps: int = 100, error: BaseException | None = None) -> None:
    """Run a coroutine, or an asynchronous generator's step, for some steps; then raise an error in it, if given."""
    try:
        for _ in range(steps):
            awaitable.send(None)
        if error is not None:
            awaitable.throw(error)
    except (StopIteration, StopAsyncIteration, PlannedError):
        pass


@node(name="function")
def function(*args: object, **kwargs: object) -> tuple[object, ...]:
    return args


@node(name="raising")
def raising(error: Callable[[], BaseException] = PlannedError) -> None:
    raise error()


@node(name="generator")
def generator(n: int) -> Generator[list[int], object, list[int]]:
    for i in range(n):
        yield [i]
    if n == 13:
        raise PlannedError
    return [n]


@node(name="coroutine")
async def coroutine(n: int) -> list[int]:
    for _ in range(n):
        await pause()
    if n == 13:
        raise PlannedError
    return [n]


@node(name="agenerator")
async def agenerator(n: int) -> AsyncIterator[list[int]]:
    for i in range(n):
        await pause()
        yield [i]
    if n == 13:
        raise PlannedError


@node(name="recursive")
def recursive(n: int) -> int:
    return 0 if n == 0 else 1 + recursive(n - 1)


class Methods:
    """One of each kind of method."""

    def __init__(self) -> None:
        self.label = "label"

    @node(name="method")
    def method(self) -> Methods:
        return self

    @node(name=lambda self: self.label)
    def named(self) -> None: ...

    @node(name=lambda self: 1 / 0)
    def misnamed(self) -> None: ...

    @classmethod
    @node(name="class method")
    def class_method(cls) -> None: ...

    @staticmethod
    @node(name="static method")
    def static_method() -> None: ...

    @property
    @node(name="property")
    def attribute(self) -> int:
        return 1

    @functools.cached_property
    @node(name="cached property")
    def cached(self) -> int:
        return 1

    @node(name="call")
    def __call__(self) -> None: ...


class Slotted:
    """An instance without weak references, named at each call."""

    __slots__ = ()

    @node(name=lambda self: f"slotted {type(self).__name__}")
    def named(self) -> None: ...


twice = node(name="outer")(node(name="inner")(function.__wrapped__))  # type: ignore[attr-defined]
for_two = other.profile_node(name="for two")(function)
switched_off = off.profile_node(name="off")(function.__wrapped__)  # type: ignore[attr-defined]
switched_off_generator = off.profile_node(name="off")(generator.__wrapped__)  # type: ignore[attr-defined]
synchronised = cp.Profiler()
synchronised.set_profiling(True, synchronize_cuda=True)
with_cuda = synchronised.profile_node(name="synchronised")(function.__wrapped__)  # type: ignore[attr-defined]


def suppressed(call: Callable[[], object], *errors: type[BaseException]) -> Callable[[], None]:
    def scenario() -> None:
        with contextlib.suppress(*errors):
            call()

    return scenario


def methods() -> None:
    instance = Methods()
    instance.method().named()
    instance.misnamed()
    instance.class_method()
    instance.static_method()
    assert instance.attribute == instance.cached == 1
    instance()
    Slotted().named()


def generator_ways() -> None:
    list(generator(5))
    generator(5)  # never begun
    running = generator(5)
    next(running)
    running.close()
    dropped = generator(5)
    next(dropped)
    del dropped
    thrown = generator(5)
    next(thrown)
    with contextlib.suppress(PlannedError):
        thrown.throw(PlannedError())
    with contextlib.suppress(PlannedError):
        list(generator(13))
    cyclic = generator(5)
    held: list[Any] = [cyclic]
    held.append(held)
    next(cyclic)


def delegated() -> Iterator[object]:
    result = yield from generator(3)
    yield result


def coroutine_ways() -> None:
    drive(coroutine(3))
    drive(coroutine(13))
    coroutine(3).close()  # never begun
    begun = coroutine(3)
    drive(begun, steps=1)
    begun.close()
    drive(coroutine(3), steps=1)  # dropped
    drive(coroutine(3), steps=1, error=PlannedError())
    waiting = coroutine(0)
    with contextlib.suppress(StopIteration):
        next(waiting.__await__())


def agenerator_ways() -> None:
    running: Any = agenerator(2)
    for _ in range(3):
        drive(running.__anext__())
    stopped: Any = agenerator(2)
    drive(stopped.__anext__())
    drive(stopped.aclose())
    sent: Any = agenerator(2)
    drive(sent.asend(None))
    drive(sent.athrow(PlannedError()))
    failing: Any = agenerator(13)
    for _ in range(14):
        drive(failing.__anext__())
    dropped: Any = agenerator(2)
    drive(dropped.__anext__())
    given_up: Any = agenerator(2)
    step = given_up.__anext__()
    step.send(None)
    step.close()


def in_a_new_thread() -> None:
    def body() -> None:
        function()
        with profiler.profile_node("block"), contextlib.suppress(PlannedError):
            raising()

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def left_open_by_a_thread() -> None:
    running = generator(3)

    def body() -> None:
        profiler.profile_node("block").__enter__()
        next(running)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    list(running)


def beyond_recursion() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        recursive(1000)
    except RecursionError:
        pass
    finally:
        sys.setrecursionlimit(limit)


SCENARIOS: dict[str, leaks_harness.Scenario] = {
    "function": lambda: function(1, [2], key=[3]),
    "raising function": suppressed(raising, PlannedError),
    "function raising no Exception": suppressed(lambda: raising(SystemExit), SystemExit),
    "wrong arguments": suppressed(lambda: generator(), TypeError),  # type: ignore[call-arg]
    "decorated twice": lambda: twice([1]),
    "for two profilers": lambda: for_two([1]),
    "switched off": lambda: (switched_off([1]), list(switched_off_generator(2))),
    "synchronised": lambda: with_cuda([1]),
    "built-in function": lambda: node(name="len")(len)([1]),
    "delegated generator": lambda: list(delegated()),
    "recursion": lambda: recursive(20),
    **leaks_harness.by_name(
        methods, generator_ways, coroutine_ways, agenerator_ways, beyond_recursion, in_a_new_thread,
        left_open_by_a_thread,
    ),
}  # fmt: skip

if __name__ == "__main__":
    leaks_harness.main(SCENARIOS)
