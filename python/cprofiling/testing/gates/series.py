"""Times of a callable in turns with fixed work, to compare two runs.

What makes the machine slower meets both, and goes out of their ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cprofiling._internal import arguments
from cprofiling._internal.text import shown_value
from cprofiling.analysis.comparison import CONFIDENCE, NOT_ENOUGH
from cprofiling.testing.gates.bootstrap import ENOUGH, METRICS, judged_times, separate_change
from cprofiling.testing.gates.timed_call import CALL, MOST_ROUNDS, SMALLEST_MS, Timer, only_compute

if TYPE_CHECKING:
    from cprofiling.analysis.comparison import Verdict
    from cprofiling.testing.gates.bootstrap import Rule
    from cprofiling.testing.gates.timed_call import Turn

    Side: TypeAlias = Sequence[tuple[float, float]]

MOST = 100_000
_LARGEST_ERROR_PCT = 0.75
_LARGEST_BUSY_PCT = 10.0
_RUNS_DIFFER_PCT = 2.0  # beyond what their calls show
_SPEED_SHARE = 0.1
_REFERENCE_STEPS = 20_000  # about a millisecond


class Row(NamedTuple):
    """Times of a call or node, and of the fixed work beside it."""

    wall_ms: list[float]
    cpu_ms: list[float] | None
    in_line_ms: list[float] | None  # of wall_ms, in line for a processor; None: not known
    others_cpu_ms: list[float]  # computed by other threads and children during the call
    reference_wall_ms: list[float]
    reference_cpu_ms: list[float]


class Series(NamedTuple):
    """Times of one callable."""

    computes: bool  # it, or most calls of it, did nothing but compute in their thread
    rows: dict[str, Row]  # by node; empty: the whole call

    def to_dict(self) -> dict[str, Any]:
        """Return it as what JSON can say."""
        return {**self._asdict(), "rows": {name: row._asdict() for name, row in self.rows.items()}}


def of_test(did: Mapping[str, Any]) -> dict[str, Series]:
    """Return the series in a test's record, by name."""
    return {
        name: Series(told["computes"], {row: Row(**times) for row, times in told["rows"].items()})
        for name, told in did["series"].items()
    }


def measured(function: Callable[[], object], repeat: int, warmup: int) -> Series:
    """Time a callable, as ``NodeProfiler.pairs`` says."""
    if not callable(function):
        raise TypeError(f"function must be callable, got {shown_value(function)}")
    count = arguments.index_between("repeat", repeat, ENOUGH, MOST)
    warmup = arguments.index_between("warmup", warmup, 0, MOST)
    with closing(Timer()) as timer:
        for _ in range(warmup):
            timer.time(reference_work)
            timer.time(function)
        pairs: list[tuple[Turn, Turn]] = []
        for _ in range(MOST_ROUNDS):
            pairs += [(timer.time(reference_work), timer.time(function)) for _ in range(count)]
            row = _row(pairs, CALL)
            beside = row.reference_cpu_ms if row.cpu_ms else row.reference_wall_ms
            ratios = [time / other for time, other in zip(row.cpu_ms or row.wall_ms, beside, strict=True) if other > 0]
            if len(ratios) < 2 or 100 * stdev(ratios) / math.sqrt(len(ratios)) <= _LARGEST_ERROR_PCT * fmean(ratios):
                break
    names = dict.fromkeys(name for _, turn in pairs for name in turn.rows)
    computes = only_compute([turn for _, turn in pairs], [beside for beside, _ in pairs])
    rows = {name: _row([pair for pair in pairs if name in pair[1].rows], name) for name in names}
    return Series(computes, rows)


def reference_work() -> int:
    """Do the fixed work."""
    found: dict[int, int] = {}
    total = 0
    for step in range(_REFERENCE_STEPS):
        total = (total * 31 + step) & 0xFFFF
        found[total & 0xFF] = step
    return total + len(found)


def _row(pairs: Sequence[tuple[Turn, Turn]], name: str) -> Row:
    times = [turn.rows[name] for _, turn in pairs]
    beside = [turn.rows[CALL] for turn, _ in pairs]
    known = [each.cpu_ms for each in times if each.cpu_ms is not None]
    lines = []  # the row's part of the time in line for a processor
    for (_, turn), each in zip(pairs, times, strict=True):
        call = turn.rows[CALL]
        off, all_off = (of.wall_ms - (of.cpu_ms or 0.0) for of in (each, call))
        if turn.in_line_ms is not None:
            lines.append(max(0.0, min(turn.in_line_ms * off / all_off, off)) if all_off > 0 else 0.0)
    return Row(
        [each.wall_ms for each in times],
        known if len(known) == len(times) else None,
        lines if len(lines) == len(times) else None,
        [turn.others_cpu_ms for _, turn in pairs],
        [each.wall_ms for each in beside],
        [each.cpu_ms or 0.0 for each in beside],
    )


