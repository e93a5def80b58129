"""Recordings as traces in Perfetto's own format (``.pftrace``), through the package ``perfetto``.

Compared with a Chrome trace: any character of a name is shown as it is, not as an escape; a call has an arrow to each
thing that it started; devices have tracks that are no threads of made-up processes. The words of the arguments are
those of a Chrome trace, see cprofiling/trace_json.h.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cprofiling import checks
from cprofiling.analysis.rows import RUNTIME, column, has, known_args
from cprofiling.export import imported
from cprofiling.files import atomic_writer
from cprofiling.kinds import COUNTER, CUT, DEVICE, INSTANT, KINDS, OUTCOMES, SUSPENDABLE, UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from typing import IO, Any

    from _typeshed import StrOrBytesPath

    from cprofiling.analysis.rows import Recording

    Annotations = Iterator[tuple[str, Any]]

_OWN_KINDS = frozenset(("node", "record", "step", "device"))
_SEQUENCE = 1  # all packets are of one
_REALTIME, _BOOT_TIME = 1, 6  # Perfetto's clocks; the second one is that of packets that do not say
_DEEPEST = 16  # lists and objects within one another; what is deeper is shown as JSON
_ID_BITS = 31  # of numbers of processes and threads
_TEXTS = {"shapes": "Input Dims", "types": "Input type"}
_REPEATED = frozenset(("kind", "stage", "outcome", "Call stack", *_TEXTS.values()))  # many rows have the same
_NUMBERS = {
    "suspended_ns": "suspended_ns", "memory_change": "memory_change", "memory_peak": "memory_peak",
    "device_memory_change": "device_memory_change", "device_memory_peak": "device_memory_peak",
    "external_id": "External id", "correlation": "correlation", "device": "device", "stream": "stream",
    "bytes": "bytes",
}  # fmt: skip


def export_perfetto_trace(recording: Recording, path: StrOrBytesPath) -> None:
    """Write a recording as a trace in Perfetto's format, for ui.perfetto.dev and its tools.

    The file appears under its name when it is complete. Packets are written as they are made; what is kept meanwhile
    are the numbers of the rows at the ends of arrows, and the texts, as long as the recording has them anyway.

    Raises:
        ImportError: The package perfetto is not installed; it names the extra.
        OSError: The file cannot be written.
        TypeError: ``path`` is none.
        ValueError: It is empty.
    """
    name = checks.path("path", path)
    library = _Library()
    with atomic_writer(name) as file:
        _Trace(recording, _Packets(library, file)).write()


def require() -> None:
    """Load the package perfetto. ImportError where it is not installed; it names the extra."""
    _Library()


class _Library:
    """What is used of the package perfetto."""

    def __init__(self) -> None:
        imported("perfetto")
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

        self.writer: Callable[[IO[bytes]], Any] = StreamingTraceProtoBuilder
        self.first = messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self.later = messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        event = messages.TrackEvent
        self.begin, self.end, self.instant, self.counter = (
            event.TYPE_SLICE_BEGIN, event.TYPE_SLICE_END, event.TYPE_INSTANT, event.TYPE_COUNTER,
        )  # fmt: skip
        self.unit_of_bytes = messages.CounterDescriptor.UNIT_SIZE_BYTES
        self.in_order = messages.TrackDescriptor.EXPLICIT
        self.apart = messages.TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE


class _Packets:
    """The packets of a trace, in which a text that comes again is a number."""

    def __init__(self, library: _Library, file: IO[bytes]) -> None:
        self.library = library
        self._writer = library.writer(file)
        self._flags = library.first
        self._numbers: dict[tuple[str, str], int] = {}

    def new(self) -> Any:
        """Return a packet to be filled, and given to ``write`` before the next one is made."""
        packet = self._writer.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = self._flags
        self._flags = self.library.later
        return packet

    def write(self, packet: Any) -> None:
        self._writer.write_packet(packet)

    def event(self, kind: int, track: int, at: int) -> tuple[Any, Any]:
        """Return a packet with an event of a track, and the event."""
        packet = self.new()
        packet.timestamp = at
        event = packet.track_event
        event.type = kind
        event.track_uuid = track
        return packet, event

    def describe(self, packet: Any, event: Any, name: str, cat: str) -> None:
        """Give an event a name and a category."""
        event.name_iid = self._interned(packet, "event_names", name)
        if cat:
            event.category_iids.append(self._interned(packet, "event_categories", cat))

    def annotate(self, packet: Any, event: Any, annotations: Annotations) -> None:
        """Give an event its arguments."""
        for name, value in annotations:
            note = event.debug_annotations.add()
            note.name_iid = self._interned(packet, "debug_annotation_names", name)
            if name in _REPEATED and isinstance(value, str):
                note.string_value_iid = self._interned(packet, "debug_annotation_string_values", value)
            else:
                _set_value(note, value, _DEEPEST)

    def _interned(self, packet: Any, kind: str, text: str) -> int:
        """Return the number of a text, which the packet says at its first use."""
        number = self._numbers.get((kind, text))
        if number is None:
            number = self._numbers[kind, text] = len(self._numbers) + 1
            entry = getattr(packet.interned_data, kind).add()
            entry.iid = number
            if kind == "debug_annotation_string_values":
                entry.str = legal(text).encode()
            else:
                entry.name = legal(text)
        return number


def legal(text: str) -> str:
    """Return a text that can be UTF-8: surrogates, which are no characters, become backslash escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _set_value(note: Any, value: Any, depth: int) -> None:
    """Give an annotation a value of JSON."""
    if isinstance(value, str):
        note.string_value = legal(value)
    elif isinstance(value, bool):
        note.bool_value = value
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        note.int_value = value
    elif isinstance(value, float):
        note.double_value = value
    elif isinstance(value, dict) and value and depth > 0:
        for key, item in value.items():
            entry = note.dict_entries.add()
            entry.name = legal(key)
            _set_value(entry, item, depth - 1)
    elif isinstance(value, list) and value and depth > 0:
        for item in value:
            _set_value(note.array_values.add(), item, depth - 1)
    else:
        note.string_value = json.dumps(value)


