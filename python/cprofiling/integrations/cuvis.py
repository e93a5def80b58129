"""cuvis-ai-core's pipelines, profiled by cprofiling: ``install()`` once, and every ``CuvisPipeline`` counts here.

What cuvis-ai-core's profiling API says and does stays the same, to the last digit of its tables, under its Predictor
and its trainers, and by its gRPC service; a node costs a small part of what it did. Its methods are left as they are,
but for the two that stand before and after each node, and they do the same. What cprofiling knows beyond that, such as
percentiles and snapshots, is in ``profiler_of(pipeline)``.

Made for cuvis-ai-core 0.18.6; one whose methods are others is refused, as are those that somebody has wrapped.
"""

from __future__ import annotations

import functools
import math
import threading

from cprofiling import _core
from cprofiling.nodes.profiler import Profiler
from cprofiling.nodes.summary_table import shown_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_VERSION = "0.18.6"  # of cuvis-ai-core
_MOST_SKIPS = 2**63 - 1

# All names that the methods which are replaced use: one that uses others does more than what we put in its place.
_STARTING = {"_synchronize_cuda", "_infer_cuda_device", "torch", "cuda", "synchronize", "time", "perf_counter_ns"}
_STOPPING = {*_STARTING, "_profiler", "record", "name"}
_TIMERS = {"_start_profiling_timer": _STARTING, "_stop_profiling_timer": _STOPPING}
_PROFILERS_HAVE = {"record", "reset", "skip_first_n", "snapshot"}
_NAMED_BY = ("_name", "_pipeline_counter")  # what the name of a node is made of, and nothing else

_installing = threading.Lock()
_replaced: list[tuple[Any, str, Any, Any]] = []  # owner, attribute, what was there, what is there now
_classes: dict[type, type] = {}  # ours, by cuvis-ai-core's own, so that profilers are of one class at all times


def install() -> None:
    """Have the pipelines of this process profiled by cprofiling; a second time changes nothing.

    A pipeline takes part from the next ``set_profiling`` that begins statistics; those that its own profiler has
    gathered are not lost before.

    Raises ModuleNotFoundError without cuvis-ai-core, and AttributeError or TypeError where it is of another kind, or
    somebody has replaced the same names before; then nothing was changed.
    """
    from cuvis_ai_core.pipeline import pipeline, profiling

    with _installing:
        if _replaced:
            return
        own, kind = pipeline.PipelineProfiler, pipeline.CuvisPipeline
        has = {name for name in vars(own) if not name.startswith("__")}
        _check_known("PipelineProfiler", own, own is profiling.PipelineProfiler and has == _PROFILERS_HAVE)
        ours = _profiler_class(own, profiling)
        timers = [(kind, name, _timer(kind, name, ours)) for name in _TIMERS]
        for owner, attribute, new in [(pipeline, "PipelineProfiler", ours), *timers]:
            _replaced.append((owner, attribute, vars(owner)[attribute], new))
            setattr(owner, attribute, new)


def uninstall() -> None:
    """Put everything back; without ``install()`` nothing changes.

    Pipelines keep what they have gathered, and count on, in the way of their own. What somebody else has put in the
    place of something of ours stays.
    """
    with _installing:
        while _replaced:
            owner, attribute, original, ours = _replaced.pop()
            if vars(owner).get(attribute) is ours:
                setattr(owner, attribute, original)


def profiler_of(pipeline: Any) -> Profiler | None:
    """Return the Profiler in which a pipeline's nodes count: ``p99_ms``, ``snapshot()`` and so on.

    It is on as long as it lives, and belongs to the pipeline's statistics: when ``set_profiling`` begins new ones, ask
    again. None: the pipeline has none yet, or those of its own profiler. TypeError for what is no ``CuvisPipeline``.
    """
    try:
        profiler = pipeline._profiler  # noqa: SLF001 where cuvis-ai-core has it
    except AttributeError:
        raise TypeError(f"pipeline must be a CuvisPipeline, got {shown_value(pipeline)}") from None
    return profiler.profiler if isinstance(profiler, _core.PlainProfiler) else None


def _check_known(name: str, found: Any, is_known: bool) -> None:
    if not is_known:
        raise TypeError(f"{name} must be as cuvis-ai-core {_VERSION} has it, got {shown_value(found)}")


def _timer(kind: Any, name: str, profilers: type) -> Any:
    """Return what stands in the place of one of the two methods. AttributeError or TypeError: it is not as known."""
    method = getattr(kind, name)
    code = getattr(vars(kind).get(name), "__code__", None)
    _check_known(f"CuvisPipeline.{name}", method, code is not None and set(code.co_names) == _TIMERS[name])
    return _core.PlainTimer(method, _TIMERS[name] is _STOPPING, profilers, _NAMED_BY)


def _profiler_class(own: type, profiling: ModuleType) -> type:
    """Return our ``PipelineProfiler``: a subclass of cuvis-ai-core's, so that it passes for one everywhere."""
    if own not in _classes:
        _classes[own] = _make_class(own, profiling)
    return _classes[own]


def _make_class(own: type, profiling: ModuleType) -> type:
    class PipelineProfiler(_core.PlainProfiler, own):  # type: ignore[misc]
        """cuvis-ai-core's profiler of a pipeline's nodes, with cprofiling's statistics."""

        def __new__(cls, skip_first_n: int = 0) -> PipelineProfiler:
            if skip_first_n < 0:
                raise ValueError(f"skip_first_n must be >= 0, got {skip_first_n}")
            profiler = Profiler()
            profiler._count_no_nodes()  # noqa: SLF001 the package's own
            skips = _skips(skip_first_n)
            profiler.set_profiling(True, skip_first_n=skips)
            return super().__new__(cls, profiler, skips, skip_first_n)

        def __init__(self, skip_first_n: int = 0) -> None:
            pass

        @functools.cached_property
        def _lock(self) -> threading.Lock:  # its own has one, too
            return threading.Lock()

        def snapshot(self, stage: str | None = None) -> list[Any]:
            """Return the statistics of all keys, or of those of a stage, in the order of their first samples."""
            return [profiling.NodeProfilingStats(*row) for row in self._plain_rows(stage)]

        def __copy__(self) -> PipelineProfiler:
            return self

        def __reduce__(self) -> tuple[Any, ...]:
            return _remade, (self._skip_first_n,)

    return PipelineProfiler


def _skips(skip_first_n: Any) -> int:
    """Return how many samples are skipped when fewer than ``skip_first_n``, which may be any number, are."""
    if skip_first_n != skip_first_n:  # noqa: PLR0124 it is no number
        return 0
    return _MOST_SKIPS if skip_first_n > _MOST_SKIPS else math.ceil(skip_first_n)


def _remade(skip_first_n: Any) -> Any:
    """Return a new profiler for a copy of a pipeline: of those that pipelines have at present, and empty."""
    from cuvis_ai_core.pipeline import pipeline

    return pipeline.PipelineProfiler(skip_first_n)
