"""The number of frames, and how many pass in a second.

A pipeline's ``forward`` is no node, so that statistics know frames only by what their nodes tell, or by being told.
Where that is not enough, frames are unknown, and why is said: a wrong number of frames makes every figure wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from cprofiling._internal.arguments import checked_count, index_between, number_between
from cprofiling._internal.quantiles import fmean, percentile
from cprofiling._internal.row_kinds import CUT, RECORD, UNFINISHED
from cprofiling._internal.text import checked_text, counted, listed, shown_value
from cprofiling.analysis.evidence import NS_PER_MS, Evidence
from cprofiling.analysis.insight_table import Insight, figure
from cprofiling.nodes.stats import ExecutionStage
from cprofiling.nodes.summary_table import by_stage, frame_ms_of, frames_of_stage
from cprofiling.recording import intervals
from cprofiling.recording.columns import INFERENCE, column, drop_notes, grouped

if TYPE_CHECKING:
    from cprofiling.nodes.stats import NodeProfilingStats, ProfilingSummary
    from cprofiling.recording.intervals import Interval

_LEAST_SECONDS, _MOST_SECONDS = 1e-9, 1e12
_MOST_LISTED = 20  # stages, in a message


def stages_of(summary: Iterable[NodeProfilingStats]) -> list[str]:
    """Return the stages of a summary, also those without a sample."""
    return list(dict.fromkeys(checked_text("stage", row.stage) for row in summary))


def checked_frames(total_frames: object, stages: Sequence[str], others: Iterable[str] = ()) -> dict[str, int | None]:
    """Return the number of frames by stage, from a number or a mapping.

    Raises TypeError, ValueError.

    A mapping may have stages that have not run, of ``ExecutionStage`` or ``others``. Another one is a mistake, unless
    no stage is known at all.
    """

    def positive(count: object) -> int:
        return checked_count("total_frames", index_between("total_frames", count, 1))

    if total_frames is None:
        return dict.fromkeys(stages)
    if isinstance(total_frames, Mapping):
        given = {
            checked_text("a stage of total_frames", stage): positive(count) for stage, count in total_frames.items()
        }
        known = list(dict.fromkeys([*stages, *others, *(str(stage) for stage in ExecutionStage)]))
        for stage in given if stages else ():
            if stage not in known:
                raise ValueError(
                    f"total_frames must be by stages that are known ({', '.join(map(repr, known[:_MOST_LISTED]))}), "
                    f"got {shown_value(stage)}"
                )
        return {stage: given.get(stage) for stage in stages}
    frames = positive(total_frames)
    if len(stages) > 1:
        raise ValueError(
            f"total_frames must be a dict by stage, as there are {len(stages)} stages "
            f"({', '.join(map(repr, stages))}), got {shown_value(total_frames)}"
        )
    return dict.fromkeys(stages, frames)


@dataclass(frozen=True)
class FrameFigures:
    """Frames of one stage, or one recording, and what they take."""

    stage: str = figure("Stage", tip="The execution stage.")
    frames: int | None = figure("Frames", "count", "How many frames, skipped and failed ones included.")
    basis: str = figure("Known by", tip="How the number of frames is known, or why it is not.", whole=True)
    wall_ms: float | None = figure(
        "Wall", "ms", "From the first frame's begin to the last one's end, without other stages."
    )
    fps: float | None = figure("Frames per second", "per_second", "Frames that went through, by the wall clock.")
    latency_ms: float | None = figure("Latency", "ms", "Mean time of one frame from its begin to its end.")
    p99_ms: float | None = figure("p99", "ms", "99th percentile of it.")
    nodes_ms: float | None = figure("In nodes", "ms", "Time of all nodes for one frame, added up.")
    serial_fps: float | None = figure("One by one", "per_second", "Frames per second if they went through one by one.")
    at_once: float | None = figure("At once", "number", "How many frames were on their way at a time, on average.")


class FramesPerSecond(Insight[FrameFigures]):
    """Frames per second, by the wall clock and one by one."""

    def __init__(self, figures: Iterable[FrameFigures], notes: Iterable[str]) -> None:
        """Make a table of figures."""
        super().__init__(FrameFigures, "Frames per second", figures, notes)


FramesPerSecond.__module__ = "cprofiling"


def of_summary(summary: ProfilingSummary, total_frames: object, seconds: object) -> FramesPerSecond:
    """Return the frames per second of each stage of a summary."""
    stages = by_stage(summary)
    given = checked_frames(total_frames, list(stages), stages_of(summary))
    wall_ms = None if seconds is None else 1000 * number_between("seconds", seconds, _LEAST_SECONDS, _MOST_SECONDS)
    figures = []
    for stage, rows in stages.items():
        frames, basis = frames_of_stage(rows, given[stage])
        if frames is None:
            figures.append(FrameFigures(stage, None, basis, wall_ms, *[None] * 6))
            continue
        nodes_ms = frame_ms_of(rows, frames)
        fps = 1000 * frames / wall_ms if wall_ms is not None else None
        figures.append(FrameFigures(stage, frames, basis, wall_ms, fps, None, None, nodes_ms, _rate(nodes_ms), None))
    notes = ["No node has a sample."] if not figures else []
    if figures and wall_ms is None:
        notes.append("Statistics have no wall clock: seconds=, or a recording, tells how many frames went through.")
    unknown = [row.node_name for rows in stages.values() for row in rows if row.self_total_ms is None and len(rows) > 1]
    if unknown:
        names = listed(list(dict.fromkeys(unknown)))
        notes.append(f"{names}: self time is not known. If another node ran inside, its time is counted twice.")
    return FramesPerSecond(figures, notes)


def _rate(frame_ms: float) -> float | None:
    return 1000 / frame_ms if frame_ms else None


class RecordedFrames:
    """The frames of a recording, and what ran in them.

    Attributes:
        evidence: The recording.
        rows: Frames by their start, without failed and unfinished ones.
        basis: How they are known; without any, the reason.
        left_out: Number of failed and unfinished ones.
        skipped: Number of first ones left out on demand.
    """

    def __init__(self, evidence: Evidence, frame: str | None = None, skip_first_n: int = 0) -> None:
        """Find the frames of a recording, as ``Recording.gaps`` takes them."""
        skip = checked_count("skip_first_n", skip_first_n)
        self.evidence = evidence
        recording = evidence.recording
        if frame is None:
            self.basis, found = self._found()
        else:
            name = checked_text("frame", frame)
            found = evidence.tree.outermost([row for row in sorted(evidence.spans) if evidence.texts[row] == name])
            self.basis = f"calls of {listed([name])}"
            if not found:
                raise ValueError(
                    f"frame must be the name of a node, a labelled block or a step, got {shown_value(name)}"
                )
        flags, outcomes = column(recording, "flags"), column(recording, "outcome")
        whole = [row for row in found if not outcomes[row] and not flags[row] & (UNFINISHED | CUT)]
        self.rows = whole[skip:]
        self.left_out, self.skipped = len(found) - len(whole), len(whole) - len(self.rows)
        if found and not self.rows:
            self.basis = f"all {counted(len(found), 'frame')} ({self.basis}) are left out"

    def _found(self) -> tuple[str, list[int]]:
        """Return the frames' definition, or why it is unknown, and the rows."""
        evidence, tree = self.evidence, self.evidence.tree
        spans = [row for row in sorted(evidence.spans) if evidence.texts[row] == INFERENCE]
        what, rows = "spans", tree.outermost(spans)
        if not rows:
            what, rows = "steps", evidence.steps
        if not rows:
            what, rows = "labelled blocks", tree.outermost(self._labels())
        if not rows:
            what, rows = "nodes", evidence.outermost_nodes
        names = list(dict.fromkeys(map(evidence.texts.__getitem__, rows)))
        if what == "steps":
            return what, rows
        if len(names) == 1:
            return f"{what} {listed(names)}", rows
        if names:
            return f"there are {what} {listed(names)}: give frame, the name of those that are frames", []
        return "no node was recorded", []

    def _labels(self) -> list[int]:
        """Return the labelled blocks around nodes, or those in which nodes begin."""
        evidence = self.evidence
        labels = sorted(row for row in evidence.spans if evidence.kinds[row] == RECORD)
        around = evidence.around(evidence.nodes)
        begins = [evidence.starts[row] for row in evidence.nodes]
        busy = (
            row for row in labels if bisect_left(begins, evidence.starts[row]) < bisect_left(begins, evidence.ends[row])
        )
        return [row for row in labels if row in around] or [*busy]

    @cached_property
    def spans(self) -> list[Interval]:
        """When each frame began and ended, in ns."""
        return [(self.evidence.starts[row], self.evidence.ends[row]) for row in self.rows]

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of the frame of each node's call.

        A call on another thread is in the frame during which it begins, if no two frames overlap.
        """
        evidence, of_row = self.evidence, {row: place for place, row in enumerate(self.rows)}
        around = evidence.tree.nearest(of_row)
        places = {row: of_row[around[row]] for row in evidence.nodes if around[row] >= 0}
        spans = self.spans
        if all(end <= start for (_, end), (start, _) in pairwise(spans)):
            place = 0
            for row in evidence.nodes:  # by their starts
                while place < len(spans) and spans[place][1] <= evidence.starts[row]:
                    place += 1
                if row not in places and place < len(spans) and spans[place][0] <= evidence.starts[row]:
                    places[row] = place
        return places

    @cached_property
    def stages(self) -> list[str]:
        """The stage of each frame, or of the nodes in it."""
        evidence = self.evidence
        numbers = column(evidence.recording, "stage")
        inside: list[set[str]] = [set() for _ in self.rows]
        for row, place in self.places.items():
            inside[place].add(evidence.strings[numbers[row]])
        found = []
        for row, of_nodes in zip(self.rows, inside, strict=True):
            own = evidence.strings[numbers[row]]
            found.append(own or (next(iter(of_nodes)) if len(of_nodes) == 1 else ""))
        return found

    def stages_of_nodes(self) -> dict[int, str]:
        """Return the stages of all calls of nodes."""
        numbers = column(self.evidence.recording, "stage")
        return {row: self.evidence.strings[numbers[row]] for row in self.evidence.nodes}

    def notes(self) -> list[str]:
        """Return remarks on the frames."""
        recording = self.evidence.recording
        notes = []
        if self.left_out:
            notes.append(f"Left out: {counted(self.left_out, 'frame')} that failed, or began or ended unrecorded.")
        if self.skipped:
            notes.append(f"Left out: the first {counted(self.skipped, 'frame').removeprefix('1 ')}.")
        return [*notes, *drop_notes(recording)]


def of_frames(found: RecordedFrames, total_frames: object = None) -> FramesPerSecond:
    """Return the frames per second of found frames, by stage."""
    evidence = found.evidence
    if not found.rows:
        stage_of = found.stages_of_nodes()
        nodes = grouped(stage_of, stage_of.__getitem__)
        given = checked_frames(total_frames, list(nodes) or [""])
        figures = []
        for stage, frames in given.items():
            rows = nodes.get(stage, [])
            window = evidence.times_of(rows)
            wall = window[-1][1] - window[0][0] if window else 0
            nodes_ms = sum(evidence.node_self_times[row] for row in rows) / frames / NS_PER_MS if frames else None
            fps = 1e9 * frames / wall if frames and wall else None
            basis = "given" if frames else found.basis
            figures.append(FrameFigures(stage, frames, basis, wall / NS_PER_MS, fps, None, None, nodes_ms, None, None))
        return FramesPerSecond(figures, found.notes())
    inside: list[int] = [0] * len(found.rows)
    for row, place in found.places.items():
        inside[place] += evidence.node_self_times[row]
    stages = list(dict.fromkeys(found.stages))
    given = checked_frames(total_frames, stages, found.stages_of_nodes().values())
    figures = []
    for stage in stages:
        places = [place for place, of in enumerate(found.stages) if of == stage]
        spans = [found.spans[place] for place in places]
        others = [span for span, of in zip(found.spans, found.stages, strict=True) if of != stage]
        busy = intervals.union(spans)
        start, end = (busy[0][0], busy[-1][1]) if busy else (0, 0)
        # Time filled by frames of other stages only does not count for this stage.
        elsewhere = intervals.common([(start, end)], intervals.without(intervals.union(others), busy))
        wall = end - start - intervals.length(elsewhere)
        frames = given[stage] or len(spans)
        durations = sorted(end - start for start, end in spans)
        figures.append(FrameFigures(
            stage, frames, "given" if given[stage] else found.basis, wall / NS_PER_MS,
            1e9 * frames / wall if wall else None, fmean(durations) / NS_PER_MS,
            (percentile(durations, 990) or 0) / NS_PER_MS, sum(inside[place] for place in places) / frames / NS_PER_MS,
            _rate(sum(durations) / frames / NS_PER_MS), sum(durations) / (intervals.length(busy) or 1),
        ))  # fmt: skip
    return FramesPerSecond(figures, found.notes())
