"""Recordings as DataFrames.

A DataFrame has the events as rows, with columns of fixed names, order and types.

The columns, in their order; "none" is a null:

* ``trace_id``, ``parent_span_id``, ``span_id``: W3C ids as lower-case hexadecimal, 32, 16 and 16 digits. An operator,
  or work of a device, has the trace of the span in which it was started, and that as its parent. A root span's parent
  is all zeros.
* ``name``, ``cat`` (Kineto's category), ``stage`` (of a node)
* ``start``, ``end``, ``dur``: ns, int64; since 1970 (UTC), or what a trace that was loaded counts from
* ``thread.id``: the operating system's number of the thread, or the device's of a stream
* ``device_index``, ``stream``: of work of a device
* ``execution_index``: of work of a device: the running number, on that device, of the call of a node, labelled block or
  step that started it, from 0
* ``operator_index``: the running number of a row within the row directly around it, or else on its thread, from 0; of
  work of a device within its execution
* ``input_shapes``, ``input_types``: JSON lists, where they were recorded
* ``memory_change``, ``memory_peak``, ``device_memory_change``, ``device_memory_peak``, ``bytes``: bytes
* ``kind``: node, record, step, host (an operator, a call of a device's runtime, a Python frame), device or instant
* ``outcome``: of a node or a labelled block: success, error, cancelled, or unfinished when the recording ended

Counter readings are left out. The index of the pandas DataFrame, ``row``, has the numbers that ``Recording.event(row)``
takes, as ``Event.parent`` and findings have them. Arrow and polars have no index, so that ``row`` is their last column.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cprofiling._internal.arguments import member
from cprofiling._internal.optional import imported
from cprofiling._internal.row_kinds import COUNTER, KINDS, OUTCOMES, RECORD, UNFINISHED
from cprofiling.recording.columns import UNKNOWN, Recording, column, thread_number
from cprofiling.recording.tree import HostTree, SpanIds, device_owners, executions, host_tree

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


_TEXTS = {"name": "name", "cat": "cat", "stage": "stage", "input_shapes": "shapes", "input_types": "types"}
_MEMORY = ("memory_change", "memory_peak", "device_memory_change", "device_memory_peak", "bytes")
FRAME_COLUMNS = (
    "trace_id", "parent_span_id", "span_id", "name", "cat", "stage", "start", "end", "dur", "thread.id", "device_index",
    "stream", "execution_index", "operator_index", "input_shapes", "input_types", *_MEMORY, "kind", "outcome",
)  # fmt: skip
ROW = "row"
_LONGEST = 2**63 - 1
_NUMBERS = {"device_index": "device", "stream": "stream", **{name: name for name in _MEMORY}}


def to_pandas(recording: Recording) -> pd.DataFrame:
    """Return the recording as a pandas DataFrame.

    Texts are objects (None if missing); ``start``, ``end``, ``dur`` and the index, ``row``, are int64; other
    numbers are nullable Int64.

    Raises:
        ImportError: pandas is not installed.
    """
    pandas = imported("pandas")
    import numpy as np

    index = pandas.Index(event_rows(recording), dtype="int64", name=ROW)
    columns = {}
    for name, values in frame_columns(recording).items():
        if isinstance(values, Numbers):
            numbers = np.array(values.values, dtype=np.int64)
            masked = values.none is not None
            columns[name] = pandas.arrays.IntegerArray(numbers, numbers == values.none) if masked else numbers
        else:
            columns[name] = pandas.Series(values, dtype=object, index=index)
    frame: pd.DataFrame = pandas.DataFrame(columns, columns=list(FRAME_COLUMNS), index=index)
    return frame


def to_polars(recording: Recording) -> pl.DataFrame:
    """Return the recording as a polars DataFrame.

    Columns are as in the module's list, of String, Int64 and, for the device, Int32; the last one is ``row``.
    Surrogates become U+FFFD, as polars cannot have them.

    Raises:
        ImportError: polars is not installed.
    """
    frame: pl.DataFrame = imported("polars").DataFrame(_ArrowStream(arrow_stream(recording)))
    return frame


def arrow_stream(recording: Recording) -> object:
    """Return the DataFrame as an Arrow PyCapsule, without any library."""
    member("recording", recording, Recording)
    tree = host_tree(recording, merging=False)
    ids = SpanIds(recording, tree, device_owners(recording, tree))
    executed, operators = _indices(recording, tree)
    return recording._arrow_stream(  # noqa: SLF001 the stream of a recording's own knows less of ids and numbers
        spans=array("i", ids.rows), execution_index=array("q", executed), operator_index=array("q", operators)
    )


class _ArrowStream:
    """Arrow stream that libraries can take once."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        del requested_schema
        return self._capsule


