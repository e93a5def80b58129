"""What devices did: kernels, copies, launches, idle time; against HolisticTraceAnalysis where there is a trace."""

from __future__ import annotations

import importlib
import logging
import math
import statistics
from typing import Any

import pytest

from cprofiling.analysis.device_figures import (
    CopyFigures,
    IdleTimes,
    KernelFigures,
    LaunchFigures,
    copy_breakdown,
    copy_kind,
    idle_times,
    kernel_breakdown,
    launch_statistics,
    launches,
)
from cprofiling.recording.result import Recording
from cprofiling.recording.tree import work_rows
from recordings import DROPPED, TRACES, call, device, host, made, trace

WORK = [
    call("cudaLaunchKernel", 0, 10, 1), call("cudaLaunchKernel", 20, 30, 2), call("cudaMemcpyAsync", 40, 70, 3),
    device("gemm", 15, 25, correlation=1), device("gemm", 28, 68, correlation=2),
    device("Memcpy HtoD (Pageable -> Device)", 75, 85, correlation=3, cat="gpu_memcpy", bytes=20_000),
    device("Memcpy HtoD (Pageable -> Device)", 90, 100, cat="gpu_memcpy"),
    device("Memset (Device)", 200, 201, cat="gpu_memset", bytes=8, stream=20, thread="0/20"),
    device("ncclDevKernel_AllReduce", 0, 300, stream=20, thread="0/20", device=1),
    device("Stream Sync", 0, 90, cat="cuda_sync"), device("block", 0, 90, cat="gpu_user_annotation"),
    device("CopyKind DtoD", 400, 400, cat="Memcpy", bytes=7, stream=-1),
]  # fmt: skip
US = 1000


def test_a_call_that_starts_several_pieces_counts_once() -> None:
    rows = [
        call("cudaGraphLaunch", 0, 100, 1), call("cudaGraphLaunch", 200, 250, 2),
        device("a", 110, 120, correlation=1), device("b", 120, 320, correlation=1),
        device("c", 330, 340, correlation=2),
    ]  # fmt: skip
    (graphs,) = launch_statistics(made(rows))
    assert (graphs.count, graphs.host_ns, graphs.device_ns) == (3, 150 * US, 220 * US)
    assert graphs.shorter_than_call == 2


def test_a_call_of_a_real_graph_counts_once() -> None:
    (graphs,) = (of for of in launch_statistics(trace("test")) if of.call == "cudaGraphLaunch")
    assert (graphs.count, graphs.host_ns) == (5046, 14_727_000)


def test_kernels_by_name() -> None:
    found = kernel_breakdown(made(WORK))
    assert found == [
        KernelFigures("ncclDevKernel_AllReduce", "COMMUNICATION", 1, 300 * US, 300 * US, 300 * US, 300 * US, 0.0),
        KernelFigures(
            "gemm", "COMPUTATION", 2, 50 * US, 25 * US, 10 * US, 40 * US, statistics.stdev([10 * US, 40 * US])
        ),
        KernelFigures("Memcpy HtoD (Pageable -> Device)", "MEMORY", 2, 20 * US, 10 * US, 10 * US, 10 * US, 0.0),
        KernelFigures("Memset (Device)", "MEMORY", 1, US, US, US, US, 0.0),
        KernelFigures("CopyKind DtoD", "MEMORY", 1, 0, 0, 0, 0, 0.0),
    ]


def test_copies_by_kind() -> None:
    assert copy_breakdown(made(WORK)) == [
        CopyFigures("Memcpy HtoD (Pageable -> Device)", "HtoD", 2, 20_000, 20 * US, 1.0),
        CopyFigures("Memset (Device)", "Memset", 1, 8, US, 0.008),
        CopyFigures("CopyKind DtoD", "DtoD", 1, 7, 0, None),
    ]
    (unknown,) = copy_breakdown(made([device("hipMemcpy", 0, 5, cat="gpu_memcpy")]))
    assert (unknown.kind, unknown.bytes, unknown.bandwidth) == ("hipMemcpy", None, None)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy DtoH (Device -> Pinned)", "DtoH"), ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("Memcpy HtoA (Host -> Array)", "HtoA"), ("Memset (Managed)", "Memset"), ("dma", "dma"),
    ],
)  # fmt: skip
def test_a_copy_s_kind_is_in_its_name(name: str, kind: str) -> None:
    assert copy_kind(name) == kind


