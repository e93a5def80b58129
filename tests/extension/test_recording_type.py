"""The type ``_core.Recording``: rows in, columns, Chrome traces and Arrow out."""

from __future__ import annotations

import copy
import gc
import io
import json
import os
import pickle
import types
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cprofiling as cp
from calls import run_threads
from cprofiling import _core
from forks import fork

pytestmark = pytest.mark.native

NODE, RECORD, STEP, HOST, DEVICE, INSTANT, COUNTER = range(7)
UNKNOWN = -(2**63)
ALWAYS = {"start_ns", "end_ns", "track", "name", "cat", "kind", "parent"}
LONGEST_PIECE = 256 * 1024


def add(recording: _core.Recording, name: str, start_ns: int, end_ns: int, **values: Any) -> None:
    values = {"kind": HOST, "pid": 1, "tid": 2, **values}
    recording._add(name=name, start_ns=start_ns, end_ns=end_ns, **values)


def made(*rows: tuple[str, int, int] | tuple[str, int, int, dict[str, Any]]) -> _core.Recording:
    """Return a finished recording of rows: name, start, end, and what else there is."""
    recording = _core.Recording.empty()
    for name, start_ns, end_ns, *rest in rows:
        add(recording, name, start_ns, end_ns, **(rest[0] if rest else {}))
    recording._finish()
    return recording


def written(recording: _core.Recording) -> bytes:
    pieces: list[bytes] = []
    recording.write_chrome(pieces.append)
    assert all(type(piece) is bytes and 0 < len(piece) <= LONGEST_PIECE for piece in pieces)
    return b"".join(pieces)


