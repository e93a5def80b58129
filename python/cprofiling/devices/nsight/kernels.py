"""Kernels measured by ncu with verdicts, and their report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from cprofiling._internal.tables import Figures, Table, Tabular, frame_of, short_repr
from cprofiling._internal.text import shown_text
from cprofiling.devices.nsight import metrics as ncu_metrics
from cprofiling.devices.nsight.metrics import NO_TEXTS, Metrics, Texts
from cprofiling.devices.nsight.verdict import Verdict, memory_of, verdict_of, waves_of

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    "kernel", "duration_us", "compute_percent", "memory_percent", "dram_percent", "tensor_percent", "occupancy_percent",
    "waves", "verdict", "limiter",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NcuKernel:
    """One kernel measured by ncu, immutable, hashable and picklable.

    None means that the report does not say. Properties such as ``duration_ns``, ``verdict`` and ``flops`` derive from
    the metrics.

    Attributes:
        name: Its name, as the report has it.
        metrics: The figures by metric id, in base units (ns, byte, Hz, %, byte/s); None for ``n/a``. The labels of the
            details page, such as ``Compute (SM) Throughput``, are found as well.
        texts: Metrics that are no numbers, by id.
        id: Running number of the launch.
        process_id: Number of the process.
        process_name: Name of the process's program.
        host: Name of the host.
        device: Number of the device.
        capability: Its compute capability, such as ``9.0``.
        context: Number of the CUDA context.
        stream: Number of the stream.
        block: Threads of a block along x, y and z.
        grid: Blocks of the grid along x, y and z.
        ranges: The NVTX ranges that it is in, as the report has them.
        rules: What the rules of ncu itself say of it.
        invocations: How many launches the figures are averages of: more than 1 in summaries only.
    """

    name: str
    metrics: Metrics
    texts: Texts = NO_TEXTS
    id: int | None = None
    process_id: int | None = None
    process_name: str | None = None
    host: str | None = None
    device: int | None = None
    capability: str | None = None
    context: int | None = None
    stream: int | None = None
    block: tuple[int, ...] | None = None
    grid: tuple[int, ...] | None = None
    ranges: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    invocations: int = 1

    @property
    def duration_ns(self) -> float | None:
        """Duration on the device in ns, at the clocks that ncu sets."""
        return self.metrics.first(ncu_metrics.DURATION)

    @property
    def compute_percent(self) -> float | None:
        """Throughput of the SMs, in percent of their peak."""
        return self.metrics.first(ncu_metrics.COMPUTE)

    @property
    def memory_percent(self) -> float | None:
        """Memory throughput in percent of the busiest level's peak."""
        return memory_of(self.metrics)

    @property
    def dram_percent(self) -> float | None:
        """Throughput of the device's memory, in percent of its peak."""
        return self.metrics.first(ncu_metrics.DRAM)

    @property
    def tensor_percent(self) -> float | None:
        """Busy time of the tensor cores, in percent."""
        return self.metrics.first(ncu_metrics.TENSOR)

    @property
    def occupancy_percent(self) -> float | None:
        """Achieved occupancy, resident warps in percent of an SM's limit."""
        return self.metrics.first(ncu_metrics.OCCUPANCY)

    @property
    def blocks(self) -> float | None:
        """Number of blocks in the grid."""
        return float(math.prod(self.grid)) if self.grid else self.metrics.first(ncu_metrics.GRID)

    @property
    def waves(self) -> float | None:
        """Number of times that the grid fills the device with blocks."""
        return waves_of(self.metrics, self.blocks)

    @property
    def dram_bytes(self) -> float | None:
        """Bytes that were read from and written to the device's memory."""
        whole = self.metrics.first(ncu_metrics.DRAM_BYTES)
        parts = [self.metrics.get(name) for name in ncu_metrics.DRAM_PARTS]
        known = [part for part in parts if part is not None]
        return math.fsum(known) if whole is None and len(known) == len(parts) else whole

    @property
    def flops(self) -> float | None:
        """Floating-point operations of the threads, a fused one counted as two.

        Tensor cores are left out, and types (half, single, double) without a metric in the report. None if no type has
        metrics, or one type has some metrics only, or one without a value.
        """
        sums: list[float] = []
        for operations in ncu_metrics.OPERATIONS:
            if not any(name in self.metrics for names, _ in operations for name in names):
                continue  # the report does not list this type
            counts = [(self.metrics.first(names), times) for names, times in operations]
            known = [count * times for count, times in counts if count is not None]
            if len(known) < len(counts):
                return None
            sums.append(math.fsum(known))
        return math.fsum(sums) if sums else None

    @property
    def arithmetic_intensity(self) -> float | None:
        """Floating-point operations per byte of device memory, or None."""
        flops, moved = self.flops, self.dram_bytes
        return flops / moved if flops is not None and moved else None

    @property
    def verdict(self) -> str | None:
        """Verdict of the kernel, or None.

        One of ``memory_bound``, ``compute_bound``, ``latency_bound`` and ``launch_bound``.
        """
        return self.judge().kind

    @property
    def reason(self) -> str | None:
        """Reason for a missing verdict, or None."""
        return self.judge().reason

    @property
    def limiter(self) -> str | None:
        """Limit of the kernel, with figures."""
        return self.judge().limiter

    @property
    def recommendation(self) -> str:
        """Advice for the kernel."""
        return self.judge().recommendation

    @property
    def at_limit(self) -> bool:
        """True if memory or compute is used to over 80 % of its peak."""
        return self.judge().at_limit

    def judge(self) -> Verdict:
        """Return verdict, reason, limiter and recommendation in one."""
        return verdict_of(self.metrics, self.blocks)

    def row(self) -> tuple[object, ...]:
        """Return the values of the report's columns."""
        judged = self.judge()
        duration_ns = self.duration_ns
        return (
            self.name, None if duration_ns is None else duration_ns / 1000, self.compute_percent, self.memory_percent,
            self.dram_percent, self.tensor_percent, self.occupancy_percent, self.waves, judged.kind, judged.limiter,
        )  # fmt: skip


