"""The budgets, and how runs are judged by them.

A budget is a ratio or difference of medians that one run took in interleaved rounds. It counts as missed only when it
is missed in MISSES runs of as many, each with at least ROUNDS rounds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import candidates as c
from . import cold, cuvis, live, peers
from . import counters as k
from . import device as d
from . import extras as x
from . import shapes as a
from . import sizes as z
from . import stages as s
from . import starts as t
from . import together as g
from .results import Outcome, Run

ROUNDS = 15
MISSES = 3
LINEAR = 2.5  # at most this for twice as much: caches hold less of it


class UnmeasuredError(Exception):
    """A figure that a budget needs is missing; the message says why."""


class Figures:
    """The figures of one run by name; a missing one raises UnmeasuredError."""

    def __init__(self, run: Run) -> None:
        """Index the figures of ``run``."""
        self.version = run.version()
        self._run = run
        self._costs = {cost.name: cost.over_bare_ns for cost in run.costs}

    def _missing(self, name: str) -> UnmeasuredError:
        return UnmeasuredError(f"{name}: {self._run.absent.get(name, 'not measured in this run')}")

    def over(self, name: str) -> float:
        """Return a candidate's ns per call over its baseline."""
        if name not in self._costs:
            raise self._missing(name)
        return self._costs[name]

    def extra(self, name: str) -> float:
        """Return a figure that is not a cost per call."""
        if name not in self._run.extras:
            raise self._missing(name)
        return self._run.extras[name]

    def floor(self) -> float:
        """Return the cost of two back-to-back counter reads, in ns."""
        if self._run.floor_ns is None:
            raise self._missing("floor")
        return self._run.floor_ns


class Asked(Figures):
    """Notes which figures a budget asks for; none has a value."""

    def __init__(self) -> None:
        """Note nothing yet."""
        self.version = sys.version_info[:2]
        self.names: set[str] = set()

    def over(self, name: str) -> float:
        """Note a name."""
        self.names.add(name)
        return math.nan

    extra = over

    def floor(self) -> float:
        """Note nothing: the floor is always measured."""
        return math.nan


Version = tuple[int, int]
Figure = Callable[[Figures], float]


@dataclass(frozen=True)
class Budget:
    """One promise: ``measured`` stands in ``relation`` ("<=" or ">=") to ``limit``, on the versions it is for."""

    name: str
    unit: str
    measured: Figure
    relation: str
    limit: Figure
    oldest: Version = (3, 10)
    newest: Version = (3, 99)


def floors(figures: Figures) -> float:
    """Return how many floors the enabled decorator may cost over the forwarder."""
    if g.HAS_NO_GIL:
        return 2.5
    return 1.5 if figures.version == (3, 11) else 1.7


def decorator_over_forwarder(figures: Figures) -> float:
    """Return what the enabled decorator adds to the least that a C wrapper costs, in ns."""
    return figures.over(c.ENABLED) - figures.over(c.FORWARDER)


def record_function_fast(figures: Figures) -> float:
    """Return the cheaper way to use torch's ``_RecordFunctionFast``: an object for each call, or one for all."""
    return min(figures.over(peers.FAST), figures.over(peers.FAST_REUSED))


def stage_cost(figures: Figures) -> float:
    """Return what a use of ProfilingContext costs in its dearest form, in ns."""
    return max(figures.over(name) for name in (s.STAGE_WITH, s.STAGE_WITH_NEW, s.STAGE_DECORATOR))


