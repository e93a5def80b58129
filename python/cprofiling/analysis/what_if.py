"""The gain of a pipeline from faster nodes.

Frames whose nodes run one after the other lose exactly that part (G. M. Amdahl, 1967). Where the pipeline tells which
node waits for which, its branches may run at the same time, and a frame takes as long as its critical path: then only
nodes on it count, and only until another path is the longest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from cprofiling._internal.quantiles import fmean, percentile
from cprofiling._internal.text import checked_text, counted, listed, shown_value
from cprofiling.analysis.evidence import NS_PER_MS
from cprofiling.analysis.frames import RecordedFrames, checked_frames, stages_of
from cprofiling.analysis.insight_table import Insight, figure
from cprofiling.nodes.graph import Graph, checked_edges
from cprofiling.nodes.summary_table import by_stage, calls_of, frames_of_stage, own_ms
from cprofiling.recording.columns import grouped
from cprofiling.recording.intervals import Interval, common, length, union

if TYPE_CHECKING:
    from cprofiling.nodes.stats import ProfilingSummary

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
        self, figures: Iterable[WhatIfFigures], notes: Iterable[str], frame_ms: dict[str, float],
        frames: dict[str, int | None],
    ) -> None:  # fmt: skip
        """Make a table of figures, by gain."""
        ordered = sorted(figures, key=lambda of: (of.per == _RUN, -of.gain_ms))
        super().__init__(WhatIfFigures, "What if a node were faster", ordered, notes)
        self.frame_ms, self.frames = frame_ms, frames


WhatIf.__module__ = WhatIfFigures.__module__ = "cprofiling"


@dataclass
class _Frame:
    """One frame, or the mean of many, in ms.

    Attributes:
        graph: Which node waits for which; None: they run one after the other.
        time: How long it takes; with a graph, the part of it in which no node of the graph runs.
        own: The own times of its nodes, by their names.
        branches: The times of the nodes of the graph.
        inside: Of the graph's nodes, the own times of what runs in them, themselves included.
    """

    graph: Graph | None
    time: float = 0.0
    own: dict[str, float] = field(default_factory=dict)
    branches: dict[str, float] = field(default_factory=dict)
    inside: dict[str, dict[str, float]] = field(default_factory=dict)

    def known(self) -> set[str]:
        """Return the nodes with a known gain."""
        return set(self.own if self.graph is None else chain.from_iterable(self.inside.values()))

    def after(self, saved: Mapping[str, float]) -> float:
        """Return how long it takes if nodes save such parts of their own time."""

        def less(own: Mapping[str, float]) -> float:
            return sum([own[node] * part for node, part in saved.items() if node in own])

        if self.graph is None:
            return self.time - less(self.own)
        times = {node: time - less(self.inside.get(node, {})) for node, time in self.branches.items()}
        return self.time + self.graph.length(times)


def _checked_factors(node: object, factor: object) -> dict[str, float] | None:
    """Return the factors by node, None for each node in its turn.

    TypeError or ValueError for a bad name or factor.
    """
    if not isinstance(node, Mapping):
        known = _checked_factor("factor", factor)
        return None if node is None else {checked_text("node", node): known}
    if not node:
        raise ValueError("node must name a node, got {} (dict)")
    return {checked_text("a name of node", name): _checked_factor("a factor of node", of) for name, of in node.items()}


def _checked_factor(parameter: str, factor: object) -> float:
    if isinstance(factor, bool) or not isinstance(factor, (int, float)):
        raise TypeError(f"{parameter} must be a number, got {shown_value(factor)}")
    if not (_LEAST_FACTOR <= factor <= _MOST_FACTOR or factor == math.inf):
        limits = f"from {_LEAST_FACTOR:g} to {_MOST_FACTOR:g}, or math.inf"
        raise ValueError(f"{parameter} must be {limits}, got {shown_value(factor)}")
    return float(factor)


class _Stage:
    """Frames of one stage with their times, and those with faster nodes.

    Attributes:
        before: The mean time of the frames as they are.
    """

    def __init__(self, name: str, per: str, frames: Sequence[_Frame], calls: Mapping[str, float]) -> None:
        known = set().union(*(frame.known() for frame in frames))
        self._name, self._per, self._frames = name, per, frames
        self._calls = {node: count for node, count in calls.items() if node in known}
        self._times = [frame.after({}) for frame in frames]
        self._whole = math.fsum(self._times)
        self._ranked = sorted(range(len(frames)), key=self._times.__getitem__)
        self._own_times: dict[str, dict[int, float]] = {}  # of a node, by the place of the frames that have it
        for place, frame in enumerate(frames):
            for node, own in frame.own.items():
                self._own_times.setdefault(node, {})[place] = own
        self.before = self._whole / len(frames)

    def worth(
        self, factors: dict[str, float] | None, factor: float, most: int | None
    ) -> tuple[list[WhatIfFigures], list[str]]:
        """Return the figures of faster nodes, together or each, and notes.

        most: Of so many nodes only, those with the most own time.
        """
        choices, notes = [], []
        if factors is None:
            nodes = list(self._calls)
            if most is not None and len(nodes) > most:
                nodes = sorted(nodes, key=lambda node: self._own([node]), reverse=True)[:most]
                of = f"{listed([self._name])}: " if self._name else ""
                left_out = counted(len(self._calls) - most, "more node")
                notes = [f"{of}{left_out} with less own time left out."]
            choices = [{node: float(factor)} for node in nodes]
        elif any(node in self._calls for node in factors):
            choices = [factors]
        graph = self._frames[0].graph
        slacks = [graph.slacks(frame.branches) for frame in self._frames] if graph is not None else []
        return [self._figures(choice, slacks) for choice in choices], notes

    def _figures(self, factors: Mapping[str, float], slacks: Sequence[Mapping[str, float]]) -> WhatIfFigures:
        before, own = self.before, self._own(factors)
        changed = self._after(factors)
        mean, least = self._mean(changed), self._mean(self._after(dict.fromkeys(factors, math.inf)))
        first, *others = factors
        slack = [of[first] for of in slacks if not others and first in of]
        slack = [each if each > _ROUNDING * before else 0.0 for each in slack]
        return WhatIfFigures(
            " + ".join(factors), self._name, self._per, None if others else factors[first],
            sum(self._calls.get(node, 0.0) for node in factors), own, own / before if before else 0.0, mean,
            before - mean, _ratio(before, mean), _ratio(before, least), self._p99(changed),
            slack.count(0.0) / len(slack) if slack else None, fmean(slack) if slack else None,
        )  # fmt: skip

    def _own(self, nodes: Iterable[str]) -> float:
        """Return the mean own time of nodes in a frame."""
        own = chain.from_iterable(self._own_times.get(node, {}).values() for node in nodes)
        return math.fsum(own) / len(self._frames)

    def _after(self, factors: Mapping[str, float]) -> dict[int, float]:
        """Return times of frames with faster nodes, by their places."""
        saved = {node: 1 - 1 / factor for node, factor in factors.items()}
        if len(saved) > 1 or self._frames[0].graph is not None:
            places = {place for node in factors for place in self._own_times.get(node, ())}
            return {place: self._frames[place].after(saved) for place in places}
        [(node, part)] = saved.items()
        return {place: self._times[place] - own * part for place, own in self._own_times.get(node, {}).items()}

    def _mean(self, changed: Mapping[int, float]) -> float:
        """Return the mean of all frames if some have other times."""
        less = [self._times[place] - time for place, time in changed.items()]
        return (self._whole - math.fsum(less)) / len(self._frames)

    def _p99(self, changed: Mapping[int, float]) -> float | None:
        """Return their 99th percentile; None for one frame."""
        count = len(self._frames)
        if count < 2:
            return None
        above = count - (count - 1) * 990 // 1000  # at or above the 99th percentile
        # The longest unchanged calls, enough even if all changed ones were among the longest.
        kept = [self._times[place] for place in self._ranked[-(above + len(changed)) :] if place not in changed]
        ordered = [round(time * NS_PER_MS) for time in sorted((*kept, *changed.values()))[-above:][:2]]
        return (percentile(ordered, (count - 1) * 990 % 1000) or 0) / NS_PER_MS


def _ratio(before: float, after: float) -> float:
    return before / after if after > _ROUNDING * before else math.inf if before else 1.0


def _check_known(factors: Mapping[str, float] | None, names: Iterable[str]) -> None:
    if factors is None:
        return
    known = list(dict.fromkeys(names))
    for node in factors:
        if node not in known:
            raise ValueError(f"node must be one that has samples ({listed(known) or 'none'}), got {shown_value(node)}")


# ---- statistics


def of_summary(
    summary: ProfilingSummary,
    node: object = None,
    factor: Any = 2.0,
    total_frames: object = None,
    edges: object = None,
    most: int | None = None,
) -> WhatIf:
    """Return the worth of faster nodes by a summary.

    most: How many nodes of each stage are looked at, those with the most own time; None: all.
    """
    factors = _checked_factors(node, factor)
    told = summary.edges if edges is None else checked_edges(edges)
    graph = Graph(told) if told else None
    rows_by_stage = by_stage(summary)
    given = checked_frames(total_frames, list(rows_by_stage), stages_of(summary))
    _check_known(factors, (row.node_name for rows in rows_by_stage.values() for row in rows))
    figures: list[WhatIfFigures] = []
    notes: list[str] = [] if rows_by_stage else ["No node has a sample."]
    frame_ms, frames = {}, {}
    for name, rows in rows_by_stage.items():
        frames[name], basis = frames_of_stage(rows, given[name])
        frame = _Frame(graph)
        calls = {}
        for row in rows:
            each = row.node_name
            calls[each] = calls_of(row) / (frames[name] or 1)
            frame.own[each] = own_ms(row) / row.count * calls[each]
            if graph is not None and each in graph.nodes:
                frame.branches[each] = row.total_ms / row.count * calls[each]
                frame.inside[each] = {each: frame.own[each]}
        if graph is None:
            frame.time = sum(frame.own.values())
        stage = _Stage(name, _RUN if frames[name] is None else _FRAME, [frame], calls)
        found, left_out = stage.worth(factors, factor, most)
        figures += found
        frame_ms[name] = stage.before
        notes += [*_stage_notes(name, frame, frames[name], basis), *left_out]
    return WhatIf(figures, notes, frame_ms, frames)


def _stage_notes(stage: str, frame: _Frame, frames: int | None, basis: str) -> list[str]:
    graph, stage = frame.graph, listed([stage])
    of = f"{stage}: a frame takes" if frames is not None else f"{stage}: the whole run takes"
    how = "in its nodes, one after the other" if graph is None else "on its critical path, branches at the same time"
    notes = [f"{of} {frame.after({}):.4g} ms {how}; frames: {basis}."]
    if graph is None:
        return notes
    notes.append(f"{stage}: one after the other its nodes take {sum(frame.own.values()):.4g} ms.")
    absent = [node for node in graph.nodes if node not in frame.own]
    apart = [node for node in frame.own if node not in graph.nodes]
    if absent:
        notes.append(f"{stage}: in the graph, but without a sample: {listed(absent)}; they count as 0 ms.")
    if apart:
        notes.append(
            f"{stage}: not in the graph: {listed(apart)}; statistics do not tell in which node of it they run, and so "
            "not what they gain. recording.what_if(edges=...) does."
        )
    return notes


# ---- recordings


def of_frames(
    found: RecordedFrames, node: object = None, factor: Any = 2.0, edges: object = None, most: int | None = None
) -> WhatIf:
    """Return the worth of faster nodes by the frames of a recording.

    most: How many nodes of each stage are looked at, those with the most own time; None: all.
    """
    factors = _checked_factors(node, factor)
    graph = Graph(checked_edges(edges)) if edges is not None else None
    evidence = found.evidence
    place_of, stages = found.places, found.stages
    if not found.rows:
        stage_of = found.stages_of_nodes()
        stages = list(dict.fromkeys(stage_of.values()))
        place_of = {row: stages.index(stage) for row, stage in stage_of.items()}
    _check_known(factors, map(evidence.texts.__getitem__, place_of))
    if not place_of:
        return WhatIf([], ["No node was recorded.", *found.notes()], {}, {})
    frames, elsewhere = _recorded_frames(found, place_of, len(stages), graph)
    figures: list[WhatIfFigures] = []
    notes: list[str] = []
    means: dict[str, float] = {}
    counts: dict[str, int | None] = {}
    calls_by_stage: dict[str, dict[str, int]] = {}
    calls_of_stages = Counter(
        zip(map(stages.__getitem__, place_of.values()), map(evidence.texts.__getitem__, place_of), strict=True)
    )
    for (stage_name, node_name), count in calls_of_stages.items():
        calls_by_stage.setdefault(stage_name, {})[node_name] = count
    for name, places in grouped(range(len(stages)), stages.__getitem__).items():
        calls = {each: count / len(places) for each, count in calls_by_stage.get(name, {}).items()}
        stage = _Stage(name, _FRAME if found.rows else _RUN, [frames[place] for place in places], calls)
        figures_of, left_out = stage.worth(factors, factor, most)
        figures += figures_of
        means[name] = stage.before
        counts[name] = len(places) if found.rows else None
        of = f"{listed([name])}: " if name else ""
        counted_frames = f"{counted(len(places), 'frame')} ({found.basis})"
        if not found.rows:
            note = f"{of}the nodes take {stage.before:.4g} ms in all; frames are not known: {found.basis}."
        elif graph is None:
            note = f"{of}a frame takes {stage.before:.4g} ms, the mean of {counted_frames}."
        else:
            wall = fmean([evidence.duration(found.rows[place]) for place in places]) / NS_PER_MS
            note = (
                f"{of}a frame takes {stage.before:.4g} ms on its critical path, branches at the same time, and with "
                f"what is in no node of the graph; as it was recorded it takes {wall:.4g} ms. Both are means of "
                f"{counted_frames}."
            )
        notes += [note, *left_out]
    if elsewhere:
        why = "are in no node of the graph; what they gain is not known"
        if graph is None:
            why = "ran on other threads than their frames; what that gains is known with edges only"
        notes.append(f"{listed(elsewhere)} {why}.")
    return WhatIf(figures, [*notes, *found.notes()], means, counts)


def _recorded_frames(
    found: RecordedFrames, place_of: Mapping[int, int], count: int, graph: Graph | None
) -> tuple[list[_Frame], list[str]]:
    """Return the frames, and the nodes that are in none."""
    evidence = found.evidence
    lengths = [evidence.duration(row) / NS_PER_MS for row in found.rows] or [0.0] * count
    frames = [_Frame(graph, length_ms) for length_ms in lengths]
    around = evidence.nodes_around
    frame_rows, own_times, tracks = set(found.rows), evidence.node_self_times, evidence.tracks
    outermost: dict[int, int] = {}  # of the graph's nodes, around each row
    elsewhere: dict[str, None] = {}
    spans: list[list[Interval]] = [[] for _ in frames]
    for row, place in place_of.items():
        frame, name = frames[place], evidence.texts[row]
        own = own_times[row] / NS_PER_MS
        if graph is None:
            if found.rows and tracks[row] != tracks[found.rows[place]]:
                elsewhere[name] = None
                continue
            if not found.rows:
                frame.time += own
        frame.own[name] = frame.own.get(name, 0.0) + own
        if graph is None:
            continue
        parent = evidence.tree.parents[row]
        node = around[parent] if parent >= 0 else -1
        if node in outermost and node not in frame_rows:
            top = outermost[row] = outermost[node]
        elif name in graph.nodes:
            top = outermost[row] = row
            frame.branches[name] = frame.branches.get(name, 0.0) + evidence.duration(row) / NS_PER_MS
            spans[place].append((evidence.starts[row], evidence.ends[row]))
        else:
            elsewhere[name] = None
            continue
        inside = frame.inside.setdefault(evidence.texts[top], {})
        inside[name] = inside.get(name, 0.0) + own
    for frame, span, of in zip(frames, found.spans, spans, strict=False):
        frame.time -= length(common([span], union(of))) / NS_PER_MS
    return frames, list(elsewhere)
