"""Time per call of a stage in the reports of one side, with its spread."""

from __future__ import annotations

from itertools import chain
from statistics import fmean, variance
from typing import TYPE_CHECKING

from cprofiling._internal.quantiles import Sample, cautious_interval, interval_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

Interval = tuple[float, float]


class StageTimes:
    """Figures of a stage in the reports of one side.

    Attributes:
        is_there: Whether any report has the stage.
        runs: How many reports have times of it.
        count: The calls in all reports; None if one does not say.
        mean_ms: The time of a call, where each report counts the same; None: no call has succeeded.
        range_ms: The shortest and the longest call; None if that is not known.
        sample: The means of the reports, or of one report its calls; None if their spread is not known.
    """

    def __init__(self, told: Sequence[Mapping[str, Any]]) -> None:
        """Take the stage's part of each report that has it."""
        self.is_there = bool(told)
        counts = [figures.get("count") for figures in told]
        self.count: int | None = None if None in counts or not told else sum(filter(None, counts))
        known = [figures for figures in told if figures.get("count") != 0]
        means = [_mean(figures) for figures in known]
        self.runs = len(known)
        self.mean_ms = fmean(means) if means else None
        ranges = [_range_of(figures) for figures in known]
        ends = list(chain.from_iterable(filter(None, ranges)))
        self.range_ms = (min(ends), max(ends)) if ends and None not in ranges else None
        self.sample = Sample(len(means), fmean(means), variance(means)) if len(means) > 1 else None
        if len(known) == 1:
            calls, deviation = known[0].get("count"), known[0].get("std_ms")
            if calls is not None and calls >= 2 and deviation is not None:  # a report's deviation is a population's
                self.sample = Sample(calls, means[0], deviation**2 * (calls / (calls - 1)))

    @property
    def lack(self) -> str:
        """Reason why there is no sample, or an empty text."""
        return "" if self.sample is not None else "only one call" if self.count == 1 else "no spread known"


def interval_between(old: StageTimes, new: StageTimes, confidence: float) -> Interval | None:
    """Return the interval for the difference of a call's time, if any.

    Of one report against several the spread from run to run is taken to be the same, as calls do not tell it.
    """
    several = max(old, new, key=lambda times: times.runs)
    one = old if several is new else new
    if several.sample is not None and several.runs > 1 and one.runs == 1:
        difference = (new.mean_ms or 0.0) - (old.mean_ms or 0.0)
        terms = [(several.sample.variance * (1 + 1 / several.runs), several.runs - 1)]
        return interval_of(difference, terms, confidence)
    if old.sample is None or new.sample is None:
        return None
    return cautious_interval(old.sample, new.sample, confidence)


def _mean(figures: Mapping[str, Any]) -> float:
    mean = figures.get("mean_ms")
    return float(mean) if mean is not None else figures["duration_ms"] / (figures.get("count") or 1)


def _range_of(figures: Mapping[str, Any]) -> Interval | None:
    if figures.get("count") == 1:
        return _mean(figures), _mean(figures)
    least, most = figures.get("min_ms"), figures.get("max_ms")
    return None if figures.get("count") is None or least is None or most is None else (least, most)