class _Tracks:
    """The tracks of a trace, each described when it is first used; they are known by numbers.

    Threads whose numbers the system could have given are threads of their process, and have their lanes below them.
    Other threads, streams of devices, and counters are rows of their own below their process, or their device.
    """

    def __init__(self, recording: Recording, packets: _Packets) -> None:
        self._packets = packets
        self._tracks = recording.tracks
        self._labels = [f"{recording.dropped:,} events dropped"] if recording.dropped else []
        kinds = column(recording, "kind")
        self._devices = {track for kind, track in zip(kinds, column(recording, "track"), strict=True) if kind == DEVICE}
        self._known: dict[Hashable, int] = {}

    def of(self, track: int, lane: int) -> int:
        """Return the number of a lane of a track."""
        known = self._known.get((track, lane))
        if known is not None:
            return known
        if lane > 0:
            width = len(str(self._tracks[track][9] + 1))  # lanes are shown in the order of their names
            name = f"{self._name(track)} ({lane + 1:0{width}})"
            return self._row((track, lane), self.of(track, 0), name, rank=lane)
        if self._is_thread(track):
            return self._thread(track)
        sort = self._tracks[track][8]
        return self._row((track, 0), self._owner(track), self._name(track), rank=track if sort is None else sort)

    def counter(self, track: int, name: str, key: str) -> int:
        """Return the number of the row of a counter of a track's process."""
        owner = self._owner(track)
        known = self._known.get((owner, name, key))
        if known is not None:
            return known
        number, packet = self._described((owner, name, key))
        descriptor = packet.track_descriptor
        descriptor.parent_uuid = owner
        if key == "bytes":
            descriptor.name = legal(name)
            descriptor.counter.unit = self._packets.library.unit_of_bytes
        else:
            descriptor.name = legal(f"{name} {key}")
            descriptor.counter.SetInParent()
        self._packets.write(packet)
        return number

    def _described(self, key: Hashable) -> tuple[int, Any]:
        number = self._known[key] = len(self._known) + 1
        packet = self._packets.new()
        packet.track_descriptor.uuid = number
        return number, packet

    def _is_thread(self, track: int) -> bool:
        pid, tid, pid_text, tid_text, *_ = self._tracks[track]
        texts = pid_text is None and tid_text is None
        return texts and 0 < tid < 2**_ID_BITS and 0 < pid < 2**_ID_BITS and track not in self._devices

    def _name(self, track: int) -> str:
        _, tid, _, tid_text, _, _, name, *_ = self._tracks[track]
        return name or tid_text or f"{'Stream' if track in self._devices else 'Thread'} {tid}"

    def _thread(self, track: int) -> int:
        self._owner(track)
        number, packet = self._described((track, 0))
        pid, tid, *_ = self._tracks[track]
        descriptor = packet.track_descriptor
        descriptor.thread.pid, descriptor.thread.tid = pid, tid
        descriptor.thread.thread_name = legal(self._name(track))
        descriptor.child_ordering = self._packets.library.in_order
        self._packets.write(packet)
        return number

    def _row(self, key: Hashable, owner: int, name: str, rank: int) -> int:
        number, packet = self._described(key)
        descriptor = packet.track_descriptor
        descriptor.parent_uuid = owner
        descriptor.name = legal(name)
        descriptor.sibling_order_rank = max(-(2**31), min(rank, 2**31 - 1))
        descriptor.sibling_merge_behavior = self._packets.library.apart
        descriptor.child_ordering = self._packets.library.in_order
        self._packets.write(packet)
        return number

    def _owner(self, track: int) -> int:
        """Return the number of what a track belongs to: a process, or a device or another thing that is none."""
        pid, _, text, *_ = self._tracks[track]
        is_process = text is None and 0 < pid < 2**_ID_BITS and track not in self._devices
        key = (pid, text, is_process)
        known = self._known.get(key)
        return known if known is not None else self._new_owner(key, track)

    def _new_owner(self, key: tuple[int, str | None, bool], track: int) -> int:
        pid, text, is_process = key
        _, _, _, _, name, labels, *_ = self._tracks[track]
        number, packet = self._described(key)
        descriptor = packet.track_descriptor
        if is_process:
            descriptor.process.pid = pid
            descriptor.process.process_name = legal(name or "")
            descriptor.process.process_labels.extend([*([legal(labels)] if labels else []), *self._labels])
        else:
            descriptor.name = legal(labels or name or text or f"Device {pid}")
            descriptor.sibling_merge_behavior = self._packets.library.apart
        descriptor.child_ordering = self._packets.library.in_order
        self._packets.write(packet)
        return number


