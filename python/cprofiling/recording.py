"""A finished recording: what happened, as events, tables, reports and files."""

from __future__ import annotations

import os

from cprofiling import _core
from cprofiling.format import shown_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, Any, NoReturn

    from cprofiling.averages import KeyAverages

KINDS = ("node", "record", "step", "host", "device", "instant", "counter")  # as in cprofiling/table.h
OUTCOMES = ("success", "error", "cancelled")
UNFINISHED, CUT = 1, 2
COUNTER = KINDS.index("counter")


class Event:
    """One thing that happened. Times are ns since 1970 (UTC), or as the loaded file counts them.

    Attributes:
        name: What: a node's name, a label, an operator's or a kernel's name.
        cat: The category, in Kineto's words: ``cpu_op``, ``user_annotation``, ``kernel``, ...
        kind: ``node``, ``record``, ``step``, ``host``, ``device`` or ``instant``.
        stage: The execution stage; empty where there is none.
        start, end: When; ``end - start`` is ``dur``.
        trace_id, span_id, parent_span_id: W3C ids in lower-case hex, of 32, 16 and 16 digits; None where there is none.
        outcome: ``success``, ``error`` or ``cancelled``.
        unfinished: Whether it was still open when the recording ended.
        cut: Whether it ended during a pause; then ``end`` is the beginning of that.
        thread_id: The number of the thread, as the system counts; on a device, the stream.
        thread_name: Its name, where it is known.
        device, stream: Where on a device; None on the host.
        correlation: Joins a runtime's call with what it started on a device; None where there is none.
        shapes, types: JSON lists of the arguments' shapes and types; None where they were not recorded.
        stack: Python frames, innermost first, a line each; None where it was not recorded.
        bytes, memory_change, memory_peak, device_memory_change, device_memory_peak: In bytes; None where unknown.
        row: Its row in the recording. parent: The row of the enclosing event, or None.
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
        return self._text("name") or ""

    @property
    def cat(self) -> str:
        return self._text("cat") or ""

    @property
    def stage(self) -> str:
        return self._text("stage") or ""

    @property
    def kind(self) -> str:
        return KINDS[self._value("kind") or 0]

    @property
    def outcome(self) -> str:
        return OUTCOMES[self._value("outcome") or 0]

    @property
    def start(self) -> int:
        return self._value("start_ns") or 0

    @property
    def end(self) -> int:
        return self._value("end_ns") or 0

    @property
    def dur(self) -> int:
        return self.end - self.start

    @property
    def trace_id(self) -> str | None:
        number = ((self._value("trace_high") or 0) << 64) | (self._value("trace_low") or 0)
        return f"{number:032x}" if number else None

    @property
    def span_id(self) -> str | None:
        number = self._value("span")
        return None if number is None else f"{number:016x}"

    @property
    def parent_span_id(self) -> str | None:
        number = self._value("parent_span")
        return None if number is None else f"{number:016x}"

    @property
    def parent(self) -> int | None:
        return self._value("parent")

    @property
    def unfinished(self) -> bool:
        return self._flag(UNFINISHED)

    @property
    def cut(self) -> bool:
        return self._flag(CUT)

    @property
    def thread_id(self) -> int | str:
        pid, tid, pid_text, tid_text, *_ = self._recording.tracks[self._value("track") or 0]
        return tid if tid_text is None else tid_text

    @property
    def thread_name(self) -> str | None:
        name: str | None = self._recording.tracks[self._value("track") or 0][6]
        return name

    @property
    def device(self) -> int | None:
        return self._value("device")

    @property
    def stream(self) -> int | None:
        return self._value("stream")

    @property
    def correlation(self) -> int | None:
        return self._value("correlation")

    @property
    def shapes(self) -> str | None:
        return self._text("shapes")

    @property
    def types(self) -> str | None:
        return self._text("types")

    @property
    def stack(self) -> str | None:
        return self._text("stack")

    @property
    def bytes(self) -> int | None:
        return self._value("bytes")

    @property
    def memory_change(self) -> int | None:
        return self._value("memory_change")

    @property
    def memory_peak(self) -> int | None:
        return self._value("memory_peak")

    @property
    def device_memory_change(self) -> int | None:
        return self._value("device_memory_change")

    @property
    def device_memory_peak(self) -> int | None:
        return self._value("device_memory_peak")

    def __repr__(self) -> str:
        return f"<Event {self.name!r} {self.kind} of {self.dur / 1e3:.3f} us>"


class Reports:
    """What can be asked of a recording: of a ``Recording``, and of the ``profile`` that made it."""

    __slots__ = ()

    def _finished(self) -> Recording:
        raise NotImplementedError

    def events(self) -> list[Event]:
        """What happened, in the order of its start; counters are left out."""
        recording = self._finished()
        kinds = recording.column("kind") or ()
        return [Event(recording, row) for row, kind in enumerate(kinds) if kind != COUNTER]

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_node: bool = False
    ) -> KeyAverages:
        """The figures of all events by name; see ``cprofiling.averages.key_averages``."""
        from cprofiling import averages

        return averages.key_averages(self._finished(), group_by_input_shape, group_by_stack_n, group_by_node)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write folded stacks, as flame graphs are made of; see ``cprofiling.stacks.export_stacks``."""
        from cprofiling import stacks

        stacks.export_stacks(self._finished(), path, metric)

    def export_chrome_trace(
        self, path: str | os.PathLike[str] | None = None, *, file: IO[str] | IO[bytes] | None = None
    ) -> None:
        """Write a Chrome trace, for Perfetto, chrome://tracing, TensorBoard and other readers of Kineto's traces.

        path: Where; one that ends in ``.gz`` is compressed. The file appears under its name when it is complete.
        file: Instead of a path, an open file, binary or text; it is written to, and stays open.

        Raises TypeError unless one of the two is given, ValueError for a closed file, OSError where writing fails.
        """
        from cprofiling import chrome

        chrome.export(self._finished(), path, file)


class Recording(_core.Recording, Reports):
    """A finished recording: what ``profile`` makes, and ``load_trace`` reads. Immutable."""

    __slots__ = ()

    def _finished(self) -> Recording:
        return self

    def __repr__(self) -> str:
        dropped = f", {self.dropped} dropped" if self.dropped else ""
        return f"<Recording of {len(self)} events{dropped}>"


def load_trace(path: str | os.PathLike[str]) -> Recording:
    """Read a Chrome trace into a recording: one of torch.profiler (1.13 and later), or one of our own; gzip or not.

    On a terminal a bar on stderr shows the progress with large files. Time is linear in the size of the file; memory is
    that of the events, about as much as the uncompressed text at most, and a window of the file.

    Raises:
        OSError: The file cannot be read.
        FormatError: It is damaged, or no trace; ``FormatError`` is a ``ValueError``, and tells the offset in the
            uncompressed text. So is a compressed file that unpacks to more than 300 times its size and 256 MiB.
    """
    from cprofiling import loading

    return loading.load(path)
