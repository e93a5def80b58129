"""Threads that count at the same time: in C with stripes, and in Python where it has no GIL."""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .candidates import cprofiling
from .cold import core_program

CORE_ALONE = "calls of one key in C, by one thread (1/s)"
CORE_SHARED = "calls of one key in C, by two threads (1/s)"
NODE_ALONE = "calls of one node, by one thread (1/s)"
NODE_SHARED = "calls of one node, by two threads (1/s)"
NODES_APART = "calls of two nodes, by a thread each (1/s)"
EMPTY_ALONE = "calls of an empty C callable, by one thread (1/s)"
EMPTY_APART = "calls of two empty C callables, by a thread each (1/s)"
HAS_NO_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
CALLS = 200_000  # of each thread

_Callables = Sequence[Callable[[], object]]


def counted_in_c(rounds: int) -> dict[str, float]:
    """Run the program of ``_together.c``, whose core is built as for Python without a GIL."""
    program = core_program(Path(__file__).with_name("_together.c"), "-DCPROF_STRIPES=8")
    samples = []
    for _ in range(rounds):
        done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
        samples.append([float(rate) for rate in done.stdout.split()])
    return dict(zip((CORE_ALONE, CORE_SHARED), map(statistics.median, zip(*samples, strict=True)), strict=True))


def calls_per_s(callables: _Callables) -> float:
    """Return how often a second threads call them, one each."""
    start = threading.Barrier(len(callables) + 1)

    def call(each: Callable[[], object]) -> None:
        start.wait()
        for _ in range(CALLS):
            each()

    threads = [threading.Thread(target=call, args=(each,)) for each in callables]
    for thread in threads:
        thread.start()
    start.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    return len(callables) * CALLS / (time.perf_counter() - begin)


def counted_in_python(rounds: int) -> dict[str, float]:
    """Time nodes and what they wrap in interleaved rounds."""
    if not HAS_NO_GIL or sys._is_gil_enabled():  # type: ignore[attr-defined]
        raise RuntimeError("needs an interpreter that runs without a GIL")
    profiler = cprofiling().Profiler()
    profiler.set_profiling(True)
    empty = [gc.isenabled, sys.getrecursionlimit]
    first, second = (profiler.profile_node(function.__name__)(function) for function in empty)
    forms: dict[str, _Callables] = {
        NODE_ALONE: [first],
        NODE_SHARED: [first, first],
        NODES_APART: [first, second],
        EMPTY_ALONE: empty[:1],
        EMPTY_APART: empty,
    }
    rates: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, callables in forms.items():
            rates[name].append(calls_per_s(callables))
    return {name: statistics.median(values) for name, values in rates.items()}


MEASURES: dict[Callable[[int], dict[str, float]], tuple[str, ...]] = {
    counted_in_c: (CORE_ALONE, CORE_SHARED),
    counted_in_python: (NODE_ALONE, NODE_SHARED, NODES_APART, EMPTY_ALONE, EMPTY_APART),
}