class _Arrows:
    """Which arrows begin and end at which rows.

    They are those that were loaded, as far as their ends are at the starts of rows; where there are none, there is one
    from each call of a device's runtime to each thing that has its correlation on the device.
    """

    def __init__(self, recording: Recording) -> None:
        self.begins: dict[int, list[int]] = {}
        self.ends: dict[int, list[int]] = {}
        flows = recording.flows
        if flows:
            self._take(recording, flows)
        elif has(recording, "correlation"):
            self._find(recording)

    def _take(self, recording: Recording, flows: Sequence[tuple[str, int, int, int, str, str, bool]]) -> None:
        places = {(track, at) for _, at, _, track, *_ in flows}
        kinds = column(recording, "kind")
        all_places = zip(column(recording, "track"), column(recording, "start_ns"), strict=True)
        # Of rows that begin at once the innermost one, which comes last.
        rows = {place: row for row, place in enumerate(all_places) if place in places and kinds[row] < INSTANT}
        numbers: dict[tuple[str, str, int], int] = {}
        for phase, at, number, track, name, cat, _ in flows:
            if (track, at) in rows:
                arrow = numbers.setdefault((name, cat, number), len(numbers) + 1)
                (self.ends if phase == "f" else self.begins).setdefault(rows[track, at], []).append(arrow)

    def _find(self, recording: Recording) -> None:
        kinds, cats = column(recording, "kind"), column(recording, "cat")
        runtime = {number for number, text in enumerate(recording.strings) if text in RUNTIME}
        correlations = column(recording, "correlation")
        calls: dict[int, int] = {}
        for row, correlation in enumerate(correlations):
            if correlation > 0 and cats[row] in runtime and kinds[row] != DEVICE:
                calls.setdefault(correlation, row)
        for row, correlation in enumerate(correlations):
            if kinds[row] == DEVICE and correlation in calls:
                self.begins.setdefault(calls[correlation], []).append(row + 1)
                self.ends[row] = [row + 1]


class _Arguments:
    """The arguments of rows: those that were loaded, or what is known."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._strings = recording.strings
        self._has_args = has(recording, "args_length")
        self._columns = {name: column(recording, name) for name in recording.column_names if has(recording, name)}
        self._nones = {name: recording.none(name) for name in self._columns}
        self._numbers = [(name, word) for name, word in _NUMBERS.items() if name in self._columns]
        self._texts = [(name, word) for name, word in _TEXTS.items() if name in self._columns]

    def of(self, row: int) -> Annotations:
        """Yield the names and values of a row's arguments."""
        args: Mapping[str, Any] = known_args(self._recording, row) if self._has_args else {}
        yield from args.items() if args else self._known(row)

    def _known(self, row: int) -> Annotations:
        kind = KINDS[self._columns["kind"][row]]
        if kind in _OWN_KINDS:
            yield "kind", kind
        stage = self._value("stage", row)
        if stage is not None:
            yield "stage", self._strings[stage]
        yield from self._ids(row)
        yield from self._end(row)
        for name, word in self._numbers:
            value = self._value(name, row)
            if value is not None:
                yield word, value
        for name, word in self._texts:
            value = self._value(name, row)
            if value is not None:
                yield word, self._strings[value]
        stack = self._value("stack", row)
        if stack is not None:
            yield "Call stack", self._strings[stack].replace("\n", ";")

    def _value(self, name: str, row: int) -> int | None:
        """Return what a row has in a column; None where it has its "none"."""
        values = self._columns.get(name)
        return None if values is None or values[row] == self._nones[name] else values[row]

    def _ids(self, row: int) -> Annotations:
        trace = (self._value("trace_high", row) or 0) << 64 | (self._value("trace_low", row) or 0)
        if trace:
            yield "trace_id", f"{trace:032x}"
        for name in ("span", "parent_span"):
            value = self._value(name, row)
            if value is not None:
                yield f"{name}_id", f"{value:016x}"

    def _end(self, row: int) -> Annotations:
        outcome = self._value("outcome", row)
        if outcome is not None:
            yield "outcome", OUTCOMES[outcome]
        flags = self._value("flags", row) or 0
        for flag, word in ((UNFINISHED, "unfinished"), (CUT, "cut"), (SUSPENDABLE, "suspendable")):
            if flags & flag:
                yield word, True


