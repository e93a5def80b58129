"""What faster nodes are worth, against schedules that are played through with the faster node."""

from __future__ import annotations

import copy
import gc
import heapq
import math
import pickle
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on
from cprofiling._internal.quantiles import percentile
from cprofiling.nodes import profiler as control
from cprofiling.nodes.graph import Graph, checked_edges
from cprofiling.views import View
from recordings import NODE, RECORD, STEP, US, Row, host, made

Edge = tuple[str, str]


def played(times: Mapping[str, float], edges: Iterable[Edge]) -> float:
    """When the last node ends, if each begins as soon as those before it have ended: event by event."""
    waits = {node: {before for before, after in edges if after == node} for node in times}
    running = [(times[node], node) for node in times if not waits[node]]
    heapq.heapify(running)
    now = 0.0
    while running:
        now, done = heapq.heappop(running)
        for node, before in waits.items():
            if done in before:
                before.discard(done)
                if not before:
                    heapq.heappush(running, (now + times[node], node))
    return now


def random_graph(source: random.Random, count: int) -> tuple[list[str], list[Edge]]:
    nodes = [f"n{number}" for number in range(count)]
    pairs = [(before, after) for place, after in enumerate(nodes) for before in nodes[:place]]
    edges = source.sample(pairs, min(len(pairs), 2 * count))
    return nodes, edges


def faster(times: Mapping[str, float], node: str, factor: float) -> dict[str, float]:
    return {name: time / factor if name == node else time for name, time in times.items()}


def summary_of(frames: Iterable[Mapping[str, float]], edges: Iterable[Edge] = ()) -> cp.ProfilingSummary:
    profiler = profiler_on()
    profiler.set_graph(edges)
    for frame in frames:
        for node, time in frame.items():
            profiler.record("inference", node, time)
    return profiler.get_profiling_summary()


def by_node(table: Iterable[Any]) -> dict[str, Any]:
    return {of.node: of for of in table}


# ---- sequences


def test_a_sequence_gains_what_its_node_loses() -> None:
    source = random.Random(1)
    for _ in range(20):
        times = {f"n{number}": source.uniform(0.1, 9) for number in range(6)}
        summary = summary_of([times] * 7)
        whole = sum(times.values())
        for factor in (0.5, 1, 2, 10, math.inf):
            table = summary.what_if(factor=factor)
            assert table.frames == {"inference": 7}
            assert table.frame_ms == {"inference": pytest.approx(whole)}
            assert [of.gain_ms for of in table] == sorted((of.gain_ms for of in table), reverse=True)
            for node, of in by_node(table).items():
                after = sum(faster(times, node, factor).values())
                assert (of.factor, of.calls) == (factor, 1)
                assert (of.own_ms, of.share) == pytest.approx((times[node], times[node] / whole))
                assert (of.after_ms, of.gain_ms) == pytest.approx((after, whole - after))
                assert (of.speedup, of.most) == pytest.approx((whole / after, whole / (whole - times[node])))
                assert of.critical is of.slack_ms is of.p99_after_ms is None


def test_several_nodes_are_faster_together() -> None:
    summary = summary_of([{"a": 4.0, "b": 6.0, "c": 10.0}] * 3)
    [of] = summary.what_if({"a": 2, "c": 4})
    assert (of.node, of.factor) == ("a + c", None)
    assert (of.after_ms, of.gain_ms, of.speedup) == pytest.approx((10.5, 9.5, 20 / 10.5))
    assert of.most == pytest.approx(20 / 6)


def test_only_a_nodes_own_time_is_faster(p: cp.Profiler) -> None:
    with p.profile_node("outer"):
        p.record("inference", "elsewhere", 1.0)
        with p.profile_node("inner"):
            sum(range(10_000))
    summary = p.get_profiling_summary()
    outer, inner = (next(row for row in summary if row.node_name == name) for name in ("outer", "inner"))
    table = by_node(summary.what_if(factor=math.inf))
    assert outer.self_total_ms is not None
    assert table["outer"].gain_ms == pytest.approx(outer.self_total_ms)
    assert table["inner"].gain_ms == pytest.approx(inner.total_ms)


