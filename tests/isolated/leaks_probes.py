"""Leaks of what calls are measured with beyond the clock: marks, counters, memory, on good paths and on bad ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FOLDER = tempfile.TemporaryDirectory()
FAKES = Path(__file__).parents[1] / "fakes"
os.environ["CPROFILING_LIBCUDA"] = f"{FOLDER.name}/libcuda.so.1"
subprocess.run(
    [
        os.environ.get("CC", "cc"), "-std=c11", f"-I{FAKES.parents[1]}", "-shared", "-fPIC", "-pthread",
        "-Wl,-soname,libcuda.so.1", "-o", os.environ["CPROFILING_LIBCUDA"], str(FAKES / "fake_cuda.c"),
    ],
    check=True,
)  # fmt: skip

import cprofiling as cp  # noqa: E402 the variable is read before
from cprofiling import _core  # noqa: E402
from cprofiling.devices import events  # noqa: E402
from fakes.cuda_process import MS, fake  # noqa: E402
from fakes.fake_torch import FakeTorch  # noqa: E402
from isolated import leaks_harness  # noqa: E402

fake.reset()
fake.activate(0)
fake.bind(0)
stream = fake.new_stream(0, 0)
torch: Any = FakeTorch("xpu")
torch.allocate(1000)
sys.modules["torch"] = torch

EVERYTHING: dict[str, Any] = {
    "gpu_time": True,
    "memory": "peak",
    "counters": ("cpu_time", "page_faults", "cycles"),
    "nvtx": True,
}


class PlannedError(Exception):
    """What a node, a stream or a device raises on purpose."""


def on(**options: Any) -> cp.Profiler:
    profiler = cp.Profiler()
    profiler.set_profiling(True, **EVERYTHING, **options)
    return profiler


def raises() -> Any:
    raise PlannedError


with_cuda = on(gpu_stream=stream, synchronize_cuda=True)
with_torch = on()
asking = on(gpu_stream=lambda: stream)
other = on()
on_default_stream = on(gpu_stream=0)
PROFILERS = (with_cuda, with_torch, asking)


def settled(scenario: Callable[[cp.Profiler], object]) -> leaks_harness.Scenario:
    """Run a scenario for each Profiler; then the devices have passed all."""

    def settle() -> None:
        for profiler in PROFILERS:
            scenario(profiler)
        torch.launch(1)
        torch.advance(10)
        fake.advance(10 * MS)
        _core.poll_devices()
        events.poll()
        torch.log.clear()
        assert len(events._waiting) == 0

    return settle


def called(profiler: cp.Profiler) -> None:
    fake.launch(stream, MS)
    torch.launch(1)
    profiler.profile_node(len, name="node")("text")


def raised(profiler: cp.Profiler) -> None:
    with contextlib.suppress(PlannedError):
        profiler.profile_node(raises, name="node")()
    with contextlib.suppress(PlannedError), profiler.profile_node("block"):
        raise PlannedError


def nested(profiler: cp.Profiler) -> None:
    with profiler.profile_node("outer"), profiler.profile_node("inner"):
        profiler.profile_node(len, name="node")("text")


def out_of_order(profiler: cp.Profiler) -> None:
    first, second = profiler.profile_node("first"), profiler.profile_node("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)


def suspended(profiler: cp.Profiler) -> None:
    @profiler.profile_node("generator")
    def generator() -> Iterator[int]:
        with profiler.profile_node("block"):
            yield 1
        yield 2

    assert list(generator()) == [1, 2]
    dropped = generator()
    next(dropped)
    del dropped


def awaited(profiler: cp.Profiler) -> None:
    @profiler.profile_node("coroutine")
    async def coroutine() -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        task = asyncio.ensure_future(coroutine())
        await coroutine()
        cancelled = asyncio.ensure_future(coroutine())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(task, cancelled, return_exceptions=True)

    loop.run_until_complete(main())


def in_threads(profiler: cp.Profiler) -> None:
    thread = threading.Thread(target=nested, args=(profiler,))
    thread.start()
    thread.join()


def never_left(profiler: cp.Profiler) -> None:
    thread = threading.Thread(target=lambda: profiler.profile_node("left open").__enter__())
    thread.start()
    thread.join()


def reset_meanwhile(profiler: cp.Profiler) -> None:
    profiler.profile_node(profiler.reset_profiling, name="node")()
    called(profiler)
    profiler.reset_profiling()


def dropped_profiler(profiler: cp.Profiler) -> None:
    del profiler
    for options in ({}, {"gpu_stream": stream}):
        called(on(**options))


def read(profiler: cp.Profiler) -> None:
    called(profiler)
    profiler.get_profiling_summary()
    cp.Snapshot.merge([profiler.snapshot(), other.snapshot()]).stats()
    profiler.format_profiling_summary()


def switched(profiler: cp.Profiler) -> None:
    profiler.set_profiling(False)
    for wrong in ({"gpu_stream": "x"}, {"memory": 1}, {"counters": ("x",)}, {"counters": 5}, {"gpu_time": None}):
        with contextlib.suppress(TypeError, ValueError):
            profiler.set_profiling(True, **wrong)
    given = {with_cuda: stream, with_torch: None, asking: lambda: stream}[profiler]
    profiler.set_profiling(True, **EVERYTHING, gpu_stream=given, synchronize_cuda=profiler is with_cuda)


def refused_streams(profiler: cp.Profiler) -> None:
    del profiler
    refusing = on(gpu_stream=raises)
    called(refusing)
    assert refusing.get_profiling_summary()[0].gpu_count == 0


def failing_device(profiler: cp.Profiler) -> None:
    fake.fail(b"cuEventRecord", 2, 1)
    torch.failing["record"] = PlannedError()
    called(profiler)
    torch.failing.clear()
    called(profiler)


def context_that_goes(profiler: cp.Profiler) -> None:
    del profiler
    fake.bind_own(1)
    called(on_default_stream)
    with on_default_stream.profile_node("block"):
        fake.destroy_own(1)
    called(on_default_stream)
    fake.create_own(1)
    fake.bind(0)


loop = asyncio.new_event_loop()

SCENARIOS: dict[str, leaks_harness.Scenario] = {
    scenario.__name__: settled(scenario)
    for scenario in (
        called, raised, nested, out_of_order, suspended, awaited, in_threads, never_left, reset_meanwhile,
        dropped_profiler, read, switched, refused_streams, failing_device, context_that_goes,
    )
}  # fmt: skip

if __name__ == "__main__":
    leaks_harness.main(SCENARIOS)
    for measured in (with_cuda, with_torch, asking):
        called(measured)
        fake.advance(10 * MS)
        torch.advance(10)
        summary = measured.get_profiling_summary()
        assert any(stats.gpu_count for stats in summary), summary
        assert summary.internal_errors == 0
    assert fake.broken_rules() == []
    loop.close()