class _Trace:
    """A recording that is written."""

    def __init__(self, recording: Recording, packets: _Packets) -> None:
        self._packets = packets
        self._library = packets.library
        self._tracks = _Tracks(recording, packets)
        self._arrows = _Arrows(recording)
        self._arguments = _Arguments(recording)
        self._strings = recording.strings
        self._starts, self._ends = column(recording, "start_ns"), column(recording, "end_ns")
        self._zero = min(0, self._starts[0]) if len(recording) else 0  # no time of a trace is before 0
        self._kinds, self._parents = column(recording, "kind"), column(recording, "parent")
        self._names, self._cats = column(recording, "name"), column(recording, "cat")
        self._places, self._lanes = column(recording, "track"), recording.column("lane")
        self._open: dict[int, list[tuple[int, int]]] = {}  # the ends and rows of what is open on each track

    def write(self) -> None:
        self._write_clocks()
        for row, kind in enumerate(self._kinds):
            if kind == COUNTER:
                self._write_counter(row)
            elif kind == INSTANT:
                self._write_instant(row)
            else:
                self._write_slice(row)
        for track, rows in self._open.items():
            for end, _ in reversed(rows):
                self._write_end(track, end)

    def _write_clocks(self) -> None:
        """Say that times are times of day."""
        if len(self._starts) == 0 or self._zero < 0:
            return
        packet = self._packets.new()
        for number in (_BOOT_TIME, _REALTIME):
            clock = packet.clock_snapshot.clocks.add()
            clock.clock_id, clock.timestamp = number, self._starts[0]
        self._packets.write(packet)

    def _write_event(self, kind: int, track: int, row: int) -> None:
        packet, event = self._packets.event(kind, track, self._starts[row] - self._zero)
        self._packets.describe(packet, event, self._strings[self._names[row]], self._strings[self._cats[row]])
        self._packets.annotate(packet, event, self._arguments.of(row))
        event.flow_ids.extend(self._arrows.begins.get(row, ()))
        event.terminating_flow_ids.extend(self._arrows.ends.get(row, ()))
        self._packets.write(packet)

    def _write_slice(self, row: int) -> None:
        track = self._tracks.of(self._places[row], 0 if self._lanes is None else self._lanes[row])
        rows = self._open.setdefault(track, [])
        start, end = self._starts[row], self._ends[row]
        while rows and not self._holds(rows[-1], row, start):
            self._write_end(track, rows.pop()[0])
        self._write_event(self._library.begin, track, row)
        # An end belongs to what is innermost: what sticks out, by a rounding, ends with what is around it.
        rows.append((min(end, rows[-1][0]) if rows else end, row))

    def _holds(self, opened: tuple[int, int], row: int, start: int) -> bool:
        """Tell whether what is open has a row inside; one that takes no time may be at its end."""
        end, around = opened
        return end > start or (end == start and self._parents[row] == around)

    def _write_end(self, track: int, end: int) -> None:
        packet, _ = self._packets.event(self._library.end, track, end - self._zero)
        self._packets.write(packet)

    def _write_instant(self, row: int) -> None:
        track = self._tracks.of(self._places[row], 0)
        self._write_event(self._library.instant, track, row)

    def _write_counter(self, row: int) -> None:
        for key, value in self._arguments.of(row):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                track = self._tracks.counter(self._places[row], self._strings[self._names[row]], key)
                packet, event = self._packets.event(self._library.counter, track, self._starts[row] - self._zero)
                if isinstance(value, int) and -(2**63) <= value < 2**63:
                    event.counter_value = value
                else:
                    event.double_counter_value = value
                self._packets.write(packet)
