"""The HTML table of a summary for notebooks, without scripts."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cprofiling._internal.arguments import checked_count
from cprofiling._internal.text import format_time, shown_text
from cprofiling.nodes.input_shapes import COLUMNS, shown_rows, shown_signature
from cprofiling.nodes.resource_columns import columns_of, lines_below
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

if TYPE_CHECKING:
    from cprofiling.nodes.input_shapes import ShapeStats

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

_NAMES = (("Node", "name of the node"), ("Stage", "execution stage of the calls"))
_COUNT = ("Count", "number of samples")
_TIMES = {
    "mean_ms": ("Mean", "arithmetic mean of the samples"),
    "std_ms": ("Std", "population standard deviation of the samples"),
    "min_ms": ("Min", "smallest sample"),
    "p50_ms": ("p50", "50th percentile, within 1 %: p50_ms, not the P² estimate median_ms of the text table"),
    "p90_ms": ("p90", "90th percentile, within 1 %"),
    "p99_ms": ("p99", "99th percentile, within 1 %"),
    "max_ms": ("Max", "largest sample"),
    "total_ms": ("Total", "sum of the samples, nodes called inside included"),
    "self_total_ms": ("Self", "total without the nodes called inside; with operators inside"),
}
_SHARE = ("Share", "part of the time of all rows, by self time where it is known")
_EVENTS = {
    "error_count": ("Errors", "calls that an exception left"),
    "cancelled_count": ("Cancelled", "calls that were cancelled"),
    "skipped_count": ("Skipped", "first calls left out of the samples"),
    "dropped_count": ("Dropped", "calls whose statistics were discarded before they finished"),
}


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
    rows = sorted_rows(checked_rows(stats))
    notes = []
    if skip_first_n:
        notes.append(f"First calls of each node left out (skip_first_n): {skip_first_n}")
    if cost_ns is not None:
        notes.append(f"Own cost of one profiled call, measured and not subtracted: {format_time(cost_ns * 1e-6)}")
    if internal_errors:
        notes.append(f"Internal errors of the profiler: {internal_errors}")
    notes += [_escaped("reasons", reason) for reason in reasons]
    if not rows:
        return "\n".join([f"<p>{NO_DATA}</p>", *_list(notes)])
    events = {name: head for name, head in _EVENTS.items() if any(_count(row, name) for row in rows)}
    beyond = columns_of(rows)
    labels = [(_escaped("label", column.label), _escaped("tip", column.tip)) for column in beyond]
    whole_ms = math.fsum(map(own_ms, rows))
    lines = [
        [
            *_names(row),
            f"<td>{_count(row, 'count')}</td>",
            *(_time_cell(row, name, reasons) for name in _TIMES),
            _share_cell(row, whole_ms),
            *(f"<td>{_count(row, name)}</td>" for name in events),
            *(_cell(column.text(row), column.reason(row)) for column in beyond),
        ]
        for row in rows
    ]
    heads = [*_NAMES, _COUNT, *_TIMES.values(), _SHARE, *events.values(), *labels]
    below = [_escaped("line", line) for line in (*frame_lines(rows, total_frames), *lines_below(rows))]
    return _table(summary_title(total_frames, skip_first_n), heads, lines, [*below, *notes])


def shapes_html(shapes: Sequence[ShapeStats]) -> str:
    """Return the figures by input signature as an HTML table with verdicts."""
    lines = [
        [
            *_names(row),
            *(_cell(text(row)) for *_, text in COLUMNS),
            f'<td class="cprofiling-signature">{_isolated("signature", shown_signature(row.signature))}</td>',
        ]
        for row in shown_rows(shapes)
    ]
    heads = [*_NAMES, *((label, tip) for label, tip, _ in COLUMNS), ("Signature", "shapes and dtypes of the tensors")]
    verdicts = [_escaped("line", str(verdict)) for verdict in getattr(shapes, "verdicts", ())]
    return _table("Calls by input signature", heads, lines, verdicts, last='class="cprofiling-signature" ')


def _table(
    title: str, heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]], notes: list[str], last: str = ""
) -> str:
    """Return HTML of headings with tips, escaped cells, and notes."""
    cells = [f'<th scope="col" title="{tip}">{label}</th>' for label, tip in heads]
    cells[-1] = cells[-1].replace("title=", f"{last}title=", 1)
    return "\n".join([
        '<div class="cprofiling-summary">', _STYLE, "<table>", f"<caption>{title}</caption>",
        f"<thead><tr>{''.join(cells)}</tr></thead>", "<tbody>",
        *(f"<tr>{''.join(row)}</tr>" for row in rows),
        "</tbody>", "</table>", *_list(notes), "</div>",
    ])  # fmt: skip


def _names(row: NodeProfilingStats | ShapeStats) -> tuple[str, str]:
    name, stage = _isolated("node_name", row.node_name), _isolated("stage", row.stage)
    return f'<th scope="row">{name}</th>', f"<td>{stage}</td>"


def _time_cell(row: NodeProfilingStats, name: str, reasons: Sequence[str]) -> str:
    if row.count == 0:
        return _cell(None, "no samples")
    time_ms = getattr(row, name, None)
    return _cell(None if time_ms is None else format_time(time_ms), "; ".join(["not known for this node", *reasons]))


def _share_cell(row: NodeProfilingStats, whole_ms: float) -> str:
    if row.count == 0 or whole_ms <= 0:
        return _cell(None, "no samples" if row.count == 0 else "the times of all rows add up to 0")
    percent = f"{100 * own_ms(row) / whole_ms:.1f}%"
    bar = f'<span class="cprofiling-bar" aria-hidden="true"><span style="width:{percent}"></span></span>'
    return f"<td>{percent}{bar}</td>"


def _cell(text: str | None, reason: str = "") -> str:
    """Return a cell, with a dash and the reason where the figure is unknown."""
    if text is None:
        return f'<td title="{_escaped("reasons", reason)}">\N{EN DASH}</td>'
    return f"<td>{_escaped('figure', text)}</td>"


def _list(items: list[str]) -> list[str]:
    return ["<ul>", *(f"<li>{item}</li>" for item in items), "</ul>"] if items else []


def _count(row: NodeProfilingStats, name: str) -> int:
    return int(getattr(row, name, 0))


def _escaped(parameter: str, text: str) -> str:
    return html.escape(shown_text(parameter, text))


def _isolated(parameter: str, text: str) -> str:
    """Return escaped text whose direction cannot spread to its neighbours."""
    return f"<bdi>{_escaped(parameter, text)}</bdi>"