def twice_as_much(form: str, size: int) -> Budget:
    """Return the budget of what takes time in proportion to its size."""
    whole, half = form.format(size), form.format(size // 2)
    name = f"{whole}, by {half}".replace(" (ms)", "")
    return Budget(name, "x", lambda f: f.extra(whole) / f.extra(half), "<=", lambda f: LINEAR)


BUDGETS = (
    Budget(
        "enabled decorator over the C forwarder",
        "floors",
        lambda f: decorator_over_forwarder(f) / f.floor(),
        "<=",
        floors,
    ),
    Budget(
        "enabled decorator with median=p2, over the C forwarder",
        "floors",
        lambda f: (f.over(c.ENABLED_P2) - f.over(c.FORWARDER)) / f.floor(),
        "<=",
        lambda f: 2.1,
    ),
    Budget(
        "cuvis-ai-core's PipelineProfiler over the enabled decorator",
        "x",
        lambda f: f.over(peers.CUVIS_RECORD) / f.over(c.ENABLED),
        ">=",
        lambda f: 40,
        oldest=(3, 11),
    ),
    Budget(
        "a node of a CuvisPipeline: what its own profiler adds, over what cprofiling in its place adds",
        "x",
        lambda f: f.extra(cuvis.ITS_OWN) / f.extra(cuvis.OURS),
        ">=",
        lambda f: 2,
        oldest=(3, 11),
    ),
    Budget(
        "torch's _RecordFunctionFast, profiler off, over the enabled decorator",
        "x",
        lambda f: record_function_fast(f) / f.over(c.ENABLED),
        ">=",
        lambda f: 3,
    ),
    Budget(
        "tprof over the enabled decorator",
        "x",
        lambda f: f.over(peers.TPROF) / f.over(c.ENABLED),
        ">=",
        lambda f: 2.5 if f.version == (3, 12) else 1.5,
        oldest=(3, 12),
    ),
    Budget(
        "enabled decorator with live=, over that without",
        "x",
        lambda f: (f.extra(live.LIVE) - f.extra(live.BARE)) / (f.extra(live.NOT_LIVE) - f.extra(live.BARE)),
        "<=",
        lambda f: 1.1,
    ),
    Budget(
        "live file of 1,000 keys at rest, written beyond a block a second",
        "bytes",
        lambda f: f.extra(live.IDLE_BYTES),
        "<=",
        lambda f: 0,
    ),
    Budget(
        "live file of 1,000 keys at rest",
        "% of a processor",
        lambda f: f.extra(live.IDLE_PERCENT),
        "<=",
        lambda f: 0.1,
    ),
    *(
        Budget(name, "ms", lambda f, name=name: f.extra(name), "<=", lambda f: 2)  # type: ignore[misc]
        for name in (live.JOINING_MS, live.LEAVING_MS, live.GOING_MS)
    ),
    Budget(
        "cold call, opened and closed in C, by that of commit 1b25453",
        "x",
        lambda f: f.extra(cold.COLD) / f.extra(cold.COLD_BEFORE),
        "<=",
        lambda f: 0.8,
    ),
    Budget(
        "one key in C from two threads, with stripes, by one thread",
        "x",
        lambda f: f.extra(g.CORE_SHARED) / f.extra(g.CORE_ALONE),
        ">=",
        lambda f: 1.7,
    ),
    Budget(
        "one node from two threads without a GIL, by one thread",
        "x",
        lambda f: f.extra(g.NODE_SHARED) / f.extra(g.NODE_ALONE),
        ">=",
        lambda f: 0.85,
    ),
    Budget(
        "two nodes from two threads without a GIL, by one thread, over what empty C callables gain so",
        "x",
        lambda f: f.extra(g.NODES_APART) / f.extra(g.NODE_ALONE) / (f.extra(g.EMPTY_APART) / f.extra(g.EMPTY_ALONE)),
        ">=",
        lambda f: 0.9,
    ),
    Budget(
        "enabled method of a PipelineProfiling over the enabled decorator",
        "ns",
        lambda f: f.over(c.ENABLED_METHOD) - f.over(c.ENABLED),
        "<=",
        lambda f: 10,
    ),
    Budget("forward of a pipeline, enabled", "ns", lambda f: f.over(c.ENABLED_FORWARD), "<=", lambda f: 20),
    Budget(
        "forward of a pipeline, disabled, against the C forwarder + 10 ns",
        "ns",
        lambda f: f.over(c.DISABLED_FORWARD),
        "<=",
        lambda f: f.over(c.FORWARDER) + 10,
    ),
    Budget(
        "one node in two stages in turn, the slowest of 15 pairs of stages by the others",
        "x",
        lambda f: f.extra(x.SLOWEST_PAIR_NS) / f.extra(x.OTHER_PAIRS_NS),
        "<=",
        lambda f: 1.1,
    ),
    Budget(
        "disabled decorator, against the C forwarder + 2 ns",
        "ns",
        lambda f: f.over(c.DISABLED),
        "<=",
        lambda f: f.over(c.FORWARDER) + 2,
    ),
    Budget(
        "disabled decorator, against 1.2 x the Python pass-through + 2 ns",
        "ns",
        lambda f: f.over(c.DISABLED),
        "<=",
        lambda f: 1.2 * f.over(c.PASS_THROUGH) + 2,
        oldest=(3, 11),
        newest=(3, 11),
    ),
    Budget(
        "enabled with over the empty with, by the decorator over the forwarder",
        "x",
        lambda f: (f.over(c.ENABLED_WITH) - f.over(c.EMPTY_WITH)) / decorator_over_forwarder(f),
        "<=",
        lambda f: 1.5,
    ),
    Budget(
        "disabled with, against the empty with + 5 ns",
        "ns",
        lambda f: f.over(c.DISABLED_WITH),
        "<=",
        lambda f: f.over(c.EMPTY_WITH) + 5,
    ),
    Budget(
        "recording on, added per node",
        "floors",
        lambda f: (f.over(c.RECORDED) - f.over(c.FORWARDER)) / f.floor(),
        "<=",
        lambda f: 3.2,
    ),
    Budget(
        "recording and statistics on, added per node by the recording",
        "floors",
        lambda f: (f.over(c.RECORDED_AND_ENABLED) - f.over(c.ENABLED)) / f.floor(),
        "<=",
        lambda f: 3.2,
    ),
    Budget(
        "VizTracer's log_event over a recorded node",
        "x",
        lambda f: f.over(peers.LOG_EVENT) / f.over(c.RECORDED),
        ">=",
        lambda f: 20,
    ),
    Budget(
        "torch's record_function, profiler on, over a recorded node",
        "x",
        lambda f: f.over(peers.RECORD_FUNCTION_ON) / f.over(c.RECORDED),
        ">=",
        lambda f: 50,
    ),
    Budget(
        "torch's _RecordFunctionFast, profiler on, over a recorded node",
        "x",
        lambda f: min(f.over(peers.FAST_ON), f.over(peers.FAST_ON_REUSED)) / f.over(c.RECORDED),
        ">=",
        lambda f: 5,
    ),
    Budget(
        "record() without a recording, against the empty with + 5 ns, each made for its block",
        "ns",
        lambda f: f.over(c.RECORD_OFF),
        "<=",
        lambda f: f.over(c.EMPTY_WITH_NEW) + 5,
    ),
    Budget(
        "one record() without a recording, against the empty with + 5 ns",
        "ns",
        lambda f: f.over(c.RECORD_OFF_REUSED),
        "<=",
        lambda f: f.over(c.EMPTY_WITH) + 5,
    ),
    Budget(
        "torch's record_function, profiler off, over record() without a recording",
        "x",
        lambda f: f.over(peers.RECORD_FUNCTION) / f.over(c.RECORD_OFF),
        ">=",
        lambda f: 10,
    ),
    Budget(
        "ProfilingContext, by torch's record_function, profiler off",
        "x",
        lambda f: stage_cost(f) / f.over(peers.RECORD_FUNCTION),
        "<=",
        lambda f: 1 / 3,
    ),
    Budget(
        "ProfilingContextDebug, off, against an empty Python with, each made for its block",
        "ns",
        lambda f: f.over(s.IDLE_WITH_NEW),
        "<=",
        lambda f: f.over(s.PYTHON_WITH_NEW),
    ),
    Budget(
        "one ProfilingContextDebug, off, against an empty Python with",
        "ns",
        lambda f: f.over(s.IDLE_WITH),
        "<=",
        lambda f: f.over(s.PYTHON_WITH),
    ),
    Budget(
        "summary of 1,000 keys, by making 1,000 frozen 22-field dataclasses",
        "x",
        lambda f: f.extra(x.SUMMARY_NS) / f.extra(x.DATACLASSES_NS),
        "<=",
        lambda f: 1,
    ),
    Budget(
        "run --all, added per call of a script, by VizTracer",
        "x",
        lambda f: f.extra(t.ALL_NS) / f.extra(t.VIZTRACER_ALL_NS),
        "<=",
        lambda f: 1,
    ),
    Budget(
        "Chrome trace of 500,000 events written, by VizTracer's parse and save",
        "x",
        lambda f: f.extra(x.EXPORTED) / f.extra(x.VIZTRACER_EXPORTED),
        ">=",
        lambda f: 15,
    ),
    Budget(
        "Chrome trace read, by json.load and pandas",
        "x",
        lambda f: f.extra(x.LOADED) / f.extra(x.LOADED_BY_HAND),
        ">=",
        lambda f: 2,
    ),
    Budget("by shape, two tensors of PyTorch", "ns", lambda f: f.over(a.TORCH), "<=", lambda f: 1000),
    Budget("by shape, two arrays of numpy", "ns", lambda f: f.over(a.NUMPY), "<=", lambda f: 1000),
    Budget(
        "counters of the system, off getrusage's around a node of 1 s", "%", lambda f: f.extra(k.OFF), "<=", lambda f: 5
    ),
    Budget(
        "GPU time of a node of one long kernel, off CUPTI's: 2 % or 10 us, whichever is more",
        "x",
        lambda f: min(f.extra(d.OFF_SHARE) / 2, f.extra(d.OFF_US) / 10),
        "<=",
        lambda f: 1,
    ),
    Budget("host time that gpu_time adds to a node", "us", lambda f: f.extra(d.ADDED_US), "<=", lambda f: 8),
    Budget(
        "kernels counted in nodes, off torch.profiler's count",
        "kernels",
        lambda f: abs(f.extra(d.KERNELS) - f.extra(d.KERNELS_BY_TORCH)),
        "<=",
        lambda f: 0,
    ),
    Budget(
        "bytes of copies counted in nodes, off those copied",
        "bytes",
        lambda f: abs(f.extra(d.COPIED) - f.extra(d.COPIED_KNOWN)),
        "<=",
        lambda f: 0,
    ),
    Budget("memory per key, mapped", "KiB", lambda f: f.extra(x.MAPPED_BYTES) / 1024, "<=", lambda f: 16),
    Budget(
        "memory per key, touched, times within one decade",
        "KiB",
        lambda f: f.extra(x.RESIDENT_BYTES) / 1024,
        "<=",
        lambda f: 2,
    ),
    *(twice_as_much(form, size) for form, size in z.SIZES.items()),
    Budget(
        "import cprofiling, beyond dataclasses, enum and contextvars",
        "ms",
        lambda f: f.extra(x.IMPORT_MS),
        "<=",
        lambda f: 20,
    ),
    Budget(
        "cprofiling --help over a bare start of the interpreter",
        "x",
        lambda f: f.extra(t.HELP_MS) / f.extra(t.BARE_MS),
        "<=",
        lambda f: 5,
    ),
    Budget(
        "cprofiling report of a small file over a bare start of the interpreter",
        "x",
        lambda f: f.extra(t.REPORT_MS) / f.extra(t.BARE_MS),
        "<=",
        lambda f: 8,
    ),
    Budget(
        "HTML report of 100,000 spans, the slower of two recordings",
        "s",
        lambda f: max(f.extra(t.PAGE_S), f.extra(t.FRAMES_S)),
        "<=",
        lambda f: 1.5,
    ),
)

COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda measured, limit: measured <= limit,
    ">=": lambda measured, limit: measured >= limit,
}


