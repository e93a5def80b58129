"""The HTML table of a summary for notebooks, without scripts."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cprofiling._internal.arguments import checked_count
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
from cprofiling.report.notebook.progress_postfix import postfix

if TYPE_CHECKING:
    from cprofiling.nodes.input_shapes import ShapeStats

__all__ = ["postfix", "summary_html"]

# Text and lines take the colour of the page around them; only the bars have one of their own, for light and for dark.
_STYLE = """<style>
.cprofiling-summary { --cprofiling-bar: #4c78a8; color: currentColor; overflow-x: auto; }
@media (prefers-color-scheme: dark) { .cprofiling-summary { --cprofiling-bar: #8ab4e0; } }
.cprofiling-summary table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.cprofiling-summary caption { text-align: left; font-weight: bold; padding: 0.3em 0; }
.cprofiling-summary th, .cprofiling-summary td { padding: 0.2em 0.7em; text-align: right; white-space: nowrap; }
.cprofiling-summary thead th { border-bottom: 1px solid currentColor; }
.cprofiling-summary tbody tr:last-child > * { border-bottom: 1px solid currentColor; }
.cprofiling-summary tr > :nth-child(-n+2), .cprofiling-summary tr > .cprofiling-signature {
  text-align: left; white-space: pre-wrap; }
.cprofiling-summary tbody th { font-weight: normal; }
.cprofiling-bar { display: inline-block; width: 5em; height: 0.7em; margin-left: 0.5em; text-align: left; }
.cprofiling-bar > span { display: block; height: 100%; background: var(--cprofiling-bar); }
</style>"""

_COLUMNS = (
    ("Node", "name of the node"),
    ("Stage", "execution stage of the calls"),
    ("Count", "number of samples"),
    ("Mean", "arithmetic mean of the samples"),
    ("Std", "population standard deviation of the samples"),
    ("Min", "smallest sample"),
    ("p50", "50th percentile, within 1 %: p50_ms, not the P² estimate median_ms of the text table"),
    ("p90", "90th percentile, within 1 %"),
    ("p99", "99th percentile, within 1 %"),
    ("Max", "largest sample"),
    ("Total", "sum of the samples, nodes called inside included"),
    ("Self", "total without the nodes called inside; with operators inside"),
    ("Share", "part of the time of all rows, by self time where it is known"),
)
_TIME_FIELDS = ("mean_ms", "std_ms", "min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms", "total_ms", "self_total_ms")
_EVENT_COLUMNS = (
    ("Errors", "calls that an exception left", "error_count"),
    ("Cancelled", "calls that were cancelled", "cancelled_count"),
    ("Skipped", "first calls left out of the samples", "skipped_count"),
    ("Dropped", "calls whose statistics were discarded before they finished", "dropped_count"),
)


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

    Rows are sorted by total time, largest first. Each time has the unit that fits it; one that is not known is a dash
    whose tooltip says why. The share of a node is its self time over the sum of self times, so nested nodes do not add
    up to more than the whole; a node whose self time is not known counts with its total.

    The time per frame is given for each stage, with the number of frames, or with the reason why that is not known.
    ``total_frames`` is that number where there is one stage.

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
    title = summary_title(total_frames, skip_first_n)
    rows = sorted_rows(checked_rows(stats))
    notes = _notes(skip_first_n, reasons, internal_errors, cost_ns)
    if not rows:
        return "\n".join([f"<p>{NO_DATA}</p>", *_list(notes)])
    lines = ['<div class="cprofiling-summary">', _STYLE, *_table(title, rows, reasons)]
    return "\n".join(
        [
            *lines,
            *_list([*map(_escaped_line, [*frame_lines(rows, total_frames), *lines_below(rows)]), *notes]),
            "</div>",
        ]
    )


def shapes_html(shapes: Sequence[ShapeStats]) -> str:
    """Return the figures by input signature as an HTML table with verdicts."""
    heads = [("Node", "name of the node"), ("Stage", "execution stage of the calls"), *(each[:2] for each in COLUMNS)]
    rows = [
        f'<tr><th scope="row">{_isolated("node_name", row.node_name)}</th><td>{_isolated("stage", row.stage)}</td>'
        + "".join(f"<td>{_escaped('figure', text(row))}</td>" for _, _, text in COLUMNS)
        + f'<td class="cprofiling-signature">{_isolated("signature", shown_signature(row.signature))}</td></tr>'
        for row in shown_rows(shapes)
    ]
    head = "".join(f'<th scope="col" title="{tip}">{label}</th>' for label, tip in heads)
    signature = '<th scope="col" class="cprofiling-signature" title="shapes and dtypes of the tensors">Signature</th>'
    verdicts = [_escaped_line(str(verdict)) for verdict in getattr(shapes, "verdicts", ())]
    return "\n".join([
        '<div class="cprofiling-summary">', _STYLE,
        "<table>", "<caption>Calls by input signature</caption>",
        f"<thead><tr>{head}{signature}</tr></thead>", "<tbody>", *rows, "</tbody>", "</table>",
        *_list(verdicts), "</div>",
    ])  # fmt: skip


def _table(title: str, rows: list[NodeProfilingStats], reasons: Sequence[str]) -> list[str]:
    events = [column for column in _EVENT_COLUMNS if any(_count(row, column[2]) for row in rows)]
    beyond = columns_of(rows)
    heads = [
        *_COLUMNS,
        *((label, tip) for label, tip, _ in events),
        *((_escaped("label", extra.label), _escaped("tip", extra.tip)) for extra in beyond),
    ]
    whole_ms = math.fsum(map(own_ms, rows))
    return [
        "<table>",
        f"<caption>{title}</caption>",
        "<thead>",
        "<tr>" + "".join(f'<th scope="col" title="{tip}">{label}</th>' for label, tip in heads) + "</tr>",
        "</thead>",
        "<tbody>",
        *(_table_row(row, whole_ms, [name for _, _, name in events], beyond, reasons) for row in rows),
        "</tbody>",
        "</table>",
    ]


def _table_row(
    row: NodeProfilingStats, whole_ms: float, events: list[str], beyond: list[Column], reasons: Sequence[str]
) -> str:
    cells = [
        f'<th scope="row">{_isolated("node_name", row.node_name)}</th>',
        f"<td>{_isolated('stage', row.stage)}</td>",
        f"<td>{_count(row, 'count')}</td>",
        *(_time_cell(row, name, reasons) for name in _TIME_FIELDS),
        _share_cell(row, whole_ms),
        *(f"<td>{_count(row, name)}</td>" for name in events),
    ]
    for column in beyond:
        text = column.text(row)
        cells.append(_unknown_cell(column.reason(row)) if text is None else f"<td>{_escaped('figure', text)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _time_cell(row: NodeProfilingStats, name: str, reasons: Sequence[str]) -> str:
    if row.count == 0:
        return _unknown_cell("no samples")
    time_ms = getattr(row, name, None)
    if time_ms is None:
        return _unknown_cell("; ".join(["not known for this node", *reasons]))
    return f"<td>{format_time(time_ms)}</td>"


def _share_cell(row: NodeProfilingStats, whole_ms: float) -> str:
    if row.count == 0:
        return _unknown_cell("no samples")
    if whole_ms <= 0:
        return _unknown_cell("the times of all rows add up to 0")
    percent = f"{100 * own_ms(row) / whole_ms:.1f}%"
    bar = f'<span class="cprofiling-bar" aria-hidden="true"><span style="width:{percent}"></span></span>'
    return f"<td>{percent}{bar}</td>"


def _unknown_cell(reason: str) -> str:
    return f'<td title="{_escaped("reasons", reason)}">\N{EN DASH}</td>'


def _notes(skip_first_n: int, reasons: Sequence[str], internal_errors: int, cost_ns: float | None) -> list[str]:
    notes = []
    if skip_first_n:
        notes.append(f"First calls of each node left out (skip_first_n): {skip_first_n}")
    if cost_ns is not None:
        notes.append(f"Own cost of one profiled call, measured and not subtracted: {format_time(cost_ns * 1e-6)}")
    if internal_errors:
        notes.append(f"Internal errors of the profiler: {internal_errors}")
    return notes + [_escaped("reasons", reason) for reason in reasons]


def _list(items: list[str]) -> list[str]:
    """Return the lines of an HTML list, none without items."""
    return ["<ul>", *(f"<li>{item}</li>" for item in items), "</ul>"] if items else []


def _count(row: NodeProfilingStats, name: str) -> int:
    return int(getattr(row, name, 0))


def _escaped(parameter: str, text: str) -> str:
    return html.escape(shown_text(parameter, text))


def _escaped_line(line: str) -> str:
    return _escaped("line", line)


def _isolated(parameter: str, text: str) -> str:
    """Return escaped text whose direction cannot spread to its neighbours."""
    return f"<bdi>{_escaped(parameter, text)}</bdi>"
