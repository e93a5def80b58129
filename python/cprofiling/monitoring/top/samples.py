"""Statistics at one moment for ``top``, and their changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cprofiling._internal.text import format_time, plain_table, shown_names, shown_text
from cprofiling.nodes.histogram import Histogram
from cprofiling.nodes.summary_table import NO_DATA

if TYPE_CHECKING:
    from cprofiling.nodes.buckets import Bucket
    from cprofiling.nodes.stats import NodeProfilingStats, ProfilingSummary

HEADINGS = ("Node", "Stage", "Calls", "Calls/s", "Load", "Mean", "p50", "p99", "Max", "Total", "Errors")
TEXTS = 2  # of them; the others are figures
_UNKNOWN = "-"
WINDOWS = ("interval", "minute", "total")
MINUTE_S = 60.0


@dataclass(frozen=True)
class Part:
    """The nodes of one Profiler.

    Attributes:
        label: The source's name; "" for a single source.
        stats: The statistics.
        histograms: Returns the buckets of each node and stage; nothing where the source has none.
    """

    label: str
    stats: Sequence[NodeProfilingStats]
    histograms: Callable[[], Mapping[tuple[str, str], Sequence[Bucket]]] = dict


@dataclass(frozen=True)
class Moment:
    """The statistics of a process at one moment.

    Attributes:
        title: The headline.
        origin: Identifies the process or session; samples of different ones are not compared.
        taken_s: When they were taken, in seconds from any time on.
        parts: The statistics.
        notes: Remarks on the samples.
        is_over: Whether there will be no others.
        uptime_s: Age of the process; None: not known.
        switch: Turns profiling on or off and returns a message; None where the source is only read.
    """

    title: str
    origin: Hashable
    taken_s: float
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()
    is_over: bool = False
    uptime_s: float | None = None
    switch: Callable[[], str] | None = None


@dataclass(frozen=True)
class Row:
    """Node with its statistics and its work since the last sample.

    Attributes:
        name: The node, with the label of its part where there are several.
        stats: The statistics, of the window where one is chosen.
        rate: Calls a second; None for the first sample.
        load: Seconds in it for each second; above 1 where threads or tasks run it at once, or calls are long. None: as
            above.
        label: That of its part.
    """

    name: str
    stats: NodeProfilingStats
    rate: float | None
    load: float | None
    label: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the row."""
        stats = self.stats
        times = (stats.mean_ms, stats.p50_ms, stats.p99_ms, stats.max_ms, stats.total_ms)
        return (
            self.name,
            shown_text("stage", stats.stage),
            f"{stats.count:,}",
            _UNKNOWN if self.rate is None else f"{self.rate:,.1f}",
            _UNKNOWN if self.load is None else f"{100 * self.load:.1f} %",
            *(_UNKNOWN if time is None or math.isnan(time) or not stats.count else format_time(time) for time in times),
            f"{stats.error_count:,}",
        )


_KEYS: dict[str, Callable[[Row], float]] = {
    "total": lambda row: row.stats.total_ms,
    "load": lambda row: row.load or 0.0,
    "rate": lambda row: row.rate or 0.0,
    "count": lambda row: row.stats.count,
    "mean": lambda row: row.stats.mean_ms,
    "p99": lambda row: row.stats.p99_ms or 0.0,
    "max": lambda row: 0.0 if math.isnan(row.stats.max_ms) else row.stats.max_ms,
    "errors": lambda row: row.stats.error_count,
}
SORT_KEYS = (*_KEYS, "name")


