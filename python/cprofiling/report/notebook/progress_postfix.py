"""Figures of a running pipeline for progress bars."""

from __future__ import annotations

import operator
import time
import weakref
from typing import TYPE_CHECKING, TypeAlias

from cprofiling._internal import arguments
from cprofiling._internal.text import format_time, shown_text, shown_value
from cprofiling.nodes import profiler as control
from cprofiling.nodes.summary_table import own_ms

if TYPE_CHECKING:
    Key: TypeAlias = tuple[str, str]

_known: weakref.WeakKeyDictionary[control.Profiler, _Reading] = weakref.WeakKeyDictionary()


def postfix(
    profiler: control.Profiler | control.PipelineProfiling | None = None,
    *,
    frames: int | None = None,
    top: int = 2,
    interval_s: float = 0.5,
) -> dict[str, str]:
    """Return frames per second and the slowest nodes, for a progress bar.

    ``for batch in (bar := tqdm(loader)): pipeline(batch); bar.set_postfix(postfix(pipeline), refresh=False)``

    The figures are those of the calls since the last reading. ``fps`` is frames per second of wall time: of those that
    are told, or else of the calls of each node of a stage, if all ran as often (one more or less is a frame under way);
    it is left out where they did not. With each of the slowest nodes, by their own time, is the mean time of a call.
    Without calls, as with profiling off, it is empty.

    Args:
        profiler: A Profiler, or a pipeline that has one. None: the default Profiler.
        frames: How many frames there were up to now, 0 or more: ``bar.n``, times the batch size. None: see above.
        top: How many nodes, 0 or more.
        interval_s: The least time between two readings, in seconds, 0 or more: in between, what was read is returned
            again, at the cost of looking at the clock.

    Raises:
        TypeError, ValueError: An argument is of another kind, or out of range.
    """
    source: object = profiler
    if profiler is None:
        source = control.default_profiler
    elif isinstance(profiler, control.PipelineProfiling):
        source = profiler.profiler
    if not isinstance(source, control.Profiler):
        raise TypeError(f"profiler must be a Profiler, or a pipeline that has one, got {shown_value(profiler)}")
    known_frames = arguments.index_or_none("frames", frames, 0)
    count = arguments.index_between("top", top, 0)
    least_s = arguments.number_between("interval_s", interval_s, 0.0, 1e9)
    reading = _known.get(source)
    now = time.monotonic()
    if reading is not None and now - reading.at < least_s:
        return dict(reading.shown)
    reading = _known[source] = _Reading(source, now, reading, known_frames, count)
    return dict(reading.shown)


class _Reading:
    """The figures of a Profiler, and the changes since the last reading."""

    def __init__(
        self, profiler: control.Profiler, now: float, before: _Reading | None, frames: int | None, top: int
    ) -> None:
        rows = profiler.get_profiling_summary()
        self.at = now
        self.shown: dict[str, str] = {}
        self._figures = {(row.stage, row.node_name): (row.count, row.total_ms, own_ms(row)) for row in rows}
        self._frames = frames
        changes: dict[Key, tuple[float, ...]] = {}
        for key, figures in self._figures.items():
            known = None if before is None else before._figures.get(key)  # noqa: SLF001 of its own kind
            is_reset = known is None or figures[0] < known[0]
            change = figures if is_reset else tuple(map(operator.sub, figures, known or ()))
            if change[0] > 0:
                changes[key] = change
        if changes and before is not None and now > before.at:
            done = self._frames_since(before, changes)
            if done is not None:
                self.shown["fps"] = f"{done / (now - before.at):.1f}"
        slowest = sorted(changes.items(), key=lambda item: item[1][2], reverse=True)[:top]
        names = [name for (_, name), _ in slowest]
        for (stage, name), (count, total_ms, _) in slowest:
            key_shown = name if names.count(name) == 1 else f"{name} ({stage})"
            self.shown[shown_text("node_name", key_shown)] = format_time(total_ms / count).replace(" ", "")

    def _frames_since(self, before: _Reading, changes: dict[Key, tuple[float, ...]]) -> float | None:
        """Return the frames since then, None where unknown."""
        if self._frames is not None and before._frames is not None:
            return max(self._frames - before._frames, 0)
        counts: dict[str, list[float]] = {}
        for (stage, _), (count, *_) in changes.items():
            counts.setdefault(stage, []).append(count)
        if any(max(each) - min(each) > 1 for each in counts.values()):
            return None
        return sum(map(max, counts.values()))