def trace_of(recording: _core.Recording) -> dict[str, Any]:
    """Return a recording's trace, which is one JSON object in UTF-8 without a key that is there twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    trace: dict[str, Any] = json.loads(written(recording).decode("utf-8"), object_pairs_hook=unique)
    return trace


def loaded(text: bytes, shift_ns: int = 0) -> _core.Recording:
    recording = _core.Recording.empty()
    recording._load(io.BytesIO(text).read, shift_ns)
    recording._finish()
    return recording


def values(recording: _core.Recording, name: str) -> list[int]:
    column = recording.column(name)
    return [recording.none(name)] * len(recording) if column is None else list(column)


def names(recording: _core.Recording) -> list[str]:
    return [recording.strings[number] for number in values(recording, "name")]


# ---- making, and reading


def recorder(describer: Callable[[Any], Any] | None = None) -> _core.Recorder:
    return _core.Recorder(1000, False, describer, False, None, True)


@cp.profile_node("node")
def node() -> None:
    pass


@pytest.mark.forks
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_recorder_of_the_parents_leaves_a_childs_recording_alone() -> None:
    def child() -> None:
        own = recorder()
        node()
        parents[0].step("nothing")
        parents[0].pause()
        node()
        parents.clear()
        node()
        assert len(own.finish(_core.Recording)) == 3

    parents = [recorder()]
    node()
    fork(child)
    assert len(parents.pop().finish(_core.Recording)) == 1


def test_a_description_that_is_too_long_is_left_out() -> None:
    too_long = "[" + "1," * 2**27 + "1]"
    running = recorder(lambda _: (too_long, None, "line"))
    node()
    recording = running.finish(_core.Recording)
    recording._finish()
    assert (names(recording), recording.column("shapes")) == (["node"], None)
    assert [recording.strings[text] for text in values(recording, "stack")] == ["line"]


def test_it_is_made_by_others() -> None:
    with pytest.raises(TypeError, match=r"Recording is made by profile\(\) or load_trace\(\)"):
        _core.Recording()


def test_an_empty_recording() -> None:
    recording = _core.Recording.empty()
    assert (len(recording), recording.dropped, recording.facts) == (0, 0, {})
    recording._finish()
    recording._finish()
    assert (len(recording), recording.strings, recording.tracks, recording.flows) == (0, [""], [], [])
    assert trace_of(recording)["traceEvents"] == []
    for name in recording.column_names:
        column = recording.column(name)
        assert column is not None
        assert column.tolist() == []


def test_columns() -> None:
    recording = made(("b", 15, 17, {"correlation": 3, "span": 2**64 - 1}), ("a", 1, 9, {"device": 0, "outcome": 2}))
    assert len(recording) == 2
    assert names(recording) == ["a", "b"]
    expected = {
        "start_ns": ("q", [1, 15], 0),
        "end_ns": ("q", [9, 17], 0),
        "correlation": ("q", [-1, 3], -1),
        "span": ("Q", [0, 2**64 - 1], 0),
        "parent": ("i", [-1, -1], -1),
        "device": ("i", [0, -1], -1),
        "track": ("I", [0, 0], 0),
        "kind": ("B", [HOST, HOST], 0),
        "outcome": ("B", [2, 0], 0),
    }
    for name, (format_, items, none) in expected.items():
        column = recording.column(name)
        assert column is not None
        assert (column.format, column.tolist(), column.readonly, recording.none(name)) == (format_, items, True, none)
    assert set(expected) | ALWAYS == {name for name in recording.column_names if recording.column(name) is not None}
    assert recording.none("bytes") == UNKNOWN


def test_lanes_are_a_column_where_there_are_some() -> None:
    recording = made(("a", 0, 10, {"kind": NODE, "span": 1}), ("b", 5, 15, {"kind": NODE, "span": 2}))
    lanes = recording.column("lane")
    assert lanes is not None
    assert (lanes.format, lanes.tolist()) == ("H", [0, 1])
    assert recording.tracks[0][-1] == 1


@pytest.mark.parametrize("name", ["", "Start_ns", "start_ns\0", "\ud800", b"start_ns", None, 3])
def test_there_is_no_such_column(name: Any) -> None:
    recording = made()
    error = ValueError if isinstance(name, str) else TypeError
    for ask in (recording.column, recording.none):
        with pytest.raises(error, match="name must be that of a column"):
            ask(name)


def test_a_view_keeps_the_recording_alive() -> None:
    views = [made((str(i), i, i + 1)).column("end_ns") for i in range(100)]
    gc.collect()
    assert [view.tolist() for view in views if view is not None] == [[i + 1] for i in range(100)]


def test_a_recording_has_no_bytes_of_its_own() -> None:
    recording = made(("a", 0, 1))
    with pytest.raises(BufferError, match="no bytes but those of its columns"):
        memoryview(recording)  # type: ignore[arg-type]
    column = recording.column("start_ns")
    assert column is not None
    with pytest.raises(TypeError, match="read-only"):
        column[0] = 5
    with pytest.raises(BufferError):
        memoryview(recording)  # type: ignore[arg-type]


def test_strings_and_tracks_are_made_once() -> None:
    recording = made(("a", 0, 1, {"pid": "Spans", "tid": "x"}), ("a", 0, 1))
    assert recording.strings is recording.strings
    assert recording.tracks is recording.tracks
    assert recording.tracks == [
        (0, 0, "Spans", "x", None, None, None, None, None, 0),
        (1, 2, None, None, None, None, None, None, None, 0),
    ]
    assert sorted(recording.strings) == ["", "Spans", "a", "x"]


@pytest.mark.parametrize("name", ["", "\0", "caf\u00e9", "\U0001f600", "\ud800", "\udfff\ud800", "x" * 1_000_000])
def test_names(name: str) -> None:
    recording = made((name, 0, 1, {"cat": name, "stage": name, "stack": name}))
    assert names(recording) == [name]
    assert len(recording.strings) == (2 if name else 1)
    (event,) = trace_of(recording)["traceEvents"]
    assert event["name"] == event["cat"] == name
    assert event.get("args", {}).get("stage", "") == name


def test_args() -> None:
    recording = made(("b", 1, 2, {"args": '{"caf\u00e9": [1]}'}), ("a", 0, 1), ("c", 3, 3, {"args": ""}))
    assert [recording.args(row) for row in range(3)] == [None, '{"caf\u00e9": [1]}', None]
    assert made(("a", 0, 1)).args(0) is None
    assert made(("a", 0, 1, {"args": "{}"})).args(0) == "{}"
    for row in (-1, 3, 2**70):
        with pytest.raises(IndexError):
            recording.args(row)
    with pytest.raises(IndexError, match="row must be 0 to 2, got 3"):
        recording.args(3)
    for wrong in (None, "1", 1.0):
        with pytest.raises(TypeError, match="row must be the number of a row"):
            recording.args(wrong)  # type: ignore[arg-type]


def test_facts() -> None:
    recording = _core.Recording.empty()
    recording._set_fact("caf\u00e9 \ud800", '{"a": 1}')
    recording._set_fact("schemaVersion", "1")
    recording._set_fact("schemaVersion", "2")
    assert recording.facts == {"caf\u00e9 \ud800": '{"a": 1}', "schemaVersion": "2"}
    recording._finish()
    trace = trace_of(recording)
    assert (trace["schemaVersion"], trace["caf\u00e9 \ud800"]) == (2, {"a": 1})


def test_names_of_processes_and_threads() -> None:
    recording = _core.Recording.empty()
    recording._name_process(1, "nobody", None, None)
    recording._name_thread(1, 2, "nobody", None)
    add(recording, "a", 0, 1)
    add(recording, "b", 0, 1, tid=3)
    add(recording, "c", 0, 1, pid="Spans", tid="x")
    recording._name_process(1, "train.py", "CPU", None)
    recording._name_process(1, None, None, 0)
    recording._name_process("Spans", "spans", None, 2)
    recording._name_thread(1, 3, "worker", 9)
    recording._name_thread(1, 3, None, None)
    recording._name_thread("Spans", "x", None, 1)
    recording._name_thread("Spans", "y", "nobody", 1)
    recording._finish()
    assert recording.tracks == [
        (1, 2, None, None, "train.py", "CPU", None, 0, None, 0),
        (1, 3, None, None, "train.py", "CPU", "worker", 0, 9, 0),
        (0, 0, "Spans", "x", "spans", None, None, 2, 1, 0),
    ]
    assert not any("nobody" in json.dumps(event) for event in trace_of(recording)["traceEvents"])


def test_a_subclass_needs_no_dictionary() -> None:
    class Mine(_core.Recording):
        __slots__ = ()

    recording = Mine.empty()
    assert type(recording) is Mine
    assert not hasattr(recording, "__dict__")
    recording._finish()
    assert copy.copy(recording) is recording
    assert copy.deepcopy(recording) is recording
    with pytest.raises(TypeError):
        pickle.dumps(recording)


# ---- phases


def test_a_recording_is_read_when_it_is_finished() -> None:
    recording = _core.Recording.empty()
    add(recording, "a", 0, 1)
    readings: list[Callable[[], object]] = [
        lambda: recording.column("name"),
        lambda: recording.strings,
        lambda: recording.tracks,
        lambda: recording.flows,
        lambda: recording.args(0),
        lambda: recording.write_chrome(print),
        recording._arrow_stream,
        lambda: recording._own_times(array("i", [-1])),
        lambda: recording._parents(b"1"),
    ]
    for read in readings:
        with pytest.raises(RuntimeError, match="the recording is not finished"):
            read()
    recording._finish()
    for read in readings[:5]:
        read()


def test_a_finished_recording_is_not_changed() -> None:
    recording = made()
    changes: list[Callable[[], object]] = [
        lambda: add(recording, "a", 0, 1),
        lambda: recording._set_fact("a", "1"),
        lambda: recording._name_process(1, "a", None, None),
        lambda: recording._name_thread(1, 2, "a", None),
        lambda: recording._load(io.BytesIO(b"[]").read, 0),
    ]
    for change in changes:
        with pytest.raises(RuntimeError, match="the recording is finished"):
            change()
    assert len(recording) == 0


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"name": None}, TypeError, "name must be a str, got None"),
        ({"cat": b"x"}, TypeError, "cat must be a str, got b'x'"),
        ({"stage": 1}, TypeError, "stage must be a str"),
        ({"args": {}}, TypeError, "args must be a str"),
        ({"pid": 1.5}, TypeError, "pid must be an int or a str, got 1.5"),
        ({"tid": None}, TypeError, "tid must be an int or a str"),
        ({"tid": 2**63}, OverflowError, r"\w"),
        ({"start_ns": 2}, ValueError, "end_ns must not be before start_ns"),
        ({"end_ns": 2**63}, OverflowError, r"\w"),
        ({"kind": 7}, ValueError, "kind must be 0 to 6"),
        ({"outcome": 3}, ValueError, "outcome must be 0 to 2"),
        ({"flags": 8}, ValueError, "flags must be 0 to 7"),
        ({"what": 1}, TypeError, "what"),
    ],
)
def test_rows_that_are_refused(wrong: dict[str, Any], error: type[Exception], message: str) -> None:
    recording = _core.Recording.empty()
    row: dict[str, Any] = {"name": "a", "kind": HOST, "start_ns": 0, "end_ns": 1, "pid": 1, "tid": 2, **wrong}
    with pytest.raises(error, match=message):
        recording._add(**row)
    assert len(recording) == 0
    add(recording, "a", 0, 1)
    recording._finish()
    assert names(recording) == ["a"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda recording: recording._add("a"), TypeError),
        (lambda recording: recording._set_fact("a", 1), TypeError),
        (lambda recording: recording._name_process(1, 2, None, None), TypeError),
        (lambda recording: recording._name_process(1, None, None, "x"), TypeError),
        (lambda recording: recording._name_process(None, None, None, None), TypeError),
        (lambda recording: recording._name_thread(1, 2, 3, None), TypeError),
        (lambda recording: recording._name_thread(1, [], "a", None), TypeError),
        (lambda recording: recording._name_thread(1, 2, "a", 2**64), OverflowError),
    ],
)
def test_other_arguments_that_are_refused(change: Callable[[Any], object], error: type[Exception]) -> None:
    recording = _core.Recording.empty()
    with pytest.raises(error):
        change(recording)
    assert (len(recording), recording.facts) == (0, {})


# ---- Chrome traces


def test_a_trace() -> None:
    recording = made(
        ("forward", 10_000, 12_500, {"kind": NODE, "cat": "node", "stage": "train", "span": 1, "trace_low": 7}),
        ("aten::add", 10_500, 11_000, {"cat": "cpu_op", "shapes": "[[2, 3]]", "bytes": 0}),
        ("here", 11_000, 11_000, {"kind": INSTANT, "cat": "mark"}),
    )
    trace = trace_of(recording)
    assert trace["baseTimeNanoseconds"] == 0
    forward, add_, here = trace["traceEvents"]
    assert forward == {
        "ph": "X", "cat": "node", "name": "forward", "pid": 1, "tid": 2, "ts": 10, "dur": 2.5,
        "args": {"kind": "node", "stage": "train", "trace_id": f"{7:032x}", "span_id": f"{1:016x}"},
    }  # fmt: skip
    assert add_["args"] == {"bytes": 0, "Input Dims": [[2, 3]]}
    assert (here["ph"], here["s"], here["ts"]) == ("i", "t", 11)
    assert "dur" not in here


@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt()])
def test_what_write_raises_ends_the_writing(error: BaseException) -> None:
    recording = made(*[("n" * 1000, i, i + 1) for i in range(1000)])
    calls = 0

    def write(_: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise error

    with pytest.raises(type(error)) as raised:
        recording.write_chrome(write)
    assert raised.value is error
    assert calls == 2
    assert len(trace_of(recording)["traceEvents"]) == 1000


def test_threads_write_at_once() -> None:
    recording = made(*[(f"node {i % 50}", i, i + 1) for i in range(20_000)])
    texts: list[bytes] = []
    run_threads(*[lambda: texts.append(written(recording))] * 4)
    assert len(set(texts)) == 1
    assert len(texts) == 4


# ---- loading


def test_what_was_written_is_loaded() -> None:
    first = made(
        ("forward", 5_000, 9_001, {"kind": NODE, "cat": "node", "args": '{"a": [1]}'}),
        ("\ud800\u20ac\n", 5_001, 5_001, {"kind": INSTANT, "cat": "mark", "pid": "x", "tid": "y"}),
    )
    second = loaded(written(first))
    assert (names(second), values(second, "track"), second.tracks) == (names(first), [0, 1], first.tracks)
    durations = [end - start for start, end in zip(values(second, "start_ns"), values(second, "end_ns"), strict=True)]
    assert durations == [4001, 0]
    assert second.args(0) == '{"a": [1]}'
    assert trace_of(second)["traceEvents"] == trace_of(first)["traceEvents"]


def test_flows_and_dropped_events_are_loaded() -> None:
    text = b"""{"droppedEvents": 3, "traceEvents": [
        {"ph": "s", "id": 5, "pid": 1, "tid": 2, "ts": 1.5, "cat": "ac2g", "name": "arrow"},
        {"ph": "f", "id": 18446744073709551615, "pid": 1, "tid": 2, "ts": 2, "cat": "", "name": "", "bp": "e"}]}"""
    recording = loaded(text, 7)
    assert recording.dropped == 3
    assert recording.flows == [
        ("s", 1507, 5, 0, "arrow", "ac2g", False),
        ("f", 2007, 2**64 - 1, 0, "", "", True),
    ]


def test_what_was_read_is_reported() -> None:
    recording = _core.Recording.empty()
    text = b"""[{"ph": "b", "ts": 1}, {"ph": "E", "ts": 1}, {"ph": "X", "ts": 5, "dur": -1, "name": "a"}]"""
    assert recording._load(io.BytesIO(text).read, 0) == {
        "bytes": len(text), "ignored": 1, "unmatched": 1, "negative": 1, "dropped": 0, "greatest_id": 0,
    }  # fmt: skip


def test_times_that_are_too_far_apart() -> None:
    with pytest.raises(cp.FormatError, match=r"times more than 2\^62 ns from one another"):
        loaded(b'[{"ph":"X","ts":-9e15,"dur":1},{"ph":"X","ts":9e15,"dur":1}]')


def test_traces_are_added_to_what_is_there() -> None:
    recording = _core.Recording.empty()
    add(recording, "own", 5_000, 6_000)
    recording._load(io.BytesIO(b'[{"ph": "X", "ts": 1, "dur": 1, "name": "first"}]').read, 0)
    recording._load(io.BytesIO(b'[{"ph": "X", "ts": 1, "dur": 1, "name": "second"}]').read, 1_000)
    recording._finish()
    assert names(recording) == ["first", "second", "own"]


@pytest.mark.parametrize("text", [b"", b"nothing", b"{}", b'{"traceEvents": 1}', b'[{"ph": "X"]', b'{"a": 1, '])
def test_a_damaged_trace(text: bytes) -> None:
    recording = _core.Recording.empty()
    with pytest.raises(cp.FormatError, match=r"\w.*, at byte \d+$"):
        recording._load(io.BytesIO(text).read, 0)
    given_up(recording)


def given_up(recording: _core.Recording) -> None:
    uses: list[Callable[[], object]] = [
        recording._finish,
        lambda: len(recording),
        lambda: recording.facts,
        lambda: recording.dropped,
        lambda: recording.strings,
        lambda: add(recording, "a", 0, 1),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="the recording was given up, as it could not be loaded"):
            use()


def gone(_: int) -> bytes:
    raise OSError("gone")


@pytest.mark.parametrize(
    ("read", "error", "message"),
    [
        (gone, OSError, "gone"),
        (lambda size: "[]", TypeError, r"what read\(\) returns must be bytes, got '\[\]'"),
        (lambda size: None, TypeError, "must be bytes, got None"),
        (lambda size: b" " * (size + 1), ValueError, r"read\(\d+\) returned \d+ bytes"),
    ],
)
def test_what_read_may_return(read: Any, error: type[Exception], message: str) -> None:
    recording = _core.Recording.empty()
    with pytest.raises(error, match=message):
        recording._load(read, 0)
    given_up(recording)
    assert len(loaded(b"[]")) == 0


def test_read_may_return_any_bytes() -> None:
    pieces: Iterator[Any] = iter([bytearray(b'[{"ph": "X", "ts": 1, '), memoryview(b'"name": "a"}]'), b""])
    recording = _core.Recording.empty()
    recording._load(lambda size: next(pieces), 0)
    recording._finish()
    assert names(recording) == ["a"]


def test_arguments_of_load_and_write() -> None:
    recording = _core.Recording.empty()
    with pytest.raises(TypeError, match="write must be callable, got None"):
        recording.write_chrome(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="read must be callable, got 5"):
        recording._load(5, 0)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        recording._load(io.BytesIO(b"[]").read, 2**63)
    recording._finish()


def test_a_recording_that_is_being_loaded_is_busy() -> None:
    recording = _core.Recording.empty()
    refused: list[str] = []
    text = io.BytesIO(b'[{"ph": "X", "ts": 1, "name": "a"}]')

    def read(size: int) -> bytes:
        for use in (lambda: add(recording, "b", 0, 1), recording._finish, lambda: len(recording)):
            with pytest.raises(RuntimeError, match="the recording is in use") as raised:
                use()
            refused.append(str(raised.value))
        return text.read(size)

    recording._load(read, 0)
    recording._finish()
    assert names(recording) == ["a"]
    assert len(refused) >= 3


# ---- Arrow

COLUMNS = {
    "trace_id": "u", "parent_span_id": "u", "span_id": "u", "name": "u", "cat": "u", "stage": "u", "start": "l",
    "end": "l", "dur": "l", "thread.id": "l", "device_index": "i", "stream": "l", "execution_index": "l",
    "operator_index": "l", "input_shapes": "u", "input_types": "u", "memory_change": "l", "memory_peak": "l",
    "device_memory_change": "l", "device_memory_peak": "l", "bytes": "l", "kind": "u", "outcome": "u",
    "row": "l",
}  # fmt: skip


def frame_of(capsule: object) -> dict[str, list[Any]]:
    """Return all columns of a stream."""
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(types.SimpleNamespace(__arrow_c_stream__=lambda schema: capsule))
    table.validate(full=True)
    formats = {"string": "u", "int64": "l", "int32": "i"}
    assert {field.name: formats[str(field.type)] for field in table.schema} == COLUMNS
    frame: dict[str, list[Any]] = table.to_pydict()
    return frame


def test_arrow() -> None:
    recording = made(
        ("forward", 10, 25, {"kind": NODE, "cat": "node", "stage": "train", "span": 1, "trace_low": 7, "flags": 1}),
        ("count", 11, 11, {"kind": COUNTER, "args": "{}"}),
        ("caf\u00e9 \ud800", 12, 13, {"device": 3, "stream": 4, "bytes": 0, "tid": "x", "shapes": "[]"}),
    )
    frame = frame_of(recording._arrow_stream())
    expected = {
        "trace_id": [f"{7:032x}", None], "parent_span_id": ["0" * 16, None], "span_id": [f"{1:016x}", None],
        "name": ["forward", "caf\u00e9 \ufffd"], "cat": ["node", None], "stage": ["train", None], "start": [10, 12],
        "end": [25, 13], "dur": [15, 1], "thread.id": [2, None], "device_index": [None, 3], "stream": [None, 4],
        "input_shapes": [None, "[]"], "bytes": [None, 0], "kind": ["node", "host"], "outcome": ["unfinished", None],
        "row": [0, 2],
    }  # fmt: skip
    assert frame == {name: expected.get(name, [None, None]) for name in COLUMNS}


def test_arrow_of_many_rows() -> None:
    recording = made(*[(str(i), i, i + 1) for i in range(70_000)])
    frame = frame_of(recording._arrow_stream())
    assert frame["name"] == [str(i) for i in range(70_000)]
    assert frame["end"] == list(range(1, 70_001))
    assert frame_of(made()._arrow_stream()) == {name: [] for name in COLUMNS}


def test_arrow_with_more_than_the_recording_knows() -> None:
    recording = made(("a", 0, 10, {"kind": NODE, "span": 5, "trace_low": 6}), ("b", 1, 2), ("c", 3, 4))
    spans, executions, operators = array("i", [0, 0, -1]), array("q", [-1, 0, 1]), array("q", [2, -1, 2**40])
    frame = frame_of(recording._arrow_stream(spans=spans, execution_index=executions, operator_index=operators))
    assert frame["trace_id"] == [f"{6:032x}", f"{6:032x}", None]
    assert frame["span_id"] == [f"{5:016x}", None, None]
    assert frame["parent_span_id"] == ["0" * 16, f"{5:016x}", None]
    assert frame["execution_index"] == [None, 0, 1]
    assert frame["operator_index"] == [2, None, 2**40]
    assert frame_of(recording._arrow_stream())["execution_index"] == [None] * 3


@pytest.mark.parametrize(
    ("extras", "error", "message"),
    [
        ({"spans": array("i", [0])}, ValueError, "spans must be 2 integers of 4 bytes"),
        ({"spans": array("q", [0, 0])}, ValueError, "spans must be 2 integers of 4 bytes"),
        ({"spans": array("f", [0, 0])}, ValueError, "spans must be 2 integers of 4 bytes"),
        ({"spans": array("i", [0, 2])}, ValueError, "spans must be numbers of rows, or -1"),
        ({"spans": [0, 1]}, TypeError, "bytes-like"),
        ({"execution_index": array("d", [0, 0])}, ValueError, "execution_index must be 2 integers of 8 bytes"),
        ({"operator_index": array("i", [0, 0])}, ValueError, "operator_index must be 2 integers of 8 bytes"),
        ({"operators": None}, TypeError, "operators"),
    ],
)
def test_extras_that_are_refused(extras: dict[str, Any], error: type[Exception], message: str) -> None:
    recording = made(("a", 0, 1), ("b", 0, 1))
    with pytest.raises(error, match=message):
        recording._arrow_stream(**extras)


def test_a_stream_outlives_its_recording() -> None:
    capsules = [made((str(i), i, i + 1))._arrow_stream() for i in range(20)]
    gc.collect()
    assert [frame_of(capsule)["name"] for capsule in capsules] == [[str(i)] for i in range(20)]


def test_numbers_that_run_code_are_refused() -> None:
    recording = _core.Recording.empty()
    for track in range(3):
        recording._add("row", 0, 0, 1, track, 1)

    class Number:
        def __index__(self) -> int:
            for track in range(100):
                recording._add("row", 0, 0, 1, 1000 + track, 1)
            return 7

    with pytest.raises(TypeError, match="pids must be integers, got <"):
        recording._renumber([Number(), 1, 2])  # type: ignore[list-item]
    assert len(recording) == 3


def test_nobody_meets_a_list_that_is_half_filled() -> None:
    tracks = 3019  # no other list is as long
    recording = _core.Recording.empty()
    for track in range(tracks):
        recording._add("row", 0, 0, 1, track, 1)
    recording._finish()
    unfilled: list[object] = []

    def look(phase: str, _: object) -> None:
        lists = [each for each in gc.get_objects() if type(each) is list and len(each) == tracks]
        unfilled.extend(each for each in lists if phase == "stop" and not isinstance(each[-1], tuple))

    thresholds = gc.get_threshold()
    gc.callbacks.append(look)
    try:
        gc.set_threshold(50)
        assert len(recording.tracks) == tracks
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(look)
    assert unfilled == []


def test_the_end_of_a_recording_leaves_the_next_one_alone() -> None:
    """It may begin while the first one's describer goes."""
    begun: list[_core.Recorder] = []

    def recorder(describer: Any) -> _core.Recorder:
        return _core.Recorder(1000, False, describer, True, lambda: (1, 2), True)

    class Describer:
        def __call__(self, arguments: object) -> tuple[None, None, None]:
            return None, None, None

        def __del__(self) -> None:
            begun.append(recorder(lambda arguments: (None, None, None)))

    recorder(Describer()).finish(_core.Recording)
    with cp.record("block"):
        pass
    recording = begun[0].finish(_core.Recording)
    recording._finish()
    assert recording.column("device_memory_change") is not None