def test_counts_that_differ_are_of_frames_that_are_told() -> None:
    profiler = profiler_on()
    for number in range(40):
        for node, each, time in (("decode", 1, 3.0), ("save", 10, 20.0)):
            if number % each == 0:
                profiler.record("inference", node, time)
        for _ in range(2):
            profiler.record("inference", "detect", 5.0)
    summary = profiler.get_profiling_summary()
    table = by_node(summary.what_if(total_frames=40))
    assert [table[node].calls for node in ("decode", "detect", "save")] == [1, 2, 0.1]
    assert [table[node].gain_ms for node in ("decode", "detect", "save")] == pytest.approx([1.5, 5, 1])
    run = summary.what_if("detect")
    assert run.frames == {"inference": None}
    assert run[0].gain_ms == pytest.approx(200)  # of the whole run
    assert run[0].speedup == pytest.approx(table["detect"].speedup)
    assert (run[0].per, table["detect"].per) == ("whole run", "frame")
    assert "nodes ran from 4 (save) to 80 (detect) times" in run.notes[0]


def test_figures_of_frames_are_told_from_those_of_whole_runs() -> None:
    profiler = profiler_on()
    for stage, times in (("train", 50), ("val", 1), ("test", 40)):
        for _ in range(times):
            profiler.record(stage, "a", 2.0)
            profiler.record(stage, "b", 1.0)
        for _ in range(stage == "test"):
            profiler.record(stage, "b", 1.0)
    summary = profiler.get_profiling_summary()
    table = summary.what_if()
    assert [(of.per, of.stage, of.node, of.gain_ms) for of in table] == [
        ("frame", "train", "a", 1.0), ("frame", "val", "a", 1.0), ("frame", "train", "b", 0.5),
        ("frame", "val", "b", 0.5), ("whole run", "test", "a", 40.0), ("whole run", "test", "b", 20.5),
    ]  # fmt: skip
    assert str(table).count("┆ whole run ┆") == table._repr_html_().count(">whole run</td>") == 2
    assert summary.to_markdown().count("| whole run |") == 2
    section = View(summary).tables.sections["what_if"]
    at = [column.title for column in section.columns].index("Per")
    assert [row[at] for row in section.rows] == ["frame"] * 4 + ["whole run"] * 2


def test_skipped_calls_are_calls() -> None:
    profiler = cp.Profiler()
    profiler.set_profiling(True, skip_first_n=3)
    for _ in range(10):
        profiler.record("inference", "a", 2.0)
        for _ in range(2):
            profiler.record("inference", "b", 1.0)
    table = profiler.get_profiling_summary().what_if(total_frames=10)
    assert table.frame_ms == {"inference": pytest.approx(4.0)}  # not 2 * 7 + 17 of ten
    assert by_node(table)["b"].calls == 2


def test_stages_have_frames_of_their_own() -> None:
    profiler = profiler_on()
    for stage, frames, time in (("train", 4, 8.0), ("val", 2, 3.0)):
        for _ in range(frames):
            profiler.record(stage, "a", time)
            profiler.record(stage, "b", 1.0)
    summary = profiler.get_profiling_summary()
    table = summary.what_if("a", total_frames={"train": 2})
    assert table.frame_ms == {"train": pytest.approx(18), "val": pytest.approx(4)}
    assert [of.stage for of in table] == ["train", "val"]
    assert [of.gain_ms for of in table] == pytest.approx([8, 1.5])
    with pytest.raises(ValueError, match="total_frames must be a dict by stage, as there are 2 stages"):
        summary.what_if(total_frames=3)


# ---- graphs


