"""``load_trace``: traces of Kineto of all times, against another reading of the same JSON; files of all kinds."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cprofiling as cp
from cprofiling._internal.row_kinds import KINDS
from cprofiling.recording.traces import reader
from recordings import TRACES

pytestmark = pytest.mark.native

UNKNOWN = -(2**63)
NAMES = [
    "alexnet_train", "amd_mi250_train", "control", "cupti_ranges", "event_sync", "event_sync_multi_stream",
    "ns_resolution_rank0", "simple_add", "test", "train_rank0_sampled", "triton",
]  # fmt: skip
DEVICE_CATS = {
    "kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync", "cuda_event", "cuda_profiler_range",
    "Kernel", "Memcpy", "Memset",
}  # fmt: skip
STEP_CATS = {"user_annotation", "cpu_op", "Operator"}
COLUMNS = [
    "start_ns", "end_ns", "track", "name", "cat", "kind", "device", "stream", "correlation", "external_id", "bytes",
    "shapes", "types", "stack",
]  # fmt: skip
OWN_COLUMNS = ["trace_high", "trace_low", "span", "parent_span", "stage", "outcome", "flags", "suspended_ns"]


class Row(NamedTuple):
    """A row, with all that stands for something else resolved."""

    start: int
    end: int
    track: tuple[Any, Any]
    name: str
    cat: str
    kind: str
    device: int
    stream: int
    correlation: int
    external_id: int
    bytes: int
    shapes: Any
    types: Any
    stack: str
    args: Any


# ---- another reading: numbers with a point stay texts, so that nothing is rounded


def parsed(text: str) -> Any:
    return json.loads(text, parse_float=str)


def ns_of(value: int | str) -> int:
    if isinstance(value, int):
        return value * 1000
    return int((Decimal(value) * 1000).to_integral_value(ROUND_HALF_EVEN))


def ident(value: Any) -> Any:
    return 0 if value is None else value if value != "" else " "


def number(args: dict[str, Any], none: int, *keys: str) -> int:
    """The last of these keys that has an integer, or a float that is one."""
    for key, value in reversed(args.items()):
        if key in keys:
            is_integer = type(value) in (int, str) and re.fullmatch(r"-?\d+(\.0+)?", str(value))
            return int(Decimal(value)) if is_integer else none
    return none


def kind_of(event: dict[str, Any]) -> str:
    if event["ph"] != "X":
        return "counter" if event["ph"] == "C" else "instant"
    if event.get("cat") in DEVICE_CATS:
        return "device"
    is_step = event.get("cat") in STEP_CATS and re.fullmatch(r"ProfilerStep#\d+", event["name"])
    return "step" if is_step else "host"


def row_of(event: dict[str, Any], base: int) -> Row:
    args = event.get("args")
    known = args if isinstance(args, dict) else {}
    kind = kind_of(event)
    start = ns_of(event["ts"]) + base
    track = (ident(event.get("pid")), ident(event.get("tid")))
    place = [value if kind == "device" and isinstance(value, int) else -1 for value in track]
    return Row(
        start=start,
        end=start + (max(0, ns_of(event.get("dur", 0))) if event["ph"] == "X" else 0),
        track=track,
        name=event.get("name", ""),
        cat=event.get("cat", ""),
        kind=kind,
        device=number(known, place[0], "device", "Device Id"),
        stream=number(known, place[1], "stream"),
        correlation=number(known, -1, "correlation"),
        external_id=number(known, -1, "External id", "external id"),
        bytes=number(known, UNKNOWN, "bytes", "Bytes"),
        shapes=known.get("Input Dims", known.get("Input dims")),
        types=known.get("Input type", known.get("Input types")),
        stack=known.get("Call stack", "").replace(";", "\n"),
        args=args,
    )


def read_otherwise(trace: Any) -> tuple[list[Row], list[Any], dict[Any, Any]]:
    """The rows, in the order of a recording; the ends of arrows; and metadata by what they are about."""
    base = trace.get("baseTimeNanoseconds", 0)
    rows, flows, metadata = [], [], {}
    for event in trace["traceEvents"]:
        track = (ident(event.get("pid")), ident(event.get("tid")))
        if event["ph"] in "XiIRC":
            rows.append(row_of(event, base))
        elif event["ph"] in "stf":
            what = (event["name"], event["cat"], event.get("bp") == "e")
            flows.append((event["ph"], ns_of(event["ts"]) + base, event["id"], track, *what))
        elif event["ph"] == "M":
            about = track[:1] if event["name"].startswith("process") else track
            (metadata[about, event["name"]],) = event["args"].values()
    rows.sort(key=lambda row: (row.start, -row.end))
    return rows, flows, {key: value for key, value in metadata.items() if value != ""}


# ---- the recording, in the same words


def values(recording: cp.Recording, column: str) -> list[int]:
    items = recording.column(column)
    return [recording.none(column)] * len(recording) if items is None else items.tolist()


def tracks_of(recording: cp.Recording) -> list[tuple[Any, Any]]:
    return [
        (pid if pid_text is None else pid_text, tid if tid_text is None else tid_text)
        for pid, tid, pid_text, tid_text, *_ in recording.tracks
    ]


def rows_of(recording: cp.Recording) -> Iterator[Row]:
    strings = recording.strings
    tracks = tracks_of(recording)
    jsons: dict[int, Any] = {0: None}
    columns = [values(recording, name) for name in COLUMNS]
    for row, (start, end, track, name, cat, kind, *rest, shapes, types, stack) in enumerate(zip(*columns, strict=True)):
        for text in (shapes, types):
            if text not in jsons:
                jsons[text] = parsed(strings[text])
        args = recording.args(row)
        place = (start, end, tracks[track], strings[name], strings[cat], KINDS[kind])
        texts = (jsons[shapes], jsons[types], strings[stack], None if args is None else parsed(args))
        yield Row._make((*place, *rest, *texts))


def flows_of(recording: cp.Recording) -> list[Any]:
    tracks = tracks_of(recording)
    return [(phase, ns, id_, tracks[track], *rest) for phase, ns, id_, track, *rest in recording.flows]


def metadata_of(recording: cp.Recording) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for track, (*_, process, labels, thread, process_sort, thread_sort, _) in zip(
        tracks_of(recording), recording.tracks, strict=True
    ):
        found[track[:1], "process_name"] = process
        found[track[:1], "process_labels"] = labels
        found[track[:1], "process_sort_index"] = process_sort
        found[track, "thread_name"] = thread
        found[track, "thread_sort_index"] = thread_sort
    return {key: value for key, value in found.items() if value is not None}


def check_is(recording: cp.Recording, text: str) -> None:
    """Whether the recording is what the trace's text says, in all that can be said of it."""
    trace = parsed(text)
    rows, flows, metadata = read_otherwise(trace)
    for found, expected in zip(rows_of(recording), rows, strict=True):
        assert found == expected
    assert flows_of(recording) == flows
    assert metadata_of(recording) == metadata
    del trace["traceEvents"]
    assert {key: parsed(value) for key, value in recording.facts.items()} == trace
    assert all(value in text for value in recording.facts.values())
    assert all(not any(values(recording, column)) for column in OWN_COLUMNS)


