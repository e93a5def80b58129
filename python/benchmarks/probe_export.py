"""Prints, as JSON, how many events a second are written to and read from a Chrome trace, by cprofiling and by others.

Arguments: the number of events, the number of rounds. The files are in /dev/shm where there is one. A peer that is not
installed is left out. Run in an interpreter of its own, as what is recorded takes memory.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cprofiling

EVENTS, ROUNDS = int(sys.argv[1]), int(sys.argv[2])
TMPFS = Path("/dev/shm")  # noqa: S108 a file system in memory is the point


def events_per_second(action: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    action()
    return EVENTS / (time.perf_counter() - start)


def node() -> None:
    """Do nothing: what is recorded."""


def own_recording() -> cprofiling.Recording:
    """Return a recording of EVENTS calls."""
    profiled = cprofiling.profile_node("node")(node)
    with cprofiling.profile(operators=False, capacity=EVENTS) as prof:
        for _ in range(EVENTS):
            profiled()
    return prof.recording


def export_own(recording: cprofiling.Recording, path: Path) -> float:
    """Write our trace."""
    return events_per_second(lambda: recording.export_chrome_trace(path))


def export_viztracer(path: Path) -> float:
    """Record as many calls with VizTracer, and time its parse and save alone."""
    from viztracer import VizTracer

    tracer = VizTracer(tracer_entries=EVENTS + 1000, verbose=0, register_global=False, file_info=False)
    tracer.start()
    for _ in range(EVENTS):
        node()
    tracer.stop()

    def parse_and_save() -> None:
        tracer.parse()
        tracer.save(output_file=str(path))

    return events_per_second(parse_and_save)


def load_own(path: Path) -> float:
    """Read our trace."""
    return events_per_second(lambda: cprofiling.load_trace(path))


def load_by_hand(path: Path) -> float:
    """Read it as people do without a reader: json and a DataFrame."""
    import pandas as pd

    def load() -> None:
        with open(path) as file:
            pd.DataFrame(json.load(file)["traceEvents"])

    return events_per_second(load)


def main() -> None:
    """Measure in interleaved rounds."""
    figures: dict[str, list[float]] = {}
    folder = TMPFS if TMPFS.is_dir() else None
    has_viztracer = importlib.util.find_spec("viztracer") is not None
    has_pandas = importlib.util.find_spec("pandas") is not None
    recording = own_recording()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        own, other = Path(name) / "own.json", Path(name) / "other.json"
        for _ in range(ROUNDS):
            figures.setdefault("export_own", []).append(export_own(recording, own))
            figures.setdefault("load_own", []).append(load_own(own))
            if has_viztracer:
                figures.setdefault("export_viztracer", []).append(export_viztracer(other))
            if has_pandas:
                figures.setdefault("load_by_hand", []).append(load_by_hand(own))
    print(json.dumps({key: statistics.median(values) for key, values in figures.items()}))


main()
