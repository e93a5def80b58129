"""Fit times, threads, names and frames of torch.profiler's traces to ours."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from cprofiling._internal.row_kinds import COUNTER, DEVICE, INSTANT
from cprofiling.recording.columns import ANNOTATIONS, FLOPS, column, has, texts_of

if TYPE_CHECKING:
    from cprofiling import _core
    from cprofiling.recording.result import Recording

    Marks = Sequence[tuple[int, int]]

MARK = "cprofiling: mark of the time"
# Of the whole file, not of its recording; or ours, which the rows are joined to.
_OF_FILE = frozenset(("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "traceName", "trace_id"))
_PHASES = {INSTANT: '"ph":"i","s":"t"', COUNTER: '"ph":"C"'}
_REPLACED = "unknown"  # what stands for names that have anything but ASCII's visible characters
# A name that is not as it should be in torch's traces, which have slashes for backslashes, and no escapes.
_DAMAGED = re.compile(r"[^ !#-\[\]-~]")
# Such a name in a trace, or the names of a stack: up to the member that comes after it, or the end of its object.
_NAME = re.compile(rb'("name": ")([^\n]*?)("(?=\s*(?:,\s*"(?:ph|s|pid|ts|tid|args)":|\})))')
_STACK = re.compile(rb'("Call stack": ")(.*?)("(?=\s*(?:,\s*"[A-Z][\w ]*":|\})))', re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_FOLDER = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))  # the package
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))
_INSTALLED = ("site-packages", "dist-packages")  # folders within the standard library's that are not part of it
_OWN_OBJECT = re.compile(r"<built-in .* of (type )?cprofiling\.")
_CALL_STACK = re.compile(
    r'"Call stack":\s*("(?:[^"\\]|\\.)*")'
)  # a frame, and those around it, each with a ";" behind it
_ID = re.compile(r'"Python id":\s*(\d+)')
_AROUND = re.compile(r'("Python parent id":\s*)(\d+)')
_LOST = "\ufffd"  # what stands for bytes that are no text
_BROKEN = re.compile(f"[\x00-\x1f\x7f-\x9f{_LOST}]")
_BATCH = 400  # events, of mostly 100 to 300 bytes: what a recording reads at a time
_STEADY_NS = 100
_LAUNCH = re.compile(r"(cuda|cu|hip)(Ext)?LaunchKernel")


class Clock:
    """Converts torch.profiler's times to ours, by marks known in both.

    Both clocks run evenly: their difference at the beginning and end of a run is known from marks to some ten ns. A
    node begins and ends some 200 ns before and after its operator. Durations stay as they are but in runs long enough
    for the clocks to drift.

    PyTorch before 2.3 has whole microseconds only. Then nothing begins too early, and ends may be too late by as much,
    which recordings allow for; but short operators may not be found within their nodes.
    """

    def __init__(self, marks: Marks, found: Marks) -> None:
        """Compare our times around each mark with those found for it."""
        if len(marks) != len(found):
            raise ValueError(f"{len(found)} of {len(marks)} marks of the time are in what torch.profiler recorded")
        half = len(marks) // 2
        self._first_ns, self._span_ns, self._ahead_ns, self._drift_ns = 0, 1, 0, 0
        if any(start % 1000 for start, _ in found):
            self._first_ns, self._span_ns = found[0][0], found[-1][0] - found[0][0]
            first, last = _difference(marks[:half], found[:half]), _difference(marks[half:], found[half:])
            is_steady = abs(last - first) <= _STEADY_NS
            self._ahead_ns = (first + last) // 2 if is_steady else first
            self._drift_ns = 0 if is_steady else last - first
        elif found:
            self._ahead_ns = _least_difference(marks, found)

    def __call__(self, ns: int) -> int:
        """Return our time."""
        return ns + self._ahead_ns + self._drift_ns * (ns - self._first_ns) // self._span_ns


def _least_difference(marks: Marks, found: Marks) -> int:
    """Return the least offset that puts no mark before our time."""
    return max(before - start for (before, _), (start, _) in zip(marks, found, strict=True))


def _difference(marks: Marks, found: Marks) -> int:
    """Return the offset that puts marks between our times around them."""
    most = min(after - end for (_, after), (_, end) in zip(marks, found, strict=True))
    return (_least_difference(marks, found) + most) // 2


class RunTrace:
    """The trace of a run in our times, without marks and profilers' rows."""

    def __init__(
        self,
        found: Recording,
        marks: Marks,
        begin_ns: int,
        end_ns: int,
        names: dict[tuple[int, int], str],
        flops: dict[tuple[int, int, str], int] | None = None,
    ) -> None:
        """Look through the trace.

        Args:
            found: torch.profiler's trace, with its times.
            marks: The moments before and after each mark, in our time.
            begin_ns: Where the run began, in our time: what began before on the host is left out.
            end_ns: Where it ended: what began later on the host is left out, and what ended later ends here.
            names: Names that are to replace those found, by thread and torch.profiler's time of their start.
            flops: Floating-point operations that are to be added, by thread, start and name.
        """
        self._found = found
        self._begin_ns, self._end_ns = begin_ns, end_ns
        self._names = names
        self._flops = flops or {}
        self._marks = texts_of(found, MARK)
        columns = (column(found, name) for name in ("name", "start_ns", "end_ns"))
        seen = [(start, end) for name, start, end in zip(*columns, strict=True) if name in self._marks]
        self._clock = Clock(marks, seen)

    def add_to(self, recording: _core.Recording) -> bool:
        """Add rows, arrows, names of devices and threads, and metadata.

        Returns False if there are no rows. It cannot fail for what the trace has in it.
        """
        events = chain(self._events(), self._arrows())
        pieces, before = [], b"["
        while batch := list(islice(events, _BATCH)):
            pieces.append(before + ",\n".join(batch).encode())
            before = b",\n"
        pieces = [*pieces, b"[]" if before == b"[" else b"]"][::-1]

        def read(size: int) -> bytes:
            piece = pieces.pop() if pieces else b""
            if len(piece) > size:
                pieces.append(piece[size:])
            return piece[:size]

        count = len(recording)
        recording._load(read, 0)
        if len(recording) == count:
            return False
        pythons = {thread.native_id for thread in threading.enumerate()}  # which have better names
        for pid, tid, pid_text, tid_text, process, label, thread, pid_sort, tid_sort, _ in self._found.tracks:
            if pid_text is None:
                if pid != os.getpid():
                    recording._name_process(pid, process, label, pid_sort)
                if pid != os.getpid() or tid not in pythons:
                    recording._name_thread(pid, tid if tid_text is None else tid_text, thread, tid_sort)
        for key, value in self._found.facts.items():
            if key not in _OF_FILE:
                recording._set_fact(key, value)
        return True

    def lacks_work(self) -> bool:
        """Return whether there are device launches without their work."""
        found = self._found
        launches = {number for number, name in enumerate(found.strings) if _LAUNCH.match(name)}
        return DEVICE not in column(found, "kind") and not launches.isdisjoint(column(found, "name"))

    def _events(self) -> Iterator[str]:
        found, at, names, flops, frames = self._found, self._clock, self._names, self._flops, _Frames(self._found)
        threads = [track[1] for track in found.tracks]
        heads: dict[tuple[int, int, int, int, str | None], str] = {}
        columns = (column(found, name) for name in ("start_ns", "end_ns", "name", "cat", "kind", "track"))
        for row, (found_start, found_end, name, cat, kind, track) in enumerate(zip(*columns, strict=True)):
            start, end = at(found_start), at(found_end)
            if kind != DEVICE:
                if not self._begin_ns <= start < self._end_ns:
                    continue
                end = min(end, self._end_ns)
            key = (name, cat, kind, track, names.get((threads[track], found_start)) if names else None)
            head = heads.get(key)
            if head is None:
                head = heads[key] = self._head(*key)
            if head and frames.has(row):
                args = frames.args(row)
                count = flops.get((threads[track], found_start, found.strings[name])) if flops else None
                if count is not None:
                    args = f'{{"{FLOPS}":{count}{"," if args != "{}" else ""}{args[1:]}'
                yield f'{head}{_us(start)},"dur":{_us(end - start)},"args":{args}}}'

    def _head(self, name: int, cat: int, kind: int, track: int, true_name: str | None) -> str:
        """Return the JSON of such events up to their time, empty to skip them."""
        strings = self._found.strings
        thread = self._thread(track)
        if not thread or name in self._marks:
            return ""
        phase = _PHASES.get(kind, '"ph":"X"')
        text = json.dumps(strings[name] if true_name is None else true_name)
        return f'{{{phase},"name":{text},"cat":{json.dumps(strings[cat])},{thread},"ts":'

    def _thread(self, track: int) -> str:
        """Return process and thread members, empty for torch.profiler's own."""
        pid, tid, pid_text, tid_text, *_ = self._found.tracks[track]
        return f'"pid":{pid},"tid":{tid if tid_text is None else json.dumps(tid_text)}' if pid_text is None else ""

    def _arrows(self) -> Iterator[str]:
        """Yield ends of arrows, unless one end is on the host outside the run."""
        kinds, tracks = column(self._found, "kind"), column(self._found, "track")
        devices = {track for kind, track in zip(kinds, tracks, strict=True) if kind == DEVICE}
        left_out = {
            number
            for _, ns, number, track, *_ in self._found.flows
            if track not in devices and not self._begin_ns <= self._clock(ns) < self._end_ns
        }
        for phase, ns, number, track, name, cat, is_bound in self._found.flows:
            thread = self._thread(track)
            if thread and number not in left_out:
                bound = ',"bp":"e"' if is_bound else ""
                yield (
                    f'{{"ph":"{phase}","id":{number},"name":{json.dumps(name)},"cat":{json.dumps(cat)},{thread},'
                    f'"ts":{_us(self._clock(ns))}{bound}}}'
                )


