"""Histograms on a logarithmic axis, as paths of SVG."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cprofiling._internal.text import format_time

if TYPE_CHECKING:
    from cprofiling.nodes.buckets import Bucket

    Bins: TypeAlias = list[tuple[int, int]]  # the number of a bin, and how many samples are in it; ascending

PER_OCTAVE = 16  # bins to each power of two
_LAST = 50 * PER_OCTAVE
WIDTH, HEIGHT = 180, 22  # of a drawing in a table
_COLUMN = 2  # pixels that one bar of it is wide
_LABEL = 46  # pixels that the label of a tick needs


def bins(histogram: Iterable[Bucket]) -> Bins:
    """Return a histogram in coarser bins.

    The number of a bin is its lower edge in ns, as ``PER_OCTAVE * log2``.
    """
    counts: Counter[int] = Counter()
    for lower_ms, upper_ms, count in histogram:
        middle_ns = (lower_ms + upper_ms) / 2 * 1e6
        counts[min(max(math.floor(PER_OCTAVE * math.log2(middle_ns)), 0), _LAST) if middle_ns > 1 else 0] += count
    return sorted(counts.items())


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis of time, between powers of ten of ns."""

    first: float
    last: float

    @classmethod
    def close_to(cls, times_ms: Iterable[float]) -> Axis:
        """Return the axis that begins just before some times and ends just behind."""
        places = [math.log10(max(time_ms * 1e6, 1.0)) for time_ms in times_ms] or [3.0]
        margin = max((max(places) - min(places)) / 50, 0.02)
        return cls(min(places) - margin, max(places) + margin)

    @classmethod
    def around(cls, times_ms: Iterable[float]) -> Axis:
        """Return the axis of whole decades around some times.

        Times below 1 ns are at its begin.
        """
        known = [max(time_ms * 1e6, 1.0) for time_ms in times_ms]
        if not known:
            return cls(3, 6)
        first = math.floor(math.log10(min(known)))
        return cls(first, max(math.ceil(math.log10(max(known))), first + 1))

    def x(self, time_ms: float, width: float = WIDTH) -> float:
        """Return where a time is, in pixels."""
        place = (math.log10(max(time_ms * 1e6, 1.0)) - self.first) / (self.last - self.first)
        return round(min(max(place, 0.0), 1.0) * width, 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """The places of the decades, with labels as room allows."""
        first, last = math.ceil(self.first), math.floor(self.last)
        every = math.ceil(_LABEL / (WIDTH / (self.last - self.first)))
        ticks = []
        for decade in range(first, last + 1):
            number, unit = format_time(10.0**decade / 1e6).split()
            label = f"{float(number):.0f} {unit}" if (decade - first) % every == 0 else ""
            ticks.append((self.x(10.0**decade / 1e6), label))
        return ticks


def bars(filled: Bins, axis: Axis) -> str:
    """Return the outline of a histogram.

    Heights are square roots, so that rare samples are seen.
    """
    columns: Counter[int] = Counter()
    most_columns = WIDTH // _COLUMN
    for number, count in filled:
        low, high = (int(axis.x(2 ** (edge / PER_OCTAVE) / 1e6) / _COLUMN) for edge in (number, number + 1))
        low = min(low, most_columns - 1)
        columns.update(dict.fromkeys(range(low, max(high, low + 1)), count))
    most = max(columns.values(), default=1)
    tops = {
        column: f"{HEIGHT - max((HEIGHT - 1) * math.sqrt(count / most), 1.5):.0f}" for column, count in columns.items()
    }
    drawn: list[str] = []
    wide = 0  # what is of one height so far
    for column, top in sorted(tops.items()):
        if column - 1 not in tops:
            drawn.append(f"{f'V{HEIGHT}' if drawn else ''}M{column * _COLUMN} {HEIGHT}")
        if tops.get(column - 1) != top:
            drawn.append(f"V{top}")
            wide = 0
        wide += _COLUMN
        if tops.get(column + 1) != top:
            drawn.append(f"h{wide}")
    return "".join(drawn) + (f"V{HEIGHT}" if drawn else "")


def lines(times_ms: Iterable[float | None], axis: Axis) -> str:
    """Return upright lines at some times."""
    return "".join(f"M{axis.x(time_ms)} 0V{HEIGHT}" for time_ms in times_ms if time_ms is not None)
