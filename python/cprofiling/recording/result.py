"""A finished recording: what happened, as events, tables, reports and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling import _core
from cprofiling._internal import arguments
from cprofiling._internal.row_kinds import COUNTER, CUT, KINDS, OUTCOMES, UNFINISHED
from cprofiling._internal.text import shown_value
from cprofiling.recording.exports import RecordingExports, reduced

if TYPE_CHECKING:
    from typing import Any


class Event:
    """One thing that happened: a view of a recording's row.

    Attributes:
        row: The number of the row, by which ``Recording.event(row)`` finds it again. Rows are numbered by their start,
            of equal starts the longer first; moments at which a counter was read are numbered among them.
    """

    __slots__ = ("_recording", "row")

    def __init__(self, recording: Recording, row: int) -> None:
        self._recording = recording
        self.row = row

    def _value(self, column: str) -> int | None:
        values = self._recording.column(column)
        none = self._recording.none(column)
        value = none if values is None else values[self.row]
        return None if value == none else int(value)

    def _text(self, column: str) -> str | None:
        number = self._value(column)
        return None if number is None else self._recording.strings[number]

    def _flag(self, flag: int) -> bool:
        return bool((self._value("flags") or 0) & flag)

    @property
    def name(self) -> str:
        """What: a node, a label, an operator, a kernel."""
        return self._text("name") or ""

    @property
    def cat(self) -> str:
        """The category, in Kineto's words: ``cpu_op``, ``user_annotation``, ``kernel``, ..."""
        return self._text("cat") or ""

    @property
    def stage(self) -> str:
        """The execution stage; empty where there is none."""
        return self._text("stage") or ""

    @property
    def kind(self) -> str:
        """``node``, ``record``, ``step``, ``host``, ``device`` or ``instant``; ``counter``: a reading, no event."""
        return KINDS[self._value("kind") or 0]

    @property
    def outcome(self) -> str:
        """``success``, ``error`` or ``cancelled``."""
        return OUTCOMES[self._value("outcome") or 0]

    @property
    def start(self) -> int:
        """When it began: ns since 1970 (UTC), or as the loaded file counts."""
        return self._value("start_ns") or 0

    @property
    def end(self) -> int:
        """When it ended."""
        return self._value("end_ns") or 0

    @property
    def dur(self) -> int:
        """``end - start``, in ns."""
        return self.end - self.start

    @property
    def trace_id(self) -> str | None:
        """W3C's id of the trace, 32 lower-case hex digits; None where there is none."""
        number = ((self._value("trace_high") or 0) << 64) | (self._value("trace_low") or 0)
        return f"{number:032x}" if number else None

    @property
    def span_id(self) -> str | None:
        """W3C's id of the span, 16 digits; None where there is none."""
        number = self._value("span")
        return None if number is None else f"{number:016x}"

    @property
    def parent_span_id(self) -> str | None:
        """That of the span around it; None where there is none."""
        number = self._value("parent_span")
        return None if number is None else f"{number:016x}"

    @property
    def parent(self) -> int | None:
        """The row of the enclosing event, which ``Recording.event(row)`` gives; None where there is none.

        A step (``kind`` is ``step``) encloses nothing here: what runs in it has no parent, or one that began before the
        step. ``key_averages()`` and the other reports put steps around what is in them.
        """
        return self._value("parent")

    @property
    def unfinished(self) -> bool:
        """Whether it was still open when the recording ended, which is its ``end``."""
        return self._flag(UNFINISHED)

    @property
    def cut(self) -> bool:
        """Whether it ended during a pause, whose beginning is its ``end``."""
        return self._flag(CUT)

    @property
    def thread_id(self) -> int | str:
        """The number of the thread, as the system counts; on a device, the stream."""
        _, tid, _, tid_text, *_ = self._recording.tracks[self._value("track") or 0]
        return tid if tid_text is None else tid_text

    @property
    def thread_name(self) -> str | None:
        """The name of the thread, where it is known."""
        name: str | None = self._recording.tracks[self._value("track") or 0][6]
        return name

    @property
    def device(self) -> int | None:
        """The number of the device; None on the host."""
        return self._value("device")

    @property
    def stream(self) -> int | None:
        """The stream of the device; None on the host."""
        return self._value("stream")

    @property
    def correlation(self) -> int | None:
        """Joins a runtime's call with what it started on a device; None where there is none."""
        return self._value("correlation")

    @property
    def shapes(self) -> str | None:
        """The arguments' shapes, a JSON list; None where they were not recorded."""
        return self._text("shapes")

    @property
    def types(self) -> str | None:
        """The arguments' types, a JSON list; None likewise."""
        return self._text("types")

    @property
    def stack(self) -> str | None:
        """The Python frames at its start, innermost first, a line each; None where they were not recorded."""
        text = self._text("stack")
        return None if text is None else text.strip("\n")  # PyTorch ends each frame of its traces as one begins

    @property
    def bytes(self) -> int | None:
        """Bytes that were copied, set or allocated; None where unknown."""
        return self._value("bytes")

    @property
    def memory_change(self) -> int | None:
        """The change of the process's resident memory, in bytes; None where unknown."""
        return self._value("memory_change")

    @property
    def memory_peak(self) -> int | None:
        """The most resident memory there was, in bytes, where that rose; else None."""
        return self._value("memory_peak")

    @property
    def device_memory_change(self) -> int | None:
        """The change of what the framework's allocator gave out, in bytes; None where unknown."""
        return self._value("device_memory_change")

    @property
    def device_memory_peak(self) -> int | None:
        """The most it gave out, in bytes, where that rose; else None."""
        return self._value("device_memory_peak")

    def __repr__(self) -> str:
        return f"<Event {self.name!r} {self.kind} of {self.dur / 1e3:.3f} us>"


class Reports(RecordingExports):
    """What can be asked of a recording: of a ``Recording``, and of the ``profile`` that made it."""

    __slots__ = ()

    def events(self) -> list[Event]:
        """What happened, in the order of its start; counters are left out."""
        recording = self._finished()
        kinds = recording.column("kind") or ()
        return [Event(recording, row) for row, kind in enumerate(kinds) if kind != COUNTER]

    def event(self, row: int) -> Event:
        """The event of a row: what ``Event.row``, ``Event.parent`` and ``Finding.rows`` are numbers of.

        So are ``row`` and ``call_row`` of the launches of devices, and the index of the pandas DataFrame. Moments at
        which a counter was read have rows, too: ``len(recording)`` counts all rows, ``events()`` leaves those out.

        TypeError for what is no integer, IndexError for one that is no row's number.
        """
        recording = self._finished()
        number = arguments.index("row", row)
        count = len(recording)
        if not 0 <= number < count:
            raise IndexError(f"row must be that of one of {count} rows, counted from 0, got {shown_value(row)}")
        return Event(recording, number)


class Recording(_core.Recording, Reports):
    """A finished recording: what ``profile`` makes, and ``load_trace`` reads. Immutable.

    Its ``len()`` is the number of its rows, which ``event(row)`` takes: the events, and each reading of a counter.
    """

    __slots__ = ("__weakref__",)
    __arrow_c_stream__ = Reports.__arrow_c_stream__  # of the DataFrame, which knows more than the table

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
