"""Distribution of a node's times."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cprofiling._internal import arguments
from cprofiling._internal.text import checked_text, format_time, shown_names, shown_text, shown_value
from cprofiling.nodes import exports
from cprofiling.nodes.buckets import Bucket
from cprofiling.nodes.decorators import StageName

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH = 40
_FONT = "ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace"  # notebooks give others to what they are not told


@dataclass(frozen=True)
class Histogram:
    """Times of a node by buckets, an immutable sequence.

    Buckets are at most 1/64 of their times wide, from 1 ns up.

    Attributes:
        node_name: The name of the node.
        stage: The execution stage; None: all stages together.
        buckets: The filled ones, ascending: ``(lower_ms, upper_ms, count)``. A time in a bucket is at least
            ``lower_ms`` and less than ``upper_ms``; in the last there is (from 39 hours up) it may be longer.
    """

    node_name: str
    stage: str | None
    buckets: tuple[Bucket, ...]

    @property
    def count(self) -> int:
        """The number of samples."""
        return sum(count for *_, count in self.buckets)

    def quantile(self, fraction: float) -> float | None:
        """Return the quantile in ms, within 1 %, None without samples.

        This gives ``p99_ms`` and so on, within the extremes of the bucket, and ``p50_ms`` of more than five samples.

        fraction: 0 to 1; else TypeError or ValueError.
        """
        wanted = arguments.number_between("fraction", fraction, 0.0, 1.0)
        rank = max(math.ceil(wanted * self.count), 1)
        seen = 0
        for lower_ms, upper_ms, count in self.buckets:
            seen += count
            if seen >= rank:
                return (lower_ms + upper_ms) / 2
        return None

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the histogram with the 50th, 90th and 99th percentile.

        The time axis is logarithmic for wide distributions.

        ax: matplotlib axes, None for a new figure. Returns the axes. Raises ImportError without matplotlib, naming the
        extra.
        """
        return exports.plot_histogram(self, ax)

    def title(self) -> str:
        """Return a printable title with node and stage."""
        stage = "" if self.stage is None else f" ({shown_text('stage', self.stage)})"
        return f"{shown_text('node_name', self.node_name)}{stage}"

    def __len__(self) -> int:
        return len(self.buckets)

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self.buckets)

    def __getitem__(self, place: int) -> Bucket:
        return self.buckets[place]

    def __repr__(self) -> str:
        return f"<Histogram of {self.title()!r}: {self.count:,} samples in {len(self)} buckets>"

    def _repr_html_(self) -> str:
        return f'<pre style="font-family: {_FONT}; line-height: 1.3">{html.escape(str(self))}</pre>'

    def __str__(self) -> str:
        if not self.buckets:
            return f"{self.title()}: no samples"
        low, high = self.buckets[0][0], self.buckets[-1][1]
        start = max(low, 1e-9)  # of a logarithmic axis
        scale = _WIDTH / math.log(high / start)
        counts = [0] * _WIDTH
        for lower_ms, upper_ms, count in self.buckets:
            place = int(math.log((lower_ms + upper_ms) / 2 / start) * scale)
            counts[min(max(place, 0), _WIDTH - 1)] += count
        most = max(counts)
        strip = "".join(_BLOCKS[math.ceil(8 * count / most)] for count in counts)
        return f"{self.title()}: {self.count:,} samples\n{format_time(low)} |{strip}| {format_time(high)}"


Histogram.__module__ = "cprofiling"


def histogram_of(known: Mapping[tuple[str, str], Sequence[Bucket]], node: str, stage: StageName) -> Histogram:
    """Return a node's histogram in one stage, or in all together.

    Raises TypeError or ValueError for an unknown node or stage.
    """
    name = checked_text("node", node)
    wanted = None if stage is None else checked_text("stage", stage)
    found = [buckets for (each, of), buckets in known.items() if each == name and wanted in (None, of)]
    if not found:
        stages = [of for each, of in known if each == name]
        if stages:
            raise ValueError(
                f"stage must be one in which the node ran ({shown_names(stages)}), got {shown_value(wanted)}"
            )
        nodes = shown_names(each for each, _ in known) or "none"
        raise ValueError(f"node must be one that has been called ({nodes}), got {shown_value(name)}")
    counts: Counter[tuple[float, float]] = Counter()
    for buckets in found:
        for lower_ms, upper_ms, count in buckets:
            counts[lower_ms, upper_ms] += count
    return Histogram(name, wanted, tuple((*edges, counts[edges]) for edges in sorted(counts)))
