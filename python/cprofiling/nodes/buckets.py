"""Bucket edges of the core's histograms.

There are 64 buckets per power of two, from 1 ns to 39 hours (``cprofiling/stats/histogram.h``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

Bucket: TypeAlias = tuple[float, float, int]  # lower edge and upper edge in ms, and how many values are between

_ROW = 64
LAST = 48 * _ROW - 1
_NS_PER_MS = 1e6


def number_of(elapsed_ns: int) -> int:
    """Return the number of the bucket of a duration in ns, 0 or more."""
    value = elapsed_ns * _ROW
    row = max(value.bit_length() - 6, 0)
    shift = max(row - 1, 0)
    return min(row * _ROW + (value >> shift & (_ROW - 1)), LAST)


def edge_ns(number: int) -> float:
    """Return the exact lower edge of a bucket in ns."""
    row, place = divmod(number, _ROW)
    edge = place if row == 0 else (_ROW + place) << (row - 1)
    return edge / _ROW


def edge_ms(number: int) -> float:
    """Return the same in ms."""
    return edge_ns(number) / _NS_PER_MS


def spread(filled: Sequence[int]) -> tuple[Bucket, ...]:
    """Return filled buckets with their edges, in order.

    filled: (number, count, number, count, ...).
    """
    pairs = zip(filled[::2], filled[1::2], strict=True)
    return tuple((edge_ms(number), edge_ms(number + 1), count) for number, count in pairs)


def histogram_of(durations_ns: Iterable[int]) -> tuple[Bucket, ...]:
    """Return the buckets that some durations fill."""
    counts: Counter[int] = Counter()
    for duration_ns, count in Counter(durations_ns).items():
        counts[number_of(duration_ns)] += count
    return spread([part for pair in sorted(counts.items()) for part in pair])