def test_the_critical_path_is_that_of_a_schedule_played_through() -> None:
    source = random.Random(2)
    for _ in range(40):
        _, edges = random_graph(source, source.randint(2, 9))
        in_graph = sorted({node for edge in edges for node in edge})
        times = {node: source.uniform(0.1, 5) for node in in_graph}
        whole = played(times, edges)
        factor = source.choice((0.25, 2, 3.5, math.inf))
        table = summary_of([times] * 3, edges).what_if(factor=factor)
        assert table.frame_ms["inference"] == pytest.approx(whole)
        for node, of in by_node(table).items():
            after = played(faster(times, node, factor), edges)
            assert of.after_ms == pytest.approx(after)
            assert of.gain_ms == pytest.approx(whole - after, abs=1e-9)
            assert of.slack_ms is not None
            # With its slack it takes no longer; with more than that, it does by what it is more.
            for more, longer in ((of.slack_ms, 0.0), (of.slack_ms + 0.5, 0.5)):
                assert played({**times, node: times[node] + more}, edges) == pytest.approx(whole + longer)
            assert of.critical == (1.0 if of.slack_ms == 0 else 0.0)


def test_what_the_graph_and_the_statistics_do_not_share_is_told() -> None:
    times = {"a": 1.0, "b": 4.0, "c": 1.0, "aside": 1.0}
    summary = summary_of([times] * 2, [("a", "b"), ("b", "never"), ("c", "never")])
    table = summary.what_if()
    assert table.frame_ms == {"inference": pytest.approx(5)}
    assert by_node(table)["c"].slack_ms == pytest.approx(4)
    assert "aside" not in by_node(table)
    text = "\n".join(table.notes)
    assert "in the graph, but without a sample: never; they count as 0 ms" in text
    assert "not in the graph: aside; statistics do not tell" in text
    assert "one after the other its nodes take 7 ms" in text
    sequence = summary.what_if(edges=())
    assert sequence.frame_ms == {"inference": pytest.approx(7)}


@pytest.mark.parametrize(
    ("edges", "error", "message"),
    [
        ("ab", TypeError, "edges must be an iterable of pairs of node names, got 'ab'"),
        (3, TypeError, "edges must be an iterable of pairs of node names, got 3"),
        (["ab"], TypeError, r"edges\[0\] must be a pair of node names, got 'ab'"),
        ([("a", "b"), ("a",)], TypeError, r"edges\[1\] must be a pair of node names"),
        ([{"a", "b"}], TypeError, r"edges\[0\] must be a pair"),
        ([("a", 1)], TypeError, r"edges\[0\]\[1\] must be a str, got 1"),
        ([("a\0", "b")], ValueError, r"edges\[0\]\[0\] must be a node's name, without NUL and of at most 4096 bytes"),
        ([("a", "é" * 2049)], ValueError, "of at most 4096 bytes"),
        ([("a", "a")], ValueError, "edges must not go in circles, got 'a' -> 'a'"),
        ([("a", "b"), ("b", "c"), ("c", "a")], ValueError, "edges must not go in circles, got '.' -> '.' -> '.'"),
    ],
)
def test_edges_are_checked(p: cp.Profiler, edges: Any, error: type[Exception], message: str) -> None:
    p.set_graph([("x", "y")])
    with pytest.raises(error, match=message):
        p.set_graph(edges)
    assert p.graph == (("x", "y"),)
    with pytest.raises(error, match=message):
        p.get_profiling_summary().what_if(edges=edges)


def test_a_cycle_is_named_in_its_direction() -> None:
    with pytest.raises(ValueError, match="circles") as caught:
        checked_edges([("a", "b"), ("b", "c"), ("c", "a"), ("x", "a")])
    shown = str(caught.value).partition("got ")[2].replace("'", "").split(" -> ")
    assert all(after == {"a": "b", "b": "c", "c": "a"}[before] for before, after in pairwise(shown))


