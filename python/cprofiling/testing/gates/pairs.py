"""Comparison of two callables that are timed in turns."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cprofiling._internal import arguments
from cprofiling._internal.text import shown_text, shown_value
from cprofiling.analysis.comparison import UNSURE
from cprofiling.testing.gates.bootstrap import ENOUGH, METRICS, SEED, judged_times, paired_change, rule_of
from cprofiling.testing.gates.timed_call import CALL, MOST_ROUNDS, SMALLEST_MS, Timer, only_compute, series

if TYPE_CHECKING:
    from cprofiling.analysis.comparison import Verdict
    from cprofiling.testing.gates.bootstrap import Rule
    from cprofiling.testing.gates.timed_call import Turn

LEAST_PAIRS, MOST_PAIRS = 2, 1_000_000


@dataclass(frozen=True)
class PairedTimes:
    """Comparison of one time.

    Attributes:
        name: The node's; empty for the whole call.
        pairs: The pairs in which both sides have it.
        old_ms: The figure of the baseline: mean, median or 95th percentile, as ``metric`` says.
        new_ms: The same of the other side.
        change_pct: By how much it grew, in percent; by the median, that of the pairs' own ratios.
        interval_pct: The bootstrap interval for that; None if unknown.
        verdict: ``slower`` (``faster``): all of the interval lies beyond the limit; ``same``: it lies within;
            ``unclear``: neither; ``not enough samples`` and ``unknown``: there is none.
        reason: Why there is no clear verdict; empty otherwise.
    """

    name: str
    pairs: int
    old_ms: float | None
    new_ms: float | None
    change_pct: float | None
    interval_pct: tuple[float, float] | None
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class PairedComparison:
    """Result of ``compare_pairs``. ``str()`` has a line for each time.

    Attributes:
        call: The whole call.
        nodes: The nodes in it, as first met; nodes of only one side are ``unknown``.
        metric: ``mean``, ``median`` or ``p95``.
        limit_pct: The change that counts.
        confidence: Of all intervals together.
        clock: ``cpu``: times are those of the processor, as most calls did nothing but compute in their thread, so that
            other programs' load is no part of them; ``wall``: they waited for something, or used other threads.
    """

    call: PairedTimes
    nodes: tuple[PairedTimes, ...]
    metric: str
    limit_pct: float
    confidence: float
    clock: Literal["cpu", "wall"]

    @property
    def has_regressed(self) -> bool:
        """Whether the call or a node is slower."""
        return any(row.verdict == "slower" for row in (self.call, *self.nodes))

    @property
    def is_unsure(self) -> bool:
        """Whether the call or a node has no clear verdict."""
        return any(row.verdict in UNSURE for row in (self.call, *self.nodes))

    def __str__(self) -> str:
        return "\n".join(self._line(row) for row in (self.call, *self.nodes))

    def _line(self, row: PairedTimes) -> str:
        name = shown_text("name", row.name) if row.name else "(call)"
        if row.interval_pct is None or row.old_ms is None or row.new_ms is None or row.change_pct is None:
            return f"{name}: {row.verdict}: {row.reason}"
        figures = (
            f"{self.metric} {row.old_ms:.3f} -> {row.new_ms:.3f} ms ({self.clock}), {row.change_pct:+.1f} % "
            f"[{row.interval_pct[0]:+.1f}, {row.interval_pct[1]:+.1f}], limit {self.limit_pct:g} %, {row.pairs} pairs"
        )
        return f"{name}: {row.verdict}: {figures}" + (f": {row.reason}" if row.reason else "")


def compare_pairs(
    baseline: Callable[[], object],
    new: Callable[[], object],
    *,
    pairs: int = 100,
    warmup: int = 3,
    fail: str = "mean:5%",
    confidence: float = 0.95,
) -> PairedComparison:
    """Call two callables in turns, and judge whether the second is slower.

    Nodes that run in both are compared, too, each by all of its time in a call; not nodes that belong to another
    Profiler, such as a pipeline's own. Garbage collection stays as it is.

    Args:
        baseline: The reference.
        new: The candidate.
        pairs: How many calls of each, 2 to 1,000,000; fewer than 20 give no verdict. While that on the whole call is
            ``unclear``, as times spread too much, it goes on, up to four times as many.
        warmup: Calls of each before, which do not count, 0 to 1,000,000.
        fail: The figure that is compared and the growth that counts: ``mean:5%``, ``median:2%``, ``p95:10%``.
        confidence: Of all intervals together: above 0, at most 0.999999.

    Raises:
        TypeError, ValueError: An argument is of another type, form or range. What the callables raise passes through.
    """
    for parameter, function in (("baseline", baseline), ("new", new)):
        if not callable(function):
            raise TypeError(f"{parameter} must be callable, got {shown_value(function)}")
    count = arguments.index_between("pairs", pairs, LEAST_PAIRS, MOST_PAIRS)
    warmup = arguments.index_between("warmup", warmup, 0, MOST_PAIRS)
    rule, level = rule_of(fail), arguments.number_between("confidence", confidence, 1e-6, 0.999999)
    with closing(Timer()) as timer:
        for _ in range(warmup):
            timer.time(baseline)
            timer.time(new)
        turns: tuple[list[Turn], list[Turn]] = ([], [])
        source = random.Random(SEED)
        for _ in range(MOST_ROUNDS):
            for _ in range(count):
                for function, side in source.sample(((baseline, turns[0]), (new, turns[1])), 2):
                    side.append(timer.time(function))
            by_cpu = all(map(only_compute, turns))
            names = dict.fromkeys(name for side in turns for turn in side for name in turn.rows)
            call = _compared(CALL, turns, by_cpu, rule, level, len(names))
            if call.verdict != "unclear":
                break
    nodes = tuple(_compared(name, turns, by_cpu, rule, level, len(names)) for name in names if name != CALL)
    return PairedComparison(call, nodes, rule.metric, rule.limit_pct, level, "cpu" if by_cpu else "wall")


def _compared(
    name: str, turns: tuple[list[Turn], list[Turn]], by_cpu: bool, rule: Rule, confidence: float, family: int
) -> PairedTimes:
    both = [pair for pair in zip(*turns, strict=True) if all(name in turn.rows for turn in pair)]
    if not both:
        where = "baseline" if any(name in turn.rows for turn in turns[0]) else "new one"
        return PairedTimes(
            name, 0, None, None, None, None, "unknown", f"only in the {where}, or never in both of a pair"
        )
    size = len(both)
    old, new = (series((pair[side] for pair in both), name, by_cpu=by_cpu) for side in (0, 1))
    figures = METRICS[rule.metric](old), METRICS[rule.metric](new)
    if min(*old, *new) < SMALLEST_MS:
        reason = f"it takes less than {SMALLEST_MS:g} ms, too little to be timed by itself"
        return PairedTimes(name, size, *figures, None, None, "unknown", reason)
    change, draw = paired_change(old, new, rule.metric)
    verdict, interval, by_ranges = judged_times(change, draw, (old, new), rule.limit_pct, confidence, family)
    reason = "the interval is too wide" if verdict == "unclear" else ""
    if interval is None:
        reason = f"{size} pairs are too few, {ENOUGH} are needed"
    elif by_ranges:
        reason = "by ranges that do not overlap"
    return PairedTimes(name, size, *figures, change, interval, verdict, reason)