def exported(recording: cp.Recording) -> bytes:
    file = io.BytesIO()
    recording.write_chrome(file.write)
    return file.getvalue()


def loaded(text: bytes, folder: Path) -> cp.Recording:
    path = folder / "trace.json"
    path.write_bytes(text)
    return cp.load_trace(path)


def test_what_a_recording_does_not_have_is_told(tmp_path: Path) -> None:
    events = [
        {"ph": "b", "name": "asynchronous", "id": 1, "ts": 1, "pid": 1, "tid": 1},
        {"ph": "B", "name": "begun", "ts": 2, "pid": 1, "tid": 1},
        {"ph": "X", "name": "short", "ts": 3, "dur": -4, "pid": 1, "tid": 1},
    ]
    with pytest.warns(RuntimeWarning) as caught:
        recording = loaded(json.dumps(events).encode(), tmp_path)
    assert str(caught[0].message).partition("trace.json: ")[2].split("; ") == [
        "1 events of kinds that a recording does not have were left out",
        "1 begins or ends of events were left out, as the other half is missing",
        "1 durations below 0 count as 0",
    ]
    assert caught[0].filename == __file__
    assert [(event.name, event.dur) for event in recording.events()] == [("short", 0)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_real_traces(name: str, tmp_path: Path) -> None:
    path = TRACES / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"needs the traces in {TRACES}")
    recording = cp.load_trace(path)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        check_is(recording, file.read())
    text = exported(recording)
    assert exported(loaded(text, tmp_path)) == text


