"""What grows with keys and ranks, at two sizes: snapshots, their bytes, merging, and gathering of processes."""

from __future__ import annotations

import ctypes
import functools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .candidates import cprofiling
from .harness import collector_off, elapsed_ns

NODES, KEYS, RANKS, PROCESSES = 1_000, 60_000, 64, 64
SAMPLES = 20

TAKEN = "a snapshot of {:,} keys (ms)"
ENCODED = "to_bytes of {:,} keys (ms)"
DECODED = "from_bytes of {:,} keys (ms)"
WRITTEN = "a file of {:,} keys (ms)"
MERGED = f"merge of {{}} ranks of {NODES:,} nodes (ms)"
GATHERED = f"gather of {{}} processes of {NODES:,} nodes (ms)"
SIZES = {TAKEN: KEYS, ENCODED: KEYS, DECODED: KEYS, WRITTEN: KEYS, MERGED: RANKS, GATHERED: PROCESSES}


def filled(keys: int) -> Any:
    """Return a Profiler with so many keys, which have SAMPLES different samples each."""
    profiler = cprofiling().Profiler()
    profiler.set_profiling(True)
    for key in range(keys):
        for sample in range(SAMPLES):
            profiler.record("inference", f"node {key}", 0.05 + (key * 7919 + sample * 104729) % 1000 / 100)
    return profiler


def snapshots(rounds: int) -> dict[str, float]:
    """Time what is done with a snapshot of half as many keys, and of all, in turns.

    The allocator gives back its free memory before each, which it else keeps for the smaller ones only.
    """
    trim = ctypes.CDLL(None).malloc_trim
    times: dict[str, list[float]] = {}
    actions: dict[str, Callable[[], object]] = {}
    with tempfile.TemporaryDirectory() as folder, collector_off():
        for keys in (KEYS // 2, KEYS):
            profiler = filled(keys)
            snapshot = profiler.snapshot()
            data = snapshot.to_bytes()
            actions[TAKEN.format(keys)] = profiler.snapshot
            actions[ENCODED.format(keys)] = snapshot.to_bytes
            actions[DECODED.format(keys)] = functools.partial(type(snapshot).from_bytes, data)
            actions[WRITTEN.format(keys)] = functools.partial(Path(folder, "snapshot").write_bytes, data)
        for _ in range(rounds):
            for name, action in actions.items():
                trim(0)
                times.setdefault(name, []).append(elapsed_ns(action) / 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def merges(rounds: int) -> dict[str, float]:
    """Time merging half of the ranks, and all, in turns."""
    ranks = [filled(NODES).snapshot() for _ in range(RANKS)]
    times: dict[str, list[float]] = {}
    with collector_off():
        for count in (RANKS // 2, RANKS) * rounds:
            merge = functools.partial(cprofiling().Snapshot.merge, ranks[:count])
            times.setdefault(MERGED.format(count), []).append(elapsed_ns(merge) / 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def gathers(rounds: int) -> dict[str, float]:
    """Time ``gather`` on the rank that gets half of the processes, and all, in turns; they share the processors."""
    command = [sys.executable, str(Path(__file__).with_name("ranks.py")), "--nodes", str(NODES), "--samples", "5"]
    times: dict[str, list[float]] = {}
    for count in (PROCESSES // 2, PROCESSES) * min(rounds, 3):
        done = subprocess.run([*command, "--ranks", str(count)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"ranks.py: {(done.stderr.strip().splitlines() or [done.stdout])[-1]}")
        times.setdefault(GATHERED.format(count), []).append(json.loads(done.stdout)["seconds"] * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def names(*forms: str) -> tuple[str, ...]:
    """Return the names of the figures at both sizes."""
    return tuple(form.format(size) for form in forms for size in (SIZES[form] // 2, SIZES[form]))


MEASURES: dict[Callable[[int], dict[str, float]], tuple[str, ...]] = {
    snapshots: names(TAKEN, ENCODED, DECODED, WRITTEN),
    merges: names(MERGED),
    gathers: names(GATHERED),
}
