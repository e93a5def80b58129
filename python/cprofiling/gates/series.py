"""Times of a callable in turns with work that is always the same, so that those of two runs can be compared.

What makes the machine slower meets both, and goes out of their ratio.
"""

from __future__ import annotations

import math
from contextlib import closing
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

from cprofiling import checks
from cprofiling.format import shown_value
from cprofiling.gates import turns
from cprofiling.gates.bootstrap import METRICS, interval_of, separate_change, verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from cprofiling.gates.bootstrap import Rule, Verdict

    Side: TypeAlias = Sequence[tuple[float, float]]

LEAST, MOST = 20, 100_000
CONFIDENCE = 0.95
_SMALLEST_MS = 0.05
_MOST_ROUNDS = 4
_LARGEST_ERROR_PCT = 0.75
_LARGEST_DELAY_PCT = 10.0
_LARGEST_IN_LINE_PCT = 1.0
_RUNS_DIFFER_PCT = 2.0  # beyond what their calls show
_SPEED_SHARE = 0.1
_REFERENCE_STEPS = 20_000  # about a millisecond


class Row(NamedTuple):
    """Times of the whole call, or of a node in it, and of the work that went with each."""

    wall_ms: list[float]
    cpu_ms: list[float] | None
    reference_wall_ms: list[float]
    reference_cpu_ms: list[float]


class Series(NamedTuple):
    """What was measured of one callable."""

    computes: bool  # it, or most calls of it, did nothing but compute in their thread
    rows: dict[str, Row]  # by node; empty: the whole call
    in_line_pct: float = 0.0  # of its time, in which it waited for a processor

    def to_dict(self) -> dict[str, Any]:
        """Return it as what JSON can say."""
        return {**self._asdict(), "rows": {name: row._asdict() for name, row in self.rows.items()}}

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> Series:
        """Take up what ``to_dict`` returned."""
        return cls(told["computes"], {name: Row(**row) for name, row in told["rows"].items()}, told["in_line_pct"])


def measured(function: Callable[[], object], repeat: int, warmup: int) -> Series:
    """Time a callable; see ``NodeProfiler.pairs``."""
    if not callable(function):
        raise TypeError(f"function must be callable, got {shown_value(function)}")
    count = checks.index_between("repeat", repeat, LEAST, MOST)
    warmup = checks.index_between("warmup", warmup, 0, MOST)
    with closing(turns.Timer()) as timer:
        for _ in range(warmup):
            timer.time(reference_work)
            timer.time(function)
        pairs: list[tuple[turns.Turn, turns.Turn]] = []
        for _ in range(_MOST_ROUNDS):
            pairs += [(timer.time(reference_work), timer.time(function)) for _ in range(count)]
            if _error_pct(pairs) <= _LARGEST_ERROR_PCT:
                break
    names = dict.fromkeys(name for _, turn in pairs for name in turn.rows)
    computes = turns.only_compute([turn for _, turn in pairs], [beside for beside, _ in pairs])
    rows = {name: _row([pair for pair in pairs if name in pair[1].rows], name) for name in names}
    in_line = sum(turn.in_line_ms for _, turn in pairs) / (
        sum(turn.rows[turns.CALL].wall_ms for _, turn in pairs) or 1.0
    )
    return Series(computes, rows, 100 * in_line)


def _error_pct(pairs: Sequence[tuple[turns.Turn, turns.Turn]]) -> float:
    """Return the standard error of the mean of the whole call's time beside the other's, in percent."""
    row = _row(pairs, turns.CALL)
    beside = zip(row.cpu_ms or row.wall_ms, row.reference_cpu_ms if row.cpu_ms else row.reference_wall_ms, strict=True)
    ratios = [time / other for time, other in beside if other > 0]
    return 100 * stdev(ratios) / math.sqrt(len(ratios)) / (fmean(ratios) or 1.0) if len(ratios) > 1 else 0.0


def reference_work() -> int:
    """Do what is always the same: arithmetic, and looking things up."""
    found: dict[int, int] = {}
    total = 0
    for step in range(_REFERENCE_STEPS):
        total = (total * 31 + step) & 0xFFFF
        found[total & 0xFF] = step
    return total + len(found)


