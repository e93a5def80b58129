"""Switch profiling on and off, and read its statistics."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload
from weakref import ref

from cprofiling import _core
from cprofiling._internal.arguments import callable_or_none
from cprofiling._internal.messages import mention, warn
from cprofiling._internal.text import checked_text, shown_value
from cprofiling.devices import events, in_use
from cprofiling.nodes import probe_callbacks
from cprofiling.nodes.buckets import Bucket
from cprofiling.nodes.decorators import (
    SOURCES,
    F,
    NodeName,
    NodeSite,
    StageName,
    awaiting,
    cloudpickle_rule,
    first_parameter,
    kind_of,
    marks_of,
    reduced,
    stand_in,
    wrap_as_record,
)
from cprofiling.nodes.decorators import profile_node as _profile_node
from cprofiling.nodes.graph import checked_edges
from cprofiling.nodes.in_stage import wrap_in_stage
from cprofiling.nodes.input_shapes import shapes_from
from cprofiling.nodes.instrumentation import Instrumentation, bind_class, bind_pipeline
from cprofiling.nodes.instrumentation import instrument as _instrument
from cprofiling.nodes.missing_figures import not_entered, reasons_beyond, reasons_of
from cprofiling.nodes.resource_columns import summary_text
from cprofiling.nodes.snapshot import Snapshot
from cprofiling.nodes.stats import Median, ProfilingSummary, stats_from_row
from cprofiling.nodes.summary_table import no_such_stage

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath


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
        """Create a node that is counted here (see ``cprofiling.profile_node``)."""
        return _profile_node(function, name=name, stage=stage, profiler=_profiler_of(self))

    def instrument(self, obj: object, attr: str, *, name: NodeName = None, stage: StageName = None) -> Instrumentation:
        """Count one object's method here (see ``cprofiling.instrument``)."""
        return _instrument(obj, attr, name=name, stage=stage, profiler=_profiler_of(self))


def _profiler_of(maker: _NodeMaker) -> Profiler:
    if isinstance(maker, Profiler):
        return maker
    profiler: Profiler = _core.profiler_of(maker)
    if bind_pipeline(maker) and profiler.profiling_enabled:
        mention(f"forward or __call__ of {type(maker).__qualname__} was replaced: what ran inside counted elsewhere")
    return profiler