class Change(NamedTuple):
    """Verdict on a row between two runs."""

    verdict: Verdict
    text: str


def change(old: Series, new: Series, name: str, rule: Rule, family: int = 1) -> Change:
    """Return the verdict on a row of two runs.

    By the clock, what waits takes as long on a slow machine as on a fast one, and what computes does not: so there a
    verdict is one only if it is the same beside the work that is always the same, and without it. What the machine's
    load can explain is taken off first. Of a busy machine that leaves what is slower, and nothing else, to be told.
    """
    rows = old.rows[name], new.rows[name]
    by_cpu = old.computes and new.computes and all(row.cpu_ms is not None for row in rows)
    clock = "cpu" if by_cpu else "wall"
    sides = [_beside(row, by_cpu=by_cpu, is_new=row is rows[1]) for row in rows]
    if min(time for side in sides for time, _ in side) < SMALLEST_MS:
        return Change("unknown", f"unknown: it takes less than {SMALLEST_MS:g} ms")
    if min(min(*row.reference_cpu_ms, *row.reference_wall_ms) for row in rows) <= 0:
        return Change("unknown", "unknown: the clock is too coarse for the work beside")
    # The same program has other addresses in each process, and a neighbour on the same core slows each piece of work
    # down a little differently.
    speeds = [fmean(beside for _, beside in side) for side in sides]
    wider_pct = _RUNS_DIFFER_PCT + _SPEED_SHARE * 100 * (max(speeds) / min(speeds) - 1)
    verdict, text = _judged(sides, rule, wider_pct, family)
    if verdict == NOT_ENOUGH:
        return Change(verdict, f"{verdict}: {text}")
    text += " beside work that is always the same"
    if not by_cpu:
        alone = [[(time, 1.0) for time, _ in side] for side in sides]
        plain, plain_text = _judged(alone, rule, wider_pct, family)
        if plain != verdict:
            verdict, text = "unclear", f"{text}, {plain_text} without"
        delays = [sum(row.reference_wall_ms) / sum(row.reference_cpu_ms) - 1 for row in rows]
        waits = [sum(row.in_line_ms or ()) / sum(row.wall_ms) for row in rows]
        busy = 100 * max(*delays, *waits)
        if verdict != "slower" and busy > _LARGEST_BUSY_PCT:
            verdict, text = "unknown", f"{text}: the machine was busy, by {busy:.0f} % of the time"
    return Change(verdict, f"{verdict}: {rule.metric} {text}, limit {rule.limit_pct:g} %, {clock} time")


def _beside(row: Row, *, by_cpu: bool, is_new: bool) -> Side:
    """Return each time, less the machine's load, with its fixed work.

    The processor's time has no part in any load. By the clock it is the time in line, and by as much as the machine
    delayed the work beside, what other threads and children computed. The latter is no more than an upper limit, and
    so is taken off the new side only.
    """
    if by_cpu and row.cpu_ms is not None:
        return list(zip(row.cpu_ms, row.reference_cpu_ms, strict=True))
    delay = max(0.0, sum(row.reference_wall_ms) / max(sum(row.reference_cpu_ms), SMALLEST_MS) - 1) if is_new else 0.0
    computed = row.cpu_ms or [0.0] * len(row.wall_ms)
    lines = row.in_line_ms or [cpu * delay for cpu in computed]
    excused = [line + others * delay for line, others in zip(lines, row.others_cpu_ms, strict=True)]
    left = (max(wall - off, cpu) for wall, off, cpu in zip(row.wall_ms, excused, computed, strict=True))
    return list(zip(left, row.reference_cpu_ms, strict=True))


def _judged(sides: Sequence[Side], rule: Rule, wider_pct: float, family: int) -> tuple[Verdict, str]:
    old, new = sides

    def figure(side: Side) -> float:
        if rule.metric == "mean":  # the mean of quotients would grow with the noise of the divisor
            return fmean(time for time, _ in side) / fmean(beside for _, beside in side)
        return METRICS[rule.metric]([time / beside for time, beside in side])

    changed, draw = separate_change(old, new, figure)
    ratios = [[time / beside for time, beside in side] for side in sides]
    found = judged_times(changed, draw, ratios, rule.limit_pct, CONFIDENCE, family, wider_pct)
    if found.by_ranges:
        where = "above" if found.verdict == "slower" else "below"
        return found.verdict, f"{changed:+.1f} %, all {len(new)} times are {where} all {len(old)} before,"
    if found.interval is None:
        return found.verdict, f"{min(len(old), len(new))} times, {ENOUGH} are needed"
    return found.verdict, f"{changed:+.1f} % [{found.interval[0]:+.1f}, {found.interval[1]:+.1f}]"
