"""What a run hands on: figures, verdicts of the run, and the machine; to and from JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .harness import Candidate, Measurements

SCHEMA = 1


@dataclass(frozen=True)
class Cost:
    """One candidate's cost in ns per call.

    ``over_bare_ns`` is its median less its baseline's; ``quartiles_ns`` are those of its rounds, less the same.
    """

    name: str
    group: str
    over_bare_ns: float
    quartiles_ns: tuple[float, float]


@dataclass(frozen=True)
class Outcome:
    """One budget in one run. ``measured`` is None when it could not be measured, for ``reason``."""

    budget: str
    unit: str
    relation: str
    limit: float | None
    measured: float | None
    met: bool | None
    reason: str = ""


@dataclass
class Run:
    """All that one run on one interpreter measured."""

    python: str
    machine: dict[str, str]
    rounds: int
    calls: int
    floor_ns: float | None
    costs: list[Cost]
    absent: dict[str, str]
    extras: dict[str, float] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)

    def version(self) -> tuple[int, int]:
        """Return the interpreter's major and minor version."""
        major, minor = self.python.split(".")[:2]
        return int(major), int(minor)


def costs_of(candidates: Sequence[Candidate], result: Measurements) -> list[Cost]:
    """Return the costs of the measured candidates over their baselines, in the order of ``candidates``.

    The baseline that all others rest on, the loop, is none of them.
    """
    costs = []
    for candidate in candidates:
        if candidate.name not in result.samples or candidate.name == candidate.baseline:
            continue
        bare = result.median(candidate.baseline)
        samples = result.samples[candidate.name]
        low, _, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else samples * 3
        over = result.median(candidate.name) - bare
        costs.append(Cost(candidate.name, candidate.group, over, (low - bare, high - bare)))
    return costs


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def machine() -> dict[str, str]:
    """Describe the machine, for the reader of a figure."""
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "load": f"{os.getloadavg()[0]:.2f}",
        "compiler": platform.python_compiler(),
    }


def python_version() -> str:
    """Return the version of this interpreter, such as 3.11.7."""
    return ".".join(map(str, sys.version_info[:3]))


def to_json(runs: Sequence[Run]) -> str:
    """Return the runs as a JSON document."""
    return json.dumps({"schema": SCHEMA, "runs": [asdict(run) for run in runs]}, indent=1, allow_nan=False) + "\n"


def _run(data: dict[str, Any]) -> Run:
    costs = [Cost(**{**cost, "quartiles_ns": tuple(cost["quartiles_ns"])}) for cost in data["costs"]]
    return Run(**{**data, "costs": costs, "outcomes": [Outcome(**outcome) for outcome in data["outcomes"]]})


def from_json(text: str) -> list[Run]:
    """Return the runs of a document that ``to_json`` made. Raises ValueError for another schema version."""
    document = json.loads(text)
    if document.get("schema") != SCHEMA:
        raise ValueError(f"schema must be {SCHEMA}, got {document.get('schema')!r}")
    return [_run(data) for data in document["runs"]]