# ---- small traces of each time

# torch 1.8: no baseTimeNanoseconds, numbers of threads in quotes, other categories and spellings
TORCH_1_8 = """
{
  "schemaVersion": 1, "traceEvents": [
  {"ph": "X", "cat": "Operator", "name": "aten::add", "pid": 24572, "tid": "24572", "ts": 1621401187223005, "dur": 5,
   "args": {"Device": 24572, "External id": 2, "Trace name": "PyTorch Profiler", "Trace iteration": 0,
            "Input dims": [[4, 4], []], "Input type": ["float", ""]}},
  {"ph": "X", "cat": "Operator", "name": "ProfilerStep#1", "pid": 24572, "tid": "24572", "ts": 1621401187223000,
   "dur": 99},
  {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 24572, "tid": "24572", "ts": 1621401187223006,
   "dur": 2, "args": {"cbid": 211, "correlation": 40, "external id": 2, "external ts": 1621401187223005}},
  {"ph": "s", "id": 40, "pid": 24572, "tid": "24572", "ts": 1621401187223006, "cat": "async", "name": "launch"},
  {"ph": "X", "cat": "Kernel", "name": "void k<4>(int)", "pid": 0, "tid": "stream 7", "ts": 1621401187223009, "dur": 1,
   "args": {"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 40, "external id": 2,
            "blocks per SM": 0.05, "grid": [1, 1, 1], "block": [128, 1, 1], "theoretical occupancy %": 3}},
  {"ph": "f", "id": 40, "pid": 0, "tid": "stream 7", "ts": 1621401187223009, "cat": "async", "name": "launch",
   "bp": "e"},
  {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": "stream 7",
   "ts": 1621401187223011, "dur": 1, "args": {"device": 0, "context": 1, "stream": 7, "correlation": 41,
   "external id": 2, "bytes": 64, "memory bandwidth (GB/s)": 0.064}},
  {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "pid": 0, "tid": "stream 7", "ts": 1621401187223013, "dur": 0,
   "args": {"device": 0, "context": 1, "stream": 7, "correlation": 42, "external id": 0, "bytes": 512}},
  {"name": "process_name", "ph": "M", "ts": 1621401187222988, "pid": 24572, "tid": 0, "args": {"name": "python"}},
  {"name": "thread_name", "ph": "M", "ts": 1621401187222988, "pid": 24572, "tid": "24572",
   "args": {"name": "thread 24572 (python)"}},
  {"ph": "X", "cat": "Trace", "ts": 1621401187222983, "dur": 34, "pid": "Traces", "tid": "PyTorch Profiler",
   "name": "PyTorch Profiler (0)", "args": {"Op count": 0}},
  {"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces", "tid": "Trace PyTorch Profiler",
   "ts": 1621401187222983},
  {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 1621401187223039}
]}
"""

