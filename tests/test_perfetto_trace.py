"""Traces in Perfetto's own format, read back packet by packet."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cprofiling as cp
from cprofiling.perfetto_trace import export_perfetto_trace
from recordings import COUNTER, DEVICE, HOST, INSTANT, NODE, Dropping, call, device, host, made

pytest.importorskip("perfetto", reason="the package perfetto is not installed")


class Slice(NamedTuple):
    name: str
    cat: str
    track: str
    start: int
    end: int
    args: dict[str, Any]
    around: str | None
    begins: list[int]
    ends: list[int]


class Read:
    """What a trace says."""

    def __init__(self, path: Path) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

        self.messages = messages
        trace = messages.Trace()
        trace.ParseFromString(path.read_bytes())
        self.packets = list(trace.packet)
        assert {packet.trusted_packet_sequence_id for packet in self.packets} <= {1}
        flags = [packet.sequence_flags for packet in self.packets]
        cleared, needed = 1, 2  # that what is interned counts from here, or is made use of
        assert flags == [cleared if number == 0 else needed for number in range(len(flags))]
        self.tracks: dict[int, Any] = {}
        self.clocks: list[Any] = []
        self.slices: list[Slice] = []
        self.moments: list[tuple[str, str, int, dict[str, Any]]] = []
        self.counters: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self._texts: dict[tuple[str, int], str] = {}
        self._read()

    def _read(self) -> None:
        for packet in self.packets:
            self._intern(packet.interned_data)
            if packet.HasField("track_descriptor"):
                assert packet.track_descriptor.uuid not in self.tracks
                parent = packet.track_descriptor.parent_uuid
                assert not parent or parent in self.tracks, "a track is described before what is below it"
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            self.clocks.extend(packet.clock_snapshot.clocks)
        # As Perfetto does: by time, what comes at one moment in the order of the file.
        events = [packet for packet in self.packets if packet.HasField("track_event")]
        events.sort(key=lambda packet: packet.timestamp)
        opened: dict[int, list[tuple[Any, int]]] = defaultdict(list)
        for packet in events:
            self._take(packet.timestamp, packet.track_event, opened[packet.track_event.track_uuid])
        assert not any(opened.values()), "each begin has its end"

    def _intern(self, data: Any) -> None:
        for kind, entries in data.ListFields():
            for entry in entries:
                assert (kind.name, entry.iid) not in self._texts
                has_bytes = kind.name == "debug_annotation_string_values"
                self._texts[kind.name, entry.iid] = entry.str.decode() if has_bytes else entry.name

    def _take(self, at: int, event: Any, opened: list[tuple[Any, int]]) -> None:
        kinds = self.messages.TrackEvent
        assert event.track_uuid in self.tracks
        if event.type == kinds.TYPE_SLICE_BEGIN:
            opened.append((event, at))
        elif event.type == kinds.TYPE_SLICE_END:
            begin, start = opened.pop()
            around = self._name(opened[-1][0]) if opened else None
            self.slices.append(
                Slice(
                    self._name(begin), self._cat(begin), self.title(begin.track_uuid), start, at, self._args(begin),
                    around, list(begin.flow_ids), list(begin.terminating_flow_ids),
                )
            )  # fmt: skip
        elif event.type == kinds.TYPE_INSTANT:
            self.moments.append((self._name(event), self.title(event.track_uuid), at, self._args(event)))
        else:
            assert event.type == kinds.TYPE_COUNTER
            value = event.counter_value if event.HasField("counter_value") else event.double_counter_value
            self.counters[self.title(event.track_uuid)].append((at, value))

    def _name(self, event: Any) -> str:
        return self._texts["event_names", event.name_iid]

    def _cat(self, event: Any) -> str:
        return ",".join(self._texts["event_categories", number] for number in event.category_iids)

    def _args(self, event: Any) -> dict[str, Any]:
        names = [self._texts["debug_annotation_names", note.name_iid] for note in event.debug_annotations]
        assert len(names) == len(set(names))
        return dict(zip(names, map(self._value, event.debug_annotations), strict=True))

    def _value(self, note: Any) -> Any:
        if note.dict_entries:
            return {entry.name: self._value(entry) for entry in note.dict_entries}
        if note.array_values:
            return [self._value(entry) for entry in note.array_values]
        if note.string_value_iid:
            return self._texts["debug_annotation_string_values", note.string_value_iid]
        (value,) = (value for field, value in note.ListFields() if not field.name.startswith("name"))
        return value

    def title(self, number: int) -> str:
        """The names of a track and of those above it."""
        track = self.tracks[number]
        if track.HasField("thread"):
            assert any(other.process.pid == track.thread.pid for other in self.tracks.values())
            return f"{track.thread.pid}/{track.thread.tid} {track.thread.thread_name}"
        name = f"{track.process.pid} {track.process.process_name}" if track.HasField("process") else track.name
        return f"{self.title(track.parent_uuid)} > {name}" if track.parent_uuid else name

    def called(self, name: str) -> Slice:
        (found,) = (span for span in self.slices if span.name == name)
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.pftrace"


def read(recording: cp.Recording, path: Path) -> Read:
    export_perfetto_trace(recording, path)
    return Read(path)


# ---- what was recorded


class Array:
    shape = (2, 3)
    dtype = "torch.float32"


@cp.profile_node("inner")
def inner(array: Array) -> None:
    pass


@cp.profile_node("outer")
def outer(fails: bool = False) -> None:
    inner(Array())
    if fails:
        raise KeyError


@cp.profile_node("task")
async def task() -> None:
    for _ in range(3):
        inner(Array())
        await asyncio.sleep(0)


async def tasks() -> None:
    await asyncio.gather(*(task() for _ in range(11)))


def in_thread() -> None:
    with cp.stage("train"):
        outer()


@pytest.fixture(scope="module")
def recording() -> cp.Recording:
    with cp.profile(record_shapes=True, profile_memory=True, with_stack=True, operators=False) as prof:
        outer()
        with pytest.raises(KeyError):
            outer(fails=True)
        with cp.record("label"):
            asyncio.run(tasks())
        thread = threading.Thread(target=in_thread, name="a worker")
        thread.start()
        thread.join()
    return prof.recording


def test_a_recording(recording: cp.Recording, path: Path) -> None:
    found = read(recording, path)
    events = {event.span_id: event for event in recording.events()}
    names = {event.row: event.name for event in events.values()}
    assert len(found.slices) == len(events)
    for span in found.slices:
        event = events[span.args["span_id"]]
        assert (span.name, span.cat, span.start, span.end) == (event.name, event.cat, event.start, event.end)
        assert span.args["kind"] == event.kind
        assert span.args["stage"] == event.stage
        assert span.args["trace_id"] == event.trace_id
        assert span.args.get("parent_span_id") == event.parent_span_id
        assert span.args.get("Input Dims") == event.shapes
        assert span.args.get("Input type") == event.types
        assert span.args["Call stack"] == (event.stack or "").replace("\n", ";")
        assert span.args.get("memory_change") == event.memory_change
        assert span.args.get("outcome", "success") == event.outcome
        assert span.args.get("suspendable", False) == (event.name == "task")
        assert f"/{event.thread_id} {event.thread_name}" in span.track
        around = None if event.parent is None else names[event.parent]
        assert span.around == around or event.name == "task"
    assert {span.args.get("outcome") for span in found.slices} == {None, "error"}
    (counter,) = found.counters
    assert counter.endswith("> resident memory")
    assert len(found.counters[counter]) >= len(events) - 1
    assert {clock.timestamp for clock in found.clocks} == {min(span.start for span in found.slices)}


def test_lanes_are_below_their_thread_and_in_order(recording: cp.Recording, path: Path) -> None:
    found = read(recording, path)
    tracks = {span.track for span in found.slices if span.name == "task"}
    names = sorted(track.partition(" > ")[2] for track in tracks)
    assert names == ["", *(f"MainThread ({number:02})" for number in range(2, 12))]
    for track in found.tracks.values():
        if track.name.startswith("MainThread ("):
            assert found.tracks[track.parent_uuid].thread.thread_name == "MainThread"
            assert track.sibling_order_rank == int(track.name[-3:-1]) - 1


def test_recordings_and_profiles_have_it_as_a_method(recording: cp.Recording, path: Path) -> None:
    recording.export_perfetto_trace(path)
    assert len(Read(path).slices) == len(recording.events())
    with cp.profile(operators=False) as prof:
        outer()
    prof.export_perfetto_trace(str(path))
    assert [span.name for span in Read(path).slices] == ["inner", "outer"]


def test_an_empty_recording(path: Path) -> None:
    found = read(made([]), path)
    assert found.packets == []


def test_events_that_were_dropped_are_a_label(path: Path) -> None:
    found = read(made([host("a", 0, 1)], dropping=True), path)
    (process,) = (track.process for track in found.tracks.values() if track.HasField("process"))
    assert list(process.process_labels) == [f"{Dropping.dropped:,} events dropped"]


# ---- tracks


def test_numbers_that_no_thread_has(path: Path) -> None:
    """They are tracks of their own; a number is not cut to what fits."""
    threads = ["5/7", "5/0", "5/-3", "5/4294967296", "5/io", "0/7", "-1/7", "4294967297/7", "Spans/7", "Spans/x"]
    found = read(made([host(thread, 0, 1, thread=thread) for thread in threads]), path)
    assert {span.name: span.track for span in found.slices} == {
        "5/7": "5/7 Thread 7",
        "5/0": "5  > Thread 0",
        "5/-3": "5  > Thread -3",
        "5/4294967296": "5  > Thread 4294967296",
        "5/io": "5  > io",
        "0/7": "Device 0 > Thread 7",
        "-1/7": "Device -1 > Thread 7",
        "4294967297/7": "Device 4294967297 > Thread 7",
        "Spans/7": "Spans > Thread 7",
        "Spans/x": "Spans > x",
    }


def test_tracks_of_devices(path: Path) -> None:
    """A device is no process, though it has a number like one; its streams are in the order of their sort numbers."""
    recording = cp.Recording.empty()
    for number, (pid, tid) in enumerate(((1, 20), (1, 7), (0, 7))):
        recording._add(f"kernel {number}", DEVICE, 0, 10, pid, tid, cat="kernel", device=pid, stream=tid)
    recording._add("node", NODE, 0, 10, 1, 1)
    recording._name_process(1, "python", "GPU 1", None)
    recording._name_thread(1, 7, "stream 7", -(2**40))
    recording._finish()
    found = read(recording, path)
    assert {span.name: span.track for span in found.slices} == {
        "kernel 0": "GPU 1 > Stream 20",
        "kernel 1": "GPU 1 > stream 7",
        "kernel 2": "Device 0 > Stream 7",
        "node": "1/1 Thread 1",
    }
    ranks = {track.name: track.sibling_order_rank for track in found.tracks.values() if track.parent_uuid}
    assert ranks["stream 7"] == -(2**31)


def test_names_of_all_kinds(path: Path) -> None:
    names = ["", "a\0b", 'q"\\', "\n\t\x7f", "\u00e9 \U0001f600", "\ud800 alone \udfff", "y" * 100_000]
    recording = cp.Recording.empty()
    for number, name in enumerate(names):
        args = json.dumps({name: {name: name}})
        recording._add(name, HOST, number, number + 1, 1, name or "?", cat=name, args=args)
        recording._name_process(1, name, name, None)
    recording._finish()
    found = read(recording, path)
    shown = [name.encode("utf-8", "backslashreplace").decode() for name in names]
    assert sorted(span.name for span in found.slices) == sorted(shown)
    for span in found.slices:
        assert span.cat == span.name
        assert span.track.endswith(span.name or "?")
        assert span.args == {span.name: {span.name: span.name}}


# ---- times


def test_times_before_zero_are_moved(path: Path) -> None:
    found = read(made([host("a", -50, -20), host("b", -10, 5)]), path)
    assert {span.name: (span.start, span.end) for span in found.slices} == {"a": (0, 30_000), "b": (40_000, 55_000)}
    assert found.clocks == []


@pytest.mark.parametrize("zero", [0, 1_700_000_000_000_000_000, 2**63 - 10])
def test_what_takes_no_time(path: Path, zero: int) -> None:
    """At the end of what is around it, it is inside if it was called there."""
    spans = [("outer", 0, 5, 1, 0), ("at its end", 5, 5, 2, 1), ("inside that", 5, 5, 3, 2), ("after", 5, 5, 4, 0)]
    rows = [
        {"name": name, "start": zero + start, "end": zero + end, "kind": NODE, "span": span, "parent_span": parent}
        for name, start, end, span, parent in spans
    ]
    found = read(made(rows), path)
    assert {span.name: (span.start - zero, span.end - zero, span.around) for span in found.slices} == {
        "outer": (0, 5, None), "at its end": (5, 5, "outer"), "inside that": (5, 5, "at its end"),
        "after": (5, 5, None),
    }  # fmt: skip


def test_what_sticks_out_by_a_rounding_ends_with_what_is_around_it(path: Path) -> None:
    rows = [{"name": name, "start": start, "end": end} for name, start, end in (("a", 0, 9000), ("b", 5000, 9700))]
    found = read(made([*rows, {"name": "c", "start": 9700, "end": 9800}]), path)
    assert {span.name: (span.start, span.end, span.around) for span in found.slices} == {
        "a": (0, 9000, None), "b": (5000, 9000, "a"), "c": (9700, 9800, None),
    }  # fmt: skip


# ---- arguments


def test_arguments_that_were_loaded(path: Path) -> None:
    args = {
        "int": 5, "least": -(2**63), "large": 2**63, "float": 0.5, "true": True, "none": None, "text": "t",
        "list": [1, [2.5, "x"]], "object": {"a": {"b": [True]}}, "Call stack": "a;b", "stage": "train",
    }  # fmt: skip
    found = read(made([host("a", 0, 1, args=json.dumps(args), bytes=7)]), path)
    assert found.slices[0].args == {**args, "large": "9223372036854775808", "none": "null"}


def test_arguments_that_are_odd(path: Path) -> None:
    deep: list[Any] = ["innermost"]
    for _ in range(40):
        deep = [deep]
    rows = [
        host("deep", 0, 1, args=json.dumps({"deep": deep})),
        host("nan", 2, 3, args='{"value": NaN}'),
        host("empty", 4, 5, args='{"list": [], "object": {}}'),
        host("none", 6, 7, args="{}", bytes=5),
    ]
    found = read(made(rows), path)
    value = found.called("deep").args["deep"]
    while isinstance(value, list):
        (value,) = value
    assert value.startswith("[[")
    assert json.loads(value) != []
    assert math.isnan(found.called("nan").args["value"])
    assert found.called("empty").args == {"list": "[]", "object": "{}"}
    assert found.called("none").args == {"bytes": 5}


def test_arguments_of_columns(path: Path) -> None:
    row = device(
        "k", 0, 1, correlation=3, external_id=4, bytes=5, suspended_ns=6, memory_change=-7, memory_peak=8,
        device_memory_change=9, device_memory_peak=10, trace_high=1, span=11, outcome=2, flags=7, stack="f\ng",
        shapes="[[1]]", types='["float"]', stage="val",
    )  # fmt: skip
    found = read(made([row, host("n", 0, 1), device("k2", 5, 6, span=12)]), path)
    assert found.called("k").args == {
        "kind": "device", "stage": "val", "trace_id": f"{1:016x}{0:016x}", "span_id": f"{11:016x}",
        "outcome": "cancelled", "unfinished": True, "cut": True, "suspendable": True, "suspended_ns": 6,
        "memory_change": -7, "memory_peak": 8, "device_memory_change": 9, "device_memory_peak": 10,
        "External id": 4, "correlation": 3, "device": 0, "stream": 7, "bytes": 5,
        "Input Dims": "[[1]]", "Input type": '["float"]', "Call stack": "f;g",
    }  # fmt: skip
    assert found.called("n").args == {}


def test_moments_and_counters(path: Path) -> None:
    rows = [
        host("mark", 1, 1, kind=INSTANT, args='{"x": 1}'),
        host("memory", 2, 2, kind=COUNTER, args='{"bytes": 5, "limit": 0.5, "on": true, "text": "x"}'),
        host("memory", 3, 3, kind=COUNTER, args=f'{{"bytes": {2**70}}}'),
        host("memory", 4, 4, kind=COUNTER, args='{"bytes": 6}', thread="2/2"),
        host("a", 0, 5),
    ]
    found = read(made(rows), path)
    assert found.moments == [("mark", "1/1 Thread 1", 1000, {"x": 1})]
    assert found.counters == {
        "1  > memory": [(2000, 5), (3000, float(2**70))], "1  > memory limit": [(2000, 0.5)],
        "2  > memory": [(4000, 6)],
    }  # fmt: skip
    units = {track.name: track.counter.unit for track in found.tracks.values() if track.HasField("counter")}
    assert units == {"memory": found.messages.CounterDescriptor.UNIT_SIZE_BYTES, "memory limit": 0}


# ---- arrows


def ends_of_arrows(found: Read) -> set[tuple[str, str]]:
    """The names at the beginning and at the end of each arrow, which is a number of its own."""
    begins = [(number, span.name) for span in found.slices for number in span.begins]
    ends = [(number, span.name) for span in found.slices for number in span.ends]
    assert len(dict(begins)) == len(begins)
    assert len(dict(ends)) == len(ends)
    return {(dict(begins).get(number, "?"), name) for number, name in ends}


def test_arrows_from_calls_to_what_they_start(path: Path) -> None:
    rows = [
        call("launch", 0, 9, 1), call("driver's", 1, 8, 1, cat="cuda_driver"), device("k1", 10, 20, correlation=1),
        device("k2", 20, 30, correlation=1), device("lost", 30, 40, correlation=2), call("wait", 40, 50, 3),
        host("operator", 60, 70, correlation=4), device("k4", 70, 80, correlation=4), call("none", 80, 90, 0),
        device("k0", 90, 99, correlation=0),
    ]  # fmt: skip
    assert ends_of_arrows(read(made(rows), path)) == {("launch", "k1"), ("launch", "k2")}


def loaded(folder: Path, events: list[dict[str, Any]]) -> cp.Recording:
    source = folder / "source.json"
    source.write_text(json.dumps(events))
    return cp.load_trace(source)


def test_arrows_that_were_loaded(tmp_path: Path, path: Path) -> None:
    def span(name: str, ts: int, dur: int, tid: int) -> dict[str, Any]:
        return {"ph": "X", "name": name, "cat": "c", "pid": 1, "tid": tid, "ts": ts, "dur": dur}

    def flow(phase: str, number: int, ts: int, tid: int, cat: str = "ac2g") -> dict[str, Any]:
        return {"ph": phase, "id": number, "name": cat, "cat": cat, "pid": 1, "tid": tid, "ts": ts, "bp": "e"}

    events = [
        span("outer", 0, 100, 1), span("call", 0, 10, 1), span("kernel", 20, 10, 2), span("other", 30, 10, 2),
        {"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": 0}, flow("s", 1, 0, 1), flow("f", 1, 20, 2),
        flow("s", 1, 0, 1, "other"), flow("f", 1, 30, 2, "other"), flow("s", 3, 5, 1), flow("f", 3, 25, 2),
        flow("t", 4, 0, 1), flow("f", 4, 77, 1),
    ]  # fmt: skip
    found = read(loaded(tmp_path, events), path)
    assert ends_of_arrows(found) == {("call", "kernel"), ("call", "other")}
    assert len(found.called("call").begins) == 3


# ---- what goes wrong


def test_without_the_package(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perfetto", None)
    with pytest.raises(ImportError, match=r'pip install "cprofiling\[perfetto\]"') as caught:
        export_perfetto_trace(made([]), path)
    assert caught.value.name == "perfetto"
    assert not path.exists()
    with pytest.raises(ImportError, match=r"cprofiling\[perfetto\]"):
        cp.profile(file=path)  # before anything is recorded that would be lost


def test_the_file_of_a_recording_may_be_in_this_format(tmp_path: Path) -> None:
    with cp.profile(file=tmp_path / "file.pftrace", operators=False) as prof, cp.record("label"):
        pass
    prof.export_perfetto_trace(tmp_path / "exported.pftrace")
    assert (tmp_path / "file.pftrace").read_bytes() == (tmp_path / "exported.pftrace").read_bytes()


def test_a_path_that_cannot_be_written(recording: cp.Recording, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        export_perfetto_trace(recording, "/dev/full")
    assert caught.value.filename == "/dev/full"
    with pytest.raises(FileNotFoundError):
        export_perfetto_trace(recording, tmp_path / "missing" / "x.pftrace")
    assert list(tmp_path.iterdir()) == []


def test_packets_are_written_as_they_are_made(path: Path) -> None:
    """What is kept meanwhile does not grow with the recording."""
    import tracemalloc

    def peak(rows: int) -> int:
        spans = [host("a", 2 * i, 2 * i + 1, kind=NODE, span=i + 1, trace_low=i + 1) for i in range(rows)]
        recording = made(spans)
        _ = recording.strings, recording.tracks
        tracemalloc.start()
        export_perfetto_trace(recording, path)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small, large = peak(100), peak(20_000)
    assert path.stat().st_size > 2_000_000
    assert large - small < 200_000
