"""A finished recording, as events, tables, reports and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from cprofiling import _core
from cprofiling._internal import arguments
from cprofiling._internal.row_kinds import COUNTER, CUT, KINDS, OUTCOMES, UNFINISHED
from cprofiling._internal.text import shown_value
from cprofiling.recording.exports import RecordingExports, reduced

_T = TypeVar("_T")


class _Figure(Generic[_T]):
    """An attribute of an event, made of its row's value in a column."""

    def __init__(self, column: str, made: Callable[[Event, int], _T], absent: _T) -> None:
        self._column, self._made, self._absent = column, made, absent

    def __get__(self, event: Event | None, kind: type) -> _T:
        if event is None:
            return self  # type: ignore[return-value]  # of the class
        recording = event._recording
        values = recording.column(self._column)
        value = None if values is None else values[event.row]
        return self._absent if value is None or value == recording.none(self._column) else self._made(event, value)


def _text(column: str, absent: _T) -> _Figure[str | _T]:
    return _Figure(column, lambda event, number: event._recording.strings[number], absent)


def _number(column: str, absent: _T) -> _Figure[int | _T]:
    return _Figure(column, lambda _, number: number, absent)


def _flag(flag: int) -> _Figure[bool]:
    return _Figure("flags", lambda _, flags: bool(flags & flag), False)


def _span_id(column: str) -> _Figure[str | None]:
    return _Figure(column, lambda _, number: f"{number:016x}", None)


class Event:
    """One event of a recording, a view of its row.

    Attributes:
        row: The number of the row, by which ``Recording.event(row)`` finds it again. Rows are numbered by their start,
            of equal starts the longer first; moments at which a counter was read are numbered among them.
        name: Name of the node, label, operator or kernel.
        cat: Category in Kineto's terms, such as ``cpu_op`` or ``kernel``.
        stage: Execution stage, or empty.
        kind: ``node``, ``record``, ``step``, ``host``, ``device`` or ``instant``, and ``counter`` for a reading.
        outcome: ``success``, ``error`` or ``cancelled``.
        start: Start in ns since 1970 (UTC), or as the loaded file counts.
        end: End, in the same unit as the start.
        span_id: W3C span id of 16 lower-case hex digits, or None.
        parent_span_id: W3C id of the span around it, or None.
        parent: Row of the enclosing event, for ``Recording.event(row)``, or None. A step encloses nothing here: what
            runs in it has no parent, or one that began before the step. ``key_averages()`` and the other reports put
            steps around their contents.
        unfinished: True if it was still open at the end of the recording.
        cut: True if it ended in a pause, with the pause's start as its ``end``.
        device: Device number, None on the host.
        stream: Device stream, None on the host.
        correlation: Id that joins a runtime call with its device work, or None.
        shapes: Shapes of arguments as a JSON list, None if not recorded.
        types: Types of arguments as a JSON list, None if not recorded.
        bytes: Bytes copied, set or allocated, None if unknown.
        memory_change: Change of the process's resident memory in bytes, None if unknown.
        memory_peak: Peak resident memory in bytes if it rose, or None.
        device_memory_change: Change of the framework's allocated device bytes, None if unknown.
        device_memory_peak: Peak of allocated device bytes if it rose, or None.
    """

    __slots__ = ("_recording", "row")

    name, cat, stage = _text("name", ""), _text("cat", ""), _text("stage", "")
    kind = _Figure("kind", lambda _, number: KINDS[number], KINDS[0])
    outcome = _Figure("outcome", lambda _, number: OUTCOMES[number], OUTCOMES[0])
    start, end = _number("start_ns", 0), _number("end_ns", 0)
    span_id, parent_span_id = _span_id("span"), _span_id("parent_span")
    parent = _number("parent", None)
    unfinished, cut = _flag(UNFINISHED), _flag(CUT)
    device, stream, correlation = _number("device", None), _number("stream", None), _number("correlation", None)
    shapes, types, _stack = _text("shapes", None), _text("types", None), _text("stack", None)
    bytes = _number("bytes", None)
    memory_change, memory_peak = _number("memory_change", None), _number("memory_peak", None)
    device_memory_change = _number("device_memory_change", None)
    device_memory_peak = _number("device_memory_peak", None)
    _track, _trace_high, _trace_low = _number("track", 0), _number("trace_high", 0), _number("trace_low", 0)

    def __init__(self, recording: Recording, row: int) -> None:
        self._recording = recording
        self.row = row

    @property
    def dur(self) -> int:
        """``end - start``, in ns."""
        return self.end - self.start

    @property
    def trace_id(self) -> str | None:
        """W3C trace id of 32 lower-case hex digits, or None."""
        number = self._trace_high << 64 | self._trace_low
        return f"{number:032x}" if number else None

    @property
    def thread_id(self) -> int | str:
        """Thread number of the system, or the stream on a device.

        The system gives the number of a thread that has ended to a new one. Of those that had one in turn, the n-th has
        n times 4,194,304 more, from 0, which is more than any system gives.
        """
        _, tid, _, tid_text, *_ = self._recording.tracks[self._track]
        return tid if tid_text is None else tid_text

    @property
    def thread_name(self) -> str | None:
        """The name of the thread, where it is known."""
        name: str | None = self._recording.tracks[self._track][6]
        return name

    @property
    def stack(self) -> str | None:
        """Python frames at the start, innermost first, one per line, or None."""
        return None if self._stack is None else self._stack.strip("\n")  # PyTorch ends each frame as one begins

    def __repr__(self) -> str:
        return f"<Event {self.name!r} {self.kind} of {self.dur / 1e3:.3f} us>"


class Reports(RecordingExports):
    """Reports of a ``Recording``, and of the ``profile`` that made it."""

    __slots__ = ()

    def events(self) -> list[Event]:
        """Return the events by start, without counter readings."""
        recording = self._finished()
        kinds = recording.column("kind") or ()
        return [Event(recording, row) for row, kind in enumerate(kinds) if kind != COUNTER]

    def event(self, row: int) -> Event:
        """Return the event of a row.

        ``Event.row``, ``Event.parent``, ``Finding.rows``, ``row`` and ``call_row`` of device launches, and the index of
        the pandas DataFrame are row numbers. Counter readings have rows, too: ``len(recording)`` counts them,
        ``events()`` leaves them out.

        Raises TypeError unless given an integer, IndexError for a number out of range.
        """
        recording = self._finished()
        number = arguments.index("row", row)
        count = len(recording)
        if not 0 <= number < count:
            raise IndexError(f"row must be that of one of {count} rows, counted from 0, got {shown_value(row)}")
        return Event(recording, number)


class Recording(_core.Recording, Reports):
    """Finished recording of ``profile`` or ``load_trace``, immutable.

    ``len()`` is the number of rows for ``event(row)``, the events and each counter reading.
    """

    __slots__ = ("__weakref__",)

    def _finished(self) -> Recording:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce to its Chrome trace, which is read again elsewhere."""
        return reduced(self)

    def __repr__(self) -> str:
        try:
            kinds = bytes(self.column("kind") or b"")
        except RuntimeError:
            return "<Recording that is not finished>"
        dropped = f", {self.dropped} dropped" if self.dropped else ""
        return f"<Recording of {len(kinds) - kinds.count(COUNTER)} events{dropped}>"
