"""Names of ``telefuser.utils.profiler``, by ``cprofiling.layers``."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from cprofiling import _core
from cprofiling._internal import arguments, environment, log
from cprofiling._internal.tables import in_cell
from cprofiling.analysis.timing_reports import load_timing_report, timing_table
from cprofiling.devices.nsight import report as ncu_report
from cprofiling.integrations.telefuser import memory
from cprofiling.integrations.telefuser.memory import *  # noqa: F403 telefuser has these names here, too
from cprofiling.layers import context, signatures
from cprofiling.layers.context import (
    dump_io_signatures,
    dump_timing_report,
    get_profiler_output_dir,
    get_timing_report,
    mark_as_worker_process,
    set_timing_metadata,
)
from cprofiling.layers.recording import StageRecording, options
from cprofiling.layers.registry import checked_name
from cprofiling.nodes.decorators import ASYNC_GENERATOR, GENERATOR, kind_of

if TYPE_CHECKING:
    from _typeshed import StrPath

    from cprofiling.recording.profile import profile

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "NCU_KEY_METRICS",
    "GlobalTimingRegistry",
    "ProfilingContext",
    "ProfilingContext4Debug",
    "StageIOSignature",
    "TensorSignature",
    "analyze_ncu_report",
    "compare_timing_reports",
    "dump_io_signatures",
    "dump_timing_report",
    "enable_profiler_for_names",
    "get_io_signatures",
    "get_profiler_output_dir",
    "get_timing_report",
    "mark_as_worker_process",
    "print_timing_summary",
    "reset_timing_registry",
    "set_pipeline_name",
    "set_profiler_output_dir",
    "set_timing_metadata",
]
__all__ += memory.__all__

DEBUG = "TELEFUSER_PROFILE_DEBUG"
NAMES = "ENABLE_PROFILER_NAMES"
PIPELINE = "TELEFUSER_PIPELINE_NAME"
OUTPUT_DIR = "TELEFUSER_PROFILER_OUTPUT_DIR"

environment.also(environment.TIMING_REPORT, "TELEFUSER_TIMING_REPORT")
environment.also(environment.PIPELINE, PIPELINE)
environment.also(environment.OUTPUT_DIR, OUTPUT_DIR, "PROFILER_OUTPUT_DIR")
environment.also(environment.SHAPES, "TELEFUSER_TORCH_PROFILER_RECORD_SHAPES")
environment.also(environment.MEMORY, "TELEFUSER_TORCH_PROFILER_PROFILE_MEMORY")
environment.also(environment.STACK, "TELEFUSER_TORCH_PROFILER_WITH_STACK")
_debug = environment.boolean(DEBUG, default=log.debug)
log.debug = log.debug or _debug


# ---- Signatures


@dataclass
class TensorSignature:
    """Description of a tensor.

    Attributes:
        shape: Its sizes.
        dtype: The type of its elements, without ``torch.``.
        device: Where it is.
        requires_grad: Whether gradients are computed for it.
        stride: Its strides in elements, where they are known.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool = False
    stride: tuple[int, ...] | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as files have it."""
        made: dict[str, Any] = {"shape": list(self.shape), "dtype": self.dtype, "device": self.device}
        if self.stride is not None:
            made["stride"] = list(self.stride)
        return {**made, "requires_grad": self.requires_grad}

    @classmethod
    def from_tensor(cls, tensor: Any) -> TensorSignature:
        """Return the signature of a tensor."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        return cls(tuple(tensor.shape), dtype, str(tensor.device), bool(tensor.requires_grad))

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> TensorSignature:
        """Return the signature that a file has."""
        stride = value.get("stride")
        return cls(
            tuple(value["shape"]),
            value["dtype"],
            value["device"],
            value.get("requires_grad", False),
            None if stride is None else tuple(stride),
        )