# torch 1.13 and 2.0: whole microseconds since 1970
TORCH_1_13 = """
{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "Device", "totalGlobalMem": 42505273344, "computeMajor": 8, "numSms": 108}],
  "traceEvents": [
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 5, "tid": 5, "ts": 1661203462617019, "dur": 18, "args": {
   "Trace name": "PyTorch Profiler", "Trace iteration": 0, "External id": 7, "Profiler Event Index": 0,
   "Input Dims": [[2, 3], [3, 2]], "Input type": ["float", "float"], "Fwd thread id": 0, "Sequence number": 450022,
   "Module Hierarchy": "", "Call stack": "model.py(12): forward;train.py(40): <module>"}},
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#0", "pid": 5, "tid": 5, "ts": 1661203462617000,
   "dur": 100},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemsetAsync", "pid": 5, "tid": 5, "ts": 1661203462617020, "dur": 3,
   "args": {"External id": 7, "cbid": 51, "correlation": 1869554}},
  {"ph": "s", "id": 1869554, "pid": 5, "tid": 5, "ts": 1661203462617020, "cat": "async_cpu_to_gpu",
   "name": "async_cpu_to_gpu", "bp": "e"},
  {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 3, "tid": 7, "ts": 1661203462617025, "dur": 1,
   "args": {"External id": 7, "device": 3, "context": 1, "stream": 7, "correlation": 1869554, "bytes": 512,
            "memory bandwidth (GB/s)": 0.34042553191489361}},
  {"ph": "f", "id": 1869554, "pid": 3, "tid": 7, "ts": 1661203462617025, "cat": "async_cpu_to_gpu",
   "name": "async_cpu_to_gpu", "bp": "e"},
  {"name": "process_labels", "ph": "M", "ts": 1661203462617000, "pid": 3, "tid": 0, "args": {"labels": "GPU 3"}},
  {"name": "process_sort_index", "ph": "M", "ts": 1661203462617000, "pid": 3, "tid": 0, "args": {
   "sort_index": 16777219}}
]}
"""

# torch 2.2: three decimals; torch 2.3 and later: since a base; memory, ROCm, synchronisation
TORCH_2 = """
{
  "schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
  "record_shapes": 1, "with_stack": 1, "trace_id": "094DFF9CD7781F8ADDEAFBA6A8855CA7",
  "traceEvents": [
  {"ph": "M", "name": "process_name", "ts": 4406500314027.247, "pid": 9, "tid": 0, "args": {"name": "python"}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::randn", "pid": 9, "tid": 9, "ts": 4406500314327.205, "dur": 25.788,
   "args": {"External id": 4, "Record function id": 0, "Concrete Inputs": ["[4, 8]", "", "False"], "Input type":
   ["ScalarList", "", "Scalar"], "Input Strides": [[], [], []], "Input Dims": [[], [], []], "Ev Idx": 3}},
  {"ph": "X", "cat": "python_function", "name": "<built-in function \\u00e9>", "pid": 9, "tid": 9,
   "ts": 4406500314326.999, "dur": 26.5, "args": {"Python parent id": null, "Python id": 1, "Ev Idx": 156}},
  {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 9, "tid": 9, "ts": 4406500314339.152,
   "args": {"Total Reserved": 0, "Total Allocated": 128, "Bytes": -128, "Device Id": -1, "Device Type": 0,
            "Addr": 94633164912640, "finished": false}},
  {"ph": "X", "cat": "cuda_runtime", "name": "hipMemcpyWithStream", "pid": 9, "tid": 9, "ts": 4406500314438.301,
   "dur": 60.204, "args": {"External id": 8, "stream": "0x0", "correlation": 117, "size": "2560", "kind": "1"}},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Host -> Device)", "pid": 2, "tid": 0, "ts":
   4406500314454.206, "dur": 22.441, "args": {"External id": 8, "device": 2, "stream": 0, "correlation": 117,
   "kind": "HtoD"}},
  {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#1", "pid": 2, "tid": 0, "ts": 4406500314454,
   "dur": 30.5, "args": {"External id": 35}},
  {"ph": "X", "cat": "cuda_sync", "name": "Context Sync", "pid": 0, "tid": -1, "ts": 4406500314500.0005, "dur": 0.0015,
   "args": {"External id": 14, "cuda_sync_kind": "Context Sync", "stream": -1, "correlation": 1424, "device": 0}},
  {"ph": "s", "id": 4, "pid": 9, "tid": 9, "ts": 4406500314415.196, "cat": "fwdbwd", "name": "fwdbwd"},
  {"ph": "f", "id": 4, "pid": 9, "tid": 10, "ts": 4406500314626.05, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
  {"ph": "C", "name": "GPU bandwidth", "pid": 2, "ts": 4406500314500, "args": {"HtoD": 1.5}}
  ],
  "traceName": "/tmp/a\\/b.json", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1790857026000000000
}
"""


