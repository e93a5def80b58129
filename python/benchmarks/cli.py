"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from . import budgets, candidates, floor, peers, report
from .extras import measure_extras
from .harness import Candidate, measure
from .pythons import run_children, run_everywhere
from .results import Run, costs_of, machine, python_version, to_json
from .soak import soak

ROUNDS, CALLS = budgets.ROUNDS, 20_000
QUICK_ROUNDS, QUICK_CALLS = 5, 2_000

EXIT_MISSED = 1
EXIT_UNUSABLE = 2


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python python/benchmarks",
        description="What a node call costs: plain Python and C, cprofiling, and its peers, side by side in one run.",
        epilog=f"The exit status is {EXIT_MISSED} when a budget is missed or the soak breaks, else 0.",
    )
    how = made.add_argument_group("how much")
    how.add_argument("--rounds", type=positive, help=f"interleaved rounds (default, least for a verdict: {ROUNDS})")
    how.add_argument("--calls", type=positive, help=f"inner calls of a candidate in a round (default: {CALLS})")
    how.add_argument("--runs", type=positive, default=1, help="runs, each in its own process (a miss takes 3)")
    how.add_argument("--quick", action="store_true", help="few rounds of few calls: a look, no verdicts")
    how.add_argument(
        "--only", metavar="WHAT", help="costs (per call), budgets, or the budgets with this text in their names"
    )
    how.add_argument(
        "--soak", nargs="?", type=float, const=60.0, metavar="MINUTES", help="only the soak of a service (default: 60)"
    )
    where = made.add_argument_group("where")
    where.add_argument("--all-pythons", action="store_true", help="run on each CPython 3.10 to 3.15 found here")
    where.add_argument("--peers", action="store_true", help="with --all-pythons: install the peers for each, too")
    output = made.add_argument_group("output")
    output.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    output.add_argument("--plot", type=Path, metavar="FILE", help="draw the costs into a PNG file (needs matplotlib)")
    output.add_argument("--silent", action="store_true", help="print no report")
    return made


def with_baselines(needed: set[str] | None) -> list[Candidate]:
    """Return the candidates to measure: all, or those that are needed, with their baselines."""
    everything = [*candidates.plain.candidates, *candidates.own.candidates, *peers.peers.candidates]
    if needed is None:
        return everything
    needed = needed | {candidate.baseline for candidate in everything if candidate.name in needed | {candidates.BARE}}
    return [candidate for candidate in everything if candidate.name in needed]


def show_progress(number: int, rounds: int) -> None:
    """Show on a terminal which round begins."""
    if sys.stderr.isatty():
        end = "\n" if number + 1 == rounds else ""
        print(f"\rround {number + 1} of {rounds}", end=end, file=sys.stderr, flush=True)


def run_here(rounds: int, calls: int, only: str | None) -> Run:
    """Measure once in this process."""
    judged = budgets.named(only)
    needed = None if only in (None, "costs") else budgets.needed(judged)
    selected = with_baselines(needed)
    result = measure(selected, rounds=rounds, calls=calls, floor=floor.floor_ns, progress=show_progress)
    run = Run(
        python=python_version(),
        machine=machine(),
        rounds=rounds,
        calls=calls,
        floor_ns=statistics.median(result.floor) if result.floor else None,
        costs=costs_of(selected, result),
        absent=result.absent,
    )
    if judged:
        run.extras = measure_extras(rounds, run.absent, needed)
        run.outcomes = budgets.judge(run, judged)
    return run


def settings(options: argparse.Namespace) -> tuple[int, int]:
    """Return the rounds, and the inner calls per round, that the options ask for."""
    rounds, calls = (QUICK_ROUNDS, QUICK_CALLS) if options.quick else (ROUNDS, CALLS)
    return options.rounds or rounds, options.calls or calls


def all_runs(options: argparse.Namespace) -> list[Run]:
    """Measure as often and on as many interpreters as the options ask for."""
    rounds, calls = settings(options)
    if options.runs == 1 and not options.all_pythons:
        return [run_here(rounds, calls, options.only)]
    arguments = ["--rounds", str(rounds), "--calls", str(calls)]
    if options.only:
        arguments += ["--only", options.only]
    if not options.all_pythons:
        return run_children(Path(sys.executable), arguments, options.runs)
    children = run_everywhere(arguments, options.runs, with_peers=options.peers)
    for name, reason in children.failures.items():
        print(f"{name}: {reason}", file=sys.stderr)
    return children.runs


def write(runs: Sequence[Run], options: argparse.Namespace) -> None:
    """Print the report and write the files that the options ask for."""
    if not options.silent:
        print(report.text(runs))
    if options.json:
        options.json.write_text(to_json(runs))
    if options.plot:
        try:
            report.plot(runs, options.plot)
        except ModuleNotFoundError as error:
            print(f"no plot: {error}", file=sys.stderr)


def soaked(minutes: float) -> int:
    """Run the soak and return the exit status."""
    try:
        return 0 if soak(minutes, partial(print, flush=True)) else EXIT_MISSED
    except ImportError as error:
        print(f"no soak: {error}", file=sys.stderr)
        return EXIT_UNUSABLE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    made = parser()
    options = made.parse_args(arguments)
    if options.only != "costs" and not budgets.named(options.only):
        made.error(f"--only {options.only}: no budget has this in its name")
    if options.soak is not None:
        return soaked(options.soak)
    runs = all_runs(options)
    write(runs, options)
    missed = any(verdict.missed for group in report.by_python(runs).values() for verdict in budgets.verdicts(group))
    return EXIT_MISSED if missed else 0
