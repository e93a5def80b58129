"""What the statistics say of a CUDA device, against CUPTI and torch.profiler; not measured where there is none."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from .candidates import cprofiling

OFF_SHARE = "GPU time of nodes of one long kernel, off CUPTI's (%)"
OFF_US = "GPU time of nodes of one long kernel, off CUPTI's (us)"
KERNEL_US = "the kernel's time by CUPTI (us)"
ADDED_US = "host time that gpu_time adds to a node (us)"
KERNELS = "kernels counted in nodes"
KERNELS_BY_TORCH = "kernels counted by torch.profiler"
COPIED = "bytes copied in nodes, counted"
COPIED_KNOWN = "bytes copied in nodes, known"

LONG_CALLS = 50
SHORT_CALLS = 500  # fewer than a device queues
SIDE = 4096  # of the matrices: some hundred microseconds on a large device, milliseconds on a small one
COUNTED_CALLS = 20


def torch_on_cuda() -> Any:
    """Return PyTorch. Raises RuntimeError where it has no device, ImportError where it is not installed."""
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch has no CUDA device")
    return torch


def profiled(function: Callable[[], object], **asked: object) -> tuple[Any, Callable[[], object]]:
    """Return a Profiler that is on, and the function as a node of it."""
    profiler = cprofiling().Profiler()
    profiler.set_profiling(True, **asked)
    return profiler, profiler.profile_node(function)


def only_row(profiler: Any) -> Any:
    """Return the statistics of a Profiler's one node. RuntimeError with the reasons where figures are missing."""
    summary = profiler.get_profiling_summary()
    [row] = summary
    if row.launches is None:
        raise RuntimeError("; ".join(summary.reasons) or "launches were not counted")
    return row


def long_kernels(_rounds: int) -> dict[str, float]:
    """Time nodes of one long kernel by events, and the kernel by CUPTI."""
    torch = torch_on_cuda()
    left, right, out = (torch.rand(SIDE, SIDE, device="cuda") for _ in range(3))
    profiler, node = profiled(lambda: torch.mm(left, right, out=out), gpu_time=True, kernels=True, skip_first_n=3)
    for _ in range(LONG_CALLS):
        node()
    torch.cuda.synchronize()
    row = only_row(profiler)
    profiler.set_profiling(False)
    by_cupti_us = row.launches.kernel_ms / row.count * 1000
    off_us = abs(row.gpu_mean_ms * 1000 - by_cupti_us)
    return {KERNEL_US: by_cupti_us, OFF_US: off_us, OFF_SHARE: off_us / by_cupti_us * 100}


def added_host_time(_rounds: int) -> dict[str, float]:
    """Time calls of a node that launches one short kernel, with and without GPU times, in turns."""
    torch = torch_on_cuda()
    value = torch.zeros(1, device="cuda")
    plain = profiled(lambda: value.add_(1))[1]
    timed = profiled(lambda: value.add_(1), gpu_time=True)[1]
    best = {plain: float("inf"), timed: float("inf")}
    for _ in range(15):
        for node, least_ns in best.items():
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            for _ in range(SHORT_CALLS):
                node()
            best[node] = min(least_ns, (time.perf_counter_ns() - start) / SHORT_CALLS)
    return {ADDED_US: (best[timed] - best[plain]) / 1000}


def counted_kernels(_rounds: int) -> dict[str, float]:
    """Count the kernels of the same calls in a node and by torch.profiler, and the bytes of known copies."""
    torch = torch_on_cuda()
    host = torch.rand(1 << 20)
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()

    def work() -> object:
        return module(host.cuda().view(-1, 64)).sum().item()

    work()
    profiler, node = profiled(work, kernels=True)
    for _ in range(COUNTED_CALLS):
        node()
    torch.cuda.synchronize()
    row = only_row(profiler)
    profiler.set_profiling(False)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as recorded:
        for _ in range(COUNTED_CALLS):
            work()
        torch.cuda.synchronize()
    names = [event.name for event in recorded.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    by_torch = sum(not name.startswith(("Memcpy", "Memset")) for name in names)
    return {
        KERNELS: row.launches.kernels,
        KERNELS_BY_TORCH: by_torch,
        COPIED: row.launches.bytes_to_device,
        COPIED_KNOWN: COUNTED_CALLS * host.numel() * host.element_size(),
    }


MEASURES: dict[Callable[[int], dict[str, float]], tuple[str, ...]] = {
    long_kernels: (KERNEL_US, OFF_US, OFF_SHARE),
    added_host_time: (ADDED_US,),
    counted_kernels: (KERNELS, KERNELS_BY_TORCH, COPIED, COPIED_KNOWN),
}