@dataclass
class StageIOSignature:
    """Inputs and output of a stage.

    Attributes:
        stage_name: The stage.
        input_signatures: By parameter: a TensorSignature, a plain value, or lists and dicts of these.
        output_signature: The tensor that it gave back; None for anything else.
        metadata: The numbers and texts among the inputs.
    """

    stage_name: str
    input_signatures: dict[str, Any]
    output_signature: TensorSignature | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return it as files have it."""
        return {
            "stage_name": self.stage_name,
            "input_signatures": {name: _plain(value) for name, value in self.input_signatures.items()},
            "output_signature": _plain(self.output_signature),
            "metadata": self.metadata,
        }


def _plain(value: Any) -> Any:
    """Return a value of a signature as JSON has it."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _with_tensors(value: Any) -> Any:
    """Return a value of a file with its tensors as TensorSignature."""
    if isinstance(value, Mapping):
        if {"shape", "dtype", "device"} <= value.keys() <= set(signatures.TENSOR_KEYS):
            return TensorSignature.from_dict(value)
        return {key: _with_tensors(item) for key, item in value.items()}
    return [_with_tensors(item) for item in value] if isinstance(value, list) else value


def signature_with_tensors(found: signatures.StageIOSignature) -> StageIOSignature:
    """Return a signature of ours with its tensors as TensorSignature."""
    result = _with_tensors(found.output_signature)
    return StageIOSignature(
        found.stage_name,
        _with_tensors(dict(found.input_signatures)),
        result if isinstance(result, TensorSignature) else None,
        dict(found.metadata),
    )


def get_io_signatures() -> dict[str, StageIOSignature]:
    """Return the stages' signatures, by name."""
    return {name: signature_with_tensors(found) for name, found in context.get_io_signatures().items()}


# ---- Contexts


class ProfilingContext(context.ProfilingContext):
    """``ProfilingContext`` of layers that follows telefuser's variables.

    They are read at each use.
    """

    __slots__ = ()

    def __init__(self, name: str, *, reset_peak_memory: bool = True, capture_memory: bool = False) -> None:
        super().__init__(name, reset_peak_memory=reset_peak_memory, capture_memory=capture_memory)
        _want_report()

    @property
    def _profiler(self) -> profile | None:
        """Return the latest use's recording, by telefuser's name for it."""
        beyond = None if self._latest is None else self._latest[3]
        return None if beyond is None or beyond.recording is None else beyond.recording.profile

    def __enter__(self) -> ProfilingContext:
        values = tuple(map(environment.given, _Followed.variables))  # which may change any time
        if values != _Followed.values:
            if values[0] != _Followed.values[0]:
                context.enable_profiler_for_names(values[0] or "")
            _Followed.values = values
            StageRecording.chosen = options()
        super().__enter__()
        return self

    def __call__(self, function: F) -> F:
        """Return a function that measures each call.

        Of a generator function, only the call itself.
        """
        if kind_of(function) not in (GENERATOR, ASYNC_GENERATOR):
            return super().__call__(function)

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return measured  # type: ignore[return-value]


def _want_report() -> None:
    """Write the report at exit in any case, as telefuser does."""
    context.AtExit.is_wanted = True
    memory.report_analyses()


ProfilingContext4Debug: Any = ProfilingContext if _debug else _core.IdleContext
"""``ProfilingContext`` where ``TELEFUSER_PROFILE_DEBUG`` was true on import; else one that does nothing."""


class _Followed:
    """Environment as last read."""

    variables = (
        NAMES,
        "TELEFUSER_TORCH_PROFILER_RECORD_SHAPES",
        "TELEFUSER_TORCH_PROFILER_PROFILE_MEMORY",
        "TELEFUSER_TORCH_PROFILER_WITH_STACK",
    )
    values: tuple[str | None, ...] = (None,) * len(variables)


def enable_profiler_for_names(names: str) -> None:
    """Record these stages (see ``cprofiling.layers``)."""
    context.enable_profiler_for_names(names)
    os.environ[NAMES] = names