@dataclass(frozen=True)
class Choice:
    """Nodes to show, and their order.

    Attributes:
        sort_by: One of SORT_KEYS; figures with the largest first, names with the first.
        reverse: The other way round.
        globs: Patterns of names; one must match. Empty: all nodes.
        stage: Only this one; None: all.
        window: One of WINDOWS: figures since the earlier sample, or since the start.
    """

    sort_by: str = SORT_KEYS[0]
    reverse: bool = False
    globs: tuple[str, ...] = ()
    stage: str | None = None
    window: str = "total"

    def rows(self, now: Moment, before: Moment | None) -> list[Row]:
        """Return the rows of a sample.

        before: earlier sample, to show changes.
        """
        if before is not None and (before.origin != now.origin or now.taken_s <= before.taken_s):
            before = None
        rows = [
            row
            for row in _all_rows(now, before, is_recent=self.window != "total")
            if self.stage in (None, row.stats.stage)
            and (
                not self.globs
                or any(fnmatchcase(n, glob) for n in (row.name, row.stats.node_name) for glob in self.globs)
            )
        ]
        if self.sort_by == "name":
            rows.sort(key=lambda row: (row.name, row.stats.stage), reverse=self.reverse)
        else:
            rows.sort(key=_KEYS[self.sort_by], reverse=not self.reverse)
        return rows

    def nothing(self, now: Moment) -> str:
        """Return the line for an empty table."""
        rows = list(_all_rows(now, None))
        if not rows:
            return NO_DATA
        stages = {row.stats.stage for row in rows}
        if self.stage is not None and self.stage not in stages:
            return f"There is no stage {shown_names([self.stage])}; there are: {shown_names(stages)}"
        where = "" if self.stage is None else f" in the stage {shown_names([self.stage])}"
        names = {row.stats.node_name for row in rows if self.stage in (None, row.stats.stage)}
        return f"No node{where} matches {shown_names(self.globs)}; there are: {shown_names(names)}"


def _all_rows(now: Moment, before: Moment | None, *, is_recent: bool = False) -> Iterable[Row]:
    earlier_parts = () if before is None else before.parts
    last = {(part.label, stats.node_name, stats.stage): stats for part in earlier_parts for stats in part.stats}
    seconds = 0.0 if before is None else now.taken_s - before.taken_s
    is_recent = is_recent and before is not None
    buckets_before = {part.label: part.histograms() for part in earlier_parts} if is_recent else {}
    for part in now.parts:
        buckets = part.histograms() if is_recent else {}
        for stats in part.stats:
            calls, total_ms = stats.count, stats.total_ms
            earlier = last.get((part.label, stats.node_name, stats.stage))
            if earlier is not None and earlier.count <= calls:  # else it was reset, and all are new
                calls, total_ms = calls - earlier.count, max(0.0, total_ms - earlier.total_ms)
            else:
                earlier = None
            if is_recent:
                key = (stats.node_name, stats.stage)
                old = buckets_before.get(part.label, {}).get(key, ()) if earlier else ()
                stats = _since(stats, earlier, buckets.get(key, ()), old)  # noqa: PLW2901 the window's own
            name = shown_text("node_name", stats.node_name)
            yield Row(
                name=f"{shown_text('label', part.label)}: {name}" if part.label else name,
                stats=stats,
                rate=None if before is None else calls / seconds,
                load=None if before is None else total_ms / 1000 / seconds,
                label=part.label,
            )


def _since(
    now: NodeProfilingStats, before: NodeProfilingStats | None, buckets: Sequence[Bucket], old: Sequence[Bucket]
) -> NodeProfilingStats:
    """Return the figures of the calls between two samples.

    Percentiles and the maximum are those of the difference of both histograms, None without them.
    """
    counts = Counter({(lower_ms, upper_ms): count for lower_ms, upper_ms, count in buckets})
    counts.subtract({(lower_ms, upper_ms): count for lower_ms, upper_ms, count in old})
    left = tuple((*edges, counts[edges]) for edges in sorted(counts) if counts[edges] > 0)
    histogram = Histogram(now.node_name, now.stage, left)
    calls, total_ms, errors = now.count, now.total_ms, now.error_count
    if before is not None:
        calls, total_ms = calls - before.count, max(0.0, total_ms - before.total_ms)
        errors = max(0, errors - before.error_count)
    most = histogram.quantile(1.0)
    return replace(
        now,
        count=calls,
        total_ms=total_ms,
        mean_ms=total_ms / calls if calls else 0.0,
        p50_ms=histogram.quantile(0.5),
        p99_ms=histogram.quantile(0.99),
        max_ms=math.nan if most is None else min(most, now.max_ms),
        error_count=errors,
    )


def notes_of(summary: ProfilingSummary) -> list[str]:
    """Return remarks on statistics."""
    faults = summary.internal_errors
    return [*summary.reasons, *([f"{faults} faults inside the profiler"] if faults else [])]


def plain_text(now: Moment, before: Moment | None, choice: Choice) -> str:
    """Return a sample as text with title, table and notes."""
    rows = choice.rows(now, before)
    is_text = [place < TEXTS for place in range(len(HEADINGS))]
    table = plain_table([HEADINGS, *(row.cells() for row in rows)], is_text) if rows else choice.nothing(now)
    return "\n".join([now.title, table, *(f"note: {shown_text('note', note)}" for note in now.notes)])