def test_a_graph_stays_with_its_profiler(p: cp.Profiler) -> None:
    p.set_graph(iter([("a", "b"), ("a", "b"), ["b", "c"]]))  # type: ignore[arg-type]
    edges = (("a", "b"), ("b", "c"))
    assert p.graph == edges
    p.record("inference", "a", 1.0)
    p.reset_profiling()
    p.set_profiling(True, reset=True, skip_first_n=1)
    summary = p.get_profiling_summary()
    assert summary.edges == summary.copy().edges == edges
    made = cp.ProfilingSummary(summary, edges=edges)
    for again in (copy.deepcopy(summary), pickle.loads(pickle.dumps(summary)), made):
        assert again.edges == edges
    assert cp.Profiler().graph == copy.copy(p).graph == p.snapshot().stats().edges == ()
    p.set_graph(None)
    assert p.graph == p.get_profiling_summary().edges == ()


def test_a_graph_goes_with_its_profiler() -> None:
    class Equal(cp.Profiler):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

    kept, gone = Equal(), Equal()
    kept.set_graph([("a", "b")])
    before = len(control._GRAPHS)
    gone.set_graph([("c", "d")])
    gone.set_graph([("d", "e")])
    assert (kept.graph, gone.graph, len(control._GRAPHS)) == ((("a", "b"),), (("d", "e"),), before + 1)
    assert kept.get_profiling_summary().edges == (("a", "b"),)
    del gone
    gc.collect()
    assert len(control._GRAPHS) == before


