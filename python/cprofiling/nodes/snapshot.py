"""Immutable copies of statistics, to pickle, store, send and merge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cprofiling import _core
from cprofiling._internal.text import checked_text
from cprofiling.nodes.buckets import Bucket, spread
from cprofiling.nodes.decorators import StageName
from cprofiling.nodes.exports import WithHistograms
from cprofiling.nodes.input_shapes import shapes_from
from cprofiling.nodes.stats import ProfilingSummary, stats_from_row
from cprofiling.nodes.summary_table import no_such_stage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AT_A_TIME = 256


class Snapshot(_core.Snapshot, WithHistograms):
    """Statistics of one or several Profilers at one moment, immutable.

    ``Profiler.snapshot()`` takes one, ``Snapshot.merge([a, b, ...])`` joins several, ``to_bytes()``,
    ``Snapshot.from_bytes()`` and pickle carry it anywhere. Copies are the object itself. Two are equal if they hold the
    same figures, taken from the same Profilers at the same moments.

    Each Profiler has a random identity, and each reset begins new data, so merging never counts a call twice. A forked
    child's Profiler has another identity than its parent's. P-square estimates of the median cannot be merged: in
    merged statistics ``median_ms`` is ``p50_ms``.
    """

    __slots__ = ("__weakref__",)

    def stats(self, stage: StageName = None) -> ProfilingSummary:
        """Return statistics of all nodes, or of one stage, as a summary.

        stage: a str, or an enum with a str value; None for all. Else TypeError or ValueError.

        Merged snapshots have the sum of internal errors, the largest ``cost_ns`` and, if they differ, the largest
        ``skip_first_n``; ``reasons`` has those of all, and of the merging.
        """
        rows, skip_first_n, median, lost, _, shapes = self._rows(stage)
        facts = self._facts()
        reasons = list(facts.notes)
        known = () if rows or stage is None else {row.stage for row in self._rows(None).rows}
        if known:
            reasons.append(no_such_stage(checked_text("stage", stage), known))
        if lost:
            reasons.append(lost_reason(lost))
        if facts.is_merged:
            reasons.append(
                "the statistics are merged: last_ms is that of the snapshot taken last, "
                "and first_ms known only where one snapshot has it"
            )
        if facts.skip_least != facts.skip_most:
            reasons.append(
                f"the merged statistics were gathered with skip_first_n from {facts.skip_least} to {facts.skip_most}"
            )
        summary = ProfilingSummary(
            map(stats_from_row, rows),
            skip_first_n=skip_first_n,
            median=median,
            reasons=reasons,
            internal_errors=facts.internal_errors,
            cost_ns=facts.cost_ns,
        )
        summary._find_histograms = self._find_histograms  # noqa: SLF001 the package's own
        if shapes:
            summary.shapes = shapes_from(shapes, summary)
        return summary

    def plot(self, ax: Axes | None = None, *, top: int = 30) -> Axes:
        """Draw the total time of each node (see ``ProfilingSummary.plot``)."""
        return self.stats().plot(ax, top=top)

    def _find_histograms(self) -> dict[tuple[str, str], tuple[Bucket, ...]]:
        return {key: times for key, (times, _) in self._filled_buckets().items()}

    def _filled_buckets(self) -> dict[tuple[str, str], tuple[tuple[Bucket, ...], tuple[Bucket, ...]]]:
        """Return the buckets of times and of GPU times of each key, (node, stage)."""
        return {
            (row.node_name, row.stage): (spread(times), spread(gpu_times))
            for row, (times, gpu_times) in self._keys(None)
        }

    def _keys(self, bounds: tuple[int, ...] | None) -> Iterator[tuple[Any, tuple[tuple[int, ...], tuple[int, ...]]]]:
        """Yield each key's row and groups of buckets.

        All rows of many keys at once would take as much memory as the snapshot.
        """
        for first in range(0, self._facts().key_count, _AT_A_TIME):
            rows = self._rows(None, first, _AT_A_TIME).rows
            yield from zip(rows, self._groups(bounds, first, _AT_A_TIME), strict=True)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return an Arrow stream (see ``ProfilingSummary.__arrow_c_stream__``)."""
        return self.stats().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        facts = self._facts()
        return f"<Snapshot keys={facts.key_count} sources={facts.source_count}>"

    def _repr_html_(self) -> str:
        return self.stats()._repr_html_()


def lost_reason(lost: int) -> str:
    """Return a sentence on samples that the histograms could not count."""
    return f"{lost} samples are missing from the percentiles, for want of memory"
