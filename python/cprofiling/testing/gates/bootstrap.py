"""Bootstrap intervals for how much longer something takes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from cprofiling._internal.quantiles import quantile, student_quantile
from cprofiling._internal.text import checked_text, shown_value
from cprofiling.analysis.comparison import Spread, judged, row_confidence

if TYPE_CHECKING:
    from cprofiling.analysis.comparison import Judgement

    _T = TypeVar("_T")
    Draw: TypeAlias = Callable[[random.Random], float]

RESAMPLES = 1000
ENOUGH = 20  # times a side for an interval
SEED = 20_261  # equal times always give the same interval
_RULE = re.compile(r"([a-z0-9]+):([0-9]+(?:\.[0-9]+)?)%")


class Rule(NamedTuple):
    """A figure of times, and by how many percent it may grow."""

    metric: str
    limit_pct: float


def rule_of(text: str) -> Rule:
    """Return the rule in a text such as ``mean:5%``.

    Raises TypeError for no str, ValueError for another form.
    """
    parts = _RULE.fullmatch(checked_text("fail", text))
    if parts is None or parts[1] not in METRICS or not float(parts[2]) <= 1e6:
        raise ValueError(f"fail must be METRIC:PERCENT%, METRIC one of {', '.join(METRICS)}, got {shown_value(text)}")
    return Rule(parts[1], float(parts[2]))


METRICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "median": median,
    "p95": lambda values: quantile(sorted(values), 95),
}


def paired_change(old: Sequence[float], new: Sequence[float], metric: str) -> tuple[float, Draw]:
    """Return the change between pairs in percent, and a resampling of it.

    Pairs stay together, as do successive ones (a circular block bootstrap: D. N. Politis and
    J. P. Romano, 1992), as what disturbs one pair often disturbs the next.
    """
    pairs = list(zip(old, new, strict=True))

    def change(some: Sequence[tuple[float, float]]) -> float:
        if metric == "median":  # of the pairs' own ratios: what disturbs both sides cancels
            return (median(after / before for before, after in some) - 1) * 100
        figure = METRICS[metric]
        return (figure([after for _, after in some]) / figure([before for before, _ in some]) - 1) * 100

    return change(pairs), lambda source: change(_redrawn(pairs, source))


def separate_change(
    old: Sequence[_T], new: Sequence[_T], figure: Callable[[Sequence[_T]], float]
) -> tuple[float, Draw]:
    """Return the change between sides that were measured separately."""

    def draw(source: random.Random) -> float:
        return (figure(_redrawn(new, source)) / figure(_redrawn(old, source)) - 1) * 100

    return (figure(new) / figure(old) - 1) * 100, draw


def _redrawn(values: Sequence[_T], source: random.Random) -> list[_T]:
    """Return as many values as there are, in blocks that begin anywhere."""
    size = len(values)
    length = max(1, round(size ** (1 / 3)))
    circle = [*values, *values[: length - 1]]
    starts = source.choices(range(size), k=-(-size // length))
    return [value for start in starts for value in circle[start : start + length]][:size]


def interval_of(change: float, draw: Draw, size: int, confidence: float) -> tuple[float, float]:
    """Return the interval of a change, by Student and the bootstrap.

    Unlike percentiles of the resamples, it reaches as far as the confidence of many rows together needs.
    size: The values on the smaller side, at least 2.
    """
    source = random.Random(SEED)
    half = student_quantile((1 + confidence) / 2, size - 1) * stdev(draw(source) for _ in range(RESAMPLES))
    return change - half, change + half


def judged_times(
    change: float,
    draw: Draw,
    sides: Sequence[Sequence[float]],
    limit_pct: float,
    confidence: float,
    family: int,
    slack: float = 0.0,
) -> Judgement:
    """Return the verdict on a change in percent of one of ``family`` rows.

    The times of the two sides decide where they are too few for an interval, or it is too wide.
    """
    before, now = (Spread(len(side), min(side), max(side)) for side in sides)
    size, level = min(before.size, now.size), row_confidence(confidence, family)
    interval = interval_of(change, draw, size, level) if size >= ENOUGH else None
    return judged(change, interval, limit_pct, (before, now), rows=family, slack=slack)
