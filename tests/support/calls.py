"""What the tests of calls share."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import mmap
import os
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cprofiling as cp

TICK = 0.02  # seconds of a sleep whose time must show, or must not
SLEPT_MS = 0.95e3 * TICK  # the least that such a sleep takes, with room for two clocks' difference in rate
HAS_NO_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # threads run Python at the same time
IS_EMULATED = "QEMU_LD_PREFIX" in os.environ  # another processor's programs, slower by an order of magnitude
NEVER = 60.0  # seconds of a wait that only a failure lets expire
# The share of a sweep that takes minutes: each night all of it on two Pythons, other parts of it on each other one.
SWEPT = 1.0 if sys.version_info[:2] in ((3, 11), (3, 15)) else 0.2

Target = Callable[[], object]


class Index:
    """An integer by its ``__index__`` only."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> int:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value  # type: ignore[no-any-return]


def profiler_on(**configuration: Any) -> cp.Profiler:
    """A new Profiler that is on."""
    profiler = cp.Profiler()
    profiler.set_profiling(True, **configuration)
    return profiler


def profiler_with(times_ms: dict[tuple[str, str], list[float]]) -> cp.Profiler:
    """A Profiler that was told of times by stage and node."""
    profiler = profiler_on()
    for (stage, node), times in times_ms.items():
        for time_ms in times:
            profiler.record(stage, node, time_ms)
    return profiler


def by_name(profiler: cp.Profiler) -> dict[str, cp.NodeProfilingStats]:
    """The statistics by node name, in the summary's order; for tests with one stage."""
    return {stats.node_name: stats for stats in profiler.get_profiling_summary()}


def counts(profiler: cp.Profiler) -> dict[str, int]:
    """How many samples each node has."""
    return {name: stats.count for name, stats in by_name(profiler).items()}


def stages(profiler: cp.Profiler) -> dict[tuple[str, str], int]:
    """How many samples each node has in each stage."""
    return {(stats.node_name, str(stats.stage)): stats.count for stats in profiler.get_profiling_summary()}


def outcomes(profiler: cp.Profiler, name: str) -> tuple[int, int, int, int, int]:
    """Samples, errors, cancellations, skips and drops of a node."""
    stats = by_name(profiler)[name]
    return (stats.count, stats.error_count, stats.cancelled_count, stats.skipped_count, stats.dropped_count)


def spin(seconds: float) -> None:
    """Use time without sleeping."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def spin_meanwhile() -> None:
    """Spin for a TICK whenever the other tasks wait: these are suspended for as long, however the machine is loaded."""
    while True:
        await asyncio.sleep(0)
        spin(TICK)


class Stopwatch:
    """Milliseconds spent inside its `with` blocks: an upper bound for whatever is measured inside."""

    def __init__(self) -> None:
        self.total_ms = 0.0
        self._start = 0.0

    def __enter__(self) -> Stopwatch:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.total_ms += (time.perf_counter() - self._start) * 1e3

    @property
    def limit_ms(self) -> float:
        """The total, with room for the two clocks' difference in rate."""
        return self.total_ms * 1.001 + 0.01


@contextlib.contextmanager
def switching_often() -> Iterator[None]:
    """Have threads switch as often as the interpreter can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def run_threads(*targets: Target) -> None:
    """Run the targets in threads that begin together; raise the first error of any."""
    barrier = threading.Barrier(len(targets))

    def body(target: Target) -> None:
        barrier.wait()
        target()

    with _in_threads(body, targets):
        pass


@contextlib.contextmanager
def beside(*targets: Target) -> Iterator[None]:
    """Call the targets again and again, each in a thread of its own, for as long as the block runs."""
    over = threading.Event()

    def body(target: Target) -> None:
        watch_no_lines()
        while not over.is_set():
            target()

    with _in_threads(body, targets):
        try:
            yield
        finally:
            over.set()


@contextlib.contextmanager
def _in_threads(body: Callable[[Target], None], targets: Sequence[Target]) -> Iterator[None]:
    errors: list[BaseException] = []

    def guarded(target: Target) -> None:
        try:
            body(target)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(target,), daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(2 * NEVER)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if errors:
        raise errors[0]


def in_new_thread(function: Callable[[], Any]) -> Any:
    """The result of the function, or its exception, from a thread that has not seen the profiler yet."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(function).result(NEVER)


def unwatched(**environment: str) -> dict[str, str]:
    """The environment of a process in which no tool counts the lines of Python, which takes memory and stack."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")} | environment


def watch_no_lines() -> None:
    """Have no tool count the lines of this thread: its lock would stay taken in a child that is forked meanwhile."""
    sys.settrace(None)


WATCH_DOG = """
import faulthandler, os
threads_before = len(os.listdir("/proc/self/task"))  # an emulator has some of its own
faulthandler.dump_traceback_later(120, exit=True)

def end_watch_dog():
    "Before a fork: its thread would be none of the child's, and takes a moment to end."
    faulthandler.cancel_dump_traceback_later()
    while len(os.listdir("/proc/self/task")) > threads_before:
        os.sched_yield()

"""
"""With which a script ends that hangs."""


def run_python(script: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter of its own that finds the same package."""
    return _run(script, options, os.environ | environment)


def check_script(script: str, *, told: str = "", **environment: str) -> None:
    """Run a script in development mode: its assertions, and what it says on stderr, are the test."""
    done = run_python(script, "-X", "dev", **environment)
    assert (done.returncode, done.stderr) == (0, told), done.stderr
    assert done.stdout == ""


def run_unwatched(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """As ``run_python``, in an ``unwatched`` process."""
    return _run(script, options, unwatched())


def _run(script: str, options: tuple[str, ...], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    package = Path(cp.__file__).parent.parent
    return subprocess.run(
        [sys.executable, *options, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment | {"PYTHONPATH": str(package)},
        check=False,
    )


def mapped(size: int) -> mmap.mmap:
    """Memory from the system: the allocator may have as much of what was freed before, which is resident already."""
    memory = mmap.mmap(-1, size)
    memory[:: mmap.PAGESIZE] = b"1" * (size // mmap.PAGESIZE)
    return memory


def resident_bytes() -> int:
    """Return how much memory of this process is resident."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
