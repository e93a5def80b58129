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
from cprofiling.gates.bootstrap import interval_of, separate_change, verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from cprofiling.gates.bootstrap import Rule, Verdict

LEAST, MOST = 20, 100_000
CONFIDENCE = 0.95
_SMALLEST_MS = 0.05
_MOST_ROUNDS = 4
_LARGEST_ERROR_PCT = 0.75
_REFERENCE_STEPS = 20_000  # about a millisecond


class Row(NamedTuple):
    """Times of the whole call, or of a node in it, and of the work that went with each."""

    wall_ms: list[float]
    cpu_ms: list[float] | None
    reference_wall_ms: list[float]
    reference_cpu_ms: list[float]


class Series(NamedTuple):
    """What was measured of one callable."""

    computes: bool  # it did nothing but compute in its thread
    rows: dict[str, Row]  # by node; empty: the whole call

    def to_dict(self) -> dict[str, Any]:
        """Return it as what JSON can say."""
        return {"computes": self.computes, "rows": {name: row._asdict() for name, row in self.rows.items()}}

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> Series:
        """Take up what ``to_dict`` returned."""
        return cls(told["computes"], {name: Row(**row) for name, row in told["rows"].items()})


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
    computes = turns.only_compute([turn for _, turn in pairs])
    return Series(computes, {name: _row([pair for pair in pairs if name in pair[1].rows], name) for name in names})


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
    """Return what became of a row that both have."""
    sides = []
    by_cpu = old.computes and new.computes and None not in (old.rows[name].cpu_ms, new.rows[name].cpu_ms)
    for row in (old.rows[name], new.rows[name]):
        times, beside = row.wall_ms, row.reference_wall_ms
        if by_cpu and row.cpu_ms is not None:
            times, beside = row.cpu_ms, row.reference_cpu_ms
        if len(times) < LEAST:
            return Change("unknown", f"unknown: {len(times)} times are too few, {LEAST} are needed")
        if min(times) < _SMALLEST_MS or min(beside) <= 0:
            return Change("unknown", f"unknown: it takes less than {_SMALLEST_MS:g} ms")
        sides.append([time / other for time, other in zip(times, beside, strict=True)])
    changed, draw = separate_change(sides[0], sides[1], rule.metric)
    interval = interval_of(draw, CONFIDENCE)
    verdict = verdict_of(interval, rule.limit_pct)
    return Change(
        verdict,
        f"{verdict}: {rule.metric} {changed:+.1f} % [{interval[0]:+.1f}, {interval[1]:+.1f}] beside work that is "
        f"always the same, limit {rule.limit_pct:g} %, {'cpu' if by_cpu else 'wall'} time",
    )