@dataclass(frozen=True)
class Numbers:
    """A column of int64.

    Attributes:
        values: The numbers.
        none: That one of them that stands for "none"; None where each is a number.
    """

    values: array[int]
    none: int | None = None


def event_rows(recording: Recording) -> list[int]:
    """Return the numbers of all rows but counter readings."""
    member("recording", recording, Recording)
    return [row for row, kind in enumerate(column(recording, "kind")) if kind != COUNTER]


def frame_columns(recording: Recording) -> dict[str, Numbers | list[str | None]]:
    """Return the DataFrame's columns, texts as lists, numbers as ``Numbers``."""
    rows = event_rows(recording)
    tree = host_tree(recording, merging=False)
    owners = device_owners(recording, tree)
    columns: dict[str, Numbers | list[str | None]] = {name: [] for name in FRAME_COLUMNS}
    ids = SpanIds(recording, tree, owners)
    columns["trace_id"] = [ids.trace(row) for row in rows]
    columns["parent_span_id"] = [ids.parent(row) for row in rows]
    columns["span_id"] = [ids.own(row) for row in rows]
    for name, source in _TEXTS.items():
        texts: list[str | None] = [*recording.strings]
        if source != "name":
            texts[0] = None
        numbers = column(recording, source)
        columns[name] = [texts[numbers[row]] for row in rows]
    starts, ends = (_picked(column(recording, name), rows) for name in ("start_ns", "end_ns"))
    durations = array("q", (min(end - start, _LONGEST) for start, end in zip(starts, ends, strict=True)))
    columns |= {"start": Numbers(starts), "end": Numbers(ends), "dur": Numbers(durations)}
    tracks = [thread_number(track) for track in recording.tracks]
    threads = [UNKNOWN if isinstance(track, str) else track for track in tracks]
    of_rows = (threads[track] for track in _picked(column(recording, "track"), rows))
    columns["thread.id"] = Numbers(array("q", of_rows), UNKNOWN if UNKNOWN in threads else None)
    for name, source in _NUMBERS.items():
        columns[name] = Numbers(_picked(column(recording, source), rows), recording.none(source))
    for name, values in zip(("execution_index", "operator_index"), _indices(recording, tree), strict=True):
        columns[name] = Numbers(_picked(values, rows), -1)
    kinds, flags, outcomes = (column(recording, name) for name in ("kind", "flags", "outcome"))
    columns["kind"] = [KINDS[kinds[row]] for row in rows]
    columns["outcome"] = [
        None if kinds[row] > RECORD else "unfinished" if flags[row] & UNFINISHED else OUTCOMES[outcomes[row]]
        for row in rows
    ]
    return columns


def _picked(values: Sequence[int], rows: Sequence[int]) -> array[int]:
    return array("q", (values[row] for row in rows))


def _indices(recording: Recording, tree: HostTree) -> tuple[list[int], list[int]]:
    """Return each row's execution number and number within it, or -1.

    The second one counts within the row around it for work without an execution.
    """
    operators, executed = operator_indices(recording, tree), [-1] * len(recording)
    for execution in executions(recording):
        for place, row in enumerate(execution.rows):
            operators[row], executed[row] = place, execution.index
    return executed, operators


def operator_indices(recording: Recording, tree: HostTree) -> list[int]:
    """Return each row's number within its parent or thread, -1 outside a tree."""
    indices = [-1] * len(recording)
    inside: dict[int, int] = {}  # how many rows there are so far within a row,
    outside: dict[int, int] = {}  # and on a thread
    for row, (parent, track) in enumerate(zip(tree.parents, column(recording, "track"), strict=True)):
        if parent != -2:
            counts, around = (inside, parent) if parent >= 0 else (outside, track)
            indices[row] = counts.get(around, 0)
            counts[around] = indices[row] + 1
    return indices