class _Frames:
    """Python frames of a torch.profiler trace, without this package's.

    What those called is left out, too: frames of the standard library or built in, up to the user's next frame.
    """

    def __init__(self, found: Recording) -> None:
        """Find the frames that are left out."""
        self._found = found
        places = [place.rstrip(os.sep) + os.sep for place in sys.path if place]
        within = [_FOLDER[len(place) :] for place in places if _FOLDER.startswith(place)]
        self._own = tuple(f"{path}{os.sep}" for path in {_FOLDER, *within})
        self._has_stacks = has(found, "stack")
        self._sides: dict[str, bool | None] = {}
        self._stacks: dict[str, str] = {}
        self._left_out: set[int] = set()
        self._around: dict[int, str] = {}  # the rows left out, and the rows around them, by their ids
        functions = texts_of(found, "python_function")
        names, strings = column(found, "name"), found.strings
        for row, cat in enumerate(column(found, "cat") if functions else ()):
            if cat in functions:
                self._note(row, strings[names[row]])

    def has(self, row: int) -> bool:
        """Return whether a row is not a frame of this package."""
        return row not in self._left_out

    def args(self, row: int) -> str:
        """Return a row's arguments, in which such frames are not mentioned."""
        text = self._found.args(row) or "{}"
        stack = _CALL_STACK.search(text) if self._has_stacks else None
        if stack:
            text = f"{text[: stack.start(1)]}{self._shown(stack[1])}{text[stack.end(1) :]}"
        around = _AROUND.search(text) if self._around else None
        if around and int(around[2]) in self._around:
            text = f"{text[: around.start(2)]}{self._next_around(around[2])}{text[around.end(2) :]}"
        return text

    def _note(self, row: int, name: str) -> None:
        text = self._found.args(row) or ""
        stack = _CALL_STACK.search(text)
        frames = _frames(stack[1]) if stack else []
        if name in self._kept([name, *frames])[:1]:
            return
        self._left_out.add(row)
        number, around = _ID.search(text), _AROUND.search(text)
        if number:
            self._around[int(number[1])] = around[2] if around else "null"

    def _next_around(self, number: str) -> str:
        """Return the id of the first frame that stays, of one and those around it."""
        while number != "null" and int(number) in self._around:
            number = self._around[int(number)]
        return number

    def _shown(self, stack: str) -> str:
        if stack not in self._stacks:
            self._stacks[stack] = json.dumps(";".join(self._kept(_frames(stack))))
        return self._stacks[stack]

    def _kept(self, frames: list[str]) -> list[str]:
        """Return the frames of a stack, innermost first, that stay."""
        kept = []
        is_own = False
        for frame in reversed(frames):
            side = self._side(frame)
            is_own = is_own if side is None else side
            if not is_own:
                kept.append(frame)
        return kept[::-1]

    def _side(self, frame: str) -> bool | None:
        """Return whether a frame is this package's, None if its caller's."""
        if frame not in self._sides:
            path = os.path.join(_LIBRARY, frame.partition("(")[0])  # of weakref.py(46): __new__
            within = path.removeprefix(_LIBRARY + os.sep)
            is_of_library = within != path and not within.startswith(_INSTALLED) and os.path.isfile(path)
            is_own = frame.startswith(self._own) or bool(_OWN_OBJECT.match(frame))
            self._sides[frame] = is_own or (None if frame.startswith("<") or is_of_library else False)
        return self._sides[frame]


