"""Random programs, run with and without a recording: the statistics are the same, the recording has what ran."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pytest

import cprofiling as cp
from calls import by_name, profiler_on
from programs import MAX_DEPTH, Failure, Program, suspend
from recorded import profile

pytestmark = [
    pytest.mark.native,
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:the recording was stopped in step:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:skip_first_n changes:RuntimeWarning"),
]

STEPS = 100


def brief() -> None:
    """Be a node, for a few steps of any clock."""
    time.sleep(2e-6)


class Opened(NamedTuple):
    """A span as the program knows it; told from others by being another object."""

    number: int
    name: str
    parent: Opened | None


class LabelledProgram(Program):
    """A program that also labels what it does, calls nodes of nobody's, and switches Profilers; it knows what is open.

    What is open is one stack: what is suspended takes its part along, and puts it on top where it is resumed.
    """

    def __init__(self, seed: int, disturb: Callable[[], object] = lambda: None) -> None:
        super().__init__(seed)
        self.call: Any
        self.outer: Any
        self.disturb = disturb
        self.profilers = [self.p, profiler_on(skip_first_n=2), cp.Profiler()]
        self.labels = [cp.record("label 0"), cp.record("label 1")]
        self.free = cp.profile_node(self.body, name="free")
        self.labelled = cp.record("labelled")(self.body)
        self.stack: list[Opened] = []
        self.opened: list[Opened] = []
        self.parts: WeakKeyDictionary[Any, list[Opened]] = WeakKeyDictionary()

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[None]:
        """Note that a span is open meanwhile."""
        span = Opened(len(self.opened), name, self.stack[-1] if self.stack else None)
        self.opened.append(span)
        self.stack.append(span)
        try:
            yield
        finally:
            self.stack[:] = [other for other in self.stack if other is not span]

    # What runs inside of the nodes.

    def body(self, depth: int, name: str = "") -> None:
        with self.open(name):
            super().body(depth)

    def generate(self, depth: int) -> Iterator[int]:
        with self.open("generator"):
            for _ in range(self.rng.randrange(4)):
                self.act(depth + 1)
                with self.some_block() if self.maybe(0.4) else contextlib.nullcontext():
                    yield 1
            if self.maybe(0.2):
                raise Failure

    async def wait(self, depth: int) -> None:
        with self.open("coroutine"):
            for _ in range(self.rng.randrange(4)):
                self.act(depth + 1)
                with self.some_block() if self.maybe(0.4) else contextlib.nullcontext():
                    await (self.coroutine(depth + 1) if depth < MAX_DEPTH and self.maybe(0.4) else suspend())
            if self.maybe(0.2):
                raise asyncio.CancelledError

    async def iterate(self, depth: int) -> Any:
        with self.open("async generator"):
            for _ in range(self.rng.randrange(4)):
                await suspend()
                self.act(depth + 1)
                yield 1

    @contextlib.contextmanager
    def some_block(self) -> Iterator[None]:
        """A node's block, or a label's, either of which may be open further out."""
        blocks: list[Any] = [*self.sites.values(), *self.labels]
        block = self.rng.choice(blocks)
        with block, self.open(block.name):
            yield

    # What a program does.

    def act(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            return
        self.disturb()
        actions: list[Callable[[int], object]] = [
            self.run_call,
            self.run_outer,
            self.run_block,
            self.run_generator,
            self.run_in_context,
            self.resume,
            self.run_free,
            self.run_labelled,
            self.run_bound,
            self.switch,
        ]
        with contextlib.suppress(Failure, asyncio.CancelledError):
            self.rng.choice(actions)(depth)

    def run_call(self, depth: int) -> None:
        self.call(depth, "call")

    def run_outer(self, depth: int) -> None:
        with self.open("outer"):
            self.outer(depth, "of another")

    def run_free(self, depth: int) -> None:
        self.free(depth, "free")

    def run_labelled(self, depth: int) -> None:
        self.labelled(depth, "labelled")

    def run_block(self, depth: int) -> None:
        with self.some_block():
            super().body(depth)

    def run_generator(self, depth: int) -> None:
        generator: Any = self.generator(depth)
        while not self.maybe(0.2) and self.resumed(generator, generator.send, None):
            pass

    def run_bound(self, depth: int) -> None:
        """Some nodes of nobody's, in the name of a Profiler, which is perhaps off."""
        with self.rng.choice(self.profilers):
            super().body(depth)

    def switch(self, depth: int) -> None:
        """Switch a Profiler.

        Generators called while theirs is off are the user's own, and leave their blocks open when they are suspended; a
        recording tells these from others. So none lives on from before theirs is switched on.
        """
        profiler = self.rng.choice(self.profilers)
        if profiler is self.p:
            if depth > 0:
                return
            self.close_all()
        profiler.set_profiling(self.maybe(0.7), reset=self.maybe(0.1), skip_first_n=self.rng.choice([0, 2]))

    def resume(self, depth: int) -> None:
        if not self.suspended or self.maybe(0.2):
            self.start(depth)
            return
        chosen = self.rng.choice(self.suspended)
        way = self.rng.choice(["send"] * 7 + ["close", "throw", "drop"])
        arguments: dict[str, list[Any]] = {"send": [None], "throw": [Failure()]}
        try:
            if way == "drop":
                self.drop()
            else:
                self.resumed(chosen, getattr(chosen, way), *arguments.get(way, []))
        except (ValueError, RuntimeError) as error:
            self.check_refusal(error)

    def resumed(self, chosen: Any, resume: Callable[..., Any], *arguments: Any) -> bool:
        """Resume with the part of the stack that belongs to what is resumed. False: it has come to its end."""
        base = len(self.stack)
        self.stack += self.parts.pop(chosen, [])
        try:
            resume(*arguments)
        except StopIteration:
            return False
        finally:
            self.parts[chosen] = self.stack[base:]
            del self.stack[base:]
        return True

    def close_all(self) -> None:
        for _ in range(len(self.suspended)):
            with contextlib.suppress(Failure, asyncio.CancelledError, ValueError):  # it may be running further out
                self.suspended.pop(0).close()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.act(0)
        self.close_all()
        gc.collect()

    # What came of it.

    def statistics(self) -> list[Any]:
        """All figures that are no times, in the summaries' order."""
        return [
            [
                (
                    one.stage,
                    one.node_name,
                    one.count,
                    one.error_count,
                    one.cancelled_count,
                    one.skipped_count,
                    one.dropped_count,
                    one.self_total_ms is None,
                    one.active_total_ms is None,
                )
                for one in profiler.get_profiling_summary()
            ]
            for profiler in self.profilers
        ]


