"""Plain-text summary table, and helpers for other presentations."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import NamedTuple

from cprofiling._internal.arguments import checked_count
from cprofiling._internal.text import NAMED, checked_text, format_time, listed, shown_names, shown_text
from cprofiling.nodes.stats import Median, NodeProfilingStats

NO_DATA = "No profiling data collected."

_ROUNDING, _ESTIMATED = 1e-9, 0.01  # of sums of the same times; of sums in which calls without a sample are estimated
_FAILED_TOO = ", failed calls included"
_EXACT = 5  # samples; up to that each median is exact
_APART = 0.05  # medians that differ by a larger part are told
_REQUIRED_FIELDS = tuple(field.name for field in fields(NodeProfilingStats)[:10])


def format_profiling_table(
    stats: Iterable[NodeProfilingStats],
    *,
    total_frames: int | None = None,
    skip_first_n: int = 0,
    median: Median = "histogram",
) -> str:
    """Return statistics as a plain-text table, without a final newline.

    Rows are sorted by total time, largest first; equal totals keep their order. Times are in milliseconds with two
    decimals, totals in seconds with three. A name that is longer than its column is never cut; control characters,
    separators of lines, surrogates and what turns the direction of writing are shown as backslash escapes. Keys that
    only have errors, cancellations or drops are left out; a key with skipped calls only is a row of zeros.

    The last line is the time of a frame, where the rows are of one stage, ran equally often, and none is known to run
    inside another. Else there is a line per stage, with the number of frames or why that is not known, as
    ``ProfilingSummary.frames_per_second`` has it. Rows that are no ``NodeProfilingStats`` always have the one line,
    which is that of cuvis-ai-core. The median is ``median_ms``; with "p2" a line tells ``p50_ms`` where the estimate is
    more than 5 % off it.

    Args:
        stats: ``NodeProfilingStats``, or other objects that have its first ten fields as attributes.
        total_frames: Number of frames that were processed, shown in the title; 0 to 2^63-1, None if not known.
        skip_first_n: Number of first calls of each key that the statistics leave out, shown in the title when
            greater than 0; 0 to 2^63-1.
        median: How the medians were found, shown in the title unless it is "histogram".

    Returns:
        The table, or ``No profiling data collected.`` if it would have no row.

    Raises:
        TypeError: ``stats`` or one of its items is of another kind, a name or stage is no str, or ``total_frames`` or
            ``skip_first_n`` is no integer, or a bool.
        ValueError: ``total_frames`` or ``skip_first_n`` is out of range.
    """
    title = summary_title(checked_frames(total_frames), checked_count("skip_first_n", skip_first_n), median)
    rows = sorted_rows(row for row in checked_rows(stats) if not is_failures_only(row))
    if not rows:
        return NO_DATA
    header = (
        f"{'Node':<40} {'Stage':<12} {'Count':>5} {'Mean(ms)':>10} {'Std(ms)':>10} "
        f"{'Min(ms)':>10} {'Max(ms)':>10} {'Median(ms)':>10} {'Total(s)':>10}"
    )
    dashes = "-" * len(header)
    # A plain running sum, in row order: sum() compensates from 3.12 on, which can change the last digit shown.
    total_ms = 0.0
    for row in rows:
        total_ms += row.total_ms
    total_line = f"{'TOTAL':<{len(header) - 11}} {total_ms / 1000:>10.3f}"
    shown = [
        f"{shown_text('node_name', row.node_name):<40} {shown_text('stage', row.stage):<12} {row.count:>5} "
        f"{row.mean_ms:>10.2f} {row.std_ms:>10.2f} {row.min_ms:>10.2f} {row.max_ms:>10.2f} {row.median_ms:>10.2f} "
        f"{row.total_ms / 1000:>10.3f}"
        for row in rows
    ]
    lines = [title, header, dashes, *shown, dashes, total_line]
    is_own = all(isinstance(row, NodeProfilingStats) for row in rows)  # cuvis-ai-core prints its own with one line
    has_inside = is_own and any(own_ms(row) < row.total_ms * (1 - _ROUNDING) for row in rows)
    if has_inside or (is_own and len({(checked_text("stage", row.stage), row.count) for row in rows}) > 1):
        lines += frame_lines(rows, total_frames)
    elif rows[0].count > 0:
        frame_ms = total_ms / rows[0].count
        lines.append(f"Average per-frame pipeline time: {frame_ms:.2f} ms ({frames_per_second(frame_ms):.1f} FPS)")
    return "\n".join([*lines, *(_median_lines(rows) if median == "p2" else ())])


def _median_lines(rows: Iterable[NodeProfilingStats]) -> list[str]:
    """Say where P-square estimates differ from ``p50_ms``."""
    told = []
    for row in rows:
        p50_ms = getattr(row, "p50_ms", None)
        if row.count <= _EXACT or p50_ms is None or f"{p50_ms:.2f}" == f"{row.median_ms:.2f}":
            continue  # the same, or not to be told apart in the column
        if abs(row.median_ms - p50_ms) > _APART * p50_ms:
            told.append(f"{listed([row.node_name])} ({shown_text('stage', row.stage)}) {p50_ms:.2f} ms")
    more = f" and {len(told) - NAMED:,} more" if len(told) > NAMED else ""
    return [f"Median(ms) is the P² estimate; p50_ms, within 1 %, is: {', '.join(told[:NAMED])}{more}"] if told else []


class FrameCount(NamedTuple):
    """Number of frames in one stage, or None, with the source or reason."""

    frames: int | None
    basis: str


def calls_of(row: NodeProfilingStats) -> int:
    """Return how often a node ran, with skipped, failed and cancelled calls.

    Dropped calls do not count: they began before the statistics, and what ran inside is partly unknown.
    """
    return row.count + getattr(row, "skipped_count", 0) + failed_calls(row)


def failed_calls(row: NodeProfilingStats) -> int:
    """Return the number of calls that raised or were cancelled."""
    return getattr(row, "error_count", 0) + getattr(row, "cancelled_count", 0)


def own_ms(row: NodeProfilingStats) -> float:
    """Return a node's self time in ms, or its total if that is unknown."""
    self_ms = getattr(row, "self_total_ms", None)
    return row.total_ms if self_ms is None else self_ms


