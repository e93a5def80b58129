"""The stop-watch: times statements in one unrolled loop, in shuffled, interleaved rounds."""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

UNROLL = 10
WARM_UP_PASSES = 50
SEED = 1985

LOOP_ONLY = "loop only"


@dataclass(frozen=True)
class Workload:
    """A statement to time, the objects that it names, and the context in which it is timed.

    ``session`` makes a context manager that is open around each timed pass and whose own cost is not counted: a
    profiler that has to be switched on and off, for example.
    """

    statement: str
    names: Mapping[str, object]
    session: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext


@dataclass(frozen=True)
class Candidate:
    """One line of the comparison.

    ``baseline`` names the candidate whose median is subtracted. ``share`` is the share of the inner calls that it
    gets: less than 1 for tools that are slow and keep every event. ``minimum`` is the oldest CPython that it runs on.
    """

    name: str
    group: str
    prepare: Callable[[], Workload]
    baseline: str
    share: float = 1.0
    minimum: tuple[int, int] = (3, 10)


class Catalogue:
    """The candidates of one module, in the order in which they are declared."""

    def __init__(self, group: str) -> None:
        """Start without candidates; ``group`` is the heading that they come under."""
        self.group = group
        self.candidates: list[Candidate] = []

    def add(
        self, name: str, *, baseline: str, share: float = 1.0, minimum: tuple[int, int] = (3, 10)
    ) -> Callable[[Callable[[], Workload]], Callable[[], Workload]]:
        """Declare the decorated function, which makes a workload, as the candidate ``name``."""

        def register(prepare: Callable[[], Workload]) -> Callable[[], Workload]:
            self.candidates.append(Candidate(name, self.group, prepare, baseline, share, minimum))
            return prepare

        return register


@dataclass
class Measurements:
    """What a run measured: ns per call of each candidate and round, and why the others are absent."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    floor: list[float] = field(default_factory=list)

    def median(self, name: str) -> float:
        """Return the median ns per call of a candidate, loop included. Raises KeyError if it was not measured."""
        return statistics.median(self.samples[name])


def build_loop(statement: str, names: Iterable[str]) -> Callable[..., None]:
    """Return a function of an iterator and ``names`` that runs ``statement`` UNROLL times for each item.

    Every call compiles a code object of its own, so that one candidate's type feedback never serves another.
    """
    body = textwrap.indent((statement.strip() + "\n") * UNROLL, " " * 8)
    source = f"def loop({', '.join(['iterator', *names])}):\n    for _ in iterator:\n{body}"
    namespace: dict[str, Any] = {}
    exec(compile(source, "<benchmark loop>", "exec"), namespace)
    loop: Callable[..., None] = namespace["loop"]
    return loop


class Timer:
    """A prepared candidate: each ``sample`` is one timed pass over a fixed number of inner calls.

    The clock is the thread's CPU time: what the scheduler gives to other processes meanwhile is no cost of a call.
    """

    def __init__(self, candidate: Candidate, calls: int) -> None:
        """Prepare the candidate for passes of ``calls`` inner calls. Raises whatever its preparation raises."""
        workload = candidate.prepare()
        self._loop = build_loop(workload.statement, workload.names)
        self._objects = tuple(workload.names.values())
        self._session = workload.session
        self._passes = max(1, int(calls * candidate.share) // UNROLL)

    def sample(self) -> float:
        """Return the ns per call of one pass, warmed up first, inside the candidate's session."""
        with self._session():
            self._loop(itertools.repeat(None, WARM_UP_PASSES), *self._objects)
            start = time.thread_time_ns()
            self._loop(itertools.repeat(None, self._passes), *self._objects)
            elapsed = time.thread_time_ns() - start
        return elapsed / (self._passes * UNROLL)


def elapsed_ns(function: Callable[[], object]) -> int:
    """Return the CPU time of one call; what it returns is freed outside of it."""
    start = time.thread_time_ns()
    result = function()
    elapsed = time.thread_time_ns() - start
    del result
    return elapsed


def explain(error: BaseException) -> str:
    """Return in one line why a candidate is absent."""
    if isinstance(error, ModuleNotFoundError):
        return f"not installed ({error})"
    return " ".join(f"failed: {type(error).__name__}: {error}".split())


def prepare(candidates: Sequence[Candidate], calls: int, result: Measurements) -> dict[str, Timer]:
    """Return the timers of the candidates that are usable here, and note why the others are absent."""
    timers: dict[str, Timer] = {}
    for candidate in candidates:
        if sys.version_info < candidate.minimum:
            result.absent[candidate.name] = "needs CPython {}.{} or later".format(*candidate.minimum)
            continue
        try:
            timers[candidate.name] = Timer(candidate, calls)
        except Exception as error:
            result.absent[candidate.name] = explain(error)
    return timers


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Keep the garbage collector, and what was made before, out of what is timed inside."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def run_round(timers: dict[str, Timer], order: Sequence[str], result: Measurements) -> None:
    """Take one sample of each candidate; one that raises is dropped from this round on, and named."""
    gc.collect()
    for name in order:
        if name not in timers:
            continue
        try:
            result.samples.setdefault(name, []).append(timers[name].sample())
        except Exception as error:
            result.absent[name] = explain(error)
            result.samples.pop(name, None)
            del timers[name]


def measure(
    candidates: Sequence[Candidate],
    *,
    rounds: int,
    calls: int,
    floor: Callable[[], float],
    progress: Callable[[int, int], None],
) -> Measurements:
    """Time all candidates in ``rounds`` interleaved rounds of ``calls`` inner calls each, in shuffled order.

    ``floor`` is read once per round; when it raises, the floor stays unknown and is listed as absent. ``progress`` is
    told the number of the round that begins, from 0, and how many there are.
    """
    result = Measurements()
    timers = prepare(candidates, calls, result)
    shuffle = random.Random(SEED)
    with collector_off():
        for number in range(rounds):
            progress(number, rounds)
            order = list(timers)
            shuffle.shuffle(order)
            run_round(timers, order, result)
            read_floor(floor, result)
    return result


def read_floor(floor: Callable[[], float], result: Measurements) -> None:
    """Add one reading of the machine's floor, or the reason why there is none."""
    if "floor" in result.absent:
        return
    try:
        result.floor.append(floor())
    except Exception as error:
        result.absent["floor"] = explain(error)