def test_nodes_without_edges_are_no_graph() -> None:
    assert Graph([]).length({"a": 1.0}) == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("nobody",), ValueError, r"node must be one that has samples \(a, b\), got 'nobody'"),
        ((3,), TypeError, "node must be a str, got 3"),
        (({},), ValueError, "node must name a node"),
        (({"a": 0},), ValueError, "a factor of node must be from 1e-09 to 1e\\+09, or math.inf, got 0"),
        (({1: 2},), TypeError, "a name of node must be a str, got 1"),
        (("a", 0), ValueError, "factor must be from 1e-09 to 1e\\+09, or math.inf, got 0"),
        (("a", -1.0), ValueError, "factor must be from 1e-09 .*, got -1.0"),
        (("a", math.nan), ValueError, "factor must be from 1e-09 .*, got nan"),
        (("a", 1e-310), ValueError, "factor must be from 1e-09 .*, got 1e-310"),
        (("a", 10**400), ValueError, "factor must be from 1e-09 .*, got 1000"),
        (("a", -math.inf), ValueError, "factor must be from 1e-09 .*, got -inf"),
        (("a", True), TypeError, "factor must be a number, got True"),
        (("a", "2"), TypeError, "factor must be a number, got '2'"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        summary_of([{"a": 1.0, "b": 2.0}]).what_if(*arguments)


@pytest.mark.parametrize(
    ("frames", "error", "message"),
    [
        (0, ValueError, "total_frames must be >= 1, got 0"),
        (-1, ValueError, "total_frames must be >= 1, got -1"),
        (1.5, TypeError, "total_frames must be an integer, got 1.5"),
        ({1: 2}, TypeError, "a stage of total_frames must be a str, got 1"),
        ({"val": 0}, ValueError, "total_frames must be >= 1, got 0"),
        (
            MappingProxyType({"infrence": 2}),
            ValueError,
            r"^total_frames must be by stages that are known \('inference', 'train', 'val', 'test'\), got 'infrence'",
        ),
    ],
)
def test_wrong_frames(frames: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        summary_of([{"a": 1.0}]).what_if(total_frames=frames)


def test_frames_by_stage_are_any_mapping() -> None:
    profiler = profiler_on()
    profiler.set_profiling(True, skip_first_n=1)
    for stage in ("own", "inference", "inference", "inference"):
        profiler.record(stage, "a", 1.0)
    summary = profiler.get_profiling_summary()
    for number in range(25):
        profiler.record(f"s{number}", "a", 1.0)
    with pytest.raises(ValueError, match=r"'s16', 's17'\), got 'other'"):  # twenty stages
        profiler.get_profiling_summary().what_if(total_frames={"other": 1})
    # Of stages that have not run yet, and of one without a sample, too.
    given = MappingProxyType({cp.ExecutionStage.INFERENCE: 3, "own": 5, "train": 7})
    assert summary.what_if(total_frames=given).frames == {"inference": 3}
    assert [of.frames for of in summary.frames_per_second(given)] == [3]
    assert list(cp.Profiler().get_profiling_summary().frames_per_second({"other": 3})) == []
    recording = made([host("a", 0, 10, kind=NODE), host("b", 20, 30, kind=NODE)])
    assert [of.frames for of in recording.frames_per_second(MappingProxyType({"": 3, "train": 2}))] == [3]


def test_nothing_is_worth_nothing() -> None:
    table = cp.Profiler().get_profiling_summary().what_if()
    assert (list(table), table.notes) == ([], ("No node has a sample.",))
    [of] = summary_of([{"a": 0.0}]).what_if()
    assert (of.share, of.speedup, of.most, of.gain_ms) == (0, 1, 1, 0)
    [of] = summary_of([{"a": 2.0}]).what_if(factor=math.inf)
    assert (of.speedup, of.most) == (math.inf, math.inf)
    assert "inf" in str(summary_of([{"a": 2.0}]).what_if())


# ---- recordings


class Run:
    """A program whose nodes take a time of their own before and after those inside, with a clock of its own."""

    def __init__(self, factors: Mapping[str, float]) -> None:
        self.factors = factors
        self.now = 0
        self.rows: list[Row] = []

    def call(self, name: str, tree: Sequence[Any], kind: int = NODE) -> None:
        """Run something: numbers are times of its own, pairs are calls inside it."""
        start = self.now
        row = host(name, 0, 0, kind=kind)
        self.rows.append(row)
        for part in tree:
            if isinstance(part, tuple):
                self.call(*part)
            else:
                self.now += int(part / self.factors.get(name, 1.0))
        row |= {"start": start, "end": self.now}


def frame_of(source: random.Random) -> list[Any]:
    inner = [("leaf", [source.randrange(2, 400) * 2]) for _ in range(source.randrange(3))]
    return [
        50, ("read", [source.randrange(2, 500) * 2]), source.randrange(90),
        ("work", [source.randrange(2, 500) * 2, *inner, source.randrange(2, 500) * 2]), 30,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [RECORD, STEP, NODE])
def test_frames_of_a_recording_lose_exactly_the_nodes_part(kind: int) -> None:
    """The program is run again with the node twice as fast."""
    source = random.Random(3)
    frames = [frame_of(source) for _ in range(30)]

    def run(factors: Mapping[str, float]) -> tuple[cp.Recording, list[int]]:
        program = Run(factors)
        lengths = []
        for tree in frames:
            before = program.now
            program.call("frame", tree, kind)
            lengths.append(program.now - before)
            program.now += 1000
        return made(program.rows), lengths

    recording, lengths = run({})
    for node in ("read", "work", "leaf"):
        _, after = run({node: 2})
        [of] = recording.what_if(node)
        assert of.after_ms == pytest.approx(sum(after) / 30 / 1e6)
        assert of.gain_ms == pytest.approx((sum(lengths) - sum(after)) / 30 / 1e6)
        ranked = sorted(after)
        assert of.p99_after_ms == pytest.approx((ranked[28] + (ranked[29] - ranked[28]) * 0.71) / 1e6, abs=2e-6)
    _, after = run({"read": 2, "leaf": 2})
    [of] = recording.what_if({"read": 2, "leaf": 2})
    assert of.after_ms == pytest.approx(sum(after) / 30 / 1e6)
    whole = recording.what_if("work", skip_first_n=10)
    assert whole.frames == {"": 20}
    assert whole.frame_ms[""] == pytest.approx(sum(lengths[10:]) / 20 / 1e6)


def scheduled(times: Mapping[str, int], edges: Sequence[Edge], start: int) -> tuple[list[Row], int]:
    """The rows of one frame, in us, whose nodes run on threads of their own as soon as they may; and its end."""
    ends: dict[str, int] = {}
    for node in Graph(edges).nodes:
        ends[node] = max((ends[before] for before, after in edges if after == node), default=start) + times[node]
    rows = [
        host(node, end - times[node], end, kind=NODE, thread=f"1/{number + 2}")
        for number, (node, end) in enumerate(ends.items())
    ]
    return rows, max(ends.values())


def test_parallel_branches_of_a_recording_are_played_through_frame_by_frame() -> None:
    source = random.Random(4)
    _, edges = random_graph(source, 6)
    nodes = sorted({node for edge in edges for node in edge})
    frames = [{node: source.randrange(1, 300) for node in nodes} for _ in range(25)]

    def run(node: str, factor: float) -> tuple[list[Row], list[int]]:
        rows, lengths, now = [], [], 0
        for times in frames:
            faster_times = {name: time // int(factor) if name == node else time for name, time in times.items()}
            ran, end = scheduled(faster_times, edges, now + 5)
            rows += [host("frame", now, end + 7, kind=RECORD), *ran]
            lengths.append(end + 7 - now)
            now = end + 20
        return rows, lengths

    frames = [{node: time * 4 for node, time in times.items()} for times in frames]
    rows, lengths = run("", 1)
    recording = made(rows)
    table = by_node(recording.what_if(edges=edges, factor=4, frame="frame"))
    for node in nodes:
        _, after = run(node, 4)
        assert table[node].after_ms == pytest.approx(sum(after) / 25 / 1e3)
        assert table[node].gain_ms == pytest.approx((sum(lengths) - sum(after)) / 25 / 1e3, abs=1e-9)
    assert sum(of.critical or 0 for of in table.values()) >= 1
    alone = recording.what_if(frame="frame")
    assert "ran on other threads than their frames; what that gains is known with edges only" in " ".join(alone.notes)
    assert list(alone) == list(recording.what_if(nodes[0], frame="frame")) == []  # unknown is no 0


def test_what_runs_inside_a_node_of_the_graph_shortens_it() -> None:
    rows = [
        host("frame", 0, 100, kind=RECORD),
        host("a", 10, 50, kind=NODE),
        host("helper", 20, 40, kind=NODE),
        host("b", 50, 60, kind=NODE, thread="1/2"),
        host("b", 60, 70, kind=NODE, thread="1/3"),
        host("aside", 70, 80, kind=NODE),
    ]
    found = made(rows).what_if(edges=[("a", "b")], factor=math.inf)
    assert "aside are in no node of the graph; what they gain is not known." in found.notes
    table = by_node(found)
    assert table["helper"].gain_ms == pytest.approx(0.02)
    assert table["a"].gain_ms == pytest.approx(0.02)
    assert table["b"].gain_ms == pytest.approx(0.02)  # both of its calls: they are one node of the graph
    assert "aside" not in table
    assert (table["helper"].critical, table["a"].critical) == (None, 1.0)


@pytest.mark.parametrize("factor", [0.5, 2.0, math.inf])
def test_each_node_counts_in_the_frames_that_have_it(factor: float) -> None:
    """Against all frames, one by one: nodes that are in each, in some and in one, several times in a frame."""
    source = random.Random(7)
    rows: list[Row] = []
    own: list[dict[str, int]] = []
    lengths: list[int] = []
    for number in range(150):
        names = ["always", *["some"] * source.randint(0, 2), f"one {number}"]
        times = [source.randint(1, 400 if name == "some" else 90) for name in names]
        start, now = number * 10_000, number * 10_000
        for name, time in zip(names, times, strict=True):
            rows.append(host(name, now, now + time, kind=NODE))
            now += time
        lengths.append(now - start + source.randint(0, 50))
        rows.append(host("frame", start, start + lengths[-1], kind=STEP))
        own.append({name: sum(of for each, of in zip(names, times, strict=True) if each == name) for name in names})
    recording = made(rows)

    def expected(factors: Mapping[str, float]) -> tuple[float, float]:
        after = [
            length - sum(of[name] * (1 - 1 / by) for name, by in factors.items() if name in of)
            for length, of in zip(lengths, own, strict=True)
        ]
        p99 = percentile(sorted(round(time * US) for time in after), 990)
        assert p99 is not None
        return math.fsum(after) / len(after) / 1e3, p99 / 1e6

    for of in recording.what_if(factor=factor):
        assert (of.after_ms, of.p99_after_ms) == pytest.approx(expected({of.node: factor}))
        assert of.most == pytest.approx(math.fsum(lengths) / 150e3 / expected({of.node: math.inf})[0])
        assert of.own_ms == pytest.approx(sum(each.get(of.node, 0) for each in own) / 150e3)
    together = {"always": factor, "some": 3.0, "one 3": 2.0}
    [of] = recording.what_if(together)
    assert (of.after_ms, of.p99_after_ms) == pytest.approx(expected(together))


def test_what_nobody_asked_for_is_of_the_nodes_with_the_most_time() -> None:
    """Frames that each have a node of a name of its own: whatever looks at all frames for each node takes minutes."""
    frames = 3000
    rows = []
    for number in range(frames):
        start = number * 10_000
        rows.append(host("frame", start, start + 6000 + number, kind=STEP))
        rows.append(host(f"node {number}", start, start + (1 + number), kind=NODE))
    recording = made(rows)
    table = recording.what_if()
    assert len(table) == frames
    assert by_node(table)["node 1"].p99_after_ms == pytest.approx(8.96901)  # as of 6 ms to 8.999 ms
    section = View(recording).tables.sections["what_if"]
    assert section.rows == table.section().rows
    assert [row[0] for row in section.rows] == [f"node {frames - place}" for place in range(1, 201)]
    assert section.notes[1:] == ("2,800 more nodes with less own time left out.",)
    summary = summary_of([{f"node {number}": 1.0 + number for number in range(250)}])
    section = View(summary).tables.sections["what_if"]
    assert section.rows == summary.what_if().section().rows
    assert [row[0] for row in section.rows] == [f"node {250 - place}" for place in range(1, 201)]
    assert section.notes[1:] == ("inference: 50 more nodes with less own time left out.",)
    assert len(summary.what_if()) == 250
    section = summary.what_if().section()
    assert (len(section.rows), section.notes[1:]) == (200, ("50 more rows are not shown.",))


def test_a_recording_without_frames_is_one_run() -> None:
    rows = [host("a", 0, 10, kind=NODE), host("b", 20, 50, kind=NODE), host("a", 60, 70, kind=NODE)]
    table = made(rows).what_if()
    assert [(of.node, of.calls, of.gain_ms) for of in table] == [("b", 1, 0.015), ("a", 2, pytest.approx(0.01))]
    assert table.frames == {"": None}
    assert "frames are not known: there are nodes a, b: give frame" in table.notes[0]
    assert {of.per for of in table} == {"whole run"}
    with_edges = made(rows).what_if(edges=[("a", "b")])
    assert with_edges.frame_ms == {"": pytest.approx(0.05)}
    assert made([host("op", 0, 9)]).what_if().notes == ("No node was recorded.",)
    with pytest.raises(ValueError, match="node must be one that has samples"):
        made(rows).what_if("c")


def test_frames_are_told_by_name_only_where_there_are_such() -> None:
    rows = [host("a", 0, 10, kind=NODE)]
    with pytest.raises(ValueError, match="frame must be the name of a node, a labelled block or a step, got 'b'"):
        made(rows).what_if(frame="b")
    with pytest.raises(TypeError, match="frame must be a str, got 3"):
        made(rows).what_if(frame=3)  # type: ignore[arg-type]


def test_rows_of_another_type_have_only_calls_that_are_samples() -> None:
    times = dict.fromkeys(("mean_ms", "median_ms", "min_ms", "max_ms", "last_ms"), 2.0)
    row: Any = SimpleNamespace(node_name="a", stage="train", count=4, total_ms=8.0, std_ms=0.0, **times)
    told = str(cp.ProfilingSummary([row]).what_if({"a": 0.5}))
    assert told.endswith("train: a frame takes 2 ms in its nodes, one after the other; frames: calls of a.")