def named(part: str | None) -> list[Budget]:
    """Return the budgets with ``part`` in their names; all for "budgets" or None."""
    return [budget for budget in BUDGETS if part in (None, "budgets") or part in budget.name]


def needed(budgets: Sequence[Budget]) -> set[str]:
    """Return the names of the figures that budgets ask for."""
    asked = Asked()
    for budget in budgets:
        budget.limit(asked)
        budget.measured(asked)
    return asked.names


def judge(run: Run, budgets: Sequence[Budget]) -> list[Outcome]:
    """Return the outcome of each of the budgets that the run's Python has."""
    figures = Figures(run)
    return [judge_one(budget, figures) for budget in budgets if budget.oldest <= figures.version <= budget.newest]


def judge_one(budget: Budget, figures: Figures) -> Outcome:
    """Return one budget's outcome in one run."""
    try:
        limit, measured = budget.limit(figures), budget.measured(figures)
    except UnmeasuredError as error:
        return Outcome(budget.name, budget.unit, budget.relation, None, None, None, str(error))
    except ZeroDivisionError:
        return Outcome(budget.name, budget.unit, budget.relation, None, None, None, "a divisor was measured as 0")
    met = COMPARE[budget.relation](measured, limit)
    return Outcome(budget.name, budget.unit, budget.relation, limit, measured, met)


