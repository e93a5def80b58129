"""The HTML table of a summary for notebooks, without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cprofiling._internal.arguments import checked_count, member, number_between
from cprofiling._internal.tables import Bar, Missing, Shown, html_notes, html_table
from cprofiling._internal.text import format_time, shown_text
from cprofiling.nodes.input_shapes import COLUMNS, shown_rows, shown_signature
from cprofiling.nodes.resource_columns import Column, columns_of, lines_below
from cprofiling.nodes.stats import NodeProfilingStats
from cprofiling.nodes.summary_table import (
    NO_DATA,
    checked_frames,
    checked_rows,
    frame_lines,
    own_ms,
    sorted_rows,
    summary_title,
)
from cprofiling.report.tables import FIGURES

if TYPE_CHECKING:
    from cprofiling.nodes.input_shapes import ShapeStats

_NAMES = (("Node", "name of the node"), ("Stage", "execution stage of the calls"))
_TIMES = ("mean_ms", "std_ms", "min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms", "total_ms", "self_total_ms")
_EVENTS = ("error_count", "cancelled_count", "skipped_count", "dropped_count")


def summary_html(
    stats: Iterable[NodeProfilingStats],
    *,
    total_frames: int | None = None,
    skip_first_n: int = 0,
    reasons: Sequence[str] = (),
    internal_errors: int = 0,
    cost_ns: float | None = None,
) -> str:
    """Return the statistics as an HTML table with notes.

    Rows are sorted by total time, largest first. Each time has the unit that fits it; an unknown one is a dash
    with the reason as its tooltip. The share of a node is its self time over the sum of self times, so nested nodes do
    not add up to more than the whole; a node of unknown self time counts with its total.

    The time per frame is given for each stage, with the number of frames, or with the reason why that is not known.
    With one stage, ``total_frames`` is that number.

    Args:
        stats: ``NodeProfilingStats``, or other objects that have its first ten fields as attributes.
        total_frames: Number of frames that the statistics cover, 0 to 2^63-1; None or 0 if not known.
        skip_first_n: Number of first calls of each key that the statistics leave out, 0 to 2^63-1.
        reasons: Why figures are unknown or features are off, one sentence each.
        internal_errors: Faults inside the profiler, 0 or more; shown when not 0.
        cost_ns: Measured own cost of one profiled call in nanoseconds; None if not known.

    Returns:
        Well-formed HTML that can be encoded as UTF-8; everything that came from outside is escaped, and control
        characters and surrogates are shown as in the text table.

    Raises:
        TypeError, ValueError: As ``cprofiling.format_profiling_table``.
    """
    total_frames = checked_frames(total_frames)
    skip_first_n = checked_count("skip_first_n", skip_first_n)
    rows = sorted_rows(checked_rows(stats))
    notes = []
    if skip_first_n:
        notes.append(f"First calls of each node left out (skip_first_n): {skip_first_n}")
    if cost_ns is not None:
        number_between("cost_ns", cost_ns, 0, 1e12)
        notes.append(f"Cost of profiling, not subtracted from the times: {format_time(cost_ns * 1e-6)} a call")
    if internal_errors:
        notes.append(f"Internal errors of the profiler: {internal_errors}")
    member("reasons", reasons, Sequence)  # type: ignore[type-abstract]
    notes += [shown_text("reasons", reason) for reason in reasons]
    if not rows:
        return "\n".join(html_notes([NO_DATA, *notes]))
    events = [name for name in _EVENTS if any(getattr(row, name, 0) for row in rows)]
    resources = columns_of(rows)
    cells = _cells(rows, events, resources, reasons)
    figures = [FIGURES[name] for name in ("count", *_TIMES, "share", *events)]
    headings = [
        *_NAMES,
        *((figure.title, figure.tip) for figure in figures),
        *((column.label, column.tip) for column in resources),
    ]
    below = [*frame_lines(rows, total_frames), *lines_below(rows), *notes]
    return html_table(headings, cells, below, None, summary_title(total_frames, skip_first_n))


def _cells(
    rows: Sequence[NodeProfilingStats], events: Sequence[str], resources: Sequence[Column], reasons: Sequence[str]
) -> list[list[object]]:
    """Return the cells of each row, with a reason in place of an unknown figure."""
    unknown = Missing("; ".join(["not known for this node", *reasons]))
    whole_ms = math.fsum(map(own_ms, rows))
    cells: list[list[object]] = []
    for row in rows:
        times = [getattr(row, name, None) for name in _TIMES]
        share: Bar | Missing = Missing("the times of all rows add up to 0")
        if row.count == 0:
            share = Missing("no samples")
        elif whole_ms > 0:
            share = Bar(own_ms(row) / whole_ms)
        cells.append(
            [
                *_names(row),
                row.count,
                *(share if row.count == 0 else unknown if time is None else Shown(format_time(time)) for time in times),
                share,
                *(getattr(row, name, 0) for name in events),
                *(
                    Missing(column.reason(row)) if (text := column.text(row)) is None else Shown(text)
                    for column in resources
                ),
            ]
        )
    return cells


def shapes_html(shapes: Sequence[ShapeStats]) -> str:
    """Return the figures by input signature as an HTML table with verdicts."""
    headings = [
        *_NAMES,
        *((label, tip) for label, tip, _ in COLUMNS),
        ("Signature", "shapes and dtypes of the tensors"),
    ]
    cells = [
        [*_names(row), *(Shown(text(row)) for *_, text in COLUMNS), shown_signature(row.signature)]
        for row in shown_rows(shapes)
    ]
    verdicts = map(str, getattr(shapes, "verdicts", ()))
    return html_table(headings, cells, verdicts, None, "Calls by input signature")


def _names(row: NodeProfilingStats | ShapeStats) -> tuple[str, str]:
    return shown_text("node_name", row.node_name), shown_text("stage", row.stage)
