"""Sorted, disjoint half-open intervals of ns, as lists of (start, end)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

Interval = tuple[int, int]

_EVER = 2**64  # beyond all times


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals in any order, without empty ones."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            if end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
        elif end > start:
            joined.append((start, end))
    return joined


def length(intervals: Iterable[Interval]) -> int:
    """Return how long a set is."""
    return sum(end - start for start, end in intervals)


def common(left: list[Interval], right: list[Interval]) -> list[Interval]:
    """Return the time in both of two sets."""
    found = []
    at = 0
    for start, end in left:
        while at < len(right) and right[at][1] <= start:
            at += 1
        place = at
        while place < len(right) and right[place][0] < end:
            found.append((max(start, right[place][0]), min(end, right[place][1])))
            place += 1
    return found


def gaps(intervals: list[Interval]) -> list[Interval]:
    """Return the time between the intervals of a set."""
    return [(end, start) for (_, end), (start, _) in pairwise(intervals)]


def without(left: list[Interval], right: list[Interval]) -> list[Interval]:
    """Return the time in the first of two sets that is not in the second."""
    return common(left, gaps([(-_EVER, -_EVER), *right, (_EVER, _EVER)]))