@pytest.mark.parametrize("text", [TORCH_1_8, TORCH_1_13, TORCH_2], ids=["torch 1.8", "torch 1.13", "torch 2"])
def test_traces_of_all_times(text: str, tmp_path: Path) -> None:
    recording = loaded(text.encode(), tmp_path)
    check_is(recording, text)
    again = exported(recording)
    assert exported(loaded(again, tmp_path)) == again


def test_what_todays_torch_writes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(4, 4)
    options = {"record_shapes": True, "with_stack": True, "profile_memory": True}
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    cpu = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[cpu], schedule=schedule, **options) as prof:
        for _ in range(3):
            with torch.profiler.record_function('a "label"\n\u20ac'):
                layer(torch.randn(2, 4)).sum().backward()
            prof.step()
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(str(path))
    recording = cp.load_trace(path)
    check_is(recording, path.read_text(encoding="utf-8"))
    assert {"step", "host", "instant"} <= {event.kind for event in recording.events()}
    assert any(event.shapes == "[[2, 4], [4, 4], [4]]" and event.name == "aten::linear" for event in recording.events())


# ---- files

TEXT = TORCH_2.encode()


def names_in(recording: cp.Recording) -> list[str]:
    return [event.name for event in recording.events()]


def padded(text: bytes) -> bytes:
    return gzip.compress(text) + b"\0" * 100


def in_two_members(text: bytes) -> bytes:
    return gzip.compress(text[:700]) + gzip.compress(b"") + gzip.compress(text[700:])


@pytest.mark.parametrize("pack", [bytes, gzip.compress, padded, in_two_members])
def test_compressed_or_not(pack: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace of any name"
    path.write_bytes(pack(b"\xef\xbb\xbf" + TEXT))
    expected = names_in(loaded(TEXT, tmp_path))
    for given in (path, str(path), os.fsencode(path)):
        assert names_in(cp.load_trace(given)) == expected


def test_a_large_compressed_trace(tmp_path: Path) -> None:
    events = [{"ph": "X", "name": f"name {i % 100}", "pid": 1, "tid": i % 3, "ts": i, "dur": 1} for i in range(20_000)]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(events).encode(), 1))
    assert names_in(cp.load_trace(path)) == [event["name"] for event in events]


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        cp.load_trace(tmp_path / "nowhere.json")
    with pytest.raises(IsADirectoryError):
        cp.load_trace(tmp_path)


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        (0, TypeError, "path must be a path, got 0 (int)"), (True, TypeError, "path must be a path, got True (bool)"),
        (None, TypeError, "path must be a path, got None (NoneType)"),
        ("", ValueError, "path must not be empty, got '' (str)"),
        (b"", ValueError, "path must not be empty, got b'' (bytes)"),
    ],
)  # fmt: skip
def test_what_is_no_path(path: Any, error: type[Exception], message: str) -> None:
    """A descriptor, which ``open`` takes, among it: 0 would be read from the terminal."""
    with pytest.raises(error) as caught:
        cp.load_trace(path)
    assert str(caught.value) == message