@dataclass(frozen=True)
class NcuAverage:
    """All kernels of one name in a report.

    Attributes:
        name: Their name.
        count: How many launches there are.
        total_us: How long they ran on the device together; None if that is not known of all.
        mean_us: How long one ran on average.
        share_percent: Their part of the time of all kernels of the report.
        verdict: That of most of their time, or of most of them where the time is not known.
        limiter: That of the longest one with this verdict.
        at_limit: Whether that one is at its limit.
    """

    name: str
    count: int
    total_us: float | None
    mean_us: float | None
    share_percent: float | None
    verdict: str | None
    limiter: str | None
    at_limit: bool


@dataclass(frozen=True, repr=False)
class NcuReport(Tabular, Sequence[NcuKernel]):
    """Kernels of a report in its order, printed as a table.

    Attributes:
        kernels: They themselves.
        units: The base unit of each metric, by id.
        notes: What one must know to read the figures, one sentence each.
    """

    kernels: tuple[NcuKernel, ...]
    units: Texts = NO_TEXTS
    notes: tuple[str, ...] = ()

    @overload
    def __getitem__(self, place: int) -> NcuKernel: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[NcuKernel, ...]: ...
    def __getitem__(self, place: int | slice) -> NcuKernel | tuple[NcuKernel, ...]:
        return self.kernels[place]

    def __iter__(self) -> Iterator[NcuKernel]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def by_kernel(self) -> Figures[NcuAverage]:
        """Return one line for each name, the longest first."""
        groups: dict[str, list[NcuKernel]] = {}
        for kernel in self.kernels:
            groups.setdefault(kernel.name, []).append(kernel)
        whole_ns = _total_ns(self.kernels)
        averages = []
        for name, kernels in groups.items():
            count, total_ns = sum(kernel.invocations for kernel in kernels), _total_ns(kernels)
            weights: dict[str | None, float] = {}
            for kernel in kernels:
                weight = kernel.invocations * (1.0 if total_ns is None else kernel.duration_ns or 0.0)
                weights[kernel.verdict] = weights.get(kernel.verdict, 0.0) + weight
            verdict = max(weights, key=weights.__getitem__)
            alike = [kernel for kernel in kernels if kernel.verdict == verdict]
            longest = max(alike, key=lambda kernel: kernel.duration_ns or 0.0).judge()
            averages.append(NcuAverage(
                name, count,
                total_us=None if total_ns is None else total_ns / 1000,
                mean_us=None if total_ns is None or not count else total_ns / count / 1000,
                share_percent=None if total_ns is None or not whole_ns else total_ns * 100 / whole_ns,
                verdict=verdict, limiter=longest.limiter, at_limit=longest.at_limit,
            ))  # fmt: skip
        return Figures(NcuAverage, sorted(averages, key=lambda each: -(each.total_us or 0.0)), self.notes)

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame of the table's columns and all metrics.

        Raises ImportError, naming the extra, without pandas.
        """
        names = tuple(dict.fromkeys(name for kernel in self.kernels for name in kernel.metrics))
        rows = [(*kernel.row(), *(kernel.metrics.get(name) for name in names)) for kernel in self.kernels]
        return frame_of((*_COLUMNS, *names), rows)

    def advice(self) -> tuple[str, ...]:
        """Return a line per verdict and recommendation, longest kernels first."""
        longest = sorted(self.kernels, key=lambda kernel: -(kernel.duration_ns or 0.0))
        found: dict[str, None] = {}
        for judged in (kernel.judge() for kernel in longest):
            found.setdefault(f"{judged.kind or f'no verdict, as {judged.reason}'}: {judged.recommendation}")
        return tuple(found)

    def _table(self) -> Table:
        notes = [shown_text("line", line) for line in (*self.advice(), *self.notes)]
        return Table(_COLUMNS, [kernel.row() for kernel in self.kernels], notes)

    def __repr__(self) -> str:
        return short_repr("NcuReport", len(self), "kernel")


def _total_ns(kernels: Sequence[NcuKernel]) -> float | None:
    durations = [(kernel.duration_ns, kernel.invocations) for kernel in kernels]
    known = [duration_ns * count for duration_ns, count in durations if duration_ns is not None]
    return math.fsum(known) if len(known) == len(kernels) else None