def set_pipeline_name(name: str) -> None:
    """Name the pipeline, and so the folder of its runs."""
    context.set_pipeline_name(name)
    os.environ[PIPELINE] = name


def set_profiler_output_dir(path: StrPath) -> None:
    """Have files written into this folder."""
    context.set_profiler_output_dir(path)
    os.environ[OUTPUT_DIR] = arguments.path("path", path)


# ---- The registry


class GlobalTimingRegistry:
    """Stage reports of this process, by functions of ``cprofiling.layers``."""

    _instance: GlobalTimingRegistry
    _records: tuple[()] = ()  # telefuser's own function at the end of the process asks for these; the report is ours

    def __init__(self) -> None:
        """Stand for the one registry that there is."""
        self._is_final = False

    @classmethod
    def get_instance(cls) -> GlobalTimingRegistry:
        """Return the one instance."""
        return cls._instance

    @classmethod
    def reset(cls, request_id: str | None = "", metadata: Mapping[str, Any] | None = None) -> GlobalTimingRegistry:
        """Clear stages and memory, begin a request, and return the instance.

        request_id: default is the time.
        """
        instance = cls.get_instance()
        instance._is_final = False
        memory.reset_memory_registry()
        context.reset_timing_registry(request_id or "", metadata)
        return instance

    def record(self, name: str, duration_ms: float, memory_snapshot: Any = None) -> None:
        """Add a use of a stage with its duration in ms.

        memory_snapshot: a MemorySnapshot or None. Raises TypeError and ValueError for an invalid name, or a time
        outside 0 to 1e12 ms.
        """
        _want_report()
        now_ns = time.perf_counter_ns()
        context._registry.add_ms(checked_name(name), duration_ms, now_ns, now_ns, memory.memory_of(memory_snapshot))

    def record_parallel_stage(self, name: str, rank_records: Mapping[int, Mapping[str, Any]]) -> None:
        """Add a use of a stage over ranks, with the slowest one's time.

        Reports name the ranks of the latest use.

        rank_records: by rank, at least one, ``duration_ms`` and ``peak_memory_gb``.
        """
        slowest_ms = max(record["duration_ms"] for record in rank_records.values())
        self.record(name, slowest_ms)
        ranks = []
        for rank, record in sorted(rank_records.items()):
            time_ms = record["duration_ms"]
            times = dict.fromkeys(("mean_ms", "min_ms", "max_ms"), time_ms)
            ranks.append({"rank": rank, "count": 1, **times, "std_ms": 0.0, "peak_memory_gb": None, **record})
        context._registry.beside[name] = {"parallel_info": {"num_ranks": len(ranks), "ranks": ranks}}

    def record_signature(self, signature: StageIOSignature) -> None:
        """Set a stage's signature, replacing that of its calls."""
        told = signature.to_dict()
        name = told["stage_name"]
        context._registry.made_signatures[name] = signatures.StageIOSignature(
            name, told["input_signatures"], told["output_signature"], told["metadata"]
        )

    dump = staticmethod(dump_timing_report)
    dump_io_signatures = staticmethod(dump_io_signatures)
    get_io_signatures = staticmethod(get_io_signatures)
    get_report = staticmethod(get_timing_report)
    set_metadata = staticmethod(set_timing_metadata)

    def finalize(self) -> None:
        """End the wall clock's time, once."""
        if not self._is_final:
            self._is_final = True
            context._registry.ended_ns = time.perf_counter_ns()

    def summary(self) -> str:
        """Return the report as a table."""
        return timing_table(self.get_report())


GlobalTimingRegistry._instance = GlobalTimingRegistry()


def reset_timing_registry(
    request_id: str | None = "", metadata: Mapping[str, Any] | None = None
) -> GlobalTimingRegistry:
    """Clear stages and memory, begin a request, and return the registry."""
    return GlobalTimingRegistry.reset(request_id, metadata)


def print_timing_summary() -> None:
    """Log the report's table, or print it on stderr without logging."""
    memory.tell(GlobalTimingRegistry.get_instance().summary())


