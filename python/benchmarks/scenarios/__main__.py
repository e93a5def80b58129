"""Entry point: ``python -m python.benchmarks.scenarios``."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Sequence

from .pairs import Overhead, measure

SCENARIOS = {
    "resnet": "ResNet-18 on a CPU, every module a node",
    "cuvis_nodes": "CuvisPipeline of ten light nodes",
    "sklearn_steps": "scikit-learn Pipeline of three steps",
    "service": "asyncio service, 1,000 tasks",
    "loader": "DataLoader with four processes",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure each scenario in a process of its own and print a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m python.benchmarks.scenarios", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for each profiler (default: 60)")
    parser.add_argument("--json", action="store_true", help="print the figures of one scenario as JSON")
    options = parser.parse_args(argv)
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    if options.json:
        found = measure(importlib.import_module(f"{__package__}.{options.scenarios[0]}").variants(), options.seconds)
        print(json.dumps(found))
        return 0
    print(
        "| scenario | profiler | adds, % | 95 % interval | pairs | without, ms |\n|---|---|--:|--:|--:|--:|", flush=True
    )
    for name in options.scenarios or SCENARIOS:
        command = [sys.executable, "-m", __package__, name, "--json", "--seconds", str(options.seconds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        for profiler, figures in json.loads(done.stdout).items():
            row = Overhead(*figures)
            interval = f"{row.low:.2f} to {row.high:.2f}"
            cells = [SCENARIOS[name], profiler, f"{row.median:.2f}", interval, f"{row.pairs}", f"{row.bare_ms:.1f}"]
            print(f"| {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
