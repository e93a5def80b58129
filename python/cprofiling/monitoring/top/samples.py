"""Statistics at one moment for ``top``, and their changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cprofiling._internal.text import format_time, plain_table, shown_names, shown_text
from cprofiling.nodes.summary_table import NO_DATA

if TYPE_CHECKING:
    from cprofiling.nodes.stats import NodeProfilingStats, ProfilingSummary

HEADINGS = ("Node", "Stage", "Calls", "Calls/s", "Load", "Mean", "p50", "p99", "Max", "Total", "Errors")
TEXTS = 2  # of them; the others are figures
_UNKNOWN = "-"


@dataclass(frozen=True)
class Part:
    """The nodes of one Profiler.

    Attributes:
        label: The source's name; "" for a single source.
        stats: The statistics.
    """

    label: str
    stats: Sequence[NodeProfilingStats]


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
    """

    title: str
    origin: Hashable
    taken_s: float
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()
    is_over: bool = False


@dataclass(frozen=True)
class Row:
    """Node with its statistics and its work since the last sample.

    Attributes:
        name: The node, with the label of its part where there are several.
        stats: The statistics.
        rate: Calls a second; None for the first sample.
        load: Seconds in it for each second; above 1 where threads or tasks run it at once, or calls are long. None: as
            above.
    """

    name: str
    stats: NodeProfilingStats
    rate: float | None
    load: float | None

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
            *(_UNKNOWN if time is None or not stats.count else format_time(time) for time in times),
            f"{stats.error_count:,}",
        )


_KEYS: dict[str, Callable[[Row], float]] = {
    "total": lambda row: row.stats.total_ms,
    "load": lambda row: row.load or 0.0,
    "rate": lambda row: row.rate or 0.0,
    "count": lambda row: row.stats.count,
    "mean": lambda row: row.stats.mean_ms,
    "p99": lambda row: row.stats.p99_ms or 0.0,
    "max": lambda row: row.stats.max_ms,
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
    """

    sort_by: str = SORT_KEYS[0]
    reverse: bool = False
    globs: tuple[str, ...] = ()
    stage: str | None = None

    def rows(self, now: Moment, before: Moment | None) -> list[Row]:
        """Return the rows of a sample.

        before: earlier sample, to show changes.
        """
        if before is not None and (before.origin != now.origin or now.taken_s <= before.taken_s):
            before = None
        rows = [
            row
            for row in _all_rows(now, before)
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


def _all_rows(now: Moment, before: Moment | None) -> Iterable[Row]:
    earlier_parts = () if before is None else before.parts
    last = {(part.label, stats.node_name, stats.stage): stats for part in earlier_parts for stats in part.stats}
    seconds = 0.0 if before is None else now.taken_s - before.taken_s
    for part in now.parts:
        for stats in part.stats:
            calls, total_ms = stats.count, stats.total_ms
            earlier = last.get((part.label, stats.node_name, stats.stage))
            if earlier is not None and earlier.count <= calls:  # else it was reset, and all are new
                calls, total_ms = calls - earlier.count, max(0.0, total_ms - earlier.total_ms)
            name = shown_text("node_name", stats.node_name)
            yield Row(
                name=f"{shown_text('label', part.label)}: {name}" if part.label else name,
                stats=stats,
                rate=None if before is None else calls / seconds,
                load=None if before is None else total_ms / 1000 / seconds,
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
