"""What is not a cost per call: the summary, the memory of a key, the import, traces as files."""

from __future__ import annotations

import dataclasses
import functools
import gc
import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import cold, counters, cuvis, device, live, sizes, starts, together
from .candidates import cprofiling, new_function
from .harness import collector_off, elapsed_ns, explain

SUMMARY_NS = "summary of 1,000 keys (ns)"
DATACLASSES_NS = "making 1,000 frozen dataclasses of 22 fields (ns)"
MAPPED_BYTES = "memory per key, mapped (bytes)"
RESIDENT_BYTES = "memory per key, touched (bytes)"
IMPORT_MS = "import cprofiling, beyond dataclasses, enum and contextvars (ms)"

SLOWEST_PAIR_NS = "a call in each of two stages in turn, the slowest of 15 pairs (ns)"
OTHER_PAIRS_NS = "a call in each of two stages in turn, the other pairs (ns)"

EXPORTED = "Chrome trace written (events/s)"
VIZTRACER_EXPORTED = "Chrome trace written by VizTracer's parse and save (events/s)"
LOADED = "Chrome trace read (events/s)"
LOADED_BY_HAND = "Chrome trace read by json.load and pandas (events/s)"

EXPORT_EVENTS = 500_000
EXPORT_ROUNDS = 3
SUMMARY_KEYS = 1_000
SUMMARY_SAMPLES = 20
STAGES = ("train", "val", "test", "inference", "predict", "warm-up")
TURNS = 2_000
MEMORY_KEYS = 4_000
FIELDS = 22


def filled_profiler() -> Any:
    """Return a Profiler that holds SUMMARY_KEYS keys, with a few samples each."""
    profiler = cprofiling().Profiler()
    profiler.set_profiling(True)
    for key in range(SUMMARY_KEYS):
        for sample in range(SUMMARY_SAMPLES):
            profiler.record("inference", f"node-{key}", 1.0 + sample / 8 + key / 64)
    return profiler


def summary_cost(rounds: int) -> dict[str, float]:
    """Time a summary against making as many dataclasses of the same values in Python, in interleaved rounds."""
    profiler = filled_profiler()
    names = [item.name for item in dataclasses.fields(cprofiling().NodeProfilingStats)][:FIELDS]
    rows = [[getattr(stats, name) for name in names] for stats in profiler.get_profiling_summary()]
    row_type: Any = dataclasses.make_dataclass("Row", names, frozen=True)
    summaries, copies = [], []
    with collector_off():
        for _ in range(rounds + 1):
            summaries.append(elapsed_ns(profiler.get_profiling_summary))
            copies.append(elapsed_ns(lambda: [row_type(*row) for row in rows]))
            gc.collect()
    return {SUMMARY_NS: statistics.median(summaries[1:]), DATACLASSES_NS: statistics.median(copies[1:])}


def stage_pairs(rounds: int) -> dict[str, float]:
    """Time one node in two stages in turn, for each pair of STAGES, in interleaved rounds."""
    cp = cprofiling()
    profiler = cp.Profiler()
    profiler.set_profiling(True)
    node = profiler.profile_node(new_function())

    def take_turns(first: Any, second: Any) -> None:
        for _ in range(TURNS):
            with first:
                node()
            with second:
                node()

    samples: dict[tuple[Any, ...], list[int]] = {pair: [] for pair in itertools.combinations(map(cp.stage, STAGES), 2)}
    with collector_off():
        for _, pair in itertools.product(range(rounds), samples):
            samples[pair].append(elapsed_ns(functools.partial(take_turns, *pair)))
    *others, slowest = sorted(statistics.median(times) / TURNS for times in samples.values())
    return {SLOWEST_PAIR_NS: slowest, OTHER_PAIRS_NS: statistics.median(others)}


def probe(name: str, *arguments: str) -> str:
    """Run a probe of this folder in a fresh interpreter and return what it prints.

    Raises RuntimeError with the probe's last line of error.
    """
    command = [sys.executable, str(Path(__file__).with_name(name)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return done.stdout


def memory_per_key(_rounds: int) -> dict[str, float]:
    """Measure in a fresh interpreter what a key whose times span one decade takes."""
    cprofiling()
    figures = json.loads(probe("probe_memory.py", str(MEMORY_KEYS)))
    return {MAPPED_BYTES: figures["mapped"], RESIDENT_BYTES: figures["resident"]}


def import_cost(rounds: int) -> dict[str, float]:
    """Time the import in fresh interpreters, the first of which only fills the caches."""
    cprofiling()
    samples = [int(probe("probe_import.py")) for _ in range(rounds + 1)]
    return {IMPORT_MS: statistics.median(samples[1:]) / 1e6}


def trace_files(rounds: int) -> dict[str, float]:
    """Measure in a fresh interpreter how fast traces of EXPORT_EVENTS events are written and read."""
    cprofiling()
    figures = json.loads(probe("probe_export.py", str(EXPORT_EVENTS), str(min(rounds, EXPORT_ROUNDS))))
    names = {
        "export_own": EXPORTED,
        "export_viztracer": VIZTRACER_EXPORTED,
        "load_own": LOADED,
        "load_by_hand": LOADED_BY_HAND,
    }
    return {names[key]: value for key, value in figures.items()}


MEASURES: dict[Callable[[int], dict[str, float]], tuple[str, ...]] = {
    summary_cost: (SUMMARY_NS, DATACLASSES_NS),
    stage_pairs: (SLOWEST_PAIR_NS, OTHER_PAIRS_NS),
    memory_per_key: (MAPPED_BYTES, RESIDENT_BYTES),
    import_cost: (IMPORT_MS,),
    trace_files: (EXPORTED, VIZTRACER_EXPORTED, LOADED, LOADED_BY_HAND),
    **cold.MEASURES,
    **counters.MEASURES,
    **cuvis.MEASURES,
    **device.MEASURES,
    **live.MEASURES,
    **sizes.MEASURES,
    **starts.MEASURES,
    **together.MEASURES,
}


def measure_extras(rounds: int, absent: dict[str, str], wanted: set[str] | None = None) -> dict[str, float]:
    """Return figures by name, all unless some are wanted; for those that fail, add the reason to ``absent``."""
    figures: dict[str, float] = {}
    for measure, names in MEASURES.items():
        if wanted is not None and wanted.isdisjoint(names):
            continue
        try:
            figures.update(measure(rounds))
        except Exception as error:
            absent.update(dict.fromkeys(names, explain(error)))
    return figures