def frame_ms_of(rows: Iterable[NodeProfilingStats], frames: int) -> float:
    """Return the time of a frame in nodes, one after the other.

    Of a node with calls that were skipped, or failed, the samples stand for those, too.
    """
    return sum(own_ms(row) / row.count * calls_of(row) for row in rows) / frames


def by_stage(summary: Iterable[NodeProfilingStats]) -> dict[str, list[NodeProfilingStats]]:
    """Return nodes with samples by stage, in order of appearance."""
    found: dict[str, list[NodeProfilingStats]] = {}
    for row in summary:
        if row.count:
            found.setdefault(checked_text("stage", row.stage), []).append(row)
    return found


def frames_of_stage(rows: Sequence[NodeProfilingStats], total_frames: int | None) -> FrameCount:
    """Return the number of frames that one stage's nodes have seen.

    It is, in this order: the number given; the calls of a node that encloses all others, with a total equal to that of
    all; the calls of each node, if all are equal; the successful calls, if these are equal, as with retries.
    """
    if total_frames:
        return FrameCount(total_frames, "given")
    whole_ms = sum(map(own_ms, rows))
    with_nodes_inside = [row for row in rows if own_ms(row) < row.total_ms]
    around = [row for row in with_nodes_inside if abs(row.total_ms - whole_ms) <= _ROUNDING * whole_ms]
    if not around or len(rows) == 1:
        if len({calls_of(row) for row in rows}) == 1:
            basis = "each node ran as often" if len(rows) > 1 else f"calls of {listed([rows[0].node_name])}"
            return FrameCount(calls_of(rows[0]), basis + (_FAILED_TOO if any(map(failed_calls, rows)) else ""))
        succeeded = {calls_of(row) - failed_calls(row) for row in rows}
        if len(succeeded) == 1:
            return FrameCount(succeeded.pop(), "each node succeeded as often")
        if any(calls_of(row) > row.count for row in rows):  # with calls that gave no sample
            whole_ms = frame_ms_of(rows, 1)
            near_ms = _ESTIMATED * whole_ms
            totals = [(row, row.total_ms / row.count * calls_of(row)) for row in with_nodes_inside]
            around = [row for row, total_ms in totals if abs(total_ms - whole_ms) <= near_ms]
    if around:
        outermost = min(around, key=calls_of)
        failed = _FAILED_TOO if failed_calls(outermost) else ""
        basis = f"calls of {listed([outermost.node_name])}, in which all others ran{failed}"
        return FrameCount(calls_of(outermost), basis)
    least, most = min(rows, key=calls_of), max(rows, key=calls_of)
    fewest, highest = (f"{calls_of(row):,} ({listed([row.node_name])})" for row in (least, most))
    return FrameCount(
        None,
        f"nodes ran from {fewest} to {highest} times, and none is known to be around all others: give total_frames",
    )


