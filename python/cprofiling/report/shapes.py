"""The section of a document that tells the calls of nodes apart by the shapes and dtypes of their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling._internal.tables import Column, Section
from cprofiling._internal.text import checked_text
from cprofiling.nodes.input_shapes import OVERFLOW, shown_rows, shown_signature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cprofiling._internal.tables import Cell
    from cprofiling.nodes.input_shapes import ShapeStats

_COLUMNS = (
    Column("node_name", "Node"),
    Column("stage", "Stage"),
    Column("signature", "Signature", tip="dtypes and shapes of the call's tensors"),
    Column("makes_tail", "Makes the tail", tip="whether it has the slowest calls much more often than others"),
    Column("count", "Calls", "count", "number of samples"),
    Column("share", "Share", "share", "part of the node's samples"),
    Column("mean_ms", "Mean", "ms", "arithmetic mean of the samples"),
    Column("p50_ms", "p50", "ms", "50th percentile, within 1 %"),
    Column("p99_ms", "p99", "ms", "99th percentile, within 1 %"),
    Column("max_ms", "Max", "ms", "largest sample"),
    Column("total_ms", "Total", "ms", "sum of the samples"),
    Column("tail_share", "Tail", "share", "part of the node's slowest samples"),
    Column("error_count", "Errors", "count", "calls that an exception left"),
    Column("cancelled_count", "Cancelled", "count", "calls that were cancelled"),
)
_FIGURES = tuple(column.name for column in _COLUMNS[4:])
_TIMES = ("mean_ms", "max_ms", "total_ms")  # 0.0 where there is no sample


def shapes_section(shapes: Sequence[ShapeStats]) -> Section:
    """Return the table of a summary's shapes, its verdicts below; nodes of which no call had a tensor are left out."""
    verdicts = getattr(shapes, "verdicts", ())
    odd = {verdict.stats for verdict in verdicts}
    rows = tuple(
        (
            row.node_name,
            checked_text("stage", row.stage),
            shown_signature(row.signature) if row.signature in ("", OVERFLOW) else row.signature,
            "yes" if row in odd else "",
            *(_cell(row, name) for name in _FIGURES),
        )
        for row in shown_rows(shapes)
    )
    return Section("Calls by input signature", _COLUMNS, rows, tuple(map(str, verdicts)))


def _cell(row: ShapeStats, name: str) -> Cell:
    value: Cell = getattr(row, name)
    return None if row.count == 0 and name in _TIMES else value
