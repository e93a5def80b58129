"""Statistics at one moment for ``top``, and their changes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING

from cprofiling._internal.text import format_time, shown_names, shown_text
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
        label: The source's name; "" for the only one of a session.
        stats: The statistics.
        histograms: Returns the buckets of each node and stage; nothing where the source has none.
        origin: Identifies what is counted since when, so that another process or a reset is seen; None: not known.
        run: How often the counts began anew since the first sample.
    """

    label: str
    stats: Sequence[NodeProfilingStats]
    histograms: Callable[[], Mapping[tuple[str, str], Sequence[Bucket]]] = dict
    origin: Hashable = None
    run: int = 0

    @cached_property
    def nodes(self) -> dict[tuple[str, str], NodeProfilingStats]:
        """The statistics by node and stage."""
        return {(stats.node_name, stats.stage): stats for stats in self.stats}

    def after(self, before: Part | None) -> Part:
        """Return it with its run, told by the sample before it."""
        if before is None:
            return self
        is_same = self.origin == before.origin and all(
            (each := self.nodes.get(key)) and each.count >= old.count and each.error_count >= old.error_count
            for key, old in before.nodes.items()
        )
        return replace(self, run=before.run + (not is_same))


@dataclass(frozen=True)
class Moment:
    """The statistics of a process at one moment.

    Attributes:
        title: The headline.
        taken_s: When they were taken, in seconds since 1970.
        parts: The statistics.
        notes: Remarks on the samples.
        is_over: Whether there will be no others.
        uptime_s: Age of the process; None: not known.
        switch: Turns profiling on or off and returns a message; None where the source is only read.
        away_s: Since when the source does not answer, in seconds since 1970; None: it does.
        why: Why it does not; "" where that is clear.
    """

    title: str
    taken_s: float
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()
    is_over: bool = False
    uptime_s: float | None = None
    switch: Callable[[], str] | None = None
    away_s: float | None = None
    why: str = ""

    def part(self, label: str) -> Part | None:
        """Return the part of this label."""
        return next((part for part in self.parts if part.label == label), None)

    def away(self) -> str:
        """Return for how long the source has not answered, "" if it does."""
        if self.away_s is None:
            return ""
        seconds = max(0.0, time.time() - self.away_s)
        why = f": {self.why}" if self.why else ""
        return f"server away for {seconds:.0f} s, last figures of {clock(self.taken_s)}{why}"


@dataclass
class Faults:
    """When a node failed, as far as it was seen.

    Attributes:
        first_s: The first time, in seconds since 1970; None: before the first sample.
        last_s: The last one; None: before the first sample.
    """

    first_s: float | None
    last_s: float | None

    def text(self, begun_s: float) -> str:
        """Return both times in words. begun_s: that of the first sample."""
        earlier = f"had errors already when top began at {clock(begun_s)}"
        if self.last_s is None:
            return f"{earlier}, none since"
        first = earlier if self.first_s is None else f"first error {age(self.first_s)} ({clock(self.first_s)})"
        return f"{first}, last {age(self.last_s)}"


def clock(moment_s: float) -> str:
    """Return the local time of day of a time in seconds since 1970."""
    return time.strftime("%H:%M:%S", time.localtime(moment_s))


