"""Switching profiling on and off, and reading it: ``Profiler``, ``PipelineProfiling``, the module's own functions."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, overload
from weakref import ref

from cprofiling import _core
from cprofiling._internal.messages import mention
from cprofiling._internal.text import checked_text
from cprofiling.devices import events, in_use
from cprofiling.nodes import probe_callbacks
from cprofiling.nodes.decorators import (
    awaiting,
    bind_class,
    bind_pipeline,
    cloudpickle_rule,
    first_parameter,
    kind_of,
    marks_of,
    stand_in,
    wrap_as_record,
)
from cprofiling.nodes.decorators import instrument as _instrument
from cprofiling.nodes.decorators import profile_node as _profile_node
from cprofiling.nodes.graph import checked_edges
from cprofiling.nodes.in_stage import wrap_in_stage
from cprofiling.nodes.input_shapes import shapes_from
from cprofiling.nodes.missing_figures import not_entered, reasons_beyond, reasons_of
from cprofiling.nodes.resource_columns import summary_text
from cprofiling.nodes.snapshot import Snapshot
from cprofiling.nodes.stats import ProfilingSummary, stats_from_row
from cprofiling.nodes.summary_table import no_such_stage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from enum import Enum
    from typing import Any, Literal, SupportsIndex

    from _typeshed import StrOrBytesPath

    from cprofiling.nodes.buckets import Bucket
    from cprofiling.nodes.decorators import F, Instrumentation, NodeName, NodeSite, StageName


class _NodeMaker:
    """The two ways to make nodes, for all that has a Profiler of its own."""

    __slots__ = ()

    @overload
    def profile_node(
        self, function: str | None = None, /, *, name: NodeName = None, stage: StageName = None
    ) -> NodeSite: ...

    @overload
    def profile_node(self, function: F, /, *, name: NodeName = None, stage: StageName = None) -> F: ...

    def profile_node(self, function: Any = None, /, *, name: NodeName = None, stage: StageName = None) -> Any:
        """As the module's ``profile_node``, counted by this Profiler, or this pipeline's."""
        return _profile_node(function, name=name, stage=stage, profiler=_profiler_of(self))

    def instrument(self, obj: object, attr: str, *, name: NodeName = None, stage: StageName = None) -> Instrumentation:
        """As the module's ``instrument``, counted by this Profiler, or this pipeline's."""
        return _instrument(obj, attr, name=name, stage=stage, profiler=_profiler_of(self))


def _profiler_of(maker: _NodeMaker) -> Profiler:
    if isinstance(maker, Profiler):
        return maker
    profiler: Profiler = _core.pipeline_profiler(maker)
    if bind_pipeline(maker) and profiler.profiling_enabled:
        mention(f"forward or __call__ of {type(maker).__qualname__} was replaced: what ran inside counted elsewhere")
    return profiler


class Profiler(_core.Profiler, _NodeMaker):
    """The statistics of one pipeline's nodes, and the switch that gathers them. Off when made.

    Any number of threads may record, read, reset and switch at once. A forked child keeps the configuration and starts
    with empty statistics. Copies and pickles are new Profilers that are off. ``with profiler:`` binds it to the calls
    of this thread or task that belong to no other Profiler.
    """

    __slots__ = ()

    def get_profiling_summary(self, stage: StageName = None) -> ProfilingSummary:
        """The statistics of all nodes, or of those of one stage, in the order in which their first calls finished.

        stage: a str, or an enum whose value is one; None for all. TypeError or ValueError for anything else.
        """
        _prepare_reading()
        rows, skip_first_n, lost, unread, shapes = self._rows(stage)
        beyond = reasons_beyond(rows, self._device_note) if probe_callbacks.is_any_asked() else ()
        hints = self._hints(rows, stage)
        summary = ProfilingSummary(
            map(stats_from_row, rows),
            skip_first_n=skip_first_n,
            reasons=(*hints, *reasons_of(lost, unread, self._refused_keys), *beyond),
            internal_errors=self._internal_errors,
            cost_ns=_core.cost_ns(self),
        )
        summary._find_histograms = self._histograms  # noqa: SLF001 the package's own
        if edges := self.graph:
            summary.edges = edges
        if shapes:
            summary.shapes = shapes_from(shapes, summary)
        if beyond:
            summary._reasons_beyond = beyond  # noqa: SLF001 the package's own
        if hints:
            summary._hints = hints  # noqa: SLF001 the package's own
        return summary

    def _hints(self, rows: Sequence[Any], stage: StageName) -> tuple[str, ...]:
        """Say why there is nothing: profiling is off, or no node ran in a stage."""
        known = {row.stage for row in (rows if rows or stage is None else self._rows(None).rows)}
        if not known and not self.profiling_enabled:
            return ("profiling is off: call set_profiling(True)",)
        wanted = None if stage is None else checked_text("stage", stage)
        missed = set(self._stages_without_nodes) - known
        if wanted is not None:
            missed &= {wanted}
        hints = [not_entered(missed)] if missed else []
        if wanted is not None and known and not rows:
            hints.append(no_such_stage(wanted, known))
        return tuple(hints)

    def format_profiling_summary(self, stage: StageName = None, *, total_frames: int | None = None) -> str:
        """The summary as a text table; see ``format_profiling_table``.

        Below it stands why there is nothing: that profiling is off, or which stages had no node. A second table has
        what is known beyond times, and below it why some of that is not; a third one has the calls by signature, where
        they are told apart.
        """
        return summary_text(self.get_profiling_summary(stage), total_frames)

    def snapshot(self) -> Snapshot:
        """The statistics of now as an immutable value, which can be pickled, stored and merged with others."""
        _prepare_reading()
        reasons = reasons_of(0, 0, self._refused_keys)
        if probe_callbacks.is_any_asked():
            reasons += reasons_beyond(self._rows(None).rows, self._device_note)
        return _core.take_snapshot(Snapshot, self, time.time_ns(), tuple(map(_note, reasons)))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Reduce to a new Profiler that is off; by cloudpickle, one in each process, as nodes come with each task."""
        reduced: Any = super().__reduce_ex__(protocol)
        if cloudpickle_rule() is None:
            return reduced
        make, arguments, *state = reduced
        return _made_once, (self._identity, make, arguments), *state

    def _histograms(self) -> dict[tuple[str, str], tuple[Bucket, ...]]:
        return self.snapshot()._find_histograms()  # noqa: SLF001 as above

    def set_graph(self, edges: Iterable[tuple[str, str]] | None) -> None:
        """Tell which nodes wait for which, so that ``what_if`` knows the critical path.

        It stays until it is told anew; statistics, configuration and snapshots do not touch or contain it, and copies
        of a pipeline have none. Nodes that have not run yet may be named.

        edges: pairs of node names: the second begins when the first has ended. None or no edge: there is no graph.

        TypeError for what is no iterable of pairs of str; ValueError for what is no node's name, and for a cycle, which
        it names.
        """
        known = () if edges is None else checked_edges(edges)
        key = id(self)
        _GRAPHS.pop(key, None)
        if known:
            _GRAPHS[key] = known, ref(self, lambda _: _GRAPHS.pop(key, None))

    @property
    def graph(self) -> tuple[tuple[str, str], ...]:
        """The edges that ``set_graph`` was told, each once; empty if it was told none."""
        known = _GRAPHS.get(id(self))
        return known[0] if known else ()

    def _repr_html_(self) -> str:
        return self.get_profiling_summary()._repr_html_()