def test_events_of_several_recordings_in_one_file() -> None:
    """Each with processes and ids of its own, on one base."""
    pieces: list[bytes] = [b'{"baseTimeNanoseconds":500,"traceEvents":[']
    for number in range(2):
        recording = _core.Recording.empty()
        text = b'[{"ph":"X","name":"n","pid":"p","tid":1,"ts":1,"dur":2,"args":{"correlation":3}}]'
        assert recording._load(io.BytesIO(text).read, 1_000, 10 * number)["greatest_id"] == 10 * number + 3
        with pytest.raises(ValueError, match="pids must be 1 integers, got 2"):
            recording._renumber([1, 2])
        with pytest.raises(TypeError):
            recording._renumber(["1"])  # type: ignore[list-item]
        recording._renumber([number + 7])
        with pytest.raises(RuntimeError, match="not finished"):
            recording._write_events(pieces.append, 500, True)
        recording._finish()
        with pytest.raises(RuntimeError, match="is finished"):
            recording._renumber([1])
        recording._write_events(pieces.append, 500, number == 0)
        assert recording._chrome_base == 0
    events = json.loads(b"".join([*pieces, b"]}"]))["traceEvents"]
    assert [(each["pid"], each["ts"], each["args"]["correlation"]) for each in events] == [(7, 1.5, 3), (8, 1.5, 13)]


