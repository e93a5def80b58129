"""The levels of a series of times, and the cold calls at its start.

Two questions are asked, as one method answers only one of them well.

Levels: at which calls does the series change? Its ranks, which no outlier and no second mode can mislead, are cut into
pieces of constant mean by optimal partitioning (B. Jackson et al., "An algorithm for data on an interval", 2005), with
the penalty ``3 log n`` for each cut (N. R. Zhang and D. O. Siegmund, "A modified Bayes information criterion", 2007),
raised where successive calls depend on each other. What the pieces mean follows E. Barrett et al., "Virtual machine
warmup blows hot and cold", 2017: pieces that are alike are one, the last one is the steady state if it is long enough,
and the series is flat, warms up, or slows down. What goes back and forth all the time is steady, too.

First calls: one or two very slow calls are no level. Each of the first calls is asked how likely a steady call is to
take that long: by counting, and beyond the longest steady call by a Pareto tail with an index estimated from the
steady calls (B. M. Hill, 1975), on the heavy side. The product of these probabilities is tested for the first call, the
first two, and so on (R. A. Fisher's method); the most significant of them, if it is significant, are cold.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from cprofiling._internal.quantiles import median

FLAT, WARM_UP, SLOWDOWN = "flat", "warm-up", "slowdown"
NOT_STEADY, TOO_FEW, NOT_CERTAIN = "no steady state", "too few calls", "not certain"

LEAST_CALLS = 10  # with fewer, nothing is said
LEAST_STEADY = 0.25  # of the calls, after the last change: as 500 of 2,000 in the paper
ALIKE = 0.05  # levels with medians within this part are one
SIGNIFICANCE = 0.01  # of the test of the first calls: of 100 steady series, one is told to warm up
LEAST_LEVEL = 5  # calls; fewer are outliers, and at the start there is a test for them
FEW_CALLS = 20  # with fewer, no series is said to be flat ...
# ... nor with fewer than these, if its first calls are as unlikely as that; with more, if the first is the longest, too
SOME_CALLS, SUSPICIOUS = 50, 0.2
EXTREME, EXTREME_SIGNIFICANCE = 10, 0.1  # of first calls so many times as long as the others' median
_CUT_PENALTY = 3.0  # times log n
_MOST_PLACES = 160  # at which a cut is looked for, before it is refined
_EACH_PLACE = 32  # a cut may be between any of the first so many calls
_FIRST_CALLS = 64  # at most, that are tested one by one
_SLOW_PART = 0.75  # of the cold calls, which are slower than the others' median
_RARE = -math.log(0.05)  # surprises from which on a call after cold ones is cold, too, and an extreme one extreme
_TAIL_ERRORS = 1.645  # below its estimate the tail's index is taken: one-sided 95 %


class Level(NamedTuple):
    """Calls of one level, from ``start`` to before ``end``."""

    start: int
    end: int
    median: float


class Steadiness(NamedTuple):
    """How a series of times becomes steady.

    Attributes:
        state: ``flat``, ``warm-up``, ``slowdown``, ``no steady state``, ``too few calls``, or ``not certain``: the
            first call is the longest by far, which may be chance.
        cold: How many of the first calls are slower than steady ones; without a steady state, than the others, None
            where none can be told.
        start: How many calls are before the steady state: more, where some before it are faster; None without one.
        levels: The levels; empty with too few calls.
        p_value: How likely steady calls are to begin as slowly as these do: of the test of the first calls. None where
            the levels told.
    """

    state: str
    cold: int | None = None
    start: int | None = None
    levels: tuple[Level, ...] = ()
    p_value: float | None = None


def steadiness(samples: Sequence[float]) -> Steadiness:
    """Return where a series of times becomes steady."""
    count = len(samples)
    if count < LEAST_CALLS:
        return Steadiness(TOO_FEW)
    dependence, found = levels(samples)
    last = found[-1].median
    start = found[-1].start
    for level in reversed(found[:-1]):
        if _is_less(level.median, last) or _is_less(last, level.median):
            break
        start = level.start
    if count - start < max(LEAST_STEADY * count, LEAST_CALLS / 2):
        cold, p_value = _cold_calls(samples, dependence)
        return Steadiness(NOT_STEADY, cold or None, None, found, p_value)
    steady = median(samples[start:])
    slow = 0
    for level in found:
        if not _is_less(steady, level.median):
            break
        slow = level.end
    is_slowdown = slow < start
    while slow and not _is_less(steady, samples[slow - 1]):  # a level may be a few very slow calls, and some others
        slow -= 1
    cold, p_value = _cold_calls(samples[slow:], dependence)
    cold, told = slow + cold, (found, None if slow else p_value)
    if is_slowdown:
        return Steadiness(SLOWDOWN, cold, start, *told)
    if cold:
        return Steadiness(WARM_UP, cold, cold, *told)
    if count < FEW_CALLS or (count < SOME_CALLS and p_value < SUSPICIOUS):
        return Steadiness(TOO_FEW, None, None, *told)
    if p_value < SUSPICIOUS and max(samples[1:]) > 0 and _is_less(max(samples[1:]), samples[0]):
        return Steadiness(NOT_CERTAIN, None, None, *told)
    return Steadiness(FLAT, 0, 0, *told)


def _is_less(value: float, other: float) -> bool:
    """Whether it is, and not alike."""
    return value < other - ALIKE * max(value, other)


def levels(samples: Sequence[float]) -> tuple[float, tuple[Level, ...]]:
    """Return the dependence of successive calls, 1 or more, and the levels."""
    # Centred ranks; equal samples share theirs.
    count, ordered = len(samples), sorted(samples)
    rank_of = {
        sample: (bisect_left(ordered, sample) + bisect_right(ordered, sample) - count) / 2 for sample in set(samples)
    }
    ranks = [rank_of[sample] for sample in samples]
    variance = sum(rank * rank for rank in ranks) / (count - 1)
    if variance == 0:
        return 1.0, (Level(0, count, median(samples)),)
    # The variance of sums of ranks, a call, from differences of neighbouring blocks; few have a cut.
    size = max(1, math.isqrt(count))
    means = [sum(ranks[at : at + size]) / size for at in range(0, count - size + 1, size)]
    squares = [(after - before) ** 2 for before, after in pairwise(means)]
    long_run = size * median(squares) / 2 / 0.455  # the median of a squared standard normal
    dependence = max(1.0, long_run / variance)
    sums = [0.0, *accumulate(ranks)]
    penalty = _CUT_PENALTY * math.log(count) * dependence * variance
    places = list(range(count + 1))  # of possible cuts, densest at the start
    if count > _MOST_PLACES:
        steps = _MOST_PLACES - _EACH_PLACE
        growth = (count / _EACH_PLACE) ** (1 / steps)
        grown = {round(_EACH_PLACE * growth**step) for step in range(steps + 1)}
        places = sorted({*range(_EACH_PLACE), *grown, count})
    cuts = _cuts(sums, places, penalty)
    for at in range(1, len(cuts) - 1):  # each moved to the best place between its neighbours
        start, end = cuts[at - 1], cuts[at + 1]
        before, after, tried = sums[start], sums[end], range(start + LEAST_LEVEL, end - LEAST_LEVEL + 1)
        values = [(sums[cut] - before) ** 2 / (cut - start) + (after - sums[cut]) ** 2 / (end - cut) for cut in tried]
        cuts[at] = tried[values.index(max(values))]
    return dependence, tuple(Level(start, end, median(samples[start:end])) for start, end in pairwise(cuts))


def _cuts(sums: Sequence[float], places: Sequence[int], penalty: float) -> list[int]:
    """Return the best cuts under a penalty for each, both ends included."""
    best, before = [0.0], [0]
    sums_there = [sums[place] for place in places]
    for end in range(1, len(places)):
        stop, total = places[end], sums_there[end]
        starts = places[: max(1, bisect_right(places, stop - LEAST_LEVEL))]
        values = [
            least + (total - sum_there) ** 2 / (stop - start)
            for start, sum_there, least in zip(starts, sums_there, best, strict=False)
        ]
        highest = max(values)
        best.append(highest - penalty)
        before.append(values.index(highest))
    cuts, at = [places[-1]], len(places) - 1
    while at:
        at = before[at]
        cuts.append(places[at])
    return cuts[::-1]


def _cold_calls(samples: Sequence[float], dependence: float) -> tuple[int, float]:
    """Return the number of cold first calls, and its p-value."""
    most = min(_FIRST_CALLS, len(samples) // 4)
    others = sorted(samples[most:])
    tail, middle = _tail_index(others), median(others)
    surprises = []  # minus the logarithm of the chance of a sample this long
    for sample in samples[:most]:
        longer = len(others) - bisect_left(others, sample / (1 + ALIKE))
        surprise = math.log((len(others) + 1) / (longer + 1))
        if sample > (1 + ALIKE) * others[-1] > 0:
            surprise += tail * math.log(sample / others[-1])
        surprises.append(surprise)
    total, slow, cold, least = 0.0, 0, 0, 1.0
    for tried, surprise in enumerate(surprises, 1):
        total += surprise
        slow += _is_less(middle, samples[tried - 1])
        if slow < _SLOW_PART * tried:
            continue  # one outlier among calls that are like the others is no warm-up
        # Fewer calls are likelier to be cold: the first k have 1 / (k * (k + 1)) of the chances of error, 1 in all.
        # How likely a product of so many independent probabilities is (R. A. Fisher).
        term = math.exp(-total)
        found = term
        for at in range(1, tried):
            term *= total / at
            found += term
        p_value = min(1.0, min(1.0, found) ** (1 / min(dependence, tried)) * tried * (tried + 1))
        if p_value < least:
            cold, least = tried, p_value
    # To skip one call too many costs nothing, to keep one that takes a thousand times as long costs the mean.
    is_extreme = samples[:1] and samples[0] >= EXTREME * middle > 0 and surprises[0] > _RARE
    if least > (EXTREME_SIGNIFICANCE if is_extreme else SIGNIFICANCE):
        return 0, least
    while cold < most and surprises[cold] > _RARE:
        cold += 1
    return cold, least


def _tail_index(ordered: Sequence[float]) -> float:
    """Return the index of the samples' Pareto tail, 1 or more."""
    used = max(2, min(len(ordered) // 4, math.isqrt(len(ordered)) * 2))
    threshold = ordered[-used - 1]
    if threshold <= 0:
        return 1.0
    excess = sum(math.log(sample / threshold) for sample in ordered[-used:]) / used
    return max(1.0, (1 - _TAIL_ERRORS / math.sqrt(used)) / excess) if excess > 0 else 1.0