def alone(seed: int) -> LabelledProgram:
    program = LabelledProgram(seed)
    program.run(STEPS)
    return program


@pytest.mark.parametrize("seed", range(25))
def test_a_recording_has_what_ran_and_statistics_do_not_know_of_it(seed: int) -> None:
    with profile() as prof:
        program = LabelledProgram(seed)
        program.run(STEPS)
    events = prof.events()
    numbers = {event.span_id: number for number, event in enumerate(events)}
    assert prof.dropped == 0
    assert [
        (event.name, None if event.parent_span_id is None else numbers[event.parent_span_id]) for event in events
    ] == [(span.name, span.parent and span.parent.number) for span in program.opened]
    assert program.statistics() == alone(seed).statistics()


class Disturber:
    """Begins, ends, pauses and resumes recordings at random moments, which the program knows nothing of."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.rng = random.Random(-seed)
        self.options = options
        self.prof: cp.profile | None = None
        self.is_paused = False

    def __call__(self) -> None:
        if self.rng.random() < 0.9:
            return
        if self.prof is None:
            self.prof = profile(schedule=cp.schedule(wait=0, warmup=0, active=2), **self.options)
            self.prof.start()
            self.is_paused = False
            return
        self.rng.choice([self.end, self.prof.step, self.pause])()

    def pause(self) -> None:
        if self.prof is not None:
            (self.prof.resume if self.is_paused else self.prof.pause)()
            self.is_paused = not self.is_paused

    def end(self) -> None:
        if self.prof is not None:
            self.prof.stop()
            check_traces(self.prof)
            self.prof = None


def check_traces(prof: cp.profile) -> None:
    events = prof.events()
    by_span = {event.span_id: event for event in events}
    for event in events:
        parent = by_span.get(event.parent_span_id) if event.parent_span_id is not None else None
        if parent is not None:
            assert parent.trace_id == event.trace_id
            assert parent.start <= event.start <= event.end


EVERYTHING = {"with_stack": True, "record_shapes": True, "profile_memory": True, "capacity": 3}


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["times", "everything"])
@pytest.mark.parametrize("seed", range(8))
def test_recordings_that_come_and_go_do_not_change_statistics(seed: int, options: dict[str, Any]) -> None:
    disturber = Disturber(seed, **options)
    program = LabelledProgram(seed, disturber)
    program.run(STEPS)
    disturber.end()
    assert program.statistics() == alone(seed).statistics()


@pytest.mark.parametrize("recorded", [False, True])
def test_what_is_called_while_statistics_are_off_is_not_counted_later(recorded: bool) -> None:
    """Without a recording it would be the user's own object, begun whenever."""
    profiler = cp.Profiler()

    @profiler.profile_node("generator")
    def generator() -> Iterator[int]:
        yield 1

    @profiler.profile_node("coroutine")
    async def coroutine() -> None:
        await suspend()

    with profile() if recorded else contextlib.nullcontext() as prof:
        running, waiting = generator(), coroutine()
        profiler.set_profiling(True)
        assert [*running] == [1]
        waiting.send(None)
        waiting.close()
        assert [*generator()] == [1]
    assert [(stats.node_name, stats.count) for stats in profiler.get_profiling_summary()] == [("generator", 1)]
    if prof is not None:
        assert [event.name for event in prof.events()] == ["generator", "coroutine", "generator"]


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("kind", ["call", "generator", "block"])
def test_labels_that_outlive_a_node_do_not_change_its_self_time(kind: str, recorded: bool) -> None:
    """As those of hooks, of which one enters a label and another leaves it."""
    profiler = profiler_on()
    child = profiler.profile_node("child")(brief)
    label, around = cp.record("label"), cp.record("around")

    def begin() -> None:
        child()
        label.__enter__()
        around.__enter__()
        child()

    def generate() -> Iterator[int]:
        begin()
        yield 1

    with profile() if recorded else contextlib.nullcontext() as prof, profiler.profile_node("outermost"):
        if kind == "call":
            profiler.profile_node("node")(begin)()
        elif kind == "generator":
            assert [*profiler.profile_node("node")(generate)()] == [1]
        else:
            with profiler.profile_node("node"):
                begin()
        child()
        label.__exit__(None, None, None)
        child()
        around.__exit__(None, None, None)
    times = by_name(profiler)
    assert [each.self_total_ms is None for each in times.values()] == [False] * 3
    inside = {name: each.total_ms - (each.self_total_ms or 0.0) for name, each in times.items()}
    children_ms = times["node"].total_ms + times["child"].total_ms - inside["node"]
    assert inside["outermost"] == pytest.approx(children_ms, abs=1e-5)  # rounded down to ns, each by itself
    assert 0 < inside["node"] < times["child"].total_ms
    if prof is not None:
        assert len(prof.events()) == 8