# ---- own times


def test_own_times() -> None:
    recording = made(("a", 0, 10), ("b", 2, 5), ("c", 3, 4), ("d", -(2**63), 2**63 - 1, {"tid": 3}))
    times = memoryview(recording._own_times(array("i", [-1, -1, 1, 2]))).cast("Q")
    assert times.tolist() == [2**64 - 1, 7, 2, 1]
    assert memoryview(recording._own_times(array("i", [-2, -1, -2, -1]))).cast("Q").tolist() == [0, 9, 0, 1]
    assert made()._own_times(array("i")) == b""


@pytest.mark.parametrize(
    ("parents", "error", "message"),
    [
        (None, TypeError, "parents must be a buffer, got None"),
        ([-1], TypeError, "bytes-like"),
        (array("i", [-1, -1]), ValueError, "parents must be 1 integers of 4 bytes"),
    ],
)
def test_parents_that_are_refused(parents: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        made(("a", 0, 1))._own_times(parents)


def test_parents_among_rows_that_count() -> None:
    recording = made(("a", 0, 10), ("b", 2, 5), ("c", 3, 4), ("d", 5, 6))
    assert memoryview(recording._parents(bytearray(b"1111"))).cast("i").tolist() == [-1, 0, 1, 0]
    assert memoryview(recording._parents(b"1\0\0011")).cast("i").tolist() == [-1, -2, 0, 0]
    assert made()._parents(b"") == b""
    with pytest.raises(TypeError, match="counted must be a buffer, got None"):
        recording._parents(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="counted must be 4 integers of 1 bytes"):
        recording._parents(b"11111")