class Profiler(_core.Profiler, _NodeMaker):
    """Statistics of one pipeline's nodes, and their switch. Off when made.

    Any number of threads may record, read, reset and switch at once. A forked child keeps the configuration and starts
    with empty statistics. Copies and pickles are new Profilers that are off. ``with profiler:`` binds it to the calls
    of this thread or task that belong to no other Profiler.
    """

    __slots__ = ()

    def get_profiling_summary(self, stage: StageName = None) -> ProfilingSummary:
        """Return statistics of all nodes or one stage, by first finished call.

        stage: a str, or an enum with a str value; None for all. TypeError or ValueError for anything else.
        """
        _prepare_reading()
        rows, skip_first_n, median, lost, unread, shapes = self._rows(stage)
        beyond = reasons_beyond(rows, self._device_note) if probe_callbacks.is_any_asked() else ()
        hints = self._hints(rows, stage)
        summary = ProfilingSummary(
            map(stats_from_row, rows),
            skip_first_n=skip_first_n,
            median=median,
            reasons=(*hints, *reasons_of(lost, unread, self._refused_keys), *beyond),
            internal_errors=self._internal_errors,
            cost_ns=_core.cost_ns(self),
        )
        summary._find_histograms = self._histograms  # noqa: SLF001 the package's own
        summary._find_source = SOURCES.get  # noqa: SLF001 as above
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
        """Return the summary as text (see ``format_profiling_table``).

        An empty table says why: profiling is off, or no node ran in the stage. Further tables have resource figures and
        calls by signature, with the reasons for missing parts.
        """
        return summary_text(self.get_profiling_summary(stage), total_frames)

    def snapshot(self) -> Snapshot:
        """Return current statistics as an immutable value, to store or merge."""
        _prepare_reading()
        reasons = reasons_of(0, 0, self._refused_keys)
        if probe_callbacks.is_any_asked():
            reasons += reasons_beyond(self._rows(None).rows, self._device_note)
        return _core.take_snapshot(
            Snapshot, self, time.time_ns(), tuple([reason.encode("utf-8", "replace") for reason in reasons])
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Reduce to a new, disabled Profiler, one per process with cloudpickle."""
        reduced: Any = super().__reduce_ex__(protocol)
        if cloudpickle_rule() is None:
            return reduced
        make, arguments, *state = reduced
        return _made_once, (self._identity, make, arguments), *state

    def _histograms(self) -> dict[tuple[str, str], tuple[Bucket, ...]]:
        return self.snapshot()._find_histograms()  # noqa: SLF001 as above

    def set_graph(self, edges: Iterable[tuple[str, str]] | None) -> None:
        """Set the edges between nodes, for the critical path in ``what_if``.

        They stay until set anew; statistics, configuration and snapshots neither touch nor contain them, and copies of
        a pipeline have none. Nodes that have not run yet may be named.

        edges: pairs of node names, the second starts after the first. None or empty removes the graph.

        Raises TypeError unless given pairs of str; ValueError for an invalid node name or a cycle, which it names.
        """
        known = () if edges is None else checked_edges(edges)
        key = id(self)
        _GRAPHS.pop(key, None)
        if known:
            _GRAPHS[key] = known, ref(self, lambda _: _GRAPHS.pop(key, None))

    @property
    def graph(self) -> tuple[tuple[str, str], ...]:
        """Return the edges given to ``set_graph``, without duplicates."""
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


def _prepare_reading() -> None:
    _core.refine_clock()
    _core.poll_devices()
    events.poll()


class PipelineProfiling(_NodeMaker):
    """Mixin that gives each instance of a pipeline class a Profiler.

    It needs no ``__init__`` call and no attribute: the Profiler is made at its first use and lives beside the instance,
    so copies, pickles and clones start with a new, disabled one. The ``forward`` and ``__call__`` of a subclass own the
    nodes that run inside, without becoming nodes themselves. Inherited ones and those assigned later do so from the
    next use of ``profiler``, ``set_profiling`` or any other of these names.
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
        """Return whether calls that start now are counted."""
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
        median: Median = "histogram",
    ) -> None:
        """Switch profiling on or off (see ``Profiler.set_profiling``)."""
        options = {name: value for name, value in locals().items() if name != "self"}
        self.profiler.set_profiling(**options)
        kept = {"skip_first_n": skip_first_n, "median": median}
        _batches_of(self).configure(kept, enabled=enabled, reset=reset, synchronizes=synchronize_cuda)

    def reset_profiling(self) -> None:
        """Discard statistics, those of batches too, and stay switched on."""
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
            batches: An iterable such as a DataLoader; not a progress bar, as its time is the loop's.
            stage: The stage of the samples.
            move: Moves a batch to the device; None: it is yielded as it is.
        """
        own, profiler = _batches_of(self), self.profiler
        checked_text("stage", stage)
        callable_or_none("move", move)
        if not hasattr(batches, "__iter__") and not hasattr(batches, "__getitem__"):
            raise TypeError(f"batches must be an iterable, got {shown_value(batches)}")
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
        """Return statistics of ``iter_profiled_batches``.

        Its rows are ``data_load``, ``to_device`` and ``batch_loop``.
        """
        own, profiler = _batches_of(self), self.profiler
        begun = own.begin(profiler) if profiler.profiling_enabled else own.profiler
        return (begun or Profiler()).get_profiling_summary(stage)

    def get_profiling_summary(self, stage: StageName = None) -> ProfilingSummary:
        """Return node statistics (see ``Profiler.get_profiling_summary``)."""
        return self.profiler.get_profiling_summary(stage)

    def format_profiling_summary(self, stage: StageName = None, *, total_frames: int | None = None) -> str:
        """Return the summary as a text table (see ``format_profiling_table``)."""
        return self.profiler.format_profiling_summary(stage, total_frames=total_frames)

    def snapshot(self) -> Snapshot:
        """Return statistics as an immutable value (see ``Profiler.snapshot``)."""
        return self.profiler.snapshot()


class _Batches:
    """Statistics of a pipeline's batches, reset along with its nodes'.

    Attributes:
        profiler: Their Profiler; None before the first. Whether a batch is recorded is the nodes' Profiler's to say.
    """

    def __init__(self) -> None:
        self.profiler: Profiler | None = None
        self._synchronizes = False
        self._options: dict[str, Any] = {}

    def begin(self, of: Profiler) -> Profiler:
        """Return the Profiler of the batches, configured like the nodes'."""
        if self.profiler is None:
            rows = of._rows(None)  # noqa: SLF001 the package's own
            self._options = {"skip_first_n": rows.skip_first_n, "median": rows.median}
            self.profiler = Profiler()
            self.profiler.set_profiling(True, **self._options)
        return self.profiler

    def configure(self, options: dict[str, Any], *, enabled: bool, reset: bool, synchronizes: bool) -> None:
        """Follow a configuration of the nodes' Profiler."""
        self._synchronizes = synchronizes
        if self.profiler is None:
            return
        lacks_p2 = options["median"] == "p2" != self._options["median"]
        if reset or (enabled and (lacks_p2 or options["skip_first_n"] != self._options["skip_first_n"])):
            self.profiler = None
        elif enabled:
            self._options = options
            self.profiler.set_profiling(True, **options)

    def synchronize(self, batch: Any) -> None:
        """Wait for the device of a batch's first CUDA tensor, if requested."""
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
    """Report the end of instances without weak references by ``__del__``."""
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
    """Give the extension the package's callbacks.

    answers: those of ``probe_callbacks``, in order.
    """
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
        reducer=reduced,
        probers=answers,
        warner=warn,
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
    median: Median = "histogram",
) -> None:
    """Switch the default Profiler (see ``Profiler.set_profiling``)."""
    options = locals()
    default_profiler.set_profiling(**options)


def reset_profiling() -> None:
    """Discard the default Profiler's statistics, and stay switched on."""
    default_profiler.reset_profiling()


def profiling_enabled() -> bool:
    """Return whether the default Profiler counts calls that start now."""
    return default_profiler.profiling_enabled


def get_profiling_summary(stage: StageName = None) -> ProfilingSummary:
    """Return the default Profiler's statistics."""
    return default_profiler.get_profiling_summary(stage)


def format_profiling_summary(stage: StageName = None, *, total_frames: int | None = None) -> str:
    """Return the default Profiler's summary as a text table."""
    return default_profiler.format_profiling_summary(stage, total_frames=total_frames)
