"""Figures as flat columns, for CSV, Parquet, Arrow and DataFrames.

The columns of statistics are the fields of ``NodeProfilingStats`` by their names: texts, integers, and times as floats
in ms; null for what is not known. Where any node has them, columns follow for ``launches`` (``launches_kernels``, ...),
``memory`` (``memory_device_peak``, ...) and each counter (``counter_cycles_mean``, ``_total``, ``_samples``, ``_unit``,
``_estimated``). Those of recordings are in ``cprofiling.export``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeAlias

from cprofiling import _core
from cprofiling._internal.optional import imported
from cprofiling._internal.text import checked_text, shown_text
from cprofiling.nodes.resources import CounterValue, MemoryFigures, NodeLaunches
from cprofiling.nodes.stats import NodeProfilingStats

if TYPE_CHECKING:
    from dataclasses import Field

    import pandas as pd
    import polars as pl

    from cprofiling.report.document import Node

    Stats: TypeAlias = NodeProfilingStats | Node
    Flat: TypeAlias = tuple[str, str, list[Any]]  # name, "u" (text), "l" (integer) or "g" (float), values

_FORMATS = {"str": "u", "int": "l", "bool": "l", "float": "g"}
_OR_NONE = " | None"


def columns_of(nodes: Iterable[Stats]) -> tuple[Flat, ...]:
    """Return the columns of nodes."""
    rows = list(nodes)
    columns = [
        (
            field.name,
            _FORMATS[_type(field)],
            [checked_text("stage", row.stage) if field.name == "stage" else getattr(row, field.name) for row in rows],
        )
        for field in fields(NodeProfilingStats)
        if _type(field) in _FORMATS
    ]
    if any(row.launches is not None for row in rows):
        columns += _group("launches", NodeLaunches, [row.launches for row in rows])
    if any(row.memory is not None for row in rows):
        known = [row.memory for row in rows]
        for kind in ("device", "host"):
            values = [None if memory is None else getattr(memory, kind) for memory in known]
            columns += _group(f"memory_{kind}", MemoryFigures, values)
        columns.append(("memory_reason", "u", [None if memory is None else memory.reason for memory in known]))
    for name in dict.fromkeys(name for row in rows for name in row.counters):
        columns += _group(
            f"counter_{shown_text('counter', name)}", CounterValue, [row.counters.get(name) for row in rows]
        )
    return tuple(columns)


def arrow_stream(nodes: Iterable[Stats]) -> object:
    """Return the columns as a capsule of an Arrow stream.

    A surrogate, which Arrow's texts cannot have, is U+FFFD there.
    """
    return _core.arrow_stream(columns_of(nodes))


def to_pandas(nodes: Iterable[Stats]) -> pd.DataFrame:
    """Return the columns of nodes as a pandas DataFrame."""
    pandas = imported("pandas")
    types = {"u": object, "l": "int64", "g": "float64"}
    frame: pd.DataFrame = pandas.DataFrame(
        {
            name: pandas.Series(values, dtype="Int64" if kind == "l" and None in values else types[kind])
            for name, kind, values in columns_of(nodes)
        }
    )
    return frame


def to_polars(nodes: Iterable[Stats]) -> pl.DataFrame:
    """Return the columns of nodes as a polars DataFrame."""
    frame: pl.DataFrame = imported("polars").DataFrame(ArrowTable(nodes))
    return frame


def _type(field: Field[Any]) -> str:
    return str(field.type).removesuffix(_OR_NONE)


def _group(name: str, kind: type[Any], values: Sequence[Any]) -> list[Flat]:
    """Return the fields of values of a dataclass, or None, as columns."""
    columns: list[Flat] = []
    for field in fields(kind):
        items = [None if value is None else getattr(value, field.name) for value in values]
        # Totals of counters have 128 bits.
        is_wide = kind is CounterValue and field.name == "total"
        columns.append((f"{name}_{field.name}", "g" if is_wide else _FORMATS[_type(field)], items))
    return columns


class ArrowTable:
    """Nodes as libraries take an Arrow stream, as often as they like."""

    def __init__(self, nodes: Iterable[Stats]) -> None:
        """Take over the nodes."""
        self._nodes = tuple(nodes)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the columns as an Arrow stream of our schema."""
        del requested_schema
        return arrow_stream(self._nodes)
