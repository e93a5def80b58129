"""Entry point: ``python -m python.benchmarks.scenarios``."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Sequence

from .pairs import Overhead, measure

SCENARIOS = {  # and the seconds for each profiler
    "resnet": ("ResNet-18 on a CPU, its 70 modules as nodes", 100),
    "cuvis_nodes": ("CuvisPipeline of ten light nodes", 10),
    "sklearn_steps": ("scikit-learn Pipeline of three steps", 15),
    "service": ("asyncio service, 1,000 tasks", 10),
    "loader": ("DataLoader with four processes", 25),
}
HEAD = "| pipeline | without, ms | cprofiling adds, % | others add, % |\n|---|--:|--:|---|"


def shown(row: Overhead) -> str:
    """Return the median and the interval."""
    return f"{row.median:.2f} ({row.low:.2f} to {row.high:.2f})"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure each scenario in a process of its own and print a table in Markdown: medians and 95 % intervals."""
    parser = argparse.ArgumentParser(prog="python -m python.benchmarks.scenarios", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--seconds", type=float, help="for each profiler (default: 10 to 100, ten minutes in all)")
    parser.add_argument("--json", action="store_true", help="print the figures of one scenario as JSON")
    options = parser.parse_args(argv)
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    if options.json:
        found = measure(importlib.import_module(f"{__package__}.{options.scenarios[0]}").variants(), options.seconds)
        print(json.dumps(found))
        return 0
    print(HEAD, flush=True)
    for name in options.scenarios or SCENARIOS:
        title, seconds = SCENARIOS[name]
        command = [sys.executable, "-m", __package__, name, "--json", "--seconds", str(options.seconds or seconds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        ours, *others = ((who, Overhead(*figures)) for who, figures in json.loads(done.stdout).items())
        rest = "; ".join(f"{who} {shown(row)}" for who, row in others)
        print(f"| {title} | {ours[1].bare_ms:.1f} | {shown(ours[1])} | {rest} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