_MADE_ONCE: dict[bytes, Profiler] = {}  # by the identity of the Profiler of another process that each stands for


def _made_once(identity: bytes, make: Callable[..., Profiler], arguments: tuple[Any, ...]) -> Profiler:
    known = _MADE_ONCE.get(identity)
    return _MADE_ONCE.setdefault(identity, make(*arguments)) if known is None else known


# By the ids of Profilers, which subclasses may make unhashable; their weak references clear the entries.
_GRAPHS: dict[int, tuple[tuple[tuple[str, str], ...], ref[Profiler]]] = {}


def _note(reason: str) -> bytes:
    return reason.encode("utf-8", "replace")


def _prepare_reading() -> None:
    _core.refine_clock()
    _core.poll_devices()
    events.poll()


class PipelineProfiling(_NodeMaker):
    """Mixin: gives a pipeline class a Profiler for each instance, and the names to control and read it.

    It needs no call of ``__init__`` and no attribute: the Profiler is made at its first use, and lives beside the
    instance, so that copies, pickles and clones start with a new one that is off. The ``forward`` and ``__call__`` of a
    subclass make the instance the owner of the nodes that run inside; they do not become nodes themselves. Those that
    are inherited from any class do so, too, and those that are assigned later, from the next use of ``profiler``,
    ``set_profiling`` or any other of these names on.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        bind_class(cls)
        if not cls.__weakrefoffset__:
            _forget_when_deleted(cls)

    @property
    def profiler(self) -> Profiler:
        """The Profiler of this instance."""
        return _profiler_of(self)

    @property
    def profiling_enabled(self) -> bool:
        """Whether calls that start now are counted."""
        return self.profiler.profiling_enabled

    def set_profiling(  # noqa: PLR0913 what can be asked for
        self,
        enabled: bool,
        *,
        synchronize_cuda: bool = False,
        reset: bool = False,
        skip_first_n: int = 0,
        gpu_time: bool = False,
        gpu_stream: object = None,
        kernels: bool = False,
        nvtx: bool = False,
        memory: bool | Literal["peak"] = False,
        counters: Iterable[str] | None = (),
        live: StrOrBytesPath | None = None,
        by_shape: bool = False,
    ) -> None:
        """Switch profiling on or off; see ``Profiler.set_profiling``."""
        self.profiler.set_profiling(
            enabled,
            synchronize_cuda=synchronize_cuda,
            reset=reset,
            skip_first_n=skip_first_n,
            gpu_time=gpu_time,
            gpu_stream=gpu_stream,
            kernels=kernels,
            nvtx=nvtx,
            memory=memory,
            counters=counters,
            live=live,
            by_shape=by_shape,
        )
        _batches_of(self).configure(enabled, reset=reset, skip_first_n=skip_first_n, synchronizes=synchronize_cuda)

    def reset_profiling(self) -> None:
        """Discard the statistics, those of batches too; what is switched on stays on."""
        self.profiler.reset_profiling()
        _batches_of(self).profiler = None

    def iter_profiled_batches(
        self, batches: Iterable[Any], *, stage: str | Enum, move: Callable[[Any], Any] | None = None
    ) -> Generator[Any, None, None]:
        """Yield batches, and time the loop around them where profiling is on.

        Of each iteration but the first of a pass, whose fetch has one-time costs, it records the time of the fetch
        (``data_load``), of ``move`` (``to_device``), and of all from the fetch to the request of the next batch
        (``batch_loop``), which a loop that is left early never makes. See ``get_data_profiling_summary``.

        Args:
            batches: What to iterate over, such as a DataLoader; not a progress bar, whose time is the loop's.
            stage: The stage of the samples.
            move: Moves a batch to the device; None: it is yielded as it is.
        """
        own, profiler = _batches_of(self), self.profiler
        checked_text("stage", stage)
        source, is_first = iter(batches), True
        while True:
            fetch_ns = time.perf_counter_ns()
            try:
                batch = next(source)
            except StopIteration:
                return
            fetched_ns = time.perf_counter_ns()
            if move is not None:
                batch = move(batch)
                own.synchronize(batch)
            moved_ns = time.perf_counter_ns()
            is_recorded = profiler.profiling_enabled and not is_first
            recorder = own.begin(profiler) if is_recorded else None
            if recorder is not None:
                recorder.record(stage, "data_load", (fetched_ns - fetch_ns) / 1e6)
                if move is not None:
                    recorder.record(stage, "to_device", (moved_ns - fetched_ns) / 1e6)
            yield batch
            if recorder is not None:
                own.synchronize(batch)
                recorder.record(stage, "batch_loop", (time.perf_counter_ns() - fetch_ns) / 1e6)
            is_first = False

    def get_data_profiling_summary(self, stage: StageName = None) -> ProfilingSummary:
        """The statistics of ``iter_profiled_batches``: rows ``data_load``, ``to_device`` and ``batch_loop``."""
        own, profiler = _batches_of(self), self.profiler
        begun = own.begin(profiler) if profiler.profiling_enabled else own.profiler
        return (begun or Profiler()).get_profiling_summary(stage)

    def get_profiling_summary(self, stage: StageName = None) -> ProfilingSummary:
        """The statistics of the nodes; see ``Profiler.get_profiling_summary``."""
        return self.profiler.get_profiling_summary(stage)

    def format_profiling_summary(self, stage: StageName = None, *, total_frames: int | None = None) -> str:
        """The summary as a text table; see ``format_profiling_table``."""
        return self.profiler.format_profiling_summary(stage, total_frames=total_frames)

    def snapshot(self) -> Snapshot:
        """The statistics as an immutable value; see ``Profiler.snapshot``."""
        return self.profiler.snapshot()


class _Batches:
    """The statistics of a pipeline's batches, which begin anew when those of its nodes do.

    Attributes:
        profiler: What has them; None before the first. Whether a batch is recorded is the nodes' Profiler's to say.
    """

    def __init__(self) -> None:
        self.profiler: Profiler | None = None
        self._synchronizes = False
        self._skip_first_n: SupportsIndex = 0

    def begin(self, of: Profiler) -> Profiler:
        """Return what records, made if need be as the nodes' Profiler is configured."""
        if self.profiler is None:
            self._skip_first_n = of._rows(None).skip_first_n  # noqa: SLF001 the package's own
            self.profiler = Profiler()
            self.profiler.set_profiling(True, skip_first_n=self._skip_first_n)
        return self.profiler

    def configure(self, enabled: bool, *, reset: bool, skip_first_n: SupportsIndex, synchronizes: bool) -> None:
        """Follow a configuration of the nodes' Profiler."""
        self._synchronizes = synchronizes
        if reset or (enabled and skip_first_n != self._skip_first_n):
            self.profiler = None

    def synchronize(self, batch: Any) -> None:
        """Wait for the device of a batch's first CUDA tensor, where that was asked for."""
        torch: Any = sys.modules.get("torch") if self._synchronizes else None
        if torch is None:
            return
        values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else (batch,)
        for value in values:
            if isinstance(value, torch.Tensor) and value.is_cuda:
                torch.cuda.synchronize(value.device)
                return