def test_launches_are_calls_and_their_work() -> None:
    found = launches(made(WORK))
    assert [(launch.call, launch.host_ns, launch.device_ns, launch.delay_ns) for launch in found] == [
        ("cudaLaunchKernel", 10 * US, 10 * US, 5 * US), ("cudaLaunchKernel", 10 * US, 40 * US, 0),
        ("cudaMemcpyAsync", 30 * US, 10 * US, 5 * US),
    ]  # fmt: skip
    assert launch_statistics(made(WORK)) == [
        LaunchFigures("cudaLaunchKernel", 2, 20 * US, 50 * US, 5 * US, 2.5 * US, 0),
        LaunchFigures("cudaMemcpyAsync", 1, 30 * US, 10 * US, 5 * US, 5 * US, 1),
    ]


def test_idle_time_has_a_reason() -> None:
    assert idle_times(made(WORK)) == [
        IdleTimes(0, 7, 4, 70 * US, 15 * US, 0, 15 * US, 0),
        IdleTimes(0, 20, 1, US, 0, 0, 0, 0),
        IdleTimes(1, 20, 1, 300 * US, 0, 0, 0, 0),
    ]
    rows = [
        call("l", 0, 1, 1), call("l", 21, 22, 2), call("l", 30, 31, 3), call("l", 32, 33, 4),
        device("a", 10, 20, correlation=1), device("b", 25, 50, correlation=2), device("c", 79, 80, correlation=3),
        device("d", 110, 120, correlation=4), device("e", 115, 118), device("f", 130, 140),
    ]  # fmt: skip
    (stream,) = idle_times(made(rows))
    assert stream == IdleTimes(0, 7, 6, 56 * US, 74 * US, 5 * US, (29 - 5 + 12) * US, 30 * US)


def test_what_was_launched_before_the_recording_may_be_left_out() -> None:
    recording = made(WORK)
    assert len(list(work_rows(recording))) == 7
    assert [figures.name for figures in kernel_breakdown(recording, launched_only=True)] == [
        "gemm", "Memcpy HtoD (Pageable -> Device)",
    ]  # fmt: skip
    assert [figures.count for figures in copy_breakdown(recording, launched_only=True)] == [1]
    assert [figures.count for figures in idle_times(recording, launched_only=True)] == [3]


@pytest.mark.parametrize("breakdown", [kernel_breakdown, copy_breakdown, launches, launch_statistics, idle_times])
def test_figures_of_nothing_say_so(breakdown: Any) -> None:
    found = breakdown(made([host("a", 0, 1)], dropping=True))
    assert found == []
    assert found.notes == ("No such work of a device was recorded.", DROPPED)
    assert str(found).endswith(f"┘\nNo such work of a device was recorded.\n{DROPPED}")


def test_figures_print_and_become_dataframes() -> None:
    found = idle_times(made(WORK))
    assert str(found).splitlines()[1] == (
        "│ Device ┆ Stream ┆ Count ┆ Busy (ns) ┆ Idle (ns) ┆ Host wait (ns) ┆ Kernel wait (ns) ┆ Other (ns) │"
    )
    assert str(found).splitlines()[3].startswith("│ 0      ┆ 7      ┆ 4     ┆ 70000     ┆ 15000 ")
    pytest.importorskip("pandas")
    frame = found.to_pandas()
    assert list(frame.columns) == list(found.columns)
    assert list(frame["busy_ns"]) == [70 * US, US, 300 * US]


# --- real traces ----------------------------------------------------------------------------------------------------

# Noted from HolisticTraceAnalysis 0.5.0, the last profiler step included: of each stream the time of waiting for the
# host, between kernels, and otherwise; of the launches their number, and the sums of the times of calls, of work and of
# delays. All times are in microseconds.
NOTED: dict[str, tuple[dict[int, tuple[int, int, int]], tuple[int, int, int, int]]] = {
    "control": (
        {7: (133311, 17152, 32751), 20: (424456, 739, 9684), 21: (285806, 78, 0), 22: (340772, 1515, 0)},
        (9450, 139446, 501567, 20056883),
    ),
    "event_sync_multi_stream": ({20: (32, 0, 0), 24: (0, 15, 0), 28: (0, 15, 0)}, (6, 97, 372, 18)),
}


