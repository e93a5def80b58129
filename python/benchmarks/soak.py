"""The thread soak: nodes called by many threads while others reset, switch and read, against the contract's equation.

Per key, what the Profiler counted since its last reset (recorded, skipped, errors, cancelled and dropped) must be the
calls that began while profiling was on and finished since then. Each caller reads, around and inside its call, how far
the resetting and the switching thread have come. Where that does not tell on which side of a change the call lies, it
counts as possible only: every figure must lie between what is certain and what is possible.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .candidates import cprofiling
from .harness import SEED

THREADS = 16
CALLS = 100_000
PHASES = 20
SKIP_FIRST_N = 3
FAIL_EVERY = 97
LINGER_EVERY = 13
MOST_RESETS = 6
LAST_RESET_AT = 0.9
PAUSE_S = 1e-4
SWITCH_INTERVAL_S = 1e-5
MOST_SHOWN = 20
SHARED = "shared by all threads"

COUNTED, ERRORS, DROPPED = "counted", "errors", "dropped"


class PlannedError(Exception):
    """What a node raises on purpose."""


@dataclass
class Epoch:
    """A counter that one thread advances and all read: odd while a change is under way, else settled."""

    value: int = 0

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """Mark a change as under way for as long as the block runs."""
        self.value += 1
        yield
        self.value += 1


def settled(before: int, after: int) -> int | None:
    """Return the number of changes made when something happened, from the epochs just before and just after it.

    None when that something may lie on either side of a change.
    """
    return before // 2 if before == after and before % 2 == 0 else None


class Call(NamedTuple):
    """The epochs read around the beginning and around the end of a call, and whether it raised.

    ``switches`` and ``begin`` are read before the call and first thing in its body, ``end`` last thing in its body and
    after the call.
    """

    switches: tuple[int, int]
    begin: tuple[int, int]
    end: tuple[int, int]
    failed: bool


@dataclass
class Tally:
    """One key's calls, by kind and generation (the number of resets made when they finished)."""

    certain: Counter[tuple[str, int]] = field(default_factory=Counter)
    possible: Counter[tuple[str, int]] = field(default_factory=Counter)

    def add(self, kind: str, generation: int, *, certain: bool) -> None:
        """Count one call as possible, or as possible and certain."""
        self.possible[kind, generation] += 1
        self.certain[kind, generation] += certain

    def note(self, call: Call, on: bool | None) -> None:
        """Count a call that began while profiling was on, or, for None, may have."""
        begin, end = settled(*call.begin), settled(*call.end)
        if on is None or begin is None or end is None:
            self._note_possible(call, may_be_late=begin is None or begin != end)
            return
        late = begin < end
        self.add(COUNTED, end, certain=True)
        if call.failed:
            self.add(ERRORS, end, certain=not late)
        if late:
            self.add(DROPPED, end, certain=not call.failed)

    def _note_possible(self, call: Call, *, may_be_late: bool) -> None:
        """Count a call as possible in each generation in which it may have finished."""
        for generation in range(call.begin[0] // 2, (call.end[1] + 1) // 2 + 1):
            self.add(COUNTED, generation, certain=False)
            if call.failed:
                self.add(ERRORS, generation, certain=False)
            if may_be_late:
                self.add(DROPPED, generation, certain=False)

    def merge(self, other: Tally) -> None:
        """Add another thread's tally of the same key."""
        self.certain.update(other.certain)
        self.possible.update(other.possible)

    def allows(self, kind: str, generation: int, figure: int) -> bool:
        """Whether a figure lies between what is certain and what is possible."""
        return self.certain[kind, generation] <= figure <= self.possible[kind, generation]


Node = Callable[[list[int], bool, bool], None]


class Phase:
    """A fresh Profiler, its nodes, and the threads that work, switch, reset and read until the calls are made.

    In every other phase the switching thread switches on what is on already: then no call's beginning is in doubt.
    """

    def __init__(self, number: int, threads: int, calls: int) -> None:
        """Make the nodes of ``threads`` threads of ``calls`` calls each; ``number`` seeds what is left to chance."""
        self.calls = calls
        self.made = [0] * threads
        self.states = (False, True) if number % 2 == 0 else (True,)
        self.random = random.Random(SEED + number)
        self.switches, self.resets = Epoch(), Epoch()
        self.working = threading.Event()
        self.working.set()
        self.violations: list[str] = []
        self.profiler = cprofiling().Profiler()
        self.profiler.set_profiling(True, skip_first_n=SKIP_FIRST_N)
        self.nodes = {name: self._node(name) for name in [SHARED, *(f"node {i}" for i in range(threads))]}
        self.tallies = {name: Tally() for name in self.nodes}
        self.merging = threading.Lock()

    def _node(self, name: str) -> Node:
        """Return a profiled function that notes the epochs in ``mark``, and lingers or raises as told."""

        def body(mark: list[int], linger: bool, fail: bool) -> None:
            mark[0], mark[1] = self.switches.value, self.resets.value
            if linger:
                time.sleep(0)
            mark[2] = self.resets.value
            if fail:
                raise PlannedError

        node: Node = self.profiler.profile_node(name)(body)
        return node

    def was_on(self, before: int, after: int) -> bool | None:
        """Whether profiling was on between two readings of the switches' epoch; None when that is in doubt."""
        if False not in self.states:
            return True
        switched = settled(before, after)
        return None if switched is None else switched % 2 == 0

    def call(self, node: Node, *, linger: bool, fail: bool) -> Call:
        """Call a node and return what was read on the way."""
        mark = [0, 0, 0]
        resets, switches = self.resets.value, self.switches.value
        with contextlib.suppress(PlannedError):
            node(mark, linger, fail)
        return Call((switches, mark[0]), (resets, mark[1]), (mark[2], self.resets.value), fail)

    def work(self, thread: int) -> None:
        """Call a node of this thread's own and the shared one by turns, and keep the tally."""
        names = (f"node {thread}", SHARED)
        tallies = [Tally() for _ in names]
        for number in range(self.calls):
            turn = number % len(names)
            fail, linger = number % FAIL_EVERY == 0, number % LINGER_EVERY == 0
            call = self.call(self.nodes[names[turn]], linger=linger, fail=fail)
            on = self.was_on(*call.switches)
            if on is not False:
                tallies[turn].note(call, on)
            self.made[thread] = number + 1
        with self.merging:
            for name, tally in zip(names, tallies, strict=True):
                self.tallies[name].merge(tally)

    def switch(self) -> None:
        """Switch profiling off and on, or on and on again, without discarding anything."""
        while self.working.is_set():
            for enabled in self.states:
                with self.switches.change():
                    self.profiler.set_profiling(enabled, skip_first_n=SKIP_FIRST_N)
                time.sleep(PAUSE_S)

    def reset(self) -> None:
        """Reset when shares of the calls are made, as many and as large as chance will have it."""
        shares = sorted(self.random.uniform(0, LAST_RESET_AT) for _ in range(self.random.randint(0, MOST_RESETS)))
        for share in shares:
            while sum(self.made) < share * self.calls * len(self.made) and self.working.is_set():
                time.sleep(PAUSE_S)
            with self.resets.change():
                self.profiler.reset_profiling()

    def read(self) -> None:
        """Read summaries and check that each of their rows is whole."""
        while self.working.is_set():
            for stats in self.profiler.get_profiling_summary():
                self.violations += torn(stats)

    def run(self) -> None:
        """Run all threads to their end, then check the equation for each key."""
        workers = [threading.Thread(target=self.work, args=(thread,)) for thread in range(len(self.made))]
        others = [threading.Thread(target=target) for target in (self.switch, self.reset, self.read)]
        for thread in [*others, *workers]:
            thread.start()
        for thread in workers:
            thread.join()
        self.working.clear()
        for thread in others:
            thread.join()
        unfinished = sum(made < self.calls for made in self.made)
        if unfinished:
            self.violations.append(f"{unfinished} of {len(workers)} working threads failed")
        self.check()

    @property
    def generation(self) -> int:
        """The number of resets made."""
        return self.resets.value // 2

    def check(self) -> None:
        """Compare the last generation's statistics with the tallies."""
        rows = {stats.node_name: stats for stats in self.profiler.get_profiling_summary()}
        for name, tally in self.tallies.items():
            self.violations += unequal(name, rows.get(name), tally, self.generation)


def torn(stats: Any) -> list[str]:
    """Return what in one row of a summary contradicts itself. Times are compared within 1e-9 of the largest."""
    between = (stats.mean_ms, stats.median_ms, stats.last_ms)
    if stats.count == 0:
        figures = (*between, stats.std_ms, stats.min_ms, stats.max_ms, stats.total_ms)
        return [f"{stats.node_name}: figures without a sample: {stats}"] if any(figures) else []
    slack = stats.max_ms * 1e-9
    within = all(stats.min_ms - slack <= value <= stats.max_ms + slack for value in between)
    total = stats.count * (stats.min_ms - slack) <= stats.total_ms <= stats.count * (stats.max_ms + slack)
    spread = 0 <= stats.std_ms <= (stats.max_ms - stats.min_ms) / 2 + slack
    skipped = stats.skipped_count == SKIP_FIRST_N
    return [] if within and total and spread and skipped else [f"{stats.node_name}: torn: {stats}"]


def unequal(name: str, stats: Any, tally: Tally, generation: int) -> list[str]:
    """Return how one key's statistics differ from what its callers counted in the last generation."""
    if stats is None:
        missing = tally.certain[COUNTED, generation]
        return [f"{name}: no row, but {missing} calls"] if missing else []
    successes = stats.count + stats.skipped_count
    counted = successes + stats.error_count + stats.cancelled_count + stats.dropped_count
    figures = {COUNTED: counted, ERRORS: stats.error_count, DROPPED: stats.dropped_count}
    broken = [
        f"{name}: {figure} {kind}, not {tally.certain[kind, generation]} to {tally.possible[kind, generation]}"
        for kind, figure in figures.items()
        if not tally.allows(kind, generation, figure)
    ]
    if stats.skipped_count != min(SKIP_FIRST_N, successes):
        broken.append(f"{name}: {stats.skipped_count} skipped of {successes}")
    return broken


@contextlib.contextmanager
def hasty_threads() -> Iterator[None]:
    """Have the interpreter change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def describe(phase: Phase) -> str:
    """Return in one line what happened in a phase, and whether everything held."""
    key = (COUNTED, phase.generation)
    certain = sum(tally.certain[key] for tally in phase.tallies.values())
    possible = sum(tally.possible[key] for tally in phase.tallies.values())
    return (
        f"{len(phase.made)} x {phase.calls:,} calls, {phase.switches.value // 2:,} switches, {phase.generation} resets;"
        f" {certain:,} to {possible:,} calls since the last: {'BROKEN' if phase.violations else 'held'}"
    )


def soak(share: float, say: Callable[[str], None]) -> bool:
    """Run the soak, THREADS threads of CALLS calls, scaled by ``share``; return whether everything held.

    Raises ImportError when cprofiling is not installed.
    """
    good = True
    with hasty_threads():
        for number in range(PHASES):
            phase = Phase(number, THREADS, max(1, round(CALLS * share / PHASES)))
            phase.run()
            say(f"phase {number + 1} of {PHASES}: {describe(phase)}")
            for violation in phase.violations[:MOST_SHOWN]:
                say(f"  {violation}")
            good = good and not phase.violations
    return good
