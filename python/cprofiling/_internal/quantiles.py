"""Quantiles of samples and of Student's t, and intervals from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_MANY = 2000.0  # degrees of freedom from which the expansion is exact to 1e-9
_STEPS = 200  # more than either loop needs to reach the precision of a float
_TINY = 1e-300
_PRECISION = 1e-15


def fmean(values: Iterable[float]) -> float:
    """Return a mean; the module ``statistics`` takes long to import."""
    known = [*values]
    return math.fsum(known) / len(known)


def median(values: Iterable[float]) -> float:
    """Return the middle value, or the mean of the middle two."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def quantile(ordered: Sequence[float], percent: int, unit: int = 1) -> float:
    """Return an interpolated percentile of sorted values, by ``unit``.

    With the values counted from 0, it lies at ``(len(ordered) - 1) * percent / 100`` (definition 7 of Hyndman and Fan,
    "Sample Quantiles in Statistical Packages", 1996). Of integers it is exact but for the last rounding.
    """
    index, rest = divmod((len(ordered) - 1) * percent, 100)
    low, high = ordered[index], ordered[min(index + 1, len(ordered) - 1)]
    return (low * (100 - rest) + high * rest) / (100 * unit)


def percentile(ordered: Sequence[int], permille: int) -> int | None:
    """Return a percentile of sorted integers, interpolated and rounded down.

    permille: in thousandths, 0 to 1000. None without a value.
    """
    if not ordered:
        return None
    place, rest = divmod((len(ordered) - 1) * permille, 1000)
    lower = ordered[place]
    upper = ordered[place + 1] if rest else lower
    return lower + (upper - lower) * rest // 1000


class Sample(NamedTuple):
    """The size (at least 2), mean and sample variance (n - 1) of values."""

    size: int
    mean: float
    variance: float


def welch_interval(first: Sample, second: Sample, confidence: float) -> tuple[float, float]:
    """Return the interval for the difference of two means with any variances.

    B. L. Welch, "The generalization of Student's problem when several different population variances are involved",
    Biometrika 34 (1947), with the degrees of freedom of Welch and Satterthwaite. Without any spread it has no width.
    """
    terms = [(first.variance / first.size, first.size - 1), (second.variance / second.size, second.size - 1)]
    return interval_of(second.mean - first.mean, terms, confidence)


def cautious_interval(first: Sample, second: Sample, confidence: float) -> tuple[float, float]:
    """Return an interval that covers Welch's and Student's.

    Calls have a few times far above all others. A small sample without one of them has too small a variance, by which
    Welch's alone finds a large sample of the same program slower in a third of comparisons.
    """
    freedom = first.size + second.size - 2
    pooled = ((first.size - 1) * first.variance + (second.size - 1) * second.variance) / freedom
    terms = [(pooled * (1 / first.size + 1 / second.size), freedom)]
    lows, highs = zip(
        welch_interval(first, second, confidence), interval_of(second.mean - first.mean, terms, confidence), strict=True
    )
    return min(lows), max(highs)


def interval_of(value: float, terms: list[tuple[float, int]], confidence: float) -> tuple[float, float]:
    """Return the interval for a sum of estimates.

    terms: The variance and the degrees of freedom of each.
    """
    variance = math.fsum(term for term, _ in terms)
    if variance == 0:
        return value, value
    freedom = 1 / math.fsum((term / variance) ** 2 / degrees for term, degrees in terms)
    half = student_quantile((1 + confidence) / 2, freedom) * math.sqrt(variance)
    return value - half, value + half


def student_quantile(probability: float, freedom: float) -> float:
    """Return a quantile of Student's t distribution.

    The relative error is below 1e-9.

    probability: From 0.5 to below 1.
    freedom: The degrees of freedom, at least 1, whole or not.
    """
    if freedom >= _MANY:
        from statistics import NormalDist  # here, as few programs need it, and it takes long to import

        # From the normal quantile (Abramowitz and Stegun, 26.7.5).
        z = NormalDist().inv_cdf(probability)
        square = z * z
        return z * (
            1
            + (square + 1) / (4 * freedom)
            + ((5 * square + 16) * square + 3) / (96 * freedom**2)
            + (((3 * square + 19) * square + 17) * square - 15) / (384 * freedom**3)
        )
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > 1 - probability:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if student_tail(middle, freedom) > 1 - probability:
            low = middle
        else:
            high = middle
    return high


def student_tail(t: float, freedom: float) -> float:
    """Return the probability above ``t`` > 0 (DLMF 8.17, A. and S. 26.7.1)."""
    square = t * t
    x, rest = freedom / (freedom + square), square / (freedom + square)
    # Half the incomplete beta function of x = 1 - rest (DLMF 8.17.22).
    a, b = freedom / 2, 0.5
    scale = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest))
    if x < (a + 1) / (a + b + 2):
        return scale * _fraction(x, a, b) / a / 2
    return (1 - scale * _fraction(rest, b, a) / b) / 2


def _fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction by the method of Lentz (DLMF 3.10)."""
    upper = 1.0
    value = lower = 1 / _not_zero(1 - (a + b) * x / (a + 1))
    for m in range(1, _STEPS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            lower = 1 / _not_zero(1 + numerator * lower)
            upper = _not_zero(1 + numerator / upper)
            value *= upper * lower
        if abs(upper * lower - 1) < _PRECISION:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