def age(moment_s: float) -> str:
    """Return how long ago a time in seconds since 1970 was, in words."""
    seconds = max(0.0, time.time() - moment_s)
    for unit, length_s in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


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
            f"{stats.error_count:,}{self._share_of_errors()}",
        )

    def _share_of_errors(self) -> str:
        errors = self.stats.error_count
        if not errors:
            return ""
        share = 100 * errors / (self.stats.count + errors)
        return f" ({share:.1f} %)" if share >= 0.05 else " (<0.1 %)"


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

    def rows(self, now: Moment, earlier: Sequence[Moment] = ()) -> list[Row]:
        """Return the rows of a sample.

        earlier: the samples since the window's start, oldest first.
        """
        rows = [
            row
            for row in _all_rows(now, earlier, is_recent=self.window != "total")
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

    def headings(self, earlier: Sequence[Moment]) -> tuple[str, ...]:
        """Return the headings; beside totals, those of what is not since the start say so."""
        if earlier and self.window != "total":
            return HEADINGS
        return tuple(f"{heading} now" if heading in {"Calls/s", "Load"} else heading for heading in HEADINGS)

    def nothing(self, now: Moment) -> str:
        """Return the line for an empty table."""
        rows = list(_all_rows(now, ()))
        if not rows:
            return NO_DATA
        stages = {row.stats.stage for row in rows}
        if self.stage is not None and self.stage not in stages:
            return f"There is no stage {shown_names([self.stage])}; there are: {shown_names(stages)}"
        where = "" if self.stage is None else f" in the stage {shown_names([self.stage])}"
        names = {row.stats.node_name for row in rows if self.stage in (None, row.stats.stage)}
        return f"No node{where} matches {shown_names(self.globs)}; there are: {shown_names(names)}"


def _all_rows(now: Moment, earlier: Sequence[Moment], *, is_recent: bool = False) -> Iterable[Row]:
    seconds = now.taken_s - earlier[0].taken_s if earlier else 0.0
    for part in now.parts:
        spans = spans_of(part, earlier)
        is_recent_here = is_recent and bool(earlier)
        buckets = [(_buckets(begin), _buckets(end)) for begin, end in spans] if is_recent_here else []
        for stats in part.stats:
            key = (stats.node_name, stats.stage)
            calls, total_ms, errors = change(spans, key)
            if is_recent_here:
                counts: dict[tuple[float, float], int] = {}
                for sides in buckets if calls else ():
                    for side, sign in zip(sides, (-1, 1), strict=True):
                        for lower, upper, count in side.get(key, ()):
                            counts[lower, upper] = counts.get((lower, upper), 0) + sign * count
                most_ms = max(end.nodes[key].max_ms for _, end in spans if key in end.nodes)
                stats = _of_window(stats, calls, total_ms, errors, counts, most_ms)  # noqa: PLW2901 its own
            name = shown_text("node_name", stats.node_name)
            yield Row(
                name=f"{shown_text('label', part.label)}: {name}" if len(now.parts) > 1 else name,
                stats=stats,
                rate=calls / seconds if earlier else None,
                load=total_ms / 1000 / seconds if earlier else None,
                label=part.label,
            )


def spans_of(part: Part, earlier: Sequence[Moment]) -> list[tuple[Part | None, Part]]:
    """Return the samples at both ends of each run in a window, None for its very start.

    earlier: the samples of the window before that of the part, oldest first.
    """
    spans: list[tuple[Part | None, Part]] = []
    begin = last = earlier[0].part(part.label) if earlier else None
    for each in (*(moment.part(part.label) for moment in earlier[1:]), part):
        if each is not None:
            if last is not None and last.run != each.run:
                spans.append((begin, last))
                begin = None
            last = each
    return [*spans, (begin, part)]


def change(spans: Iterable[tuple[Part | None, Part]], key: tuple[str, str]) -> tuple[int, float, int]:
    """Return the calls, their time in ms, and the errors of a node in all spans."""
    calls, total_ms, errors = 0, 0.0, 0
    for span in spans:
        for part, sign in zip(span, (-1, 1), strict=True):
            if part is not None and (each := part.nodes.get(key)):
                calls += sign * each.count
                total_ms += sign * each.total_ms
                errors += sign * each.error_count
    return calls, max(0.0, total_ms), errors


def _buckets(part: Part | None) -> Mapping[tuple[str, str], Sequence[Bucket]]:
    return {} if part is None else part.histograms()


def _of_window(
    now: NodeProfilingStats,
    calls: int,
    total_ms: float,
    errors: int,
    counts: Mapping[tuple[float, float], int],
    most_ms: float,
) -> NodeProfilingStats:
    """Return the figures of the calls in a window.

    Percentiles and the maximum are those of the histogram of these calls, None without one.
    """
    left = tuple((*edges, counts[edges]) for edges in sorted(counts) if counts[edges] > 0)
    histogram = Histogram(now.node_name, now.stage, left)
    most = histogram.quantile(1.0)
    return replace(
        now,
        count=calls,
        total_ms=total_ms,
        mean_ms=total_ms / calls if calls else 0.0,
        p50_ms=histogram.quantile(0.5),
        p99_ms=histogram.quantile(0.99),
        max_ms=math.nan if most is None else min(most, most_ms),
        error_count=errors,
    )


def notes_of(summary: ProfilingSummary) -> list[str]:
    """Return remarks on statistics."""
    faults = summary.internal_errors
    return [*summary.reasons, *([f"{faults} faults inside the profiler"] if faults else [])]
