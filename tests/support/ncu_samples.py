"""Reports of ncu for tests, in the layouts of several versions: invented kernels and figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DURATION = "gpu__time_duration.sum"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
WAVES = "launch__waves_per_multiprocessor"
BYTES = "dram__bytes.sum"
RATE = "dram__bytes.sum.per_second"
CLOCK = "gpc__cycles_elapsed.avg.per_second"
PROCESSORS = "launch__sm_count"


@dataclass(frozen=True)
class Kernel:
    """A kernel and what its metrics are, in us, Gbyte/s and GHz."""

    name: str
    verdict: str
    limiter: str
    grid: tuple[int, int, int]
    values: dict[str, float]


def kernel(
    name: str, verdict: str, limiter: str, grid: tuple[int, int, int], figures: Sequence[float], moved: float
) -> Kernel:
    names = (DURATION, COMPUTE, MEMORY, DRAM, OCCUPANCY, WAVES)
    extra = {BYTES: moved, RATE: 1234.5, CLOCK: 1.755, PROCESSORS: 132}
    return Kernel(name, verdict, limiter, grid, {**dict(zip(names, figures, strict=True)), **extra})


KERNELS = (
    kernel(
        'void scale<float, 4>(float *, int, "a, b")', "memory_bound", "DRAM bandwidth 83 % of peak", (1024, 27, 1),
        (35.25, 12.41, 83.27, 83.27, 88.5, 13.09), 27_595_520.0,
    ),
    kernel(
        "gemm_tile<128, 64>(Params)", "compute_bound", "SM throughput 91 % of peak", (2048, 1, 1),
        (1234.5, 91.18, 34.02, 20.5, 31.25, 7.75), 5_242_880.0,
    ),
    kernel(
        "scan<int>(int const*,\nint*)", "latency_bound", "grid of 28 blocks on 132 SMs: 0.21 waves", (28, 1, 1),
        (48.75, 8.11, 21.32, 21.32, 12.5, 0.21), 1_048_576.0,
    ),
    kernel(
        "fill(int*)", "launch_bound", "2.3 µs in all, with a grid of 4 blocks on 132 SMs: 0.03 waves", (4, 1, 1),
        (2.31, 0.52, 1.25, 0.75, 6.25, 0.03), 4096.0,
    ),
)  # fmt: skip
UNITS = {
    DURATION: "ns", COMPUTE: "%", MEMORY: "%", DRAM: "%", OCCUPANCY: "%", WAVES: "", BYTES: "byte", RATE: "byte/s",
    CLOCK: "hz", PROCESSORS: "",
}  # fmt: skip
OLD_UNITS = {**UNITS, DURATION: "nsecond", RATE: "byte/second", CLOCK: "cycle/second"}
POWERS = {DURATION: 3, RATE: 9, CLOCK: 9}  # of ten, from the kernels' figures to the units
LABELS = {
    DURATION: "Duration", COMPUTE: "Compute (SM) Throughput", MEMORY: "Memory Throughput", DRAM: "DRAM Throughput",
    OCCUPANCY: "Achieved Occupancy", WAVES: "Waves Per SM", RATE: "Memory Throughput", CLOCK: "SM Frequency",
    PROCESSORS: "# SMs",
}  # fmt: skip
INFO = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size")
PREFIX = (
    'epoch 0: loss 0.25, "best"\n==PROF== Connected to process 77 (/usr/bin/python3.11)\n'
    '==PROF== Profiling "scale" - 0: 0%....50%....100% - 9 passes\nKernel Name, and other words\n'
)
SUFFIX = "==PROF== Disconnected from process 77\n==WARNING== Found 2 things\n"
NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
RULES = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")
HINT = 'Memory is more heavily used than compute, see "Memory",\nand others.'


def number(name: str, value: float) -> str:
    """A figure as ncu prints it in base units."""
    return f"{round(value, 2) * 10 ** POWERS.get(name, 0):.15g}"


def table(lines: Iterable[Sequence[object]], ending: str = "\n") -> str:
    """The lines as ncu writes them: everything in quotes."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=ending).writerows(lines)
    return text.getvalue()


def info(number: int, kernel: Kernel) -> list[object]:
    grid = f"({', '.join(map(str, kernel.grid))})"
    return [number, 77, "python3.11", "127.0.0.1", kernel.name, 1, 7, "(256, 1, 1)", grid]


def raw(kernels: Sequence[Kernel] = KERNELS, units: dict[str, str] = UNITS, ending: str = "\n") -> str:
    names = list(kernels[0].values)
    head = [[*INFO, "Device", "CC", *names, "launch__func_cache_config", "n/a__metric.sum"]]
    head.append([""] * (len(INFO) + 2) + [units[name] for name in names] + ["", ""])
    lines = [
        [*info(place, each), 0, "9.0", *(number(name, each.values[name]) for name in names), "CachePreferNone", "n/a"]
        for place, each in enumerate(kernels)
    ]
    return table([*head, *lines], ending)


def raw_old(kernels: Sequence[Kernel] = KERNELS) -> str:
    return raw(kernels, OLD_UNITS)


def raw_crlf(kernels: Sequence[Kernel] = KERNELS) -> str:
    return raw(kernels, ending="\r\n")


def raw_between_lines(kernels: Sequence[Kernel] = KERNELS) -> str:
    return PREFIX + "50 %" + raw(kernels) + SUFFIX + "done\n"


def details(kernels: Sequence[Kernel] = KERNELS, nvtx: str = "", rules: str = "") -> str:
    head = [*INFO[:4], *([NVTX] if nvtx else []), *INFO[4:], "Device", "CC"]
    head += ["Section Name", "Metric Name", "Metric Unit", "Metric Value", *(RULES if rules else ())]
    lines: list[Sequence[object]] = [head]
    for place, each in enumerate(kernels):
        begin = info(place, each)
        begin = [*begin[:4], *([nvtx] if nvtx else []), *begin[4:], 0, "9.0"]
        end = [""] * len(RULES) if rules else []
        for name, label in LABELS.items():
            lines.append([*begin, "Some Section", label, UNITS[name], number(name, each.values[name]), *end])
        if rules:
            lines.append([*begin, "Some Section", "", "", "", "Bottleneck", "OPT", rules, "global", "12.5"])
        lines.append([*begin, "Some Section", "Function Cache Configuration", "", "CachePreferNone", *end])
    return table(lines)


def details_rich(kernels: Sequence[Kernel] = KERNELS) -> str:
    return details(kernels, nvtx="<default domain>:cprofiling:encoder:none", rules=HINT)


def summary(kernels: Sequence[Kernel] = KERNELS) -> str:
    head = ["Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size"]
    head += ["Invocations", "Section Name", "Metric Name", "Metric Unit", "Minimum", "Maximum", "Average"]
    lines: list[Sequence[object]] = [head]
    for each in kernels:
        begin = [*info(0, each)[1:], 3, "Command line profiler metrics"]
        for name, value in each.values.items():
            lines.append(
                [*begin, name, UNITS[name], number(name, value / 2), number(name, value * 2), number(name, value)]
            )
    return table(lines)


LAYOUTS = {each.__name__: each for each in (raw, raw_old, raw_crlf, raw_between_lines, details, details_rich, summary)}
