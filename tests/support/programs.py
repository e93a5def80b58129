"""Random programs of calls, blocks, generators, coroutines and contexts, which count the calls that they begin."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import random
import types
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

from calls import profiler_on

MAX_DEPTH = 4
REFUSALS = ("already executing", "cannot reuse", "already being awaited", "cannot enter context", "already running")


class Failure(Exception):
    """What the nodes of a program fail with."""


@types.coroutine
def suspend() -> Generator[None, None, None]:
    """Suspend the awaiting coroutine once."""
    yield


class Program:
    """Begins calls, resumes, closes and drops what is suspended, and remembers how many calls began."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.p, other = profiler_on(), profiler_on()
        self.begun: dict[str, int] = {}
        self.suspended: list[Any] = []
        self.contexts = [contextvars.copy_context() for _ in range(3)]
        self.sites = {name: self.p.profile_node(name) for name in ("site 0", "site 1")}
        self.call = self.p.profile_node("call")(self.body)
        twice = other.profile_node("of another")(self.p.profile_node("inner")(self.body))
        self.outer = self.p.profile_node("outer")(twice)
        self.generator = self.p.profile_node("generator")(self.generate)
        self.coroutine = self.p.profile_node("coroutine")(self.wait)
        self.async_generator = self.p.profile_node("async generator")(self.iterate)

    def begin(self, name: str) -> str:
        self.begun[name] = self.begun.get(name, 0) + 1
        return name

    def maybe(self, probability: float) -> bool:
        return self.rng.random() < probability

    def site(self) -> Any:
        return self.sites[self.begin(self.rng.choice(list(self.sites)))]

    # What runs inside of the nodes.

    def body(self, depth: int) -> None:
        for _ in range(self.rng.randrange(3)):
            self.act(depth + 1)
        if self.maybe(0.2):
            raise Failure

    def generate(self, depth: int) -> Iterator[int]:
        self.begin("generator")
        for _ in range(self.rng.randrange(4)):
            self.act(depth + 1)
            with self.site() if self.maybe(0.4) else contextlib.nullcontext():
                yield 1
        if self.maybe(0.2):
            raise Failure

    async def wait(self, depth: int) -> None:
        self.begin("coroutine")
        for _ in range(self.rng.randrange(4)):
            self.act(depth + 1)
            async with self.site() if self.maybe(0.4) else contextlib.nullcontext():
                await (self.coroutine(depth + 1) if depth < MAX_DEPTH and self.maybe(0.4) else suspend())
        if self.maybe(0.2):
            raise asyncio.CancelledError

    async def iterate(self, depth: int) -> AsyncIterator[int]:
        self.begin("async generator")
        for _ in range(self.rng.randrange(4)):
            await suspend()
            self.act(depth + 1)
            yield 1

    async def use(self, depth: int) -> None:
        async for _ in self.async_generator(depth):
            if self.maybe(0.2):
                break

    # What a program does.

    def act(self, depth: int) -> None:
        """One action without being suspended; whatever nodes fail with ends here."""
        if depth > MAX_DEPTH:
            return
        actions = [self.run_call, self.run_outer, self.run_block, self.run_generator, self.run_in_context, self.resume]
        with contextlib.suppress(Failure, asyncio.CancelledError):
            self.rng.choice(actions)(depth)

    def run_call(self, depth: int) -> None:
        self.begin("call")
        self.call(depth)

    def run_outer(self, depth: int) -> None:
        self.begin("outer")
        self.outer(depth)

    def run_block(self, depth: int) -> None:
        with self.site():
            self.body(depth)

    def run_generator(self, depth: int) -> None:
        for _ in self.generator(depth):
            if self.maybe(0.2):
                break

    def run_in_context(self, depth: int) -> None:
        try:
            self.rng.choice(self.contexts).run(self.act, depth + 1)
        except RuntimeError as error:
            self.check_refusal(error)

    def start(self, depth: int) -> None:
        if len(self.suspended) < 8:
            self.suspended.append(self.rng.choice([self.generator, self.coroutine, self.use])(depth))

    def resume(self, depth: int) -> None:
        """Resume, close or drop something that is suspended, or perhaps running further out."""
        if not self.suspended or self.maybe(0.2):
            self.start(depth)
            return
        chosen = self.rng.choice(self.suspended)
        try:
            self.rng.choice(
                [lambda: chosen.send(None)] * 7 + [chosen.close, lambda: chosen.throw(Failure()), self.drop]
            )()
        except StopIteration:
            pass
        except (ValueError, RuntimeError) as error:
            self.check_refusal(error)

    def drop(self) -> None:
        self.suspended.pop(self.rng.randrange(len(self.suspended)))
        if self.maybe(0.3):
            gc.collect()

    @staticmethod
    def check_refusal(error: Exception) -> None:
        """Python refuses some resumptions; we refuse nothing."""
        if not any(text in str(error) for text in REFUSALS):
            raise error

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.act(0)
        while self.suspended:
            with contextlib.suppress(Failure, asyncio.CancelledError):
                self.suspended.pop().close()
        gc.collect()
