"""Calls nodes on devices while the N-th call of a function of CUDA's driver, or of CUPTI, answers an error (H1 to H3).

    python -m isolated.failing_devices SHARE driver|cupti     (in tests/, where the fakes are those of the environment)

Each case is a process of its own; of all a random SHARE is tried. What the program computes and counts is as without
devices, nothing forbidden is done, and where figures are missing there is a reason. Printed is how many calls failed.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
import warnings
from collections.abc import Callable

import cprofiling as cp
from fakes.cuda_process import MS, cupti, fake, use_torch

CALLS = 4
MOST = 40  # of the calls of a function: what calls cost is measured by thousands
Counts = dict[str, int]
DRIVER_CODES = (1, 2, 3, 4, 34, 100, 101, 201, 209, 400, 600, 700, 709, 719, 900, 906, 999)
CUPTI_ENDS = (12, 21)  # of a buffer
CUPTI_CODES = (1, 2, 3, 7, 8, 12, 15, 21, 22, 35, 39, 999)
DRIVER_FUNCTIONS = (
    "cuGetProcAddress", "cuGetErrorName", "cuDeviceGet", "cuCtxGetDevice", "cuCtxGetCurrent", "cuCtxGetId",
    "cuCtxPushCurrent", "cuCtxPopCurrent", "cuCtxSynchronize", "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease", "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode", "cuEventCreate",
    "cuEventDestroy", "cuEventRecord", "cuEventQuery", "cuEventElapsedTime", "cuMemGetInfo",
)  # fmt: skip
CUPTI_FUNCTIONS = (
    "cuptiGetVersion", "cuptiGetResultString", "cuptiGetTimestamp", "cuptiSubscribe", "cuptiUnsubscribe",
    "cuptiEnableCallback", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable", "cuptiActivityDisable",
    "cuptiActivityFlushAll", "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords",
)  # fmt: skip


def still_counts() -> None:
    """The profiler is as usable as ever."""
    profiler = cp.Profiler()
    profiler.set_profiling(True)
    assert profiler.profile_node(len, name="node")(()) == 0
    assert [stats.count for stats in profiler.get_profiling_summary()] == [1]


def time_nodes(function: str, code: int, nth: int) -> Counts:
    """Ask for the GPU times of nodes; return how often the driver was called."""
    torch = use_torch()
    if function:
        fake.fail(function.encode(), code, nth)

    @cp.profile_node(name="node")
    def node(value: int) -> int:
        fake.launch(torch.streams[0], MS)
        return value + 1

    for synchronize in (False, True):
        cp.set_profiling(True, reset=True, gpu_time=True, memory=True, synchronize_cuda=synchronize)
        for value in range(CALLS):
            assert node(value) == value + 1
            fake.advance(10 * MS)
        cp.get_profiling_summary()
        summary = cp.get_profiling_summary()  # with those that were not ready
        (stats,) = summary
        assert stats.count == CALLS
        assert stats.gpu_count == CALLS or stats.gpu_reason, stats
        assert stats.gpu_total_ms in (None, stats.gpu_count), stats
    cp.set_profiling(False, reset=True)
    still_counts()
    assert fake.broken_rules() == [], fake.broken_rules()
    assert fake.open_pushes() == (function == "cuCtxPopCurrent" and nth <= fake.calls(function.encode()))
    assert fake.capture_mode() == 0 or function == "cuThreadExchangeStreamCaptureMode"
    return {name: fake.calls(name.encode()) for name in DRIVER_FUNCTIONS}


def record_kernels(function: str, code: int, nth: int) -> Counts:
    """Record kernels and their calls; return how often CUPTI was called."""
    cupti.reset()
    if function:
        cupti.fail(function.encode(), code, nth)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with cp.profile(activities=[cp.ProfilerActivity.CPU, cp.ProfilerActivity.CUDA], operators=False) as prof:
            for _ in range(CALLS):
                with cp.record("label"):
                    cupti.launch(b"gemm", 1000)
                    cupti.upload(4096, 1000)
            end = cupti.now() + MS
            while cupti.now() < end:
                pass
    events = prof.events()
    assert sum(event.name == "label" for event in events) == CALLS
    works = sum(event.kind == "device" for event in events)
    assert works <= 2 * CALLS
    is_end = function == "cuptiActivityGetNextRecord" and code in CUPTI_ENDS
    lost = json.loads(prof.recording.facts.get("cupti", "{}")).get("lost")
    assert works == 2 * CALLS or told or lost or is_end, f"{works} without a word"
    still_counts()
    assert cupti.violations() == 0, cupti.violation()
    assert cupti.open_buffers() == 0
    return {name: cupti.calls(name.encode()) for name in CUPTI_FUNCTIONS}


def in_child(run: Callable[[str, int, int], Counts], function: str, code: int, nth: int) -> Counts:
    """Run in a child, which has made no call before; return what it returns."""
    end, other = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(other, json.dumps(run(function, code, nth)).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(other)
    with open(end, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        print(f"{function} answers {code} at call {nth}: status {status}", flush=True)
    return json.loads(said) if status == 0 else {}


def main(share: float, library: str) -> int:
    rng = random.Random(sys.version)  # each Python tries others
    run, codes = (time_nodes, DRIVER_CODES) if library == "driver" else (record_kernels, CUPTI_CODES)
    counts = in_child(run, "", 0, 0)
    assert counts
    failed = wrong = 0
    for function, most in counts.items():
        for nth in range(1, min(most, MOST) + 1):
            for code in codes:
                if rng.random() < share:
                    failed += 1
                    wrong += not in_child(run, function, code, nth)
    print(counts)
    print(f"{failed} calls failed, {wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2]))