# By the ids of the Profilers of pipelines, as _GRAPHS.
_BATCHES: dict[int, tuple[_Batches, ref[Profiler]]] = {}


def _batches_of(pipeline: PipelineProfiling) -> _Batches:
    profiler = pipeline.profiler
    key = id(profiler)
    if key not in _BATCHES:
        _BATCHES[key] = _Batches(), ref(profiler, lambda _: _BATCHES.pop(key, None))
    return _BATCHES[key][0]


def _forget_when_deleted(cls: type) -> None:
    """Instances of a class without weak references tell of their end by ``__del__``."""
    original = cls.__dict__.get("__del__")

    def __del__(self: object) -> None:  # noqa: N807 it becomes a method
        _core.forget_pipeline(self)
        if original is not None:
            original(self)
        else:
            inherited = getattr(super(cls, self), "__del__", None)
            if inherited is not None:
                inherited()

    cls.__del__ = __del__  # type: ignore[attr-defined]


default_profiler = Profiler()
"""The Profiler of all calls that belong to no other one; the functions of the package are its methods."""


def set_up_core(answers: tuple[Callable[..., Any], ...] = probe_callbacks.PROBERS) -> None:
    """Tell the extension what it needs of the package; ``answers``: for those of ``probers``, in their order."""
    _core.configure(
        mixin=PipelineProfiling,
        profiler_class=Profiler,
        default_profiler=default_profiler,
        device_finder=in_use.cuda_device_of,
        stream_finder=in_use.cuda_stream_of,
        awaiter=awaiting,
        record_wrapper=wrap_as_record,
        stage_wrapper=wrap_in_stage,
        kind_finder=kind_of,
        parameter_finder=first_parameter,
        stand_in_maker=stand_in,
        marks_finder=marks_of,
        probers=answers,
    )


