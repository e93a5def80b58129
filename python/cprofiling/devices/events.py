"""Time device work without waiting, by pairs of PyTorch events.

This is for devices other than CUDA's. A pair is recorded around the node and resolved once both events have passed.
Nothing waits here; errors of the framework are reported as causes with a reason (csrc/probes/device_mark.c).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cprofiling._internal.process import call_at_fork

if TYPE_CHECKING:
    from cprofiling.devices.operations import DeviceOperations

    Sink = Callable[..., object]
    Missed = tuple[str, str | None]  # why a call has no time: the name of a cause, and what there is to say about it

MOST_WAITING = 4096

FULL = "full"
FAILED = "failed"
CAPTURED = "captured"
UNSUPPORTED = "unsupported"
UNTOLD = "untold"

_MOST_FAILURES = 16  # in a row: an error that stays, such as a lost device
_SOME = 4  # pairs looked at when one is added, so that they do not pile up where nobody polls


class _Source:
    """Source of one device's event pairs, reused or new."""

    __slots__ = ("failures", "index", "is_only_one", "operations", "unused", "why_failed")

    def __init__(self, operations: DeviceOperations, index: int) -> None:
        self.operations = operations
        self.index = index
        self.unused: list[Any] = []
        self.failures = 0  # since the last success
        self.why_failed = ""
        count = operations.count
        self.is_only_one = isinstance(count, str) or count() <= 1

    def recorded(self, stream: Any) -> Any:
        """Return an event recorded now, on a stream or (None) the current one."""
        try:
            event = self.unused.pop()
        except IndexError:
            event = self.operations.new_event(self.index)  # type: ignore[operator]
        if stream is not None:
            event.record(stream)
        elif self.is_only_one or isinstance(self.operations.current_stream, str):
            event.record()
        else:
            event.record(self.operations.current_stream(self.index))  # else it would be the current device's
        return event

    def failed(self, error: Exception) -> str:
        """Note an error and return its reason."""
        self.failures += 1
        self.why_failed = _shown(self.operations, self.index, error)
        return self.why_failed


class DeviceMark:
    """Pair of events of a node, the first one recorded.

    For one thread at a time.
    """

    __slots__ = ("_begin", "_source", "_stream")

    def __init__(self, source: _Source, begin: Any, stream: Any) -> None:
        self._source: _Source | None = source
        self._begin = begin
        self._stream = stream

    def end(self, sink: Sink) -> None:
        """Record the second event, and report the time later.

        ``sink(elapsed_ms, None)`` is called from any thread; ``sink(None, cause)`` without a time: "full" or
        "captured", or ``sink(None, "failed", reason)``. A mark ends once. The sink is not called for a mark from before
        a fork.
        """
        source = self._given_up()
        if source is None:
            return
        _resolve_oldest(_SOME, stops=True)
        if len(_waiting) >= MOST_WAITING:
            _tell(sink, None, FULL)
            return
        try:
            if source.operations.is_captured():
                _tell(sink, None, CAPTURED)
                return
            end = source.recorded(self._stream)
        except Exception as error:  # noqa: BLE001 the framework's
            _tell(sink, None, FAILED, source.failed(error))
            return
        _waiting.append((source, self._begin, end, sink))

    def cancel(self) -> None:
        """Give the mark up."""
        self._given_up()

    def _given_up(self) -> _Source | None:
        source, self._source = self._source, None
        if source is None or _sources.get(source.index) is source:
            return source
        _of_the_parent.append(self._begin)
        return None


# deques are changed by single operations only, which need no lock: what is called in between may come back here.
_waiting: deque[tuple[_Source, Any, Any, Sink]] = deque()
_sources: dict[int, _Source] = {}
_of_the_parent: list[object] = []  # kept, for the end of an event calls a driver that does not survive a fork


def begin(operations: DeviceOperations, index: int, stream: Any = None) -> DeviceMark | Missed:
    """Record the first event of a pair, or return why not.

    stream: None for the current one.
    """
    if isinstance(operations.new_event, str):
        return UNSUPPORTED, operations.new_event
    try:
        source = _sources.get(index)
        if source is not None and source.operations is not operations:
            _sources.pop(index, None)
            source = None
        if source is None:
            source = _sources.setdefault(index, _Source(operations, index))  # another thread may have been faster
        if source.failures >= _MOST_FAILURES:
            return FAILED, f"{source.why_failed}: no GPU time from there any more"
    except Exception as error:  # noqa: BLE001 the framework's
        return FAILED, _shown(operations, index, error)
    try:
        if operations.is_captured():
            return CAPTURED, None
        return DeviceMark(source, source.recorded(stream), stream)
    except Exception as error:  # noqa: BLE001 the framework's
        return FAILED, source.failed(error)


def poll() -> None:
    """Resolve the pairs that their devices have passed. Does not wait."""
    _resolve_oldest(len(_waiting), stops=False)


def _resolve_oldest(most: int, *, stops: bool) -> None:
    """Resolve pairs, up to the first that its device has not passed if ``stops``."""
    for _ in range(most):
        try:
            pair = _waiting.popleft()
        except IndexError:  # another thread resolves, too
            return
        if not _resolve(pair):
            if stops:
                _waiting.appendleft(pair)
                return
            _waiting.append(pair)


def _resolve(pair: tuple[_Source, Any, Any, Sink]) -> bool:
    """Return whether a pair is done, as its device has passed it."""
    source, begin_event, end_event, sink = pair
    try:
        if source.operations.is_captured():
            return False  # to ask now would spoil the capture
        if not end_event.query() or not begin_event.query():
            return False
        elapsed = float(begin_event.elapsed_time(end_event))
        if not 0 <= elapsed < math.inf:
            raise ValueError(f"an elapsed time of {elapsed} ms")
    except Exception as error:  # noqa: BLE001 the framework's
        _tell(sink, None, FAILED, source.failed(error))
        return True
    source.failures = 0
    source.unused += (begin_event, end_event)
    _tell(sink, elapsed, None)
    return True


def _tell(sink: Sink, *answer: float | str | None) -> None:
    with suppress(Exception):  # one that fails must not keep the others from their times
        sink(*answer)


def _shown(operations: DeviceOperations, index: int, error: Exception) -> str:
    return f"{operations.device_type}:{index}: {type(error).__name__}: {error}"


def forget() -> None:
    """Forget all pairs, without calling a device.

    Threads may go on using the old ones.
    """
    global _waiting, _sources
    _of_the_parent.append((_waiting, _sources))
    _waiting, _sources = deque(), {}


call_at_fork(after_in_child=forget)
