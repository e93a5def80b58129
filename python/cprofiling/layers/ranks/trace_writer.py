"""Writing several traces as one, with new processes, times and ids."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cprofiling.layers.ranks.merge_traces import Trace
    from cprofiling.recording.result import Recording

TRACK = re.compile(rb',"pid":(-?\d+|"(?:[^"\\]|\\.)*")')
_SORT_STEP = 10_000_000  # between the processes of a rank and those of the next; Kineto's own numbers are below
_GREATEST_ID = 2**52  # larger ones are random, and stay as they are
_TIME = re.compile(rb',"ts":(-?\d+)\.(\d{3})')
_FLOW_ID = re.compile(rb',"id":(\d+)')
_JOINING = re.compile(rb'"(correlation|External id)"(\s*:\s*)(\d+)(?![\d.eE])')
_BEGIN = b'\n{"ph":"'


class TraceWriter:
    """Writes one trace of many, piece by piece, through ``write``."""

    def __init__(self, write: Callable[[bytes], object], facts: dict[str, Any]) -> None:
        """Begin the trace with its facts."""
        self._write = write
        self._is_first = True
        self._pids: set[int] = set()
        self._next_pid = 1
        self._known: dict[tuple[str, str, bytes], int] = {}
        self.ids_before = 0  # the greatest id of the traces before
        text = ",\n".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in facts.items())
        write(b"{\n" + text.encode("ascii") + b',\n"traceEvents":[')

    def close(self) -> None:
        """Write the end."""
        self._write(b"\n]}\n")

    def add(self, recording: Recording, trace: Trace, place: int, shift_ns: int) -> None:
        """Add the events of the trace at a place, shifted by some ns."""
        events = _Events(self, trace, place, shift_ns)
        splitter = Splitter(events.put)
        recording.write_chrome(splitter.take)
        splitter.close()
        events.name_processes()
        self.ids_before = events.greatest_id

    def put(self, event: bytes) -> None:
        """Write an event, without its common beginning."""
        self._write((_BEGIN if self._is_first else b"," + _BEGIN) + event)
        self._is_first = False

    def pid_of(self, trace: Trace, wanted: bytes) -> int:
        """Return a number for a process that no other process has.

        Several traces of one process, by rank, host and number, have it in common.
        """
        key = (trace.label, trace.where, wanted)
        pid = self._known.get(key) if trace.where else None
        if pid is None:
            pid = self._known[key] = self._new_pid(wanted)
        return pid

    def _new_pid(self, wanted: bytes) -> int:
        """Return a free number, the wanted one if possible."""
        pid = int(wanted) if re.fullmatch(rb"\d{1,9}", wanted) else 0
        if pid == 0 or pid in self._pids:
            while self._next_pid in self._pids:
                self._next_pid += 1
            pid = self._next_pid
        self._pids.add(pid)
        return pid


class Splitter:
    """Split a trace, as it is written, into its events."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        """Take a function for the events."""
        self._put = put
        self._rest = b""
        self.head: bytes | None = None  # what comes before the events

    def take(self, piece: bytes) -> None:
        """Take the next piece of the trace."""
        *events, self._rest = (self._rest + piece).split(_BEGIN)
        for event in events:
            self._give(event)

    def close(self) -> None:
        """Pass on the last event."""
        self._give(self._rest.removesuffix(b"\n]}\n"))

    def _give(self, event: bytes) -> None:
        if self.head is None:
            self.head = event
        else:
            self._put(event.removesuffix(b","))


class _Events:
    """Events of one trace on their way into the merged one."""

    def __init__(self, writer: TraceWriter, trace: Trace, place: int, shift_ns: int) -> None:
        self._writer = writer
        self._trace = trace
        self._sort = place * _SORT_STEP
        self._shift_ns = shift_ns
        self._offset = writer.ids_before
        self._pids: dict[bytes, int] = {}
        self._names: dict[bytes, str] = {}
        self._sorts: dict[bytes, int] = {}
        self.greatest_id = writer.ids_before

    def put(self, event: bytes) -> None:
        """Put an event into the merged trace, but for names of processes."""
        found = TRACK.search(event)
        assert found is not None  # noqa: S101 the survey has looked
        pid = found[1]
        if pid not in self._pids:
            self._pids[pid] = self._writer.pid_of(self._trace, pid)
        if event.startswith(b"M") and self._keep(event, pid):
            return
        head, tail = event[: found.start()], event[found.end() :]
        if head.startswith((b"s", b"t", b"f")):
            head = _FLOW_ID.sub(lambda id_: b',"id":%d' % self._id(int(id_[1])), head)
        if not head.startswith(b"M"):
            tail = _TIME.sub(self._moved, tail, count=1)
        if b'"correlation"' in tail or b'"External id"' in tail:
            tail = _JOINING.sub(lambda id_: b'"%b"%b%d' % (id_[1], id_[2], self._id(int(id_[3]))), tail)
        self._writer.put(head + b',"pid":%d' % self._pids[pid] + tail)

    def _moved(self, time: re.Match[bytes]) -> bytes:
        sign = -1 if time[1].startswith(b"-") else 1
        at_ns = int(time[1]) * 1000 + sign * int(time[2]) + self._shift_ns
        whole, rest = divmod(abs(at_ns), 1000)
        return b',"ts":%b%d.%03d' % (b"-" if at_ns < 0 else b"", whole, rest)

    def _id(self, number: int) -> int:
        """Return an id that is unique among the traces."""
        if not 0 < number < _GREATEST_ID:
            return number
        self.greatest_id = max(self.greatest_id, number + self._offset)
        return number + self._offset

    def _keep(self, event: bytes, pid: bytes) -> bool:
        """Keep the name of a process, and tell whether it was one."""
        if not event.startswith((b'M","name":"process_name"', b'M","name":"process_sort_index"')):
            return False
        said = json.loads(b'{"ph":"' + event)["args"]
        if "name" in said:
            self._names[pid] = said["name"]
        else:
            self._sorts[pid] = said["sort_index"]
        return True

    def name_processes(self) -> None:
        """Name the processes by rank, below those of earlier ranks."""
        whose = f"rank {self._trace.label}" if self._trace.label.isdecimal() else self._trace.label
        for pid, number in self._pids.items():
            name = self._names.get(pid) or str(json.loads(pid))
            where = f" ({self._trace.where})" if self._trace.where else ""
            sort = self._sort + min(max(self._sorts.get(pid, 0), 0), _SORT_STEP - 1)
            for kind, args in (("name", {"name": f"{whose}: {name}{where}"}), ("sort_index", {"sort_index": sort})):
                text = json.dumps(
                    {"name": f"process_{kind}", "pid": number, "tid": 0, "args": args}, separators=(",", ":")
                )
                self._writer.put(b'M",' + text[1:].encode("ascii"))
