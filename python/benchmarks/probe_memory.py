"""Prints, as JSON, the bytes that a key takes: mapped, and resident. The times of each key span one decade."""

import importlib
import json
import random
import sys
from pathlib import Path
from typing import Any

SAMPLES = 200
SHORTEST_MS, LONGEST_MS = -3.0, 3.0  # powers of ten: a key's decade begins between 1 us and 1 s


def kibibytes(path: str, label: str) -> int:
    """Return the figure after ``label`` in one of the kernel's files on this process."""
    lines = Path(path).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(label))


def usage() -> tuple[int, int]:
    """Return the bytes that this process has mapped and those that are resident, both exact."""
    return kibibytes("/proc/self/status", "VmSize:") * 1024, kibibytes("/proc/self/smaps_rollup", "Rss:") * 1024


def fill(profiler: Any, names: list[str]) -> None:
    """Record SAMPLES times for each name, log-uniform over one decade that begins where the name's lot falls."""
    lot = random.Random(0)
    for name in names:
        low_ms = 10 ** lot.uniform(SHORTEST_MS, LONGEST_MS)
        for _ in range(SAMPLES):
            profiler.record("inference", name, low_ms * 10 ** lot.random())


def main() -> None:
    """Measure the number of keys given on the command line."""
    keys = int(sys.argv[1])
    names = [f"node-{number}" for number in range(keys)]
    profiler = importlib.import_module("cprofiling").Profiler()
    profiler.set_profiling(True)
    fill(profiler, ["the first key pays for what all share"])
    usage()
    mapped, resident = usage()
    fill(profiler, names)
    mapped_after, resident_after = usage()
    print(json.dumps({"mapped": (mapped_after - mapped) / keys, "resident": (resident_after - resident) / keys}))


if __name__ == "__main__":
    main()
