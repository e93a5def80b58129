"""The text table, the verdicts and the plot."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from .budgets import Verdict, verdicts
from .candidates import ENABLED
from .results import Outcome, Run

SMALLEST_BAR_NS = 1


def by_python(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs in groups of one Python each."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.python, []).append(run)
    return groups


def medians(runs: Sequence[Run]) -> dict[str, float]:
    """Return each candidate's ns per call over the bare call: the median of the runs that measured it."""
    samples: dict[str, list[float]] = {}
    for run in runs:
        for cost in run.costs:
            samples.setdefault(cost.name, []).append(cost.over_bare_ns)
    return {name: statistics.median(values) for name, values in samples.items()}


def quartiles(runs: Sequence[Run], name: str) -> tuple[float, float]:
    """Return the lowest first and the highest third quartile of a candidate's rounds among the runs."""
    pairs = [cost.quartiles_ns for run in runs for cost in run.costs if cost.name == name]
    return min(low for low, _ in pairs), max(high for _, high in pairs)


def heading(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the lines that say where, how and how often was measured."""
    run = runs[0]
    about = run.machine
    yield f"CPython {run.python}, {about['processor']}, {about['cores']} cores, {about['system']}, load {about['load']}"
    times = "run" if len(runs) == 1 else "runs"
    yield f"Medians of {run.rounds} interleaved rounds of {run.calls:,} calls each, {len(runs)} {times}, in ns per call"
    floors = [run.floor_ns for run in runs if run.floor_ns is not None]
    if floors:
        yield f"Floor: {statistics.median(floors):.1f} ns (two back-to-back unfenced reads of the processor's counter)"
    yield "The lines 'nothing' are the call itself; all others are what comes on top of it, or of an empty block"


def cost_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the table of costs, each with the ratio to cprofiling's enabled decorator where that is known."""
    costs = medians(runs)
    enabled = costs.get(ENABLED)
    groups = {cost.name: cost.group for run in runs for cost in run.costs}
    if not groups:
        return
    width = max(map(len, groups)) + 2
    yield f"{'':<{width}} {'ns':>10} {'quartiles of the rounds':>24} {'x enabled':>10}"
    previous = ""
    for name, group in groups.items():
        if group != previous:
            yield group
        previous = group
        low, high = quartiles(runs, name)
        ratio = f"{costs[name] / enabled:>10.2f}" if enabled else f"{'':>10}"
        yield f"  {name:<{width - 2}} {costs[name]:>10.1f} {f'{low:.1f} to {high:.1f}':>24} {ratio}".rstrip()


def absent_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield who is not in the table, under the reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in {name: reason for run in runs for name, reason in run.absent.items()}.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        yield f"Not measured, {reason}"
        yield from (f"  {name}" for name in names)


def extra_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the figures that are not costs per call."""
    if not any(run.extras for run in runs):
        return
    yield "Others"
    for name in {name: None for run in runs for name in run.extras}:
        values = [run.extras[name] for run in runs if name in run.extras]
        yield f"  {name}: {statistics.median(values):,.1f}"


def figures_of(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    """Return the measured values and the limits of a budget's outcomes, as text, run by run."""
    known = [outcome for outcome in outcomes if outcome.measured is not None and outcome.limit is not None]
    if not known:
        return "", ""
    relation, unit = known[0].relation, known[0].unit
    limits = dict.fromkeys(f"{outcome.limit:.4g}" for outcome in known)
    return ", ".join(f"{outcome.measured:.4g}" for outcome in known) + f" {unit}", f"{relation} {', '.join(limits)}"


def budget_lines(judged: Sequence[Verdict]) -> Iterator[str]:
    """Yield the table of budgets: what each run measured, the limit, and the verdict."""
    if not judged:
        return
    rows = [(verdict.budget, *figures_of(verdict.outcomes), verdict.word) for verdict in judged]
    widths = [max(len(row[column]) for row in [*rows, ("", "", "", "")]) for column in range(3)]
    yield "Budgets (missed only when missed in three runs of three)"
    for name, measured, limit, word in rows:
        yield f"  {name:<{widths[0]}}  {measured:>{widths[1]}}  {limit:<{widths[2]}}  {word}".rstrip()


def section(runs: Sequence[Run]) -> str:
    """Return the report on the runs of one Python."""
    blocks = (heading(runs), cost_lines(runs), extra_lines(runs), absent_lines(runs), budget_lines(verdicts(runs)))
    return "\n\n".join(filter(None, ("\n".join(block) for block in blocks)))


def text(runs: Sequence[Run]) -> str:
    """Return the report on all runs, one section for each Python."""
    return "\n\n\n".join(section(group) for group in by_python(runs).values())


def plot(runs: Sequence[Run], path: Path) -> None:
    """Draw the costs as horizontal bars on a logarithmic scale, one colour for each Python, into a PNG file.

    Raises ModuleNotFoundError without matplotlib. A cost below SMALLEST_BAR_NS is drawn as long as that.
    """
    library = importlib.import_module("matplotlib.figure")
    groups = {python: medians(group) for python, group in by_python(runs).items()}
    names = list({name: None for costs in groups.values() for name in costs})[::-1]
    figure = library.Figure(figsize=(10, 1.5 + 0.16 * len(names) * (1 + len(groups))), layout="constrained")
    axes = figure.add_subplot()
    height = 0.8 / len(groups)
    for number, (python, costs) in enumerate(groups.items()):
        rows = {row - number * height: costs[name] for row, name in enumerate(names) if name in costs}
        lengths = [max(cost, SMALLEST_BAR_NS) for cost in rows.values()]
        bars = axes.barh(list(rows), lengths, height, label=f"CPython {python}")
        axes.bar_label(bars, [f"{cost:,.0f}" for cost in rows.values()], padding=2, fontsize=7)
    axes.set_yticks([row - 0.4 + height / 2 for row in range(len(names))], names)
    axes.set_xscale("log")
    axes.set_xlim(SMALLEST_BAR_NS, 2 * max(cost for costs in groups.values() for cost in costs.values()))
    axes.margins(y=0.01)
    axes.set_xlabel("ns per call")
    axes.set_title("What a node call costs")
    figure.legend(loc="outside lower center", ncols=len(groups))
    figure.savefig(path, format="png", dpi=120)