# ---- Kernels and comparisons

NCU_KEY_METRICS = [
    "gpu__time_duration.avg",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
]
_ADVICE = {
    "memory_bound": "The device's memory is at its limit: move fewer bytes, such as by fusing kernels.",
    "compute_bound": "The SMs are busy: compute less, or with faster instructions, such as those of tensor cores.",
    "latency_bound": "Neither is busy: have more warps in flight, and accesses to memory that go together.",
}


def analyze_ncu_report(report_path: StrPath) -> dict[str, Any]:
    """Return the limit of the longest kernel in an ncu report.

    report_path: as for ``cprofiling.analyze_ncu_report``, with the same errors.

    Returns:
        ``metrics``: those of NCU_KEY_METRICS that the report has, as texts, in the units that ncu takes by default;
        ``dram_throughput_pct`` and ``sm_throughput_pct``, 0.0 where they are not known; ``bottleneck``:
        ``memory_bound`` above 80 % of the one, else ``compute_bound`` above 60 % of the other, else ``latency_bound``;
        and a ``recommendation``.
    """
    kernels = ncu_report.analyze_ncu_report(report_path)
    longest = max(kernels, key=lambda kernel: kernel.duration_ns or 0.0, default=None)
    names = ("duration_ns", "compute_percent", "dram_percent", "occupancy_percent")
    figures = [getattr(longest, name, None) for name in names]
    if figures[0] is not None:  # in the unit that ncu takes by default
        figures[0] /= next((unit for unit in (1e9, 1e6, 1e3) if figures[0] >= unit), 1)
    metrics = {key: f"{value:.12g}" for key, value in zip(NCU_KEY_METRICS, figures, strict=True) if value is not None}
    sm, dram = (float(value or 0.0) for value in figures[1:3])
    bottleneck = "memory_bound" if dram > 80 else "compute_bound" if sm > 60 else "latency_bound"
    return {
        "metrics": metrics,
        "dram_throughput_pct": dram,
        "sm_throughput_pct": sm,
        "bottleneck": bottleneck,
        "recommendation": _ADVICE[bottleneck],
    }


def compare_timing_reports(baseline_path: StrPath, new_path: StrPath) -> str:
    """Compare two timing reports in Markdown, marking changes over 5 %.

    ``cprofiling.layers.compare_timing_reports`` tells noise from change, and raises the same errors.
    """
    reports = load_timing_report(baseline_path), load_timing_report(new_path)
    totals = [float(report.get("total_stages_ms", report.get("total_ms", 0.0))) for report in reports]
    peaks = [float(report.get("peak_memory_gb", 0.0)) for report in reports]
    lines = [
        "### Performance Comparison\n",
        "| Metric | Baseline | New | Diff |",
        "|--------|----------|-----|------|",
        f"| Total (ms) | {totals[0]:.1f} | {totals[1]:.1f} | {_change(*totals)} |",
        f"| Peak Memory (GB) | {peaks[0]:.2f} | {peaks[1]:.2f} | - |",
        "\n### Stage Breakdown",
        "| Stage | Baseline (ms) | New (ms) | Diff (%) |",
        "|-------|---------------|----------|----------|",
    ]
    for name in sorted({*reports[0]["stages"], *reports[1]["stages"]}):
        times = [float(report["stages"].get(name, {}).get("duration_ms", 0.0)) for report in reports]
        lines.append(f"| {in_cell(name)} | {times[0]:.1f} | {times[1]:.1f} | {_change(*times)} |")
    return "\n".join(lines)


def _change(baseline: float, new: float) -> str:
    percent = (new - baseline) / baseline * 100 if baseline else 0.0
    mark = "\N{LARGE RED CIRCLE}" if percent > 5 else "\N{LARGE GREEN CIRCLE}"
    return f"{percent:+.1f}% {mark if abs(percent) > 5 else chr(0x26AA)}"
