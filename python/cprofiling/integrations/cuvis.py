"""Profile the pipelines of cuvis-ai-core with cprofiling.

After ``install()`` every ``CuvisPipeline`` counts in a ``Profiler``. cuvis-ai-core's profiling API, its Predictor, its
trainers and its gRPC service answer as before, and a node costs less. Percentiles, snapshots and the like are in
``profiler_of(pipeline)``, and recordings have the nodes as spans.

Made for cuvis-ai-core 0.18.6. A profiler with other methods is refused.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

from cprofiling import _core
from cprofiling._internal.process import hold_at_fork
from cprofiling._internal.text import shown_value
from cprofiling.nodes.profiler import Profiler

__all__ = ["install", "profiler_of", "uninstall"]

_VERSION = "0.18.6"  # of cuvis-ai-core
_PROFILERS_HAVE = {"record", "reset", "skip_first_n", "snapshot"}
_MOST_SKIPS = 2**63 - 1
_FIGURES = ("count", "mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms")

_installing = threading.RLock()
hold_at_fork(_installing)
_replaced: list[tuple[Any, str, Any, Any]] = []  # owner, attribute, the original, the replacement


def install() -> None:
    """Count the nodes of all pipelines of this process with cprofiling.

    A pipeline takes part from the next ``set_profiling`` that begins statistics. What its own profiler has gathered
    before is kept. A second call changes nothing.

    Raises:
        ModuleNotFoundError: cuvis-ai-core is not installed.
        AttributeError, TypeError: It is another version, or its profiler was replaced. Nothing was changed.
    """
    from cuvis_ai_core.pipeline import pipeline, profiling

    with _installing:
        if _replaced:
            return
        own, kind = pipeline.PipelineProfiler, pipeline.CuvisPipeline
        has = {name for name in vars(own) if not name.startswith("__")}
        if own is not profiling.PipelineProfiler or has != _PROFILERS_HAVE:
            raise TypeError(f"PipelineProfiler must be as cuvis-ai-core {_VERSION} has it, got {shown_value(own)}")
        start, stop = _recorded(kind._start_profiling_timer, kind._stop_profiling_timer)  # noqa: SLF001
        for owner, attribute, new in (
            (pipeline, "PipelineProfiler", _profiler_class()),
            (kind, "_start_profiling_timer", start),
            (kind, "_stop_profiling_timer", stop),
        ):
            _replaced.append((owner, attribute, getattr(owner, attribute), new))
            setattr(owner, attribute, new)


def uninstall() -> None:
    """Restore cuvis-ai-core's own profiler.

    Pipelines keep their statistics and count on. Attributes that somebody else has replaced since stay.
    """
    with _installing:
        while _replaced:
            owner, attribute, original, ours = _replaced.pop()
            if vars(owner).get(attribute) is ours:
                setattr(owner, attribute, original)


def profiler_of(pipeline: Any) -> Profiler | None:
    """Return the Profiler in which the nodes of a pipeline count.

    It holds the statistics that the pipeline shows, with percentiles, snapshots and more. Ask again after a
    ``set_profiling`` that begins new ones. None: there are no statistics yet, or those of cuvis-ai-core's own profiler.

    Raises:
        TypeError: ``pipeline`` is no ``CuvisPipeline``.
    """
    try:
        profiler = pipeline._profiler  # noqa: SLF001 where cuvis-ai-core has it
    except AttributeError:
        raise TypeError(f"pipeline must be a CuvisPipeline, got {shown_value(pipeline)}") from None
    return profiler.profiler if isinstance(profiler, _Counting) else None


def _recorded(start: Callable[..., Any], stop: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return pipeline timers that also report each node to recordings."""
    note_node, has_noted_nodes = _core.note_node, _core.has_noted_nodes

    @functools.wraps(start)
    def _start_profiling_timer(self: Any, node: Any, node_inputs: Any) -> Any:
        begun = start(self, node, node_inputs)
        note_node(begun)
        return begun

    @functools.wraps(stop)
    def _stop_profiling_timer(self: Any, t0_ns: Any, node: Any, node_inputs: Any, stage_value: Any) -> None:
        stop(self, t0_ns, node, node_inputs, stage_value)
        if has_noted_nodes() and isinstance(self._profiler, _Counting):
            _core.end_noted_node(self._profiler.profiler, t0_ns, stage_value, node.name)

    return _start_profiling_timer, _stop_profiling_timer


class _Counting:
    """The part of our ``PipelineProfiler`` that stands before cuvis-ai-core's.

    Samples that a Profiler refuses, such as negative times and names that are no str, go to cuvis-ai-core's.
    """

    _skip_first_n: Any

    def __init__(self, skip_first_n: Any = 0) -> None:
        super().__init__(skip_first_n)  # type: ignore[call-arg]
        skips = math.ceil(min(skip_first_n, _MOST_SKIPS)) if skip_first_n > 0 else 0
        self.profiler = Profiler()
        self.profiler._count_no_nodes()  # noqa: SLF001 the package's own
        self.profiler._keep_at_fork()  # noqa: SLF001
        self.profiler.set_profiling(True, skip_first_n=skips, median="p2")
        self._record = self.profiler.record

    def record(self, stage_value: Any, node_name: Any, elapsed_ms: Any) -> None:
        try:
            self._record(stage_value, node_name, elapsed_ms)
        except (TypeError, ValueError, OverflowError):
            super().record(stage_value, node_name, elapsed_ms)  # type: ignore[misc]

    def reset(self) -> None:
        self.profiler.reset_profiling()
        super().reset()  # type: ignore[misc]

    def snapshot(self, stage: str | None = None) -> list[Any]:
        from cuvis_ai_core.pipeline.profiling import NodeProfilingStats

        rows = [
            NodeProfilingStats(row.node_name, str(row.stage), *[getattr(row, figure) for figure in _FIGURES])
            for row in self.profiler.get_profiling_summary()
            if stage is None or row.stage == stage
        ]
        return [*rows, *super().snapshot(stage)]  # type: ignore[misc]

    def __copy__(self) -> _Counting:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self._skip_first_n,)


@functools.cache
def _profiler_class() -> type:
    """Return our ``PipelineProfiler``, a subclass of cuvis-ai-core's."""
    from cuvis_ai_core.pipeline import profiling

    return type("PipelineProfiler", (_Counting, profiling.PipelineProfiler), {})


def _remade(skip_first_n: Any) -> Any:
    """Return a new, empty profiler for a copy of a pipeline."""
    from cuvis_ai_core.pipeline import pipeline

    return pipeline.PipelineProfiler(skip_first_n)