set_up_core()


def set_profiling(  # noqa: PLR0913 what can be asked for
    enabled: bool,
    *,
    synchronize_cuda: bool = False,
    reset: bool = False,
    skip_first_n: int = 0,
    gpu_time: bool = False,
    gpu_stream: object = None,
    kernels: bool = False,
    nvtx: bool = False,
    memory: bool | Literal["peak"] = False,
    counters: Iterable[str] | None = (),
    live: StrOrBytesPath | None = None,
    by_shape: bool = False,
) -> None:
    """Switch the default Profiler on or off; see ``Profiler.set_profiling``."""
    default_profiler.set_profiling(
        enabled,
        synchronize_cuda=synchronize_cuda,
        reset=reset,
        skip_first_n=skip_first_n,
        gpu_time=gpu_time,
        gpu_stream=gpu_stream,
        kernels=kernels,
        nvtx=nvtx,
        memory=memory,
        counters=counters,
        live=live,
        by_shape=by_shape,
    )


def reset_profiling() -> None:
    """Discard the default Profiler's statistics; what is switched on stays on."""
    default_profiler.reset_profiling()


def profiling_enabled() -> bool:
    """Whether the default Profiler counts calls that start now."""
    return default_profiler.profiling_enabled


def get_profiling_summary(stage: StageName = None) -> ProfilingSummary:
    """The default Profiler's statistics; see ``Profiler.get_profiling_summary``."""
    return default_profiler.get_profiling_summary(stage)


def format_profiling_summary(stage: StageName = None, *, total_frames: int | None = None) -> str:
    """The default Profiler's summary as a text table; see ``format_profiling_table``."""
    return default_profiler.format_profiling_summary(stage, total_frames=total_frames)
