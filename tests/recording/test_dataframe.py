"""DataFrames: columns of fixed names, order and types, with nulls where nothing is known."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from cprofiling import export
from cprofiling.export import FRAME_COLUMNS, frame_columns
from cprofiling.integrations.furiosa import profile
from cprofiling.recording.result import Recording
from recordings import COUNTER, DEVICE, INSTANT, NODE, RECORD, STEP, call, device, host, made

pytestmark = pytest.mark.native

COLUMNS = [
    "trace_id", "parent_span_id", "span_id", "name", "cat", "stage", "start", "end", "dur", "thread.id", "device_index",
    "stream", "execution_index", "operator_index", "input_shapes", "input_types", "memory_change", "memory_peak",
    "device_memory_change", "device_memory_peak", "bytes", "kind", "outcome",
]  # fmt: skip
TEXTS = {
    "trace_id", "parent_span_id", "span_id", "name", "cat", "stage", "input_shapes", "input_types", "kind", "outcome",
}  # fmt: skip
TRACE = {"trace_high": 0xFEDC_BA98_7654_3210, "trace_low": 0x0123_4567_89AB_CDEF}
HEX = "fedcba98765432100123456789abcdef"
ROWS = [
    host("pipeline", 0, 100, kind=NODE, stage="val", span=0xAB, memory_change=-4096, memory_peak=8192, **TRACE),
    host("load", 10, 20, kind=RECORD, span=0xCD, parent_span=0xAB, outcome=1, **TRACE),
    host("aten::mm", 30, 50, shapes="[[2, 3]]", types='["float"]', thread="1/1"),
    call("cudaLaunchKernel", 35, 40, 9),
    call("cudaMemcpyAsync", 60, 65, 10),
    device("gemm", 40, 70, correlation=9),
    device("Memcpy HtoD", 70, 90, correlation=10, cat="gpu_memcpy", bytes=1 << 40),
    host("late", 80, 100, kind=NODE, span=0xEF, parent_span=0xAB, flags=1, **TRACE),
    host("mark", 95, 95, kind=INSTANT, cat=""),
    host("memory", 96, 96, kind=COUNTER, args='{"bytes": 1}'),
    host("elsewhere", 0, 5, thread="Spans/Profiler", cat="Trace"),
    host("ProfilerStep#0", 200, 300, kind=STEP),
    device("orphan", 300, 310, device=1, stream=20, thread="1/20"),
]
ROOT, OUTER, INNER = "0" * 16, "00000000000000ab", "00000000000000cd"


def row_of(name: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    """What a DataFrame has for a row, in whole microseconds; what is left out is null."""
    known = {"name": name, "start": start * 1000, "end": end * 1000, "dur": (end - start) * 1000, **more}
    return {column: known.get(column) for column in COLUMNS}


def of_trace(parent: str, own: str | None = None) -> dict[str, str | None]:
    return {"trace_id": HEX, "parent_span_id": parent, "span_id": own}


WORK = {"kind": "device", "device_index": 0, "stream": 7, "thread.id": 7, "execution_index": 0}
EXPECTED = [
    row_of(
        "pipeline", 0, 100, cat="cpu_op", stage="val", memory_change=-4096, memory_peak=8192, kind="node",
        outcome="success", operator_index=0, **of_trace(ROOT, OUTER), **{"thread.id": 1},
    ),
    row_of("elsewhere", 0, 5, cat="Trace", kind="host"),
    row_of(
        "load", 10, 20, cat="user_annotation", kind="record", outcome="error", operator_index=0,
        **of_trace(OUTER, INNER), **{"thread.id": 1},
    ),
    row_of(
        "aten::mm", 30, 50, cat="cpu_op", input_shapes="[[2, 3]]", input_types='["float"]', kind="host",
        operator_index=1, **of_trace(OUTER), **{"thread.id": 1},
    ),
    row_of(
        "cudaLaunchKernel", 35, 40, cat="cuda_runtime", kind="host", operator_index=0, **of_trace(OUTER),
        **{"thread.id": 1},
    ),
    row_of("gemm", 40, 70, cat="kernel", operator_index=0, **of_trace(OUTER), **WORK),
    row_of(
        "cudaMemcpyAsync", 60, 65, cat="cuda_runtime", kind="host", operator_index=2, **of_trace(OUTER),
        **{"thread.id": 1},
    ),
    row_of("Memcpy HtoD", 70, 90, cat="gpu_memcpy", bytes=1 << 40, operator_index=1, **of_trace(OUTER), **WORK),
    row_of(
        "late", 80, 100, cat="cpu_op", kind="node", outcome="unfinished", operator_index=3,
        **of_trace(OUTER, "00000000000000ef"), **{"thread.id": 1},
    ),
    row_of("mark", 95, 95, kind="instant", **{"thread.id": 1}),
    row_of("ProfilerStep#0", 200, 300, cat="user_annotation", kind="step", operator_index=1, **{"thread.id": 1}),
    row_of("orphan", 300, 310, cat="kernel", kind="device", device_index=1, stream=20, **{"thread.id": 20}),
]  # fmt: skip


@pytest.fixture(scope="module")
def recording() -> Recording:
    return made(ROWS)


def test_the_columns_have_fixed_names_and_order() -> None:
    assert list(FRAME_COLUMNS) == COLUMNS
    assert list(frame_columns(made([]))) == COLUMNS


def test_pandas(recording: Recording) -> None:
    pytest.importorskip("pandas")
    frame = export.to_pandas(recording)
    assert list(frame.columns) == COLUMNS
    assert (frame.index.name, str(frame.index.dtype)) == ("row", "int64")
    found = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert found == EXPECTED
    for column in COLUMNS:
        expected = object if column in TEXTS else "int64" if column in ("start", "end", "dur") else "Int64"
        assert frame[column].dtype == expected, column


# Rows are numbered by their start; 10 is that of the counter.
NUMBERS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12]


def test_rows_have_the_numbers_by_which_events_are_found(recording: Recording) -> None:
    pytest.importorskip("pandas")
    assert [event.row for event in recording.events()] == NUMBERS
    for frame in (export.to_pandas(recording), furiosa(recording).get_cpu_pandas_dataframe()):
        assert frame.index.name == "row"
        for row, name, start in zip(frame.index, frame["name"], frame["start"], strict=True):
            event = recording.event(row)
            assert (event.name, event.start) == (name, start)
    assert list(export.to_pandas(recording).index) == NUMBERS


def furiosa(recording: Recording) -> Any:
    profiler = profile()
    profiler._recording = recording
    return profiler


def test_rows_that_were_picked_can_be_changed(recording: Recording) -> None:
    pytest.importorskip("pandas")
    frame = furiosa(recording).get_pandas_dataframe_with_filter("stream", 7)
    frame.loc[:, "name"] = "mine"  # pandas warns where that is the change of a copy
    frame["more"] = 1
    assert list(frame["name"]) == ["mine", "mine"]


def test_threads_that_are_all_numbers_are_no_nullable_column() -> None:
    pytest.importorskip("pandas")
    assert export.to_pandas(made(ROWS[:5]))["thread.id"].dtype == "int64"


def polars_schema() -> dict[str, Any]:
    polars = pytest.importorskip("polars")
    schema = {column: polars.String if column in TEXTS else polars.Int64 for column in COLUMNS}
    return {**schema, "device_index": polars.Int32, "row": polars.Int64}


def test_polars(recording: Recording) -> None:
    pytest.importorskip("polars")
    frame = export.to_polars(recording)
    assert frame.to_dicts() == [{**row, "row": number} for row, number in zip(EXPECTED, NUMBERS, strict=True)]
    assert frame.schema == polars_schema()


def test_empty_frames_have_the_columns() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    frame = export.to_pandas(made([]))
    assert list(frame.columns) == COLUMNS
    assert len(frame) == 0
    assert (frame.index.name, str(frame.index.dtype)) == ("row", "int64")
    assert frame["dur"].dtype == "int64"
    assert frame["stream"].dtype == "Int64"
    assert export.to_polars(made([])).schema == polars_schema()


@pytest.mark.parametrize(
    ("column", "value", "names"),
    [
        ("name", "late", ["late"]), ("stage", "val", ["pipeline"]), ("stream", 7, ["gemm", "Memcpy HtoD"]),
        ("device_index", None, [row["name"] for row in EXPECTED if row["device_index"] is None]),
        ("outcome", None, [row["name"] for row in EXPECTED if row["outcome"] is None]),
        ("span_id", INNER, ["load"]), ("thread.id", 20, ["orphan"]), ("dur", 0, ["mark"]), ("name", "nosuch", []),
    ],
)  # fmt: skip
def test_rows_by_a_value(recording: Recording, column: str, value: object, names: list[str]) -> None:
    pytest.importorskip("pandas")
    frame = furiosa(recording).get_pandas_dataframe_with_filter(column, value)
    assert list(frame["name"]) == names
    assert [recording.event(row).name for row in frame.index] == names


def test_an_unknown_column_is_refused_with_those_that_there_are(recording: Recording) -> None:
    with pytest.raises(ValueError, match=r"column must be one of trace_id, .*, outcome, got 'thread'"):
        furiosa(recording).get_pandas_dataframe_with_filter("thread", 1)


def test_host_and_device_are_apart(recording: Recording) -> None:
    pytest.importorskip("pandas")
    on_device = furiosa(recording).get_npu_pandas_dataframe()
    assert list(on_device["name"]) == ["gemm", "Memcpy HtoD", "orphan"]
    on_host = furiosa(recording).get_cpu_pandas_dataframe()
    assert list(on_host["name"]) == [row["name"] for row in EXPECTED if row["kind"] != "device"]
    assert sorted([*on_host.index, *on_device.index]) == NUMBERS


@pytest.mark.parametrize(("library", "make"), [("pandas", export.to_pandas), ("polars", export.to_polars)])
def test_a_library_that_is_missing_is_named_with_its_extra(
    library: str, make: Any, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf'pip install "cprofiling\[{library}\]"') as caught:
        make(recording)
    assert caught.value.name == library


def test_without_ids_there_are_none() -> None:
    columns = frame_columns(made([host("aten::mm", 0, 10), host("\ud800", 10, 20)]))
    assert columns["trace_id"] == columns["parent_span_id"] == columns["span_id"] == [None, None]
    assert columns["name"] == ["aten::mm", "\ud800"]


def test_names_with_surrogates_reach_both_libraries() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    recording = made([host("a\ud800b", 0, 10), host("", 10, 20)])
    assert list(export.to_pandas(recording)["name"]) == ["a\ud800b", ""]
    names = export.to_polars(recording)["name"].to_list()
    assert names[1] == ""
    assert set(names[0]) == {"a", "\ufffd", "b"}


def test_numbers_of_executions_count_for_each_device() -> None:
    rows = [
        *(host("node", at, at + 50, kind=NODE, span=at + 1) for at in (0, 100)),
        *(call("launch", at, at + 1, at + 1) for at in (10, 20, 110)),
        device("a", 30, 40, correlation=11), device("b", 40, 50, correlation=21, device=1, thread="1/7"),
        device("c", 120, 130, correlation=111), device("d", 130, 140, correlation=111),
    ]  # fmt: skip
    columns = frame_columns(made(rows))
    indices = columns["execution_index"], columns["operator_index"]
    assert isinstance(indices[0], export.Numbers)
    assert isinstance(indices[1], export.Numbers)
    names = columns["name"]
    assert isinstance(names, list)
    found = {name: pair for name, *pair in zip(names, indices[0].values, indices[1].values, strict=True)}
    assert [found[name] for name in "abcd"] == [[0, 0], [0, 0], [1, 0], [1, 1]]


def test_it_is_a_device_s_kind_that_counts() -> None:
    columns = frame_columns(made([device("wait", 0, 5, cat="cuda_sync"), host("host", 0, 5, kind=DEVICE, cat="")]))
    assert columns["kind"] == ["device", "device"]
