"""The gain of a pipeline from faster nodes.

Frames whose nodes run one after the other lose exactly that part (G. M. Amdahl, 1967). Where the pipeline tells which
node waits for which, its branches may run at the same time, and a frame takes as long as its critical path: then only
what is on it counts, and only up to where another path becomes the longest.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from cprofiling._internal.quantiles import percentile
from cprofiling._internal.text import checked_text, counted, listed, shown_value
from cprofiling.analysis.evidence import NS_PER_MS, Evidence
from cprofiling.analysis.frames import RecordedFrames, checked_frames, stages_of
from cprofiling.analysis.insight_table import Insight, figure
from cprofiling.nodes.graph import Graph, checked_edges
from cprofiling.nodes.summary_table import by_stage, calls_of, frames_of_stage, own_ms
from cprofiling.recording.columns import Recording, grouped
from cprofiling.recording.intervals import Interval, common, length, union
from cprofiling.recording.tree import nodes_around

if TYPE_CHECKING:
    from cprofiling.nodes.stats import NodeProfilingStats, ProfilingSummary

_ROUNDING = 1e-9
_FRAME, _RUN = "frame", "whole run"
_LEAST_FACTOR, _MOST_FACTOR = 1e-9, 1e9


@dataclass(frozen=True)
class WhatIfFigures:
    """The time of a frame if one node, or several, were faster.

    Where frames are not known, what the whole run would take: ``per`` tells.
    """

    node: str = figure("Node", tip="The node; several, if they are faster together.")
    stage: str = figure("Stage", tip="Its execution stage.")
    per: str = figure("Per", tip="What the figures are of: one frame, or the whole run if frames are not known.")
    factor: float | None = figure("Factor", "number", "How many times as fast; none for several nodes.")
    calls: float = figure("Calls", "number", "Calls in it.")
    own_ms: float = figure("Own time", "ms", "The node's time in it, without nodes called inside.")
    share: float = figure("Share", "share", "That as a part of the whole.")
    after_ms: float = figure("Then", "ms", "Mean time of a frame, or that of the run, with the faster node.")
    gain_ms: float = figure("Gain", "ms", "How much less that is than now.")
    speedup: float = figure("Speed-up", "number", "How many times as many frames in the same time.")
    most: float = figure("At most", "number", "The speed-up if it took no time at all.")
    p99_after_ms: float | None = figure("p99 then", "ms", "99th percentile of frames with it; of recordings.")
    critical: float | None = figure("Critical", "share", "In which part of the frames it is on the critical path.")
    slack_ms: float | None = figure("Slack", "ms", "How much longer it could take for nothing.")


class WhatIf(Insight[WhatIfFigures]):
    """The worth of faster nodes, largest gain first.

    Attributes:
        frame_ms: By stage: what a frame takes now, on average; of the whole run where frames are not known.
        frames: By stage: how many frames there are; None where that is not known.
    """

    def __init__(
        self,
        figures: Iterable[WhatIfFigures],
        notes: Iterable[str],
        frame_ms: Mapping[str, float],
        frames: Mapping[str, int | None],
    ) -> None:
        """Make a table of figures, by gain."""
        ordered = sorted(figures, key=lambda of: (of.per == _RUN, -of.gain_ms))
        super().__init__(WhatIfFigures, "What if a node were faster", ordered, notes)
        self.frame_ms = dict(frame_ms)
        self.frames = dict(frames)


WhatIf.__module__ = WhatIfFigures.__module__ = "cprofiling"


@dataclass
class Frame:
    """One frame, or the mean of many.

    Attributes:
        time: How long it takes; with a graph, the part of it in which no node of the graph runs.
        own: The own times of its nodes, by their names.
        graph: The times of the nodes of the graph.
        inside: Of the graph's nodes, the own times of what runs in them, themselves included.
    """

    time: float = 0.0
    own: dict[str, float] = field(default_factory=dict)
    graph: dict[str, float] = field(default_factory=dict)
    inside: dict[str, dict[str, float]] = field(default_factory=dict)

    def after(self, factors: Mapping[str, float], graph: Graph | None) -> float:
        """Return how long it takes if nodes are so many times as fast."""

        def saved(own: Mapping[str, float]) -> float:
            return sum([own[node] * (1 - 1 / factor) for node, factor in factors.items() if node in own])

        if graph is None:
            return self.time - saved(self.own)
        times = {node: time - saved(self.inside.get(node, {})) for node, time in self.graph.items()}
        return self.time + graph.length(times)


def _known(frame: Frame, graph: Graph | None) -> set[str]:
    """Return the nodes with a known gain."""
    return set(frame.own) if graph is None else {name for inside in frame.inside.values() for name in inside}


def checked_factors(node: object, factor: object) -> tuple[dict[str, float] | None, float]:
    """Return the factors by node, None for each in turn, and the factor.

    TypeError or ValueError for a bad name or factor.
    """
    if isinstance(node, Mapping):
        factors = {
            checked_text("a name of node", name): _checked_factor("a factor of node", of) for name, of in node.items()
        }
        if not factors:
            raise ValueError("node must name a node, got {} (dict)")
        return factors, 1.0
    known = _checked_factor("factor", factor)
    return None if node is None else {checked_text("node", node): known}, known


def _checked_factor(parameter: str, factor: object) -> float:
    if isinstance(factor, bool) or not isinstance(factor, (int, float)):
        raise TypeError(f"{parameter} must be a number, got {shown_value(factor)}")
    if not (_LEAST_FACTOR <= factor <= _MOST_FACTOR or factor == math.inf):
        limits = f"from {_LEAST_FACTOR:g} to {_MOST_FACTOR:g}, or math.inf"
        raise ValueError(f"{parameter} must be {limits}, got {shown_value(factor)}")
    return float(factor)


class _Frames:
    """Frames with their times, and those with faster nodes.

    Only frames that have a node are looked at again for it.

    Attributes:
        before: The mean time of the frames as they are.
    """

    def __init__(self, frames: Sequence[Frame], graph: Graph | None) -> None:
        self._frames, self._graph = frames, graph
        self._times = [frame.after({}, graph) for frame in frames]
        self._whole = math.fsum(self._times)
        self._ranked = sorted(range(len(frames)), key=self._times.__getitem__)
        self._places: dict[str, list[int]] = {}
        for place, frame in enumerate(frames):
            for node in frame.own:
                self._places.setdefault(node, []).append(place)
        self.before = self._whole / len(frames)

    def own(self, factors: Mapping[str, float]) -> float:
        """Return the mean own time of nodes in a frame."""
        own = [self._frames[place].own[node] for node in factors for place in self._places.get(node, ())]
        return math.fsum(own) / len(self._frames)

    def after(self, factors: Mapping[str, float]) -> tuple[float, float | None]:
        """Return mean and 99th percentile (None for one frame) with faster nodes."""
        count = len(self._frames)
        places = {place for node in factors for place in self._places.get(node, ())}
        changed = {place: self._frames[place].after(factors, self._graph) for place in places}
        mean = (self._whole - math.fsum(self._times[place] - time for place, time in changed.items())) / count
        if count < 2:
            return mean, None
        above = count - (count - 1) * 990 // 1000  # at or above the 99th percentile
        # The longest unchanged calls, enough even if all changed ones were among the longest.
        kept = [self._times[place] for place in self._ranked[-(above + len(changed)) :] if place not in changed]
        ordered = sorted(round(time * NS_PER_MS) for time in (*kept, *changed.values()))[-above:]
        return mean, (percentile(ordered[:2], (count - 1) * 990 % 1000) or 0) / NS_PER_MS


def _figures(
    stage: str,
    frames: _Frames,
    calls: Mapping[str, float],
    factors: Mapping[str, float],
    slacks: Sequence[Mapping[str, float]],
    per: str,
) -> WhatIfFigures:
    """Return the figures for nodes that are faster together."""
    before, own, (mean, p99) = frames.before, frames.own(factors), frames.after(factors)
    least, _ = frames.after(dict.fromkeys(factors, math.inf))
    names = list(factors)
    slack = [of[names[0]] for of in slacks if len(names) == 1 and names[0] in of]
    slack = [each if each > _ROUNDING * before else 0.0 for each in slack]
    return WhatIfFigures(
        " + ".join(names), stage, per, factors[names[0]] if len(names) == 1 else None,
        sum(calls.get(node, 0.0) for node in names), own, own / before if before else 0.0, mean, before - mean,
        _ratio(before, mean), _ratio(before, least), p99,
        slack.count(0.0) / len(slack) if slack else None, fmean(slack) if slack else None,
    )  # fmt: skip


def _ratio(before: float, after: float) -> float:
    return before / after if after > _ROUNDING * before else math.inf if before else 1.0


# ---- statistics


def of_summary(
    summary: ProfilingSummary,
    node: object = None,
    factor: object = 2.0,
    total_frames: object = None,
    edges: object = None,
    most: int | None = None,
) -> WhatIf:
    """Return the worth of faster nodes by a summary.

    most: How many nodes of each stage are looked at, those with the most own time; None: all.
    """
    factors, each = checked_factors(node, factor)
    told = summary.edges if edges is None else checked_edges(edges)
    graph = Graph(told) if told else None
    stages = by_stage(summary)
    given = checked_frames(total_frames, list(stages), stages_of(summary))
    _check_known(factors, [row.node_name for rows in stages.values() for row in rows])
    figures: list[WhatIfFigures] = []
    notes: list[str] = []
    frame_ms, frames = {}, {}
    for stage, rows in stages.items():
        frames[stage], basis = frames_of_stage(rows, given[stage])
        frame, calls = _mean_frame(rows, frames[stage], graph)
        known = _known(frame, graph)
        calls = {name: calls[name] for name in calls if name in known}
        per = _RUN if frames[stage] is None else _FRAME
        found, left_out = _rows_of(stage, per, [frame], calls, factors, each, graph, most)
        figures += found
        frame_ms[stage] = frame.after({}, graph)
        notes += [*_stage_notes(stage, rows, frame, frames[stage], basis, graph), *left_out]
    if not stages:
        notes = ["No node has a sample."]
    return WhatIf(figures, notes, frame_ms, frames)


def _check_known(factors: Mapping[str, float] | None, names: Sequence[str]) -> None:
    for node in factors or ():
        if node not in names:
            known = listed(list(dict.fromkeys(names))) or "none"
            raise ValueError(f"node must be one that has samples ({known}), got {shown_value(node)}")


def _rows_of(
    stage: str,
    per: str,
    frames: Sequence[Frame],
    calls: Mapping[str, float],
    factors: Mapping[str, float] | None,
    factor: float,
    graph: Graph | None,
    most: int | None,
) -> tuple[list[WhatIfFigures], list[str]]:
    """Return the figures of a stage, and notes.

    ``most``: of so many nodes only, those with the most own time.
    """
    known = _Frames(frames, graph)
    notes: list[str] = []
    if factors is None:
        nodes = list(calls)
        if most is not None and len(nodes) > most:
            nodes = heapq.nlargest(most, nodes, key=lambda node: known.own({node: factor}))
            of = f"{listed([stage])}: " if stage else ""
            notes = [f"{of}{counted(len(calls) - most, 'more node')} with less own time left out."]
        wanted = [{node: factor} for node in nodes]
    else:
        wanted = [dict(factors)] if any(node in calls for node in factors) else []
    slacks = [graph.slacks(frame.graph) for frame in frames] if graph is not None else []
    return [_figures(stage, known, calls, of, slacks, per) for of in wanted], notes


def _mean_frame(
    rows: Sequence[NodeProfilingStats], frames: int | None, graph: Graph | None
) -> tuple[Frame, dict[str, float]]:
    """Return the mean frame in ms, and the calls of each node in it."""
    frame = Frame()
    calls = {}
    for row in rows:
        name = row.node_name
        calls[name] = calls_of(row) / (frames or 1)
        frame.own[name] = own_ms(row) / row.count * calls[name]
        if graph is not None and name in graph.nodes:
            frame.graph[name] = row.total_ms / row.count * calls[name]
            frame.inside[name] = {name: frame.own[name]}
    if graph is None:
        frame.time = sum(frame.own.values())
    return frame, calls


def _stage_notes(
    stage: str, rows: Sequence[NodeProfilingStats], frame: Frame, frames: int | None, basis: str, graph: Graph | None
) -> list[str]:
    stage = listed([stage])
    of = f"{stage}: a frame takes" if frames is not None else f"{stage}: the whole run takes"
    how = "in its nodes, one after the other" if graph is None else "on its critical path, branches at the same time"
    notes = [f"{of} {frame.after({}, graph):.4g} ms {how}; frames: {basis}."]
    if graph is None:
        return notes
    notes.append(f"{stage}: one after the other its nodes take {sum(frame.own.values()):.4g} ms.")
    named = {row.node_name for row in rows}
    absent = [node for node in graph.nodes if node not in named]
    apart = [row.node_name for row in rows if row.node_name not in graph.nodes]
    if absent:
        notes.append(f"{stage}: in the graph, but without a sample: {listed(absent)}; they count as 0 ms.")
    if apart:
        notes.append(
            f"{stage}: not in the graph: {listed(apart)}; statistics do not tell in which node of it they run, and so "
            "not what they gain. recording.what_if(edges=...) does."
        )
    return notes


# ---- recordings


def of_recording(
    recording: Recording, node: object, factor: object, edges: object, frame: str | None, skip_first_n: int
) -> WhatIf:
    """Return the worth of faster nodes by the frames of a recording."""
    factors, each = checked_factors(node, factor)
    graph = Graph(checked_edges(edges)) if edges is not None else None
    return of_frames(RecordedFrames(Evidence(recording), frame, skip_first_n), factors, each, graph)


def of_frames(
    found: RecordedFrames,
    factors: Mapping[str, float] | None = None,
    factor: float = 2.0,
    graph: Graph | None = None,
    most: int | None = None,
) -> WhatIf:
    """Return what faster nodes are worth in frames that have been found.

    Args:
        found: The frames.
        factors: How many times as fast which nodes are; None: each in its turn, by
        factor: that many times.
        graph: Which node waits for which.
        most: How many nodes of each stage are looked at, those with the most own time; None: all.
    """
    evidence = found.evidence
    rows, stages = found.places, found.stages
    if not found.rows:
        of_nodes = found.stages_of_nodes()
        stages = list(dict.fromkeys(of_nodes.values()))
        rows = {row: stages.index(stage) for row, stage in of_nodes.items()}
    _check_known(factors, list(dict.fromkeys(map(evidence.name, rows))))
    if not rows:
        return WhatIf([], ["No node was recorded.", *found.notes()], {}, {})
    frames, elsewhere = _recorded_frames(found, rows, len(stages), graph)
    figures: list[WhatIfFigures] = []
    notes: list[str] = []
    means, counts = {}, {}
    places = grouped(range(len(stages)), stages.__getitem__)
    runs: dict[str, Counter[str]] = {stage: Counter() for stage in places}
    for row, place in rows.items():
        runs[stages[place]][evidence.name(row)] += 1
    for stage, of in places.items():
        some = [frames[place] for place in of]
        known = {name for frame in some for name in _known(frame, graph)}
        calls = {name: count / len(some) for name, count in runs[stage].items() if name in known}
        per = _FRAME if found.rows else _RUN
        rows_of, left_out = _rows_of(stage, per, some, calls, factors, factor, graph, most)
        figures += rows_of
        means[stage] = fmean([each.after({}, graph) for each in some])
        counts[stage] = len(some) if found.rows else None
        notes += [*_recorded_notes(found, stage, of, means[stage], graph), *left_out]
    if elsewhere:
        why = "are in no node of the graph; what they gain is not known"
        if graph is None:
            why = "ran on other threads than their frames; what that gains is known with edges only"
        notes.append(f"{listed(elsewhere)} {why}.")
    return WhatIf(figures, [*notes, *found.notes()], means, counts)


def _recorded_notes(
    found: RecordedFrames, stage: str, places: Sequence[int], before: float, graph: Graph | None
) -> list[str]:
    of = f"{listed([stage])}: " if stage else ""
    if not found.rows:
        return [f"{of}the nodes take {before:.4g} ms in all; frames are not known: {found.basis}."]
    frames = f"{counted(len(places), 'frame')} ({found.basis})"
    if graph is None:
        return [f"{of}a frame takes {before:.4g} ms, the mean of {frames}."]
    wall = fmean([found.evidence.duration(found.rows[place]) for place in places]) / NS_PER_MS
    return [
        f"{of}a frame takes {before:.4g} ms on its critical path, branches at the same time, and with what is in no "
        f"node of the graph; as it was recorded it takes {wall:.4g} ms. Both are means of {frames}."
    ]


def _recorded_frames(
    found: RecordedFrames, rows: Mapping[int, int], count: int, graph: Graph | None
) -> tuple[list[Frame], list[str]]:
    """Return the frames in ms, and the nodes that are in none."""
    evidence = found.evidence
    frames = [Frame(evidence.duration(row) / NS_PER_MS) for row in found.rows] or [Frame() for _ in range(count)]
    around = nodes_around(evidence.recording, evidence.tree, {})
    outermost: dict[int, int] = {}  # of the graph's nodes, around each row
    of_frames = set(found.rows)
    for row in rows if graph is not None else ():
        parent = evidence.tree.parents[row]
        node = around[parent] if parent >= 0 else -1
        if node in outermost and node not in of_frames:
            outermost[row] = outermost[node]
        elif graph is not None and evidence.name(row) in graph.nodes:
            outermost[row] = row
    elsewhere: dict[str, None] = {}
    spans: list[list[Interval]] = [[] for _ in frames]
    for row, place in rows.items():
        frame, name = frames[place], evidence.name(row)
        own = evidence.node_self_times[row] / NS_PER_MS
        if graph is None and found.rows and evidence.tracks[row] != evidence.tracks[found.rows[place]]:
            elsewhere[name] = None
            continue
        frame.own[name] = frame.own.get(name, 0.0) + own
        if not found.rows and graph is None:
            frame.time += own
        top = outermost.get(row, -1)
        if graph is not None and top < 0:
            elsewhere[name] = None
        if top == row:
            frame.graph[name] = frame.graph.get(name, 0.0) + evidence.duration(row) / NS_PER_MS
            spans[place].append((evidence.starts[row], evidence.ends[row]))
        if top >= 0:
            inside = frame.inside.setdefault(evidence.name(top), {})
            inside[name] = inside.get(name, 0.0) + own
    for frame, span, of in zip(frames, found.spans, spans, strict=False):
        frame.time -= length(common([span], union(of))) / NS_PER_MS
    return frames, list(elsewhere)