def frame_lines(rows: Iterable[NodeProfilingStats], total_frames: int | None) -> list[str]:
    """Return a line about the time of a frame for each stage that has samples."""
    stages = by_stage(rows)
    lines = []
    for stage, members in stages.items():
        frames, basis = frames_of_stage(members, total_frames if len(stages) == 1 else None)
        line = f"Average per-frame pipeline time ({shown_text('stage', stage)}): "
        if frames is None:
            lines.append(f"{line}not known, as {basis}")
            continue
        frame_ms = frame_ms_of(members, frames)
        line += f"{format_time(frame_ms)} ({frames_per_second(frame_ms):.1f} FPS), frames: {frames} ({basis})"
        unknown = [row.node_name for row in members if getattr(row, "self_total_ms", None) is None]
        if unknown and len(members) > 1:
            line += f"; self time is not known of {listed(unknown)}"
        lines.append(line)
    return lines


def summary_title(total_frames: int | None, skip_first_n: int, median: str = "histogram") -> str:
    """Return the title line, with frames, ``skip_first_n`` and P-square medians if any."""
    known = []
    if total_frames is not None:
        known.append(f"{total_frames} frames")
    if skip_first_n > 0:
        known.append(f"skip_first_n={skip_first_n}")
    if median != "histogram":
        known.append(f"median={shown_text('median', median)}")
    return "Profiling Summary" + (f" ({', '.join(known)})" if known else "")


def checked_frames(total_frames: object) -> int | None:
    """Return ``total_frames`` as an int or None (see ``checked_count``)."""
    return None if total_frames is None else checked_count("total_frames", total_frames)


def checked_rows(stats: Iterable[NodeProfilingStats]) -> list[NodeProfilingStats]:
    """Return the items of ``stats`` as a list.

    Raises TypeError if it is not iterable, or if an item is no ``NodeProfilingStats`` and lacks one of its first ten
    fields.
    """
    if not isinstance(stats, Iterable):
        raise TypeError(f"stats must be an iterable of NodeProfilingStats, got {type(stats).__name__}")
    rows = list(stats)
    for index, row in enumerate(rows):
        if isinstance(row, NodeProfilingStats):
            continue
        missing = [name for name in _REQUIRED_FIELDS if not hasattr(row, name)]
        if missing:
            raise TypeError(
                f"stats[{index}] must be a NodeProfilingStats or have its first ten fields, "
                f"got {type(row).__name__} without {', '.join(missing)}"
            )
    return rows


def sorted_rows(rows: Iterable[NodeProfilingStats]) -> list[NodeProfilingStats]:
    """Return the rows by total time, largest first, stable for equal totals."""
    return sorted(rows, key=operator.attrgetter("total_ms"), reverse=True)


def no_such_stage(stage: str, known: Iterable[str]) -> str:
    """Say that no node ran in the stage, and name the stages with nodes."""
    return f"no node has run in stage {shown_names([stage])}; stages with nodes: {shown_names(known)}"


def frames_per_second(frame_ms: float) -> float:
    """Return the frames per second for a frame time in ms, 0.0 for 0."""
    return 1000.0 / frame_ms if frame_ms > 0 else 0.0


def is_failures_only(row: NodeProfilingStats) -> bool:
    """Return whether a key has only errors, cancellations or drops."""
    if row.count > 0 or getattr(row, "skipped_count", 0) > 0:
        return False
    return any(getattr(row, name, 0) > 0 for name in ("error_count", "cancelled_count", "dropped_count"))
