"""A finished recording, as events, tables, reports and files."""

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
    """One event of a recording, a view of its row.

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
        """Name of the node, label, operator or kernel."""
        return self._text("name") or ""

    @property
    def cat(self) -> str:
        """Category in Kineto's terms, such as ``cpu_op`` or ``kernel``."""
        return self._text("cat") or ""

    @property
    def stage(self) -> str:
        """Execution stage, or empty."""
        return self._text("stage") or ""

    @property
    def kind(self) -> str:
        """Kind of event.

        One of ``node``, ``record``, ``step``, ``host``, ``device``, ``instant``, and ``counter`` for a reading.
        """
        return KINDS[self._value("kind") or 0]

    @property
    def outcome(self) -> str:
        """``success``, ``error`` or ``cancelled``."""
        return OUTCOMES[self._value("outcome") or 0]

    @property
    def start(self) -> int:
        """Start in ns since 1970 (UTC), or as the loaded file counts."""
        return self._value("start_ns") or 0

    @property
    def end(self) -> int:
        """End, in the same unit as the start."""
        return self._value("end_ns") or 0

    @property
    def dur(self) -> int:
        """``end - start``, in ns."""
        return self.end - self.start

    @property
    def trace_id(self) -> str | None:
        """W3C trace id of 32 lower-case hex digits, or None."""
        number = ((self._value("trace_high") or 0) << 64) | (self._value("trace_low") or 0)
        return f"{number:032x}" if number else None

    @property
    def span_id(self) -> str | None:
        """W3C span id of 16 lower-case hex digits, or None."""
        number = self._value("span")
        return None if number is None else f"{number:016x}"

    @property
    def parent_span_id(self) -> str | None:
        """W3C id of the span around it, or None."""
        number = self._value("parent_span")
        return None if number is None else f"{number:016x}"

    @property
    def parent(self) -> int | None:
        """Row of the enclosing event, for ``Recording.event(row)``, or None.

        A step (``kind`` is ``step``) encloses nothing here: what runs in it has no parent, or one that began before the
        step. ``key_averages()`` and the other reports put steps around their contents.
        """
        return self._value("parent")

    @property
    def unfinished(self) -> bool:
        """True if it was still open at the end of the recording."""
        return self._flag(UNFINISHED)

    @property
    def cut(self) -> bool:
        """True if it ended in a pause, with the pause's start as its ``end``."""
        return self._flag(CUT)

    @property
    def thread_id(self) -> int | str:
        """Thread number of the system, or the stream on a device."""
        _, tid, _, tid_text, *_ = self._recording.tracks[self._value("track") or 0]
        return tid if tid_text is None else tid_text

    @property
    def thread_name(self) -> str | None:
        """The name of the thread, where it is known."""
        name: str | None = self._recording.tracks[self._value("track") or 0][6]
        return name

    @property
    def device(self) -> int | None:
        """Device number, None on the host."""
        return self._value("device")

    @property
    def stream(self) -> int | None:
        """Device stream, None on the host."""
        return self._value("stream")

    @property
    def correlation(self) -> int | None:
        """Id that joins a runtime call with its device work, or None."""
        return self._value("correlation")

    @property
    def shapes(self) -> str | None:
        """Shapes of arguments as a JSON list, None if not recorded."""
        return self._text("shapes")

    @property
    def types(self) -> str | None:
        """Types of arguments as a JSON list, None if not recorded."""
        return self._text("types")

    @property
    def stack(self) -> str | None:
        """Python frames at the start, innermost first, one per line, or None."""
        text = self._text("stack")
        return None if text is None else text.strip("\n")  # PyTorch ends each frame of its traces as one begins

    @property
    def bytes(self) -> int | None:
        """Bytes copied, set or allocated, None if unknown."""
        return self._value("bytes")

    @property
    def memory_change(self) -> int | None:
        """Change of the process's resident memory in bytes, None if unknown."""
        return self._value("memory_change")

    @property
    def memory_peak(self) -> int | None:
        """Peak resident memory in bytes if it rose, or None."""
        return self._value("memory_peak")

    @property
    def device_memory_change(self) -> int | None:
        """Change of the framework's allocated device bytes, None if unknown."""
        return self._value("device_memory_change")

    @property
    def device_memory_peak(self) -> int | None:
        """Peak of allocated device bytes if it rose, or None."""
        return self._value("device_memory_peak")

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
