"""Wrong code. Each line that a type checker must refuse says so; a comment that is not needed is refused itself."""

from __future__ import annotations

import cprofiling as cp


@cp.profile_node("node")
def node(value: int) -> str:
    return str(value)


def wrong(profiler: cp.Profiler, stats: cp.NodeProfilingStats) -> None:
    node("text")  # type: ignore[arg-type]
    node(1).real  # type: ignore[attr-defined]  # noqa: B018
    profiler.set_profiling()  # type: ignore[call-arg]
    profiler.set_profiling(True, False)  # type: ignore[call-arg]
    profiler.set_profiling(True, skip_first_n=1.5)  # type: ignore[arg-type]
    profiler.set_profiling(True, warmup=1)  # type: ignore[call-arg]
    profiler.profiling_enabled = True  # type: ignore[misc]
    profiler.record("train", 3, 1.0)  # type: ignore[arg-type]
    profiler.record("train", "node", "1.0")  # type: ignore[arg-type]
    profiler.record(1, "node", 1.0)  # type: ignore[arg-type]
    profiler.get_profiling_summary(3)  # type: ignore[arg-type]
    profiler.format_profiling_summary(None, 3)  # type: ignore[call-arg]
    stats.count = 3  # type: ignore[misc]
    stats.p99_ms + 1.0  # type: ignore[operator]
    cp.NodeProfilingStats("node", "train")  # type: ignore[call-arg]
    cp.stage(None)  # type: ignore[arg-type]
    cp.stage("train", True)  # type: ignore[call-arg]
    cp.instrument(node, 3)  # type: ignore[arg-type]
    cp.profile_node("node", stage=3)  # type: ignore[call-overload]
    cp.format_profiling_table(3)  # type: ignore[arg-type]
    cp.measure("not callable")  # type: ignore[arg-type]
    cp.record()  # type: ignore[call-arg]
    cp.record(3)  # type: ignore[arg-type]
    cp.record("label", True)  # type: ignore[arg-type]
    cp.record("label")(node)("text")  # type: ignore[arg-type]
    cp.profile(None, print)  # type: ignore[call-arg]
    cp.profile(capacity="many")  # type: ignore[arg-type]
    cp.profile(resource="cpu")  # type: ignore[arg-type]
    cp.profile(on_trace_ready=print)
    cp.profile().events().name  # type: ignore[attr-defined]  # noqa: B018
    cp.profile().key_averages(3)  # type: ignore[arg-type]
    cp.schedule(wait=0, warmup=0, active="2")  # type: ignore[arg-type]
    cp.load_trace(3)  # type: ignore[arg-type]


def wrong_beyond_times(profiler: cp.Profiler, stats: cp.NodeProfilingStats) -> None:
    profiler.set_profiling(True, gpu_time="yes")  # type: ignore[arg-type]
    profiler.set_profiling(True, kernels=None)  # type: ignore[arg-type]
    profiler.set_profiling(True, nvtx="yes")  # type: ignore[arg-type]
    profiler.set_profiling(True, memory=1.0)  # type: ignore[arg-type]
    profiler.set_profiling(True, counters=5)  # type: ignore[arg-type]
    cp.set_profiling(True, counters=(1,))  # type: ignore[arg-type]
    stats.counters["cpu_time"].mean  # type: ignore[union-attr]  # noqa: B018
    stats.counters["cpu_time"] = None  # type: ignore[arg-type]
    stats.launches.kernels  # type: ignore[union-attr]  # noqa: B018
    stats.memory = None  # type: ignore[misc]
    stats.gpu_total_ms + 1.0  # type: ignore[operator]
