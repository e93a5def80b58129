"""Cold and warm calls, and the ``skip_first_n`` that parts them.

A recording has each call: ``steady_state`` tells where their times become steady. Statistics keep the first call and
the whole: whether the first one is cold can be told, but not which one was the last of its kind. Where calls differ by
their inputs, or later ones take as long as the first, not even that is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from cprofiling._internal.quantiles import fmean, median
from cprofiling._internal.row_kinds import CUT, UNFINISHED
from cprofiling._internal.text import checked_text, counted, listed
from cprofiling.analysis import steady_state
from cprofiling.analysis.evidence import NS_PER_MS, Evidence
from cprofiling.analysis.insight_table import Insight, figure
from cprofiling.analysis.steady_state import Level, steadiness
from cprofiling.recording.columns import column, drop_notes, grouped

if TYPE_CHECKING:
    from cprofiling.nodes.buckets import Bucket
    from cprofiling.nodes.stats import NodeProfilingStats, ProfilingSummary
    from cprofiling.testing.measure import Measurement

COLD_FIRST, LIKE_OTHERS, UNKNOWN = "cold first call", "first call is like others", "unknown"
DIFFERING, REACHED = "unknown: inputs differ", "unknown: later calls are as long"
_TITLE = "Warm-up"
_AS_LONG = 0.9  # of the first call: one that takes this long is like it
# Of the statistics, the highest quantile that one call of so many cannot move: (calls, field, part of the calls above)
_QUANTILES = (
    (200, "p99_ms", 0.01),
    (40, "p95_ms", 0.05),
    (20, "p90_ms", 0.1),
    (steady_state.LEAST_CALLS, "p50_ms", 0.5),
)


@dataclass(frozen=True)
class WarmUpFigures:
    """The warm-up of one node in one stage.

    Attributes:
        warm_mean_ms: The mean of the calls that are not cold.
        levels: The levels of its times in ms, by which calls; of recordings and measurements.
        rows: The rows of the recording that are its cold calls.
    """

    node: str = figure("Node", tip="The node.")
    stage: str = figure("Stage", tip="Its execution stage.")
    count: int = figure("Calls", "count", "Calls that succeeded; others use up no skip.")
    state: str = figure("State", tip="What the series of its times does, or its first call.")
    cold: int | None = figure("Cold calls", "count", "First calls that are slower than steady ones.", default=None)
    first_ms: float | None = figure("First", "ms", "The first call.", default=None)
    cold_ms: float | None = figure("Cold mean", "ms", "Mean of the cold calls.", default=None)
    warm_ms: float | None = figure("Warm median", "ms", "Median of the others.", default=None)
    excess_ms: float | None = figure("Cost", "ms", "What the cold calls take beyond warm ones.", default=None)
    own_excess_ms: float | None = figure("Own cost", "ms", "The part of it in no node called inside.", default=None)
    p_value: float | None = figure("p", "number", "How likely steady calls are to begin so slowly.", default=None)
    warm_mean_ms: float | None = None
    levels: tuple[Level, ...] = ()
    rows: tuple[int, ...] = ()


class WarmUp(Insight[WarmUpFigures]):
    """The warm-up of all nodes, the most costly first.

    Attributes:
        skip_first_n: A proposal for ``set_profiling``: the most cold calls of any node.
            None where nothing can be suggested.
    """

    def __init__(self, figures: Iterable[WarmUpFigures], notes: Sequence[str], skip_first_n: int | None) -> None:
        """Make a table of figures by their cost."""
        ordered = sorted(figures, key=lambda of: -(of.excess_ms or 0.0))
        super().__init__(WarmUpFigures, _TITLE, ordered, notes)
        self.skip_first_n = skip_first_n


WarmUp.__module__ = "cprofiling"


def of_recording(evidence: Evidence) -> WarmUp:
    """Return the warm-up of each node, from its calls by their ends."""
    recording = evidence.recording
    outcomes, flags, names, stages, starts, ends = (
        column(recording, name).tolist() for name in ("outcome", "flags", "name", "stage", "start_ns", "end_ns")
    )
    strings = recording.strings
    ended = sorted(evidence.nodes, key=ends.__getitem__)
    whole = (row for row in ended if not outcomes[row] and not flags[row] & (UNFINISHED | CUT))
    calls = grouped(whole, lambda row: (stages[row], names[row]))
    own = evidence.node_self_times if calls else []
    figures = []
    for (stage, name), rows in calls.items():
        times = [(ends[row] - starts[row]) / NS_PER_MS for row in rows]
        own_times = [own[row] / NS_PER_MS for row in rows]
        figures.append(_figures(strings[name], strings[stage], times, own_times, rows))
    skip = max((of.cold for of in figures if of.cold is not None), default=None)
    notes = [] if figures else ["No call of a node succeeded in it."]
    if skip:
        notes.append(f"Suggested: set_profiling(True, skip_first_n={skip}), which leaves out all cold calls.")
        without = [of.node for of in figures if of.count <= skip]
        if without:
            notes.append(f"It leaves no call of {listed(without)}, which ran {skip} times at most.")
    elif skip == 0:
        notes.append("No cold calls were found: there are none, or the recording began after them.")
    for state, text in _STATES.items():
        those = [of.node for of in figures if of.state == state]
        if those:
            notes.append(f"{state[0].upper()}{state[1:]}: {listed(those)}. {text}")
    notes += drop_notes(recording)
    if recording.dropped:
        notes.append(
            "Where the oldest events were dropped, the first calls here are not the first ones of the program."
        )
    return WarmUp(figures, notes, skip)


def _figures(
    name: str, stage: str, times: Sequence[float], own: Sequence[float] = (), rows: Sequence[int] = ()
) -> WarmUpFigures:
    found = steadiness(times)
    cold = found.cold
    known = WarmUpFigures(
        name, stage, len(times), found.state, first_ms=times[0], p_value=found.p_value, levels=found.levels
    )
    if cold is None:
        return known
    excess, own_excess = (sum(each[:cold]) - cold * median(each[cold:]) if each else None for each in (times, own))
    return replace(
        known,
        cold=cold,
        cold_ms=fmean(times[:cold]) if cold else None,
        warm_ms=median(times[cold:]),
        warm_mean_ms=fmean(times[cold:]),
        excess_ms=excess,
        own_excess_ms=own_excess,
        rows=tuple(rows[:cold]),
    )


_STATES = {
    steady_state.SLOWDOWN: "Their times rise later on; that is no warm-up, and no skip_first_n helps.",
    steady_state.NOT_STEADY: f"Their times change within the last {100 * steady_state.LEAST_STEADY:g} % of the calls.",
    steady_state.TOO_FEW: f"No warm-up is told from chance; {steady_state.SOME_CALLS} calls are enough.",
    steady_state.NOT_CERTAIN: "The first call is longer than all others, which may be a cold call, or chance.",
}  # fmt: skip


def of_summary(summary: ProfilingSummary) -> WarmUp:
    """Return whether first calls were cold, as far as statistics tell."""
    signatures = Counter((of.node_name, checked_text("stage", of.stage)) for of in summary.shapes if of.count)
    find_histograms = cache(getattr(summary, "_find_histograms", dict))
    figures = [_first_call(row, signatures, find_histograms) for row in summary if row.count or row.skipped_count]
    notes = []
    skip = None
    if any(of.state == COLD_FIRST for of in figures):
        skip = max(summary.skip_first_n, 1)
        notes.append(f"Suggested: set_profiling(True, skip_first_n={skip}), if the first call is the only cold one.")
    for state, text in _DOUBTS.items():
        those = [of.node for of in figures if of.state == state]
        if those:
            notes.append(f"{listed(those)}: {text}")
    if figures:
        notes.append(
            "Statistics keep the first call only; where a warm-up ends is told by a recording of it: "
            "cp.profile(), then warm_up()."
        )
        if summary.skip_first_n:
            notes.append(f"The first {counted(summary.skip_first_n, 'call')} of each node are not in the others here.")
    else:
        notes.append("There are no calls.")
    return WarmUp(figures, notes, skip)


_DOUBTS = {
    steady_state.NOT_CERTAIN: _STATES[steady_state.NOT_CERTAIN],
    DIFFERING: "calls have several input signatures; which one the first had is not known, so that it is not judged.",
    REACHED: "later calls took about as long as the first, which may be one of them as well as a cold one.",
}  # fmt: skip


def _first_call(
    row: NodeProfilingStats,
    signatures: Counter[tuple[str, str]],
    find_histograms: Callable[[], Mapping[tuple[str, str], Sequence[Bucket]]],
) -> WarmUpFigures:
    stage = checked_text("stage", row.stage)
    first, others = row.first_ms, row.count - (not row.skipped_count)
    known = WarmUpFigures(row.node_name, stage, row.count + row.skipped_count, UNKNOWN, first_ms=first)
    if first is None:
        return known
    if others < 1:
        return replace(known, state=steady_state.TOO_FEW)
    if signatures[row.node_name, stage] > 1:
        return replace(known, state=DIFFERING)
    # Of equal calls each is as likely to be the longest. The chance to exceed a quantile follows a Pareto tail of index
    # 1, the heaviest with which times nearly have a mean. Of two chances, twice the smaller one counts.
    chances = [1.0]
    if first >= row.max_ms:
        chances.append(1 / (others + 1))
    chances += [part * quantile / first for part, quantile in _quantiles(row) if first > quantile][:1]
    p_value = min(1.0, 2 * min(chances))
    middle = row.median_ms if row.p50_ms is None else row.p50_ms
    is_cold = p_value <= steady_state.SIGNIFICANCE and first > middle * (1 + steady_state.ALIKE)
    state = COLD_FIRST if is_cold else LIKE_OTHERS if others >= steady_state.SOME_CALLS else steady_state.TOO_FEW
    if state == LIKE_OTHERS and first >= row.max_ms:
        _, high = next(_quantiles(row), (0.0, first))
        state = steady_state.NOT_CERTAIN if first > high * (1 + steady_state.ALIKE) else LIKE_OTHERS
    if is_cold:
        buckets = () if row.skipped_count else find_histograms().get((row.node_name, stage), ())
        long = sum(count for lower, _, count in buckets if lower >= _AS_LONG * first)
        if row.max_ms >= _AS_LONG * first if row.skipped_count else row.max_ms > first or long > 1:
            return replace(known, state=REACHED)  # a later call took about as long as the first
    mean = (row.total_ms - (0.0 if row.skipped_count else first)) / others
    found = replace(known, state=state, warm_ms=middle, warm_mean_ms=mean, p_value=p_value)
    return replace(found, cold=1, cold_ms=first, excess_ms=first - middle) if is_cold else found


def _quantiles(row: NodeProfilingStats) -> Iterator[tuple[float, float]]:
    """Yield the quantiles that one call cannot move, highest first."""
    for calls, name, part in _QUANTILES:
        quantile = getattr(row, name)
        if row.count >= calls and quantile is not None:
            yield part, quantile


def of_measurement(measurement: Measurement) -> WarmUp:
    """Return the warm-up of a measurement, from its timed calls."""
    figures = [_figures(measurement.name, "", measurement.samples_ms)]
    [of] = figures
    notes = []
    if of.cold:
        more = measurement.warmup + of.cold
        notes.append(
            f"Suggested: measure(..., warmup={more}); {counted(of.cold, 'timed call')} came before the steady state."
        )
    elif of.state in _STATES:
        notes.append(f"{of.state[0].upper()}{of.state[1:]}. {_STATES[of.state]}")
    if measurement.warmup:
        before = counted(measurement.warmup, "call")
        notes.append(f"{before} went before, untimed; warmup=0 shows {'it' if measurement.warmup == 1 else 'them'}.")
    return WarmUp(figures, notes, of.cold)