@dataclass(frozen=True)
class Verdict:
    """What several runs on one Python say about one budget: their outcomes, and the word for them."""

    budget: str
    outcomes: tuple[Outcome, ...]
    word: str

    @property
    def missed(self) -> bool:
        """Whether the budget counts as missed."""
        return self.word == "MISSED"


def verdict_word(outcomes: Sequence[Outcome], rounds: int) -> str:
    """Return the word for one budget's outcomes in several runs of ``rounds`` rounds each."""
    known = [outcome.met for outcome in outcomes if outcome.met is not None]
    if not known:
        return f"not measured ({outcomes[0].reason})"
    if rounds < ROUNDS:
        return f"no verdict, {rounds} rounds (within in {sum(known)} of {len(known)})"
    if all(known):
        return "met"
    if any(known):
        return f"met ({sum(known)} of {len(known)} runs)"
    if len(known) < MISSES:
        return f"over in {len(known)} of {len(known)}: a verdict takes --runs {MISSES}"
    return "MISSED"


def verdicts(runs: Sequence[Run]) -> list[Verdict]:
    """Return the verdict on each budget from the runs of one Python."""
    rounds = min(run.rounds for run in runs)
    columns = zip(*(run.outcomes for run in runs), strict=True)
    return [Verdict(column[0].budget, column, verdict_word(column, rounds)) for column in columns]
