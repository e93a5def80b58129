"""CPU counters: what a reading costs, and a node that is counted, and whether they say what getrusage says."""

from __future__ import annotations

import contextlib
import functools
import importlib
import mmap
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import floor
from .candidates import BARE, cprofiling, new_function, own
from .harness import Workload

SOURCE = Path(__file__).with_name("_readings.c")
UNITS = ("base/alloc", "devices/counters")

SYSTEM = ("cpu_time", "context_switches", "page_faults")
HARDWARE = ("cycles", "instructions", "branch_misses", "cache_misses")
KINDS: dict[str, tuple[str, ...]] = {
    "cpu_time": SYSTEM[:1],
    "context_switches and page_faults": SYSTEM[1:],
    "one hardware counter": HARDWARE[:1],
    "all hardware counters": HARDWARE,
    "all counters of the system": SYSTEM,
}
COUNTED = "cprofiling decorator, enabled, with {}"
READING = "a reading of {} (ns)"
IN_NODE = "{} counted in a node of 1 s"
BY_GETRUSAGE = "{} around it by getrusage"
RATIO = "{} counted, by getrusage's"
OFF = "the counter of the system that is furthest from getrusage (%)"

LOOP_S = 1.0
MAPPED = 4096 * 64


def refuse_what_is_not_there(counters: tuple[str, ...]) -> None:
    """Raise RuntimeError with the reason for which the first of the counters has no value here."""
    status = importlib.import_module("cprofiling._core").perf_status()
    reason = next(reason for name, _, reason in status if name == counters[0])
    if reason is not None:
        raise RuntimeError(f"{counters[0]}: {reason}")


@contextlib.contextmanager
def counting(counters: tuple[str, ...]) -> Iterator[None]:
    """Have the default Profiler switched on, with counters."""
    cprofiling().set_profiling(True, counters=counters)
    try:
        yield
    finally:
        cprofiling().set_profiling(False)


def counted_decorator(counters: tuple[str, ...]) -> Workload:
    """A decorated function around which counters are read."""
    refuse_what_is_not_there(counters)
    session = functools.partial(counting, counters)
    with session():
        pass
    return Workload("f()", {"f": cprofiling().profile_node(new_function())}, session)


for kind, names in KINDS.items():
    own.add(COUNTED.format(kind), baseline=BARE)(functools.partial(counted_decorator, names))


@functools.cache
def readings() -> dict[str, str]:
    """Return what the program says of each kind of counter."""
    sources = [SOURCE, *(floor.ROOT / "cprofiling" / f"{unit}.c" for unit in UNITS)]
    headers = sorted((floor.ROOT / "cprofiling").rglob("*.h"))
    program = floor.compiled("readings", ["-O3", "-pthread", f"-I{floor.ROOT}"], sources, headers)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    return dict(line.split("\t", 1) for line in done.stdout.splitlines())


def reading_cost(kind: str, _rounds: int) -> dict[str, float]:
    """Return what one reading of a kind of counter costs. Raises RuntimeError where there is none."""
    answer = readings()[kind]
    if answer.startswith("x"):
        raise RuntimeError(answer[1:])
    return {READING.format(kind): float(answer)}


def work_for_a_second() -> None:
    """Compute, touch new pages, and sleep for moments, for a second."""
    end = time.monotonic() + LOOP_S
    while time.monotonic() < end:
        with mmap.mmap(-1, MAPPED) as pages:
            for place in range(0, MAPPED, mmap.PAGESIZE):
                pages[place] = 1
        sum(range(50_000))
        time.sleep(1e-6)


def usage() -> dict[str, int]:
    """Return what getrusage says of this thread, under the names of the counters."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return {
        "cpu_time": round((used.ru_utime + used.ru_stime) * 1e9),
        "context_switches": used.ru_nvcsw + used.ru_nivcsw,
        "page_faults": used.ru_minflt + used.ru_majflt,
    }


def against_getrusage(_rounds: int) -> dict[str, float]:
    """Count a second's work in a node, and by getrusage around the same call."""
    profiler = cprofiling().Profiler()
    profiler.set_profiling(True, counters=SYSTEM)
    node = profiler.profile_node(work_for_a_second)
    before = usage()
    node()
    after = usage()
    counted: Any = profiler.get_profiling_summary()[0].counters
    figures: dict[str, float] = {}
    ratios = []
    for name in SYSTEM:
        expected = after[name] - before[name]
        figures[IN_NODE.format(name)] = counted[name].total
        figures[BY_GETRUSAGE.format(name)] = expected
        ratios.append(counted[name].total / expected)
        figures[RATIO.format(name)] = ratios[-1]
    figures[OFF] = max(abs(ratio - 1) for ratio in ratios) * 100
    return figures


MEASURES: dict[Callable[[int], dict[str, float]], tuple[str, ...]] = {
    functools.partial(reading_cost, kind): (READING.format(kind),) for kind in [*KINDS][:-1]
} | {against_getrusage: (*(form.format(name) for name in SYSTEM for form in (IN_NODE, BY_GETRUSAGE, RATIO)), OFF)}
