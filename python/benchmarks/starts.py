"""How long the command takes to start, a report of many spans to be made, and a program that the command records."""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from .candidates import cprofiling

BARE_MS = "python -c '' (ms)"
HELP_MS = "cprofiling --help (ms)"
REPORT_MS = "cprofiling report of a small file (ms)"
PAGE_S = "HTML report of 100,000 spans on 8 threads (s)"
FRAMES_S = "HTML report of 100,000 spans in frames of ten nodes (s)"

ALL_NS = "run --all, added per call of a script (ns)"
VIZTRACER_ALL_NS = "viztracer, added per call of the same script (ns)"

SPANS, NODES = 100_000, 10
PAGES = 3


def start_cost(rounds: int) -> dict[str, float]:
    """Time the installed command in interleaved rounds, the first of which only fills the caches."""
    profiler = cprofiling().Profiler()
    profiler.set_profiling(True)
    profiler.record("inference", "node", 1.0)
    command = str(Path(sys.executable).with_name("cprofiling"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with TemporaryDirectory() as folder:
        small = Path(folder) / "statistics.cprof"
        small.write_bytes(profiler.snapshot().to_bytes())
        commands = {
            BARE_MS: [sys.executable, "-c", ""],
            HELP_MS: [command, "--help"],
            REPORT_MS: [command, "report", str(small)],
        }
        samples: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds + 1):
            for name, words in commands.items():
                start = time.perf_counter()
                subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=True)
                samples[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(values[1:]) for name, values in samples.items()}


SCRIPT = """
import time

class Shape:
    def __init__(self, size): self.size = size
    def area(self): return self.size * self.size
    @classmethod
    def make(cls, size): return cls(size)
    @staticmethod
    def sides(): return 4

def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)

start = time.perf_counter_ns()
fib(22)
for size in range(20_000):
    Shape.make(size).area()
    Shape.sides()
print(time.perf_counter_ns() - start)
"""
CALLS = 57_313 + 4 * 20_000


def script_cost(rounds: int) -> dict[str, float]:
    """Time calls of a script by itself, alone and with all of its functions traced, in interleaved rounds."""
    samples: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        output = ("-o", str(Path(folder) / "trace.json"))
        ways: dict[str, tuple[str, ...]] = {
            "alone": (),
            ALL_NS: ("-m", "cprofiling", "run", "--all", *output),
            VIZTRACER_ALL_NS: ("-m", "viztracer", "--quiet", *output),
        }
        if importlib.util.find_spec("viztracer") is None:
            del ways[VIZTRACER_ALL_NS]
        for _ in range(rounds):
            for name, words in ways.items():
                command = [sys.executable, *words, str(script)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                samples.setdefault(name, []).append(int(done.stdout.split()[0]))
    alone, *traced = map(statistics.median, samples.values())
    return {name: (ns - alone) / CALLS for name, ns in zip([*samples][1:], traced, strict=True)}


def page_cost(_rounds: int) -> dict[str, float]:
    """Time the pages of two recordings: blocks on many threads, and frames of nodes on one."""
    from .pages import recorded

    cp = cprofiling()
    nodes = [cp.profile_node(f"node {number}")(lambda value: value) for number in range(NODES)]
    with cp.profile(operators=False) as framed:
        for number in range(SPANS // (NODES + 1)):
            with cp.record("frame"):
                for node in nodes:
                    node(number)
    found = {}
    for name, profile in ((PAGE_S, recorded(SPANS, 8)), (FRAMES_S, framed)):
        samples = []
        for _ in range(PAGES):
            start = time.perf_counter()
            profile.to_html()
            samples.append(time.perf_counter() - start)
        found[name] = statistics.median(samples)
    return found


MEASURES: dict[Callable[[int], dict[str, float]], tuple[str, ...]] = {
    start_cost: (BARE_MS, HELP_MS, REPORT_MS),
    page_cost: (PAGE_S, FRAMES_S),
    script_cost: (ALL_NS, VIZTRACER_ALL_NS),
}