def _row(pairs: Sequence[tuple[turns.Turn, turns.Turn]], name: str) -> Row:
    times = [turn.rows[name] for _, turn in pairs]
    beside = [turn.rows[turns.CALL] for turn, _ in pairs]
    known = [each.cpu_ms for each in times if each.cpu_ms is not None]
    return Row(
        [each.wall_ms for each in times],
        known if len(known) == len(times) else None,
        [each.wall_ms for each in beside],
        [each.cpu_ms or 0.0 for each in beside],
    )


class Change(NamedTuple):
    """What became of a row from one run to the other."""

    verdict: Verdict
    text: str


def change(old: Series, new: Series, name: str, rule: Rule) -> Change:
    """Return what became of a row that both have.

    By the clock, what waits takes as long on a slow machine as on a fast one, and what computes does not: so there a
    verdict is one only if it is the same beside the work that is always the same, and without it.
    """
    rows = old.rows[name], new.rows[name]
    by_cpu = old.computes and new.computes and all(row.cpu_ms is not None for row in rows)
    reason = _why_unknown(rows, by_cpu=by_cpu)
    if not by_cpu and max(old.in_line_pct, new.in_line_pct) > _LARGEST_IN_LINE_PCT:
        reason = "the machine was busy: it stood in line for a processor"
    if reason:
        return Change("unknown", f"unknown: {reason}")
    sides = [_beside(row, by_cpu=by_cpu) for row in rows]
    wider_pct = _uncertainty_pct(*sides)
    verdict, text = _judged(sides, rule, wider_pct)
    text += " beside work that is always the same"
    if not by_cpu:
        plain, plain_text = _judged([[(time, 1.0) for time in row.wall_ms] for row in rows], rule, wider_pct)
        if plain != verdict:
            verdict, text = "unknown", f"{text}, {plain_text} without"
    clock = "cpu" if by_cpu else "wall"
    return Change(verdict, f"{verdict}: {rule.metric} {text}, limit {rule.limit_pct:g} %, {clock} time")


def _why_unknown(rows: Sequence[Row], *, by_cpu: bool) -> str:
    for row in rows:
        if len(row.wall_ms) < LEAST:
            return f"{len(row.wall_ms)} times are too few, {LEAST} are needed"
        if min(time for time, _ in _beside(row, by_cpu=by_cpu)) < _SMALLEST_MS:
            return f"it takes less than {_SMALLEST_MS:g} ms"
        if min(row.reference_cpu_ms) <= 0 or min(row.reference_wall_ms) <= 0:
            return "the clock is too coarse for the work beside"
    delay_pct = max(100 * (fmean(row.reference_wall_ms) / fmean(row.reference_cpu_ms) - 1) for row in rows)
    if not by_cpu and delay_pct > _LARGEST_DELAY_PCT:
        return f"the machine was busy: work that only computes took {delay_pct:.0f} % longer than it computed"
    return ""


def _beside(row: Row, *, by_cpu: bool) -> Side:
    """Return each time, and that of the work that went with it."""
    if by_cpu and row.cpu_ms is not None:
        return list(zip(row.cpu_ms, row.reference_cpu_ms, strict=True))
    return list(zip(row.wall_ms, row.reference_wall_ms, strict=True))


def _uncertainty_pct(old: Side, new: Side) -> float:
    """Return by how much runs may differ beyond what their calls show.

    The same program has other addresses in each process; and what slows the machine down, such as a neighbour on the
    same core, slows each piece of work down a little differently.
    """
    speeds = [fmean(beside for _, beside in side) for side in (old, new)]
    return _RUNS_DIFFER_PCT + _SPEED_SHARE * 100 * (max(speeds) / min(speeds) - 1)


def _judged(sides: Sequence[Side], rule: Rule, wider_pct: float) -> tuple[Verdict, str]:
    changed, draw = separate_change(sides[0], sides[1], lambda side: _figure(side, rule.metric))
    low, high = interval_of(draw, CONFIDENCE)
    low, high = low - wider_pct, high + wider_pct
    return verdict_of((low, high), rule.limit_pct), f"{changed:+.1f} % [{low:+.1f}, {high:+.1f}]"


def _figure(side: Side, metric: str) -> float:
    if metric == "mean":  # the mean of quotients would grow with the noise of what is below
        return fmean(time for time, _ in side) / fmean(beside for _, beside in side)
    return METRICS[metric]([time / beside for time, beside in side])
