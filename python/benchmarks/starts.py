"""How long the command takes to start, and a report of many spans to be made."""

from __future__ import annotations

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
}