@pytest.mark.parametrize("name", NOTED)
def test_figures_are_those_noted_from_hta(name: str) -> None:
    recording = trace(name)
    streams, (count, *sums) = NOTED[name]
    found = {
        figures.stream: (figures.host_wait_ns // US, figures.kernel_wait_ns // US, figures.other_ns // US)
        for figures in idle_times(recording)
    }
    assert found == streams
    made_launches = launches(recording)
    assert len(made_launches) == count
    fields = ("host_ns", "device_ns", "delay_ns")
    assert [sum(getattr(launch, field) for launch in made_launches) // US for field in fields] == sums


def test_copies_of_the_real_traces() -> None:
    expected = {
        "control": {"HtoD": (150, 423_923_260), "DtoD": (18, 1_821_299_360), "DtoH": (60, 100_896)},
        "test": {"HtoD": (151, 423_923_264), "DtoD": (4645, 27_916_597_296), "DtoH": (60, 117_936)},
    }
    for name, copies in expected.items():
        found = {figures.kind: (figures.count, figures.bytes) for figures in copy_breakdown(trace(name))}
        found.pop("Memset")
        assert found == copies


@pytest.fixture(scope="module")
def hta() -> Any:
    if not TRACES.exists():
        pytest.skip(f"needs the traces in {TRACES}")
    pytest.importorskip("hta")
    logging.getLogger("hta").setLevel(logging.ERROR)
    return importlib.import_module("hta.common.trace").Trace


HTA_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")


def kernels_of_hta(hta: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """A trace as HTA loads it, and its figures of the kernels by their names."""
    breakdown: Any = importlib.import_module("hta.analyzers.breakdown_analysis").BreakdownAnalysis
    loaded = hta({0: str(TRACES / f"{name}.json.gz")}, str(TRACES))
    loaded.load_traces(include_last_profiler_step=True, use_multiprocessing=False)
    options = {"visualize": False, "num_kernels": 10**9, "duration_ratio": 1.0, "include_memory_kernels": True}
    rows = breakdown.get_gpu_kernel_breakdown(loaded, **options)[1].to_dict("records")
    return loaded, {row["name"]: row for row in rows if row["name"] != "Stream Wait Event"}  # a wait is no work here


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        *("alexnet_train", "event_sync", "event_sync_multi_stream", "simple_add", "train_rank0_sampled"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("control", "test")),
    ],
)
def test_figures_are_hta_s(hta: Any, name: str) -> None:
    loaded, theirs = kernels_of_hta(hta, name)
    recording = trace(name)
    ours = {figures.name: figures for figures in kernel_breakdown(recording, launched_only=True)}
    assert set(ours) == set(theirs)
    for kernel, figures in ours.items():
        row = theirs[kernel]
        assert figures.kernel_type == row["kernel_type"]
        times = tuple(row[f"{which} (us)"] * US for which in ("sum", "max", "min"))
        assert (figures.total_ns, figures.max_ns, figures.min_ns) == times
        deviation = 0.0 if math.isnan(row["stddev"]) else row["stddev"] * US
        assert figures.std_ns == pytest.approx(deviation, rel=1e-9)
    check_idle_times(loaded, recording)
    check_launches(loaded, recording)


def check_idle_times(loaded: Any, recording: Recording) -> None:
    breakdown: Any = importlib.import_module("hta.analyzers.breakdown_analysis").BreakdownAnalysis
    idle = breakdown.get_idle_time_breakdown(loaded, 30, 0, visualize=False)[0].to_dict("records")
    gaps = {(row["stream"], row["idle_category"]): row["idle_time"] * US for row in idle if row["idle_time"]}
    found = {
        (figures.stream, reason): getattr(figures, f"{reason}_ns")
        for figures in idle_times(recording, launched_only=True)
        for reason in ("host_wait", "kernel_wait", "other")
        if getattr(figures, f"{reason}_ns")
    }
    assert found == gaps


def check_launches(loaded: Any, recording: Recording) -> None:
    kernels: Any = importlib.import_module("hta.analyzers.cuda_kernel_analysis").CudaKernelAnalysis
    launched = kernels.cuda_kernel_launch_stats(loaded, [0], visualize=False)[0]
    mine = [launch for launch in launches(recording) if launch.call in HTA_LAUNCHES]
    assert len(mine) == len(launched)
    columns = {"host_ns": "cpu_duration", "device_ns": "gpu_duration", "delay_ns": "launch_delay"}
    for field, column in columns.items():
        assert sum(getattr(launch, field) for launch in mine) == launched[column].sum() * US


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["amd_mi250_train", "ns_resolution_rank0"]
)  # of triton it takes an operator for a kernel
def test_figures_of_finer_traces_are_hta_s_without_its_rounding(
    hta: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    _, theirs = kernels_of_hta(hta, name)
    ours = {figures.name: figures for figures in kernel_breakdown(trace(name))}
    assert set(ours) == set(theirs)
    for kernel, figures in ours.items():
        row = theirs[kernel]
        assert figures.kernel_type == row["kernel_type"]
        times = [row[f"{which} (us)"] * US for which in ("sum", "max", "min")]
        assert [figures.total_ns, figures.max_ns, figures.min_ns] == pytest.approx(times, rel=1e-9)