def refusal(path: Path) -> str:
    """Why a file is refused, without its name."""
    with pytest.raises(cp.FormatError) as raised:
        cp.load_trace(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the file is empty, at byte 0"),
        (b"PK\x03\x04", "it is no Chrome trace: no list or object where one is expected, at byte 0"),
        (b'{"a": 1}', "it is no Chrome trace: there are no traceEvents, at byte 8"),
        (TEXT[:-3], f"the file ends in the middle, at byte {len(TEXT) - 3}"),
        (TEXT + b"x", f"something after the end, at byte {len(TEXT)}"),
        (b'[{"ph": "X", "ts": 1e99}]', "a time beyond 2^63 ns, at byte 19"),
    ],
)
def test_damaged_files(text: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    assert refusal(path) == message
    if text:
        path.write_bytes(gzip.compress(text))
        assert refusal(path) == message


def test_each_cut_of_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    packed = gzip.compress(TEXT)
    for length in range(2, len(packed)):
        path.write_bytes(packed[:length])
        assert refusal(path) == f"the compressed data ends in the middle, after {length} bytes"


def test_damaged_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    packed = bytearray(gzip.compress(TEXT))
    last = len(packed) - 9  # before the checksum and the length: its last bits mean nothing
    for at in range(len(packed) // 3, len(packed)):  # not the header, in which much may be anything
        packed[at] ^= 0x10
        path.write_bytes(packed)
        assert at == last or refusal(path)
        packed[at] ^= 0x10
    path.write_bytes(packed + b"more")
    assert refusal(path).startswith(f"the compressed data is damaged before byte {len(packed) + 4}: ")


def test_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I9: what unpacks to much more than any trace does is given up."""
    monkeypatch.setattr(reader, "_BOMB_ALLOWANCE", 1 << 20)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b"[" + b" " * (16 << 20) + b"]"))
    assert re.fullmatch(r"\d+ compressed bytes unpack to more than \d+: that is no trace", refusal(path))


# ---- memory


MEASURED = """
import resource, sys
import cprofiling
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
cprofiling.load_trace(sys.argv[1])
before = peak()
recording = cprofiling.load_trace(sys.argv[2])
print(len(recording), peak() - before)
"""


@pytest.mark.slow
@pytest.mark.unsanitized
def test_large_traces_do_not_use_memory_up(tmp_path: Path) -> None:
    """I9: twice the text at most, as Kineto writes it; the first, small trace brings what loading itself needs."""
    events = json.loads(TORCH_1_13)["traceEvents"]
    small, large = tmp_path / "small.json", tmp_path / "large.json"
    small.write_text(TORCH_1_13)
    large.write_text(json.dumps({"traceEvents": events * 10_000}, indent=1))
    ran = subprocess.run([sys.executable, "-c", MEASURED, small, large], capture_output=True, text=True, check=True)
    rows, grown = map(int, ran.stdout.split())
    assert rows == 4 * 10_000
    assert grown < 2 * large.stat().st_size


def test_a_trace_in_perfettos_format(tmp_path: Path) -> None:
    (tmp_path / "trace.pftrace").write_bytes(b"\x0a\x05packet")
    with pytest.raises(cp.FormatError, match=r"at byte \d+: Perfetto's own format is not read$"):
        cp.load_trace(tmp_path / "trace.pftrace")


def test_stacks_of_pytorchs_traces(tmp_path: Path) -> None:
    """Each of their frames ends in what begins another one elsewhere."""
    event = {"ph": "X", "name": "op", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    recording = loaded(
        json.dumps([{**event, "args": {"Call stack": "b.py(2): f;a.py(1): <module>;"}}]).encode(), tmp_path
    )
    assert [event.stack for event in recording.events()] == ["b.py(2): f\na.py(1): <module>"]