def _frames(stack: str) -> list[str]:
    """Return the frames of a stack, without unreadable bytes.

    PyTorch keeps addresses of names. Names of modules being imported or code being compiled may be freed before it
    reads them.
    """
    frames = [frame for frame in json.loads(stack).split(";") if frame]
    for at, frame in enumerate(frames):
        if _BROKEN.search(frame):
            place, is_known, _ = frame.partition("): ")
            frames[at] = f"{place}): unknown" if is_known and not _BROKEN.search(place) else "unknown"
    return frames


def _us(ns: int) -> str:
    """Microseconds, of a number that is not negative."""
    return f"{ns // 1000}.{ns % 1000:03}"


def may_be_damaged(found: Recording) -> bool:
    """Return whether names may differ from those recorded."""
    strings = found.strings
    names = (strings[name] for name in set(column(found, "name")))
    has_annotations = not texts_of(found, *ANNOTATIONS).isdisjoint(column(found, "cat"))
    return has_annotations or any(name == _REPLACED or "/" in name for name in names)


def true_names(events: Iterable[Any]) -> dict[tuple[int, int], str]:
    """Return recorded names by thread and start, where traces damaged them."""
    names: dict[tuple[int, int], str] = {}
    sound: set[str] = set()
    for event in events:
        try:
            name = event.name()
        except UnicodeDecodeError:  # PyTorch kept no reference to it, and something else is there now
            continue
        if name not in sound:
            if _DAMAGED.search(name):
                names[event.device_resource_id(), _start_ns(event)] = name
            else:
                sound.add(name)
    return names


def known_flops(events: Iterable[Any]) -> dict[tuple[int, int, str], int]:
    """Return floating-point operations, where known, by thread, start and name."""
    return {
        (event.device_resource_id(), _start_ns(event), event.name()): event.flops() for event in events if event.flops()
    }


def _start_ns(event: Any) -> int:
    start: int = event.start_ns() if hasattr(event, "start_ns") else event.start_us() * 1000
    return start


def mended(trace: bytes) -> bytes:
    """Return a torch.profiler trace with its names escaped."""

    def escaped(instead: bytes) -> Callable[[re.Match[bytes]], bytes]:
        def of(match: re.Match[bytes]) -> bytes:
            before, name, after = match.groups()
            return before + _CONTROL.sub(instead, name.replace(b"\\", rb"\\").replace(b'"', rb"\"")) + after

        return of

    return _STACK.sub(escaped(_LOST.encode()), _NAME.sub(escaped(b" "), trace))
