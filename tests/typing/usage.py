"""Correct code, and the types that its parts must have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, replace
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import cprofiling as cp

if TYPE_CHECKING:
    from typing_extensions import assert_type


class Stage(str, Enum):
    WARM = "warm"


@cp.profile_node
def bare(value: int, *, scale: float = 1.0) -> float:
    return value * scale


@cp.profile_node("named", stage=cp.ExecutionStage.TRAIN)
def named(text: str) -> list[str]:
    return text.split()


@cp.profile_node(name="keyword", stage=Stage.WARM)
async def coroutine(value: int) -> int:
    return value


@cp.profile_node
def generator(count: int) -> Iterator[int]:
    yield from range(count)


@cp.profile_node()
async def async_generator() -> AsyncIterator[str]:
    yield "item"


class Node:
    label = "node"

    @cp.profile_node(name=lambda self: self.label)
    def forward(self, value: int) -> str:
        return str(value)

    @classmethod
    @cp.profile_node
    def make(cls) -> Node:
        return cls()

    @staticmethod
    @cp.profile_node("static")
    def double(value: int) -> int:
        return 2 * value

    @property
    @cp.profile_node
    def size(self) -> int:
        return len(self.label)


class Pipeline(cp.PipelineProfiling):
    def __init__(self, node: Node) -> None:
        self.node = node
        self.handle = self.instrument(node, "forward", name="instrumented")

    def forward(self, value: int) -> str:
        with self.profile_node("block"):
            return self.node.forward(value)


async def tasks() -> int:
    async with cp.profile_node("await") as site:
        print(site.name)
        total = await coroutine(1)
        async for item in async_generator():
            total += len(item)
    return total


def check_callables() -> None:
    assert_type(bare(1, scale=2.0), float)
    assert_type(named("a b"), list[str])
    assert_type(asyncio.run(coroutine(3)), int)
    assert_type(next(generator(3)), int)
    node = Node.make()
    assert_type(node, Node)
    assert_type(node.forward(3), str)
    assert_type(Node.double(3), int)
    assert_type(node.size, int)
    assert_type(Pipeline(node).forward(3), str)
    assert_type(asyncio.run(tasks()), int)


def check_reading(profiler: cp.Profiler) -> None:
    profiler.set_profiling(True, synchronize_cuda=False, reset=True, skip_first_n=2)
    assert_type(profiler.profiling_enabled, bool)
    profiler.record("inference", "node", 1)
    profiler.record(Stage.WARM, "node", Decimal("1.5"))
    summary = profiler.get_profiling_summary(stage=cp.ExecutionStage.TEST)
    assert_type(summary, cp.ProfilingSummary)
    assert_type(summary.reasons, tuple[str, ...])
    assert_type(summary.cost_ns, float | None)
    for stats in summary:
        assert_type(stats, cp.NodeProfilingStats)
        assert_type(stats.p99_ms, float | None)
        assert_type(replace(stats, count=1), cp.NodeProfilingStats)
        print(asdict(stats))
    assert_type(profiler.format_profiling_summary("train", total_frames=3), str)
    profiler.set_graph([("read", "pack"), ("pack", "store")])
    assert_type(profiler.graph, tuple[tuple[str, str], ...])
    assert_type(summary.warm_up().skip_first_n, int | None)
    assert_type(summary.what_if({"read": 2, "pack": 1.5}, total_frames={"train": 9})[0].gain_ms, float)
    assert_type(summary.frames_per_second(100, seconds=4).text(), str)
    assert_type(cp.format_profiling_table(summary, total_frames=3, skip_first_n=2), str)
    profiler.reset_profiling()


class Stream:
    cuda_stream = 7


def check_beyond_times(profiler: cp.Profiler, pipeline: Pipeline) -> None:
    profiler.set_profiling(
        True, gpu_time=True, gpu_stream=Stream(), kernels=True, nvtx=True, memory="peak", counters=("cpu_time",)
    )
    profiler.set_profiling(True, gpu_stream=lambda: 7, memory=True, counters=["cycles", "instructions"])
    pipeline.set_profiling(True, gpu_time=True, gpu_stream=None, memory=False, counters={"page_faults": "x"})
    cp.set_profiling(True, kernels=True, nvtx=True, memory="peak", counters=iter(["cpu_time"]))
    for stats in profiler.get_profiling_summary():
        assert_type(stats.gpu_count, int)
        assert_type(stats.gpu_mean_ms, float | None)
        assert_type(stats.gpu_p50_ms, float | None)
        assert_type(stats.gpu_p99_ms, float | None)
        assert_type(stats.gpu_total_ms, float | None)
        assert_type(stats.queue_delay_ms, float | None)
        assert_type(stats.gpu_reason, str | None)
        assert_type(stats.sync_total_ms, float | None)
        assert_type(stats.cpu_share, float | None)
        assert_type(stats.counters.ipc, float | None)
        for name, value in stats.counters.items():
            assert_type(name, str)
            if value is not None:
                assert_type((value.mean, value.total, value.samples), tuple[float, int, int])
                assert_type((value.unit, value.estimated), tuple[str, bool])
        if stats.launches is not None:
            assert_type((stats.launches.launches, stats.launches.kernel_ms), tuple[int, float])
            assert_type(stats.launches.bytes_to_device + stats.launches.fills, int)
        if stats.memory is not None:
            assert_type(stats.memory.reason, str | None)
            for figures in (stats.memory.device, stats.memory.host):
                if figures is not None:
                    assert_type((figures.change, figures.peak), tuple[int, int | None])
        assert_type(replace(stats, counters=stats.counters), cp.NodeProfilingStats)
        print({stats: 1}, {stats.counters: 2})


def check_binding(pipeline: Pipeline) -> None:
    assert_type(pipeline.profiler, cp.Profiler)
    assert_type(pipeline.get_profiling_summary(), cp.ProfilingSummary)
    with pipeline.profiler as bound, cp.stage("val"), cp.stage(Stage.WARM, default=True):
        assert_type(bound, cp.Profiler)
        assert_type(bound.profile_node(bare)(1), float)
    with cp.instrument(pipeline.node, "forward", profiler=pipeline.profiler) as handle:
        handle.remove()


@cp.record("decorated")
def labelled(value: int) -> str:
    return str(value)


async def labelled_tasks() -> int:
    async with cp.record("awaited", warm_up=True) as label:
        assert_type(label, cp.record)
        return await cp.record("each")(coroutine)(1)


def check_recordings(folder: Path) -> None:
    def handle(prof: cp.profile) -> None:
        assert_type(prof.dropped, int)

    plan = cp.schedule(wait=1, warmup=1, active=2, repeat=3, skip_first=4)
    assert_type(plan(3), cp.ProfilerAction)
    with cp.profile(
        activities=[cp.ProfilerActivity.CPU, "cuda"],
        schedule=plan,
        on_trace_ready=handle,
        with_stack=True,
        operators=False,
        resource=cp.Resource.CPU | cp.Resource.NPU,
        file=folder / "trace.json.gz",
        when_full="drop_newest",
    ) as prof:
        assert_type(labelled(1), str)
        assert_type(asyncio.run(labelled_tasks()), int)
        prof.pause()
        prof.resume()
        prof.step()
    assert_type(prof, cp.profile)
    cp.profile(on_trace_ready=cp.tensorboard_trace_handler(str(folder), "worker", use_gzip=True))
    for event in prof.events():
        assert_type(event, cp.Event)
        assert_type((event.name, event.start, event.dur), tuple[str, int, int])
        assert_type(event.trace_id, str | None)
    assert_type(prof.key_averages(group_by_stack_n=3).table(sort_by="cpu_time_total", row_limit=5), str)
    loaded = cp.load_trace(folder / "trace.json.gz")
    assert_type(loaded, cp.Recording)
    loaded.export_stacks(folder / "stacks.txt", metric="self_cpu_time_total")
    print(loaded.findings(prof), prof.findings(baseline=loaded))


def check_module_functions() -> None:
    cp.set_profiling(True, skip_first_n=1)
    assert_type(cp.profiling_enabled(), bool)
    assert_type(cp.get_profiling_summary("train"), cp.ProfilingSummary)
    assert_type(cp.format_profiling_summary(), str)
    cp.reset_profiling()
    measured = cp.measure(bare, 3, warmup=1, repeat=5, synchronize=False)
    assert_type(measured, cp.Measurement)
    assert_type(measured.median_ms, float)
    assert_type(measured.samples_ms, tuple[float, ...])
