"""Gaps, frames per second and warm-ups: of recordings made by hand, of statistics, and of programs that run."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import random
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on, profiler_with
from cprofiling._internal.row_kinds import SUSPENDABLE, UNFINISHED
from cprofiling._internal.text import shown_text
from cprofiling.analysis.insight_table import Insight, shown_number
from cprofiling.analysis.steady_state import FLAT, NOT_CERTAIN, SLOWDOWN, TOO_FEW, WARM_UP, steadiness
from cprofiling.analysis.warm_up import COLD_FIRST, DIFFERING, LIKE_OTHERS, REACHED, UNKNOWN
from cprofiling.views import View
from hostile_names import NAMES
from markup import Markup
from recorded import profile
from recordings import DROPPED, HOST, NODE, RECORD, STEP, Row, host, made

Pair = tuple[str | None, str | None]


def gaps_of(recording: cp.Recording, **options: Any) -> dict[Pair, tuple[int, float]]:
    """The number and the total, in us, of the gaps between two nodes."""
    return {(of.previous, of.next): (of.count, round(of.total_ms * 1e3, 6)) for of in recording.gaps(**options)}


def node(name: str, start: int, end: int, **more: Any) -> Row:
    return host(name, start, end, kind=NODE, **more)


def frames_of(
    name: str, count: int, times: Callable[[int], tuple[int, int]], length: int, each: int, **more: Any
) -> list[Row]:
    """Blocks of a length, one ``each`` us, with a node that begins and ends at the given times of them."""
    rows = []
    for at in range(count):
        begin, end = times(at)
        rows.append(host("f", each * at, each * at + length, kind=RECORD, **more))
        rows.append(node(name, each * at + begin, each * at + end, **more))
    return rows


# ---- gaps


def test_gaps_are_between_nodes_of_a_frame() -> None:
    rows = [
        host("frame", 0, 100, kind=RECORD), node("a", 5, 20), node("b", 30, 90), node("in b", 40, 50),
        host("frame", 200, 300, kind=RECORD), node("a", 203, 220), host("op", 225, 228, kind=HOST), node("b", 290, 300),
    ]  # fmt: skip
    table = made(rows).gaps()
    assert gaps_of(made(rows)) == {("a", "b"): (2, 80), (None, "a"): (2, 8), ("b", None): (1, 10)}
    first = table[0]
    assert (first.p50_ms, first.max_ms, first.share, first.threads) == (0.04, 0.07, 0.4, 1)
    assert made(rows).event(first.row).name == "a"
    assert table.share == pytest.approx(98 / 200)
    assert "In 49.0 % of the 0.2 ms of 2 frames (labelled blocks frame) no node ran" in table.notes[0]


def test_frames_are_steps_blocks_or_nodes() -> None:
    steps = [host("ProfilerStep#0", 0, 50, kind=STEP), host("ProfilerStep#1", 50, 100, kind=STEP)]
    inside = [row for at in (5, 55) for row in (host("label", at, at + 40, kind=RECORD), node("a", at + 5, at + 35))]
    assert gaps_of(made(steps + inside)) == {(None, "a"): (2, 20), ("a", None): (2, 20)}
    assert gaps_of(made(inside)) == {(None, "a"): (2, 10), ("a", None): (2, 10)}
    assert gaps_of(made(steps + inside), frame="label") == gaps_of(made(inside))
    around = [node("whole", 0, 50), node("a", 10, 40), node("whole", 50, 100), node("a", 60, 90)]
    assert gaps_of(made(around)) == {(None, "a"): (2, 20), ("a", None): (2, 20)}
    named = [host("Inference", 8, 42, kind=RECORD), *steps, *inside]
    assert gaps_of(made(named)) == {(None, "a"): (1, 2), ("a", None): (1, 2)}
    assert gaps_of(made(around), frame="a") == {(None, None): (2, 60)}  # nothing runs in it but itself


def test_without_frames_gaps_are_those_of_threads() -> None:
    rows = [
        node("a", 0, 10), node("b", 15, 30), node("in b", 16, 20), node("a", 70, 80),
        node("a", 0, 40, thread="1/2"), node("b", 50, 60, thread="1/2"),
    ]  # fmt: skip
    rows = [{**row, "start": row["start"] + 500, "end": row["end"] + 500} for row in rows]
    table = made(rows).gaps()
    assert gaps_of(made(rows)) == {("a", "b"): (2, 15), ("b", "a"): (1, 40)}
    by_pair = {(of.previous, of.next): of for of in table}
    assert by_pair["a", "b"].threads == 2
    assert by_pair["a", "b"].elsewhere_ms == pytest.approx(0.005)  # 10 to 15, while the other thread is in a
    assert by_pair["b", "a"].elsewhere_ms == pytest.approx(0.02)  # 30 to 40 and 50 to 60
    assert table.share == pytest.approx(55 / 140)
    assert "frames are not known: there are nodes a, b" in table.notes[1]


def test_frames_may_have_all_their_nodes_on_other_threads() -> None:
    rows = [
        *(host("f", 100 * at, 100 * at + 90, kind=RECORD) for at in range(3)),
        *(node("a", 100 * at + 20, 100 * at + 50, thread="1/2") for at in range(3)),
    ]
    [of] = made([*rows, host("idle", 500, 600, kind=RECORD)]).gaps()
    assert (of.previous, of.next, of.count) == (None, None, 3)
    assert of.elsewhere_ms == pytest.approx(0.09)
    assert "│ (begin) ┆ (end)  ┆ 3" in str(made(rows).gaps())


def test_nodes_that_overlap_leave_no_gap() -> None:
    rows = [
        host("frame", 0, 100, kind=RECORD), node("a", 0, 60, flags=SUSPENDABLE), node("b", 10, 20, flags=SUSPENDABLE),
        node("c", 50, 80, flags=SUSPENDABLE),
    ]  # fmt: skip
    table = made(rows).gaps()
    assert gaps_of(made(rows)) == {("c", None): (1, 20)}
    assert "Coroutines and generators count as running while they are suspended." in table.notes


def test_short_gaps_and_first_frames_are_left_out_on_demand() -> None:
    rows = frames_of("a", 3, lambda at: (at, 80), 90, 100)
    assert gaps_of(made(rows)) == {(None, "a"): (2, 3), ("a", None): (3, 30)}
    assert gaps_of(made(rows), least_ns=1_000) == {(None, "a"): (1, 2), ("a", None): (3, 30)}
    assert gaps_of(made(rows), skip_first_n=2) == {(None, "a"): (1, 2), ("a", None): (1, 10)}
    assert "Left out: the first 2 frames." in made(rows).gaps(skip_first_n=2).notes
    everything = made(rows).gaps(skip_first_n=9)
    assert "all 3 frames (labelled blocks f) are left out" in " ".join(everything.notes)


def test_failed_and_unfinished_frames_are_none() -> None:
    rows = [
        host("f", 0, 90, kind=RECORD), node("a", 0, 80), host("f", 100, 190, kind=RECORD, outcome=1),
        node("a", 110, 120), host("f", 200, 290, kind=RECORD, flags=UNFINISHED), node("a", 210, 220),
    ]  # fmt: skip
    assert gaps_of(made(rows)) == {("a", None): (1, 10)}
    assert "Left out: 2 frames that failed, or began or ended unrecorded." in made(rows).gaps().notes
    assert DROPPED in made(rows, dropping=True).gaps().notes


def test_gaps_of_nothing() -> None:
    table = made([]).gaps()
    assert (list(table), table.share, table.notes) == ([], None, ("No node was recorded.",))
    for wrong, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="least_ns must be"):
            made([]).gaps(least_ns=wrong)  # type: ignore[arg-type]
        with pytest.raises(error, match="skip_first_n must be"):
            made([]).gaps(skip_first_n=wrong)  # type: ignore[arg-type]


def test_a_sleep_between_nodes_is_a_gap() -> None:
    with profile() as prof:
        for _ in range(3):
            with cp.record("frame"):
                with cp.profile_node("a"):
                    pass
                time.sleep(0.005)
                with cp.profile_node("b"):
                    pass
    [between] = (of for of in prof.gaps() if (of.previous, of.next) == ("a", "b"))
    assert between.count == 3
    assert between.p50_ms >= 5
    assert between.total_ms >= 15


# ---- frames per second


def recorded_counts(counts: dict[str, int], *, skip: int = 0, stage: str = "inference") -> cp.ProfilingSummary:
    profiler = profiler_on(skip_first_n=skip)
    for name, count in counts.items():
        for _ in range(count):
            profiler.record(stage, name, 2.0)
    return profiler.get_profiling_summary()


def statistics(times: list[float], skip: int = 0) -> cp.ProfilingSummary:
    profiler = profiler_on(skip_first_n=skip)
    for elapsed in times:
        profiler.record("inference", "a", elapsed)
    return profiler.get_profiling_summary()


def test_frames_are_those_that_are_told() -> None:
    table = recorded_counts({"read": 100, "detect": 200, "save": 10}).frames_per_second(100, seconds=4)
    [of] = table
    assert " 25.0/s" in table.text()
    assert (of.stage, of.frames, of.basis) == ("inference", 100, "given")
    assert (of.nodes_ms, of.serial_fps, of.fps, of.wall_ms) == pytest.approx((6.2, 1000 / 6.2, 25, 4000))


def test_frames_are_the_calls_of_nodes_that_all_ran_as_often() -> None:
    [of] = recorded_counts({"read": 50, "detect": 50}, skip=5).frames_per_second()
    assert (of.frames, of.basis) == (50, "each node ran as often")
    assert of.nodes_ms == pytest.approx(4)  # five of each are left out, and are no less in a frame for that
    [alone] = recorded_counts({"read": 50}).frames_per_second()
    assert (alone.frames, alone.basis) == (50, "calls of read")


def test_frames_are_the_calls_of_the_node_around_all_others(p: cp.Profiler) -> None:
    for number in range(20):
        with p.profile_node("pipeline"):
            for name, times in (("twice", 2), ("each tenth", number % 10 == 0)):
                for _ in range(times):
                    with p.profile_node(name):
                        pass
    [of] = p.get_profiling_summary().frames_per_second()
    assert (of.frames, of.basis) == (20, "calls of pipeline, in which all others ran")
    [pipeline] = (row for row in p.get_profiling_summary() if row.node_name == "pipeline")
    assert of.nodes_ms == pytest.approx(pipeline.mean_ms)


def test_frames_are_unknown_where_counts_differ_and_no_node_is_around_all(p: cp.Profiler) -> None:
    table = recorded_counts({"read": 100, "detect": 200, "save": 10}).frames_per_second()
    [of] = table
    assert (of.frames, of.fps, of.nodes_ms, of.serial_fps) == (None, None, None, None)
    assert of.basis.startswith(
        "nodes ran from 10 (save) to 200 (detect) times, and none is known to be around all others"
    )
    assert "Statistics have no wall clock" in table.notes[0]


def failing(p: cp.Profiler, count: int, failure: type[BaseException] = KeyError) -> None:
    """Frames of which the third fails at its end."""
    for number in range(count):
        with contextlib.suppress(failure), p.profile_node("frame"):
            for name in ("resize", "infer"):
                with p.profile_node(name):
                    sum(range(2_000))
            if number == 2:
                raise failure


@pytest.mark.parametrize("failure", [KeyError, asyncio.CancelledError])
@pytest.mark.parametrize("skip", [0, 4])
def test_frames_that_failed_are_frames(skip: int, failure: type[BaseException]) -> None:
    profiler = profiler_on(skip_first_n=skip)
    failing(profiler, 40, failure)
    summary = profiler.get_profiling_summary()
    assert [row.count + row.skipped_count for row in summary] == [40, 40, 39]
    [of] = summary.frames_per_second()
    assert (of.frames, of.basis) == (40, "each node ran as often, failed calls included")
    assert of.nodes_ms == pytest.approx(sum((row.self_total_ms or 0) / row.count for row in summary))
    table = summary.what_if()
    assert table.frames == {"inference": 40}
    assert [each.calls for each in table] == [1, 1, 1]


def test_a_node_around_all_others_has_failed_calls(p: cp.Profiler) -> None:
    for number in range(20):
        with contextlib.suppress(KeyError), p.profile_node("pipeline"):
            if number == 2:
                raise KeyError
            for name, times in (("once", 1), ("twice", 2)):
                for _ in range(times):
                    with p.profile_node(name):
                        pass
    [of] = p.get_profiling_summary().frames_per_second()
    assert (of.frames, of.basis) == (20, "calls of pipeline, in which all others ran, failed calls included")


def test_a_node_that_is_called_again_after_an_error_makes_no_more_frames(p: cp.Profiler) -> None:
    for number in range(20):
        for fails in (True, False) if number == 3 else (False,):
            with contextlib.suppress(KeyError), p.profile_node("read"):
                if fails:
                    raise KeyError
        with p.profile_node("save"):
            pass
    [of] = p.get_profiling_summary().frames_per_second()
    assert (of.frames, of.basis) == (20, "each node succeeded as often")


def test_calls_of_before_a_reset_are_no_frames(p: cp.Profiler) -> None:
    with p.profile_node("frame"):
        p.reset_profiling()
    failing(p, 10)
    assert sum(row.dropped_count for row in p.get_profiling_summary()) == 1
    assert p.get_profiling_summary().frames_per_second()[0].frames == 10


def test_a_reason_is_shown_to_its_end() -> None:
    table = recorded_counts({"read": 100, "detect": 200}).frames_per_second()
    text = str(table)
    lines = [line for line in text.split("\n") if line.startswith("│")][1:]
    assert " ".join(line.split("┆")[1].strip(" │") for line in lines) == table[0].basis
    assert table[0].basis.endswith("around all others: give total_frames")
    assert [line.split("┆")[0].strip(" │") for line in lines] == ["inference", *[""] * (len(lines) - 1)]
    assert max(map(len, lines)) <= 100


def test_frames_of_stages_are_apart() -> None:
    merged = cp.ProfilingSummary(
        [*recorded_counts({"a": 3, "b": 6}, stage="train"), *recorded_counts({"a": 5}, stage="val")]
    )
    table = merged.frames_per_second({"train": 3, "test": 9})
    assert [(of.stage, of.frames) for of in table] == [("train", 3), ("val", 5)]
    with pytest.raises(ValueError, match="total_frames must be a dict by stage"):
        merged.frames_per_second(3)


def test_nodes_of_unknown_self_time_are_told() -> None:
    unknown = [
        cp.NodeProfilingStats(*(getattr(row, name) for name in list(vars(row))[:10]))
        for row in recorded_counts({"a": 2, "b": 2})
    ]
    table = cp.ProfilingSummary(unknown).frames_per_second()
    assert table[0].nodes_ms == pytest.approx(4)
    note = "a, b: self time is not known. If another node ran inside, its time is counted twice."
    assert table.notes[1:] == (note,)
    alone = cp.ProfilingSummary(unknown[:1]).frames_per_second()
    assert alone[0].nodes_ms == pytest.approx(2)
    assert len(alone.notes) == 1  # there is no node that could have run inside


def test_wrong_seconds_and_no_samples() -> None:
    summary = recorded_counts({"a": 1})
    numbers = (-1, 0, 1e-10, math.inf, math.nan)
    for wrong, error in (*((number, ValueError) for number in numbers), ("1", TypeError), (True, TypeError)):
        with pytest.raises(error, match=r"seconds must be (from 1e-09 to 1e\+12|a number), got"):
            summary.frames_per_second(seconds=wrong)  # type: ignore[arg-type]
    assert summary.frames_per_second(seconds=1e-9)[0].fps == pytest.approx(1e9)
    assert cp.Profiler().get_profiling_summary().frames_per_second().notes == ("No node has a sample.",)
    assert recorded_counts({"a": 3}, skip=5).frames_per_second() == []


def test_wrong_numbers_of_frames() -> None:
    summary = recorded_counts({"a": 1})
    wrongs: tuple[tuple[object, type[Exception], str], ...] = (
        (-1, ValueError, "must be >= 1, got -1"), (0, ValueError, "must be >= 1, got 0"),
        (2**63, ValueError, f"must be <= {2**63 - 1}"), (1.5, TypeError, "must be an integer"),
        (True, TypeError, "must be an integer"),
    )  # fmt: skip
    for wrong, error, text in wrongs:
        for given in (wrong, {"inference": wrong}):
            with pytest.raises(error, match=f"^total_frames {text}"):
                summary.frames_per_second(given)  # type: ignore[arg-type]


def test_frames_of_a_recording_pass_by_the_wall_clock() -> None:
    rows = frames_of("a", 10, lambda _: (0, 400), 500, 1000)
    [of] = made(rows).frames_per_second()
    assert (of.frames, of.basis) == (10, "labelled blocks f")
    assert (of.wall_ms, of.fps) == pytest.approx((9.5, 10 / 9.5e-3))
    assert (of.latency_ms, of.p99_ms, of.nodes_ms, of.serial_fps, of.at_once) == pytest.approx((0.5, 0.5, 0.4, 2000, 1))
    [batched] = made(rows).frames_per_second(320)
    assert (batched.fps, batched.serial_fps, batched.nodes_ms) == pytest.approx((320 / 9.5e-3, 64_000, 0.0125))
    assert (batched.latency_ms, batched.basis) == (0.5, "given")


def test_frames_at_the_same_time_are_counted_once_each() -> None:
    rows = [
        row
        for worker in range(4)
        for row in frames_of("a", 2, lambda _: (0, 100), 100, 100, thread=f"1/{worker}", stage="val")
    ]
    [of] = made(rows).frames_per_second()
    assert (of.stage, of.frames, of.at_once) == ("val", 8, 4)
    assert (of.fps, of.serial_fps) == pytest.approx((40_000, 10_000))


def test_frames_of_stages_that_take_turns_have_wall_clocks_of_their_own() -> None:
    """Training, then validation, then training: what the others take is none of a stage's time."""
    rows = []
    for epoch in range(2):
        for stage, first, each in (("train", 0, 100), ("val", 500, 20)):
            for at in range(5):
                start = 1000 * epoch + first + at * each
                rows.append(host("step", start, start + each, kind=STEP))
                rows.append(node("a", start, start + each // 2, stage=stage))
    train, val = made(rows).frames_per_second()
    assert (train.stage, train.frames, val.stage, val.frames) == ("train", 10, "val", 10)
    assert (train.wall_ms, val.wall_ms) == pytest.approx((1.4, 0.6))  # without 100 of the other stage, and 500
    assert (train.latency_ms, val.latency_ms, train.nodes_ms) == pytest.approx((0.1, 0.02, 0.05))
    both = made(rows).frames_per_second({"train": 320})
    assert [of.frames for of in both] == [320, 10]
    with pytest.raises(ValueError, match="total_frames must be a dict by stage"):
        made(rows).frames_per_second(320)
    table = made(rows).what_if()
    assert [(of.stage, of.node) for of in table] == [("train", "a"), ("val", "a")]
    assert table.frame_ms == {"train": pytest.approx(0.1), "val": pytest.approx(0.02)}
    assert table.notes[0].startswith("train: a frame takes 0.1 ms, the mean of 10 frames (steps)")


def test_a_step_with_nodes_of_several_stages_has_none() -> None:
    rows = [host("step", 0, 90, kind=STEP), node("a", 0, 10, stage="train"), node("a", 20, 30, stage="val")]
    assert [of.stage for of in made(rows).frames_per_second()] == [""]
    apart = made(rows[1:]).what_if()
    assert apart.frames == {"train": 1, "val": 1}  # all nodes have one name: each call is a frame


def test_frames_of_a_recording_may_be_unknown() -> None:
    rows = [node("a", 0, 10), node("b", 20, 50)]
    [of] = made(rows).frames_per_second()
    assert (of.frames, of.fps, of.wall_ms) == (None, None, 0.05)
    assert of.basis == "there are nodes a, b: give frame, the name of those that are frames"
    [told] = made(rows).frames_per_second(5)
    assert (told.frames, told.fps, told.nodes_ms) == pytest.approx((5, 1e5, 0.008))
    many = made([node(f"n{at}", at, at + 1) for at in range(9)]).frames_per_second()
    assert many[0].basis.startswith("there are nodes n0, n1, n2, n3 and 5 more:")
    assert made([]).frames_per_second()[0].basis == "no node was recorded"
    with pytest.raises(ValueError, match="total_frames must be >= 1"):
        made(rows).frames_per_second(0)


# ---- warm-ups


def series(source: random.Random, count: int, cold: int, times: int) -> list[int]:
    return [round(source.uniform(98, 102)) * (times if at < cold else 1) for at in range(count)]


def calls_of(name: str, times: list[int], **more: Any) -> list[Row]:
    return [node(name, 10_000 * at, 10_000 * at + length, **more) for at, length in enumerate(times)]


def test_warm_ups_of_a_recording() -> None:
    source = random.Random(1)
    rows = [
        *calls_of("compiled", series(source, 80, 2, 50), thread="1/1", stage="val"),
        *calls_of("steady", series(source, 80, 0, 1), thread="1/2"),
        *calls_of("rare", series(source, 5, 1, 9), thread="1/3"),
        *calls_of("tired", [*series(source, 50, 0, 1), *series(source, 40, 40, 2)], thread="1/4"),
    ]
    table = made(rows).warm_up()
    assert table.skip_first_n == 2
    assert [(of.node, of.stage, of.state, of.cold) for of in table] == [
        ("compiled", "val", WARM_UP, 2),
        ("tired", "", SLOWDOWN, 0),  # in the order of their first calls' ends, as none has a cost
        ("steady", "", FLAT, 0),
        ("rare", "", TOO_FEW, None),
    ]
    first = table[0]
    assert first.count == 80
    assert first.warm_ms == pytest.approx(0.1, rel=0.02)
    assert first.cold_ms == pytest.approx(5, rel=0.02)
    assert first.excess_ms == pytest.approx(2 * 4.9, rel=0.02)
    assert first.own_excess_ms == first.excess_ms
    assert first.p_value is not None
    assert first.p_value < 1e-6
    assert [made(rows).event(row).dur > 4e6 for row in first.rows] == [True, True]
    notes = "\n".join(table.notes)
    assert "Suggested: set_profiling(True, skip_first_n=2), which leaves out all cold calls." in notes
    assert "Too few calls: rare." in notes
    assert "Slowdown: tired. Their times rise later on" in notes
    assert [level.end for level in next(of for of in table if of.node == "tired").levels] == [50, 90]


def test_what_is_inside_is_no_own_cost() -> None:
    rows = []
    for at in range(60):
        start, length = at * 1000, 500 if at == 0 else 50
        rows += [node("outer", start, start + length + 20), node("inner", start + 10, start + 10 + length)]
    table = {of.node: of for of in made(rows).warm_up()}
    assert table["outer"].excess_ms == pytest.approx(0.45)
    assert table["outer"].own_excess_ms == 0
    assert table["inner"].own_excess_ms == pytest.approx(0.45)


def test_only_successes_count_in_the_order_of_their_ends() -> None:
    """As skip_first_n skips them."""
    rows = [
        node("a", 0, 900, thread="1/2"),  # which began first, and is the third to end
        *(node("a", 10 + 100 * at, 60 + 100 * at) for at in range(40)),
        node("a", 5, 8, outcome=1, thread="1/3"),
        node("a", 5, 9, flags=UNFINISHED, thread="1/4"),
    ]
    [of] = made(rows).warm_up()
    assert of.count == 41
    assert of.first_ms == 0.05


def test_a_suggestion_that_leaves_nothing_says_so() -> None:
    source = random.Random(2)
    rows = [*calls_of("slow", series(source, 90, 12, 3)), *calls_of("rare", series(source, 12, 0, 1), thread="1/2")]
    table = made(rows).warm_up()
    assert table.skip_first_n == 12
    assert "It leaves no call of rare, which ran 12 times at most." in table.notes


def test_no_warm_up_may_be_one_that_was_before() -> None:
    source = random.Random(3)
    table = made(calls_of("a", series(source, 60, 0, 1))).warm_up()
    assert (table.skip_first_n, table[0].state) == (0, FLAT)
    assert "No cold calls were found: there are none, or the recording began after them." in table.notes
    dropped = made(calls_of("a", series(source, 60, 0, 1)), dropping=True).warm_up()
    assert dropped.notes[-2:] == (
        DROPPED,
        "Where the oldest events were dropped, the first calls here are not the first ones of the program.",
    )
    nothing = made([]).warm_up()
    assert (list(nothing), nothing.notes, nothing.skip_first_n) == ([], ("No call of a node succeeded in it.",), None)


def test_unsteady_nodes_are_told_with_few_names() -> None:
    source = random.Random(4)
    late = [*series(source, 100, 0, 1), *series(source, 10, 10, 3)]
    table = made([row for at in range(5) for row in calls_of(f"n{at}", late, thread=f"1/{at}")]).warm_up()
    assert table.skip_first_n is None
    assert table.notes == (
        "No steady state: n0, n1, n2, n3 and 1 more. Their times change within the last 25 % of the calls.",
    )


def test_a_suggestion_holds_in_the_program() -> None:
    """A node that fills a cache: what is suggested leaves its cold calls out of the statistics."""
    source = random.Random(6)

    def run() -> list[int]:
        """Return what its calls take, in us, by a clock of their own."""
        cache: set[int] = set()
        taken = []
        for at in range(120):
            taken.append(round(source.uniform(9, 11)) + 2000 * (at % 6 not in cache))
            cache.add(at % 6)
        return taken

    table = made(calls_of("look up", run())).warm_up()
    assert (table[0].state, table.skip_first_n) == (WARM_UP, 6)
    [row] = statistics([us / 1e3 for us in run()], skip=6)
    assert row.first_ms is not None
    assert row.first_ms >= 2
    assert (row.count, row.skipped_count) == (114, 6)
    assert row.max_ms < 0.02


def test_what_is_told_of_a_program_is_that_of_its_calls() -> None:
    with profile() as prof:
        for _ in range(60):
            with cp.profile_node("a"):
                pass
    [of] = prof.warm_up()
    found = steadiness([event.dur / 1e6 for event in prof.events()])
    assert (of.count, of.state, of.cold, of.p_value) == (60, found.state, found.cold, found.p_value)


def test_statistics_tell_a_cold_first_call() -> None:
    source = random.Random(5)
    warm = [source.uniform(0.9, 1.1) for _ in range(99)]
    table = statistics([50.0, *warm]).warm_up()
    [of] = table
    assert (of.state, of.cold, of.count, of.first_ms, of.cold_ms) == (COLD_FIRST, 1, 100, 50, 50)
    assert of.warm_mean_ms == pytest.approx(sum(warm) / 99)
    assert of.warm_ms == pytest.approx(1, abs=0.1)
    assert of.excess_ms == pytest.approx(49, abs=0.1)
    assert table.skip_first_n == 1
    assert "Suggested: set_profiling(True, skip_first_n=1), if the first call is the only cold one." in table.notes
    assert "where a warm-up ends is told by a recording" in " ".join(table.notes)


def test_statistics_that_skip_know_the_first_call_still() -> None:
    source = random.Random(6)
    table = statistics([90.0, *(source.uniform(0.9, 1.1) for _ in range(60))], skip=3).warm_up()
    assert (table[0].state, table.skip_first_n) == (COLD_FIRST, 3)
    assert table[0].count == 61
    assert "The first 3 calls of each node are not in the others here." in table.notes


def test_a_first_call_that_is_the_longest_by_far_is_not_certain() -> None:
    source = random.Random(8)
    others = [min(38.0, source.expovariate(1 / 15)) for _ in range(69)]
    for times, skip, state in (
        ([93.0, *others], 0, NOT_CERTAIN), ([93.0, *others], 1, NOT_CERTAIN), ([38.0, *others], 0, LIKE_OTHERS),
        ([20.0, *others], 0, LIKE_OTHERS),
    ):  # fmt: skip
        table = statistics(times, skip=skip).warm_up()
        assert (table[0].state, table.skip_first_n) == (state, None)
        assert ("a: The first call is longer than all others" in " ".join(table.notes)) is (state == NOT_CERTAIN)
    recorded = made(calls_of("n", [round(100 * time) for time in [93.0, *others]])).warm_up()
    assert (recorded[0].state, recorded[0].cold, recorded.skip_first_n) == (NOT_CERTAIN, None, None)


def test_a_first_call_among_equals_is_like_others() -> None:
    found = []
    for seed in range(60):
        source = random.Random(seed)
        found.append(statistics([source.paretovariate(1.5) for _ in range(100)]).warm_up()[0].state)
    assert found.count(LIKE_OTHERS) >= 58
    assert set(found) <= {LIKE_OTHERS, COLD_FIRST}


@dataclasses.dataclass
class Image:
    shape: tuple[int, ...]
    dtype: str = "uint8"


def greyed(sizes: list[int], skip: int) -> cp.ProfilingSummary:
    profiler = profiler_on(by_shape=True, skip_first_n=skip)

    @profiler.profile_node("grey")
    def grey(image: Image) -> None:
        time.sleep(0.01 if image.shape[0] > 64 else 0)

    for size in sizes:
        grey(Image((size, size)))
    return profiler.get_profiling_summary()


@pytest.mark.parametrize("skip", [0, 2])
def test_a_first_call_is_not_judged_by_calls_of_other_shapes(skip: int) -> None:
    table = greyed([480, *[64] * 99, 480], skip).warm_up()
    assert (table[0].state, table[0].cold, table[0].p_value, table.skip_first_n) == (DIFFERING, None, None, None)
    assert table.notes[0] == (
        "grey: calls have several input signatures; which one the first had is not known, so that it is not judged."
    )
    assert greyed([64] * 100, skip).warm_up()[0].state != DIFFERING


@pytest.mark.parametrize(
    ("skip", "later", "state"),
    [(0, 46.0, REACHED), (0, 60.0, REACHED), (0, 44.0, COLD_FIRST), (3, 46.0, REACHED), (3, 44.0, COLD_FIRST)],
)
def test_a_first_call_that_later_calls_reach_is_not_called_cold(skip: int, later: float, state: str) -> None:
    source = random.Random(7)
    times = [50.0, *(source.uniform(0.9, 1.1) for _ in range(300))]
    times[200] = later
    table = statistics(times, skip).warm_up()
    assert table[0].state == state
    note = "a: later calls took about as long as the first, which may be one of them as well as a cold one."
    assert (note in table.notes) is (state == REACHED)
    assert table.skip_first_n == (None if state == REACHED else max(skip, 1))


def test_without_a_histogram_the_maximum_tells() -> None:
    rows = statistics([50.0, *[1.0] * 99, 49.0])
    assert cp.ProfilingSummary(rows).warm_up()[0].state == COLD_FIRST
    assert cp.ProfilingSummary(statistics([50.0, *[1.0] * 99, 51.0])).warm_up()[0].state == REACHED


def test_few_or_unknown_first_calls() -> None:
    table = statistics([5.0, 1.0, 1.1, 0.9]).warm_up()
    assert (table[0].state, table[0].cold, table.skip_first_n) == (TOO_FEW, None, None)
    assert statistics([5.0]).warm_up()[0].state == TOO_FEW
    parts = [profiler_with({("inference", "a"): [1.0, 2.0]}).snapshot() for _ in range(2)]
    merged = cp.Snapshot.merge([profiler_on().snapshot(), *parts]).stats()
    assert merged.warm_up()[0].state == UNKNOWN
    assert cp.Profiler().get_profiling_summary().warm_up().notes == ("There are no calls.",)


def test_a_measurement_tells_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    source = random.Random(7)
    calls = iter([20_000_000] * 2 + [round(source.uniform(9_500, 10_500)) for _ in range(60)])

    def call() -> None:
        now[0] += next(calls)

    monkeypatch.setattr("cprofiling.testing.measure._clock_ns", lambda: now[0])
    measured = cp.measure(call, warmup=0, repeat=60)
    table = measured.warm_up()
    assert table[0].cold == 2
    assert table.notes[0].startswith("Suggested: measure(..., warmup=2); 2 timed calls")
    few = cp.measure(lambda: None, warmup=1, repeat=5).warm_up()
    assert few.notes == (
        "Too few calls. No warm-up is told from chance; 50 calls are enough.",
        "1 call went before, untimed; warmup=0 shows it.",
    )


# ---- times of 0


def test_a_frame_that_takes_no_time_has_no_gaps() -> None:
    rows = [host("frame", 0, 0, kind=RECORD, span=1), host("a", 0, 1, kind=NODE, parent_span=1)]
    recording = made([*rows, host("b", 5, 9, kind=NODE, parent_span=1)])
    found = recording.gaps(frame="frame")
    assert (list(found), found.share, found.notes[0]) == ([], None, "The frames took no time.")
    assert "frame" in recording.to_markdown()


def test_no_figure_divides_by_a_time_of_0() -> None:
    draw = random.Random(5)
    for _ in range(60):
        rows: list[Row] = []
        for number in range(1, draw.randrange(2, 8)):
            start, length, around = draw.choice([0, 0, 1, 5]), draw.choice([0, 0, 1, 50]), draw.randrange(number)
            more = {"kind": draw.choice([NODE, RECORD, STEP, HOST]), "span": number, "parent_span": around}
            rows.append(host(draw.choice(["frame", "a", "b"]), start, start + length, **more))
        recording = made(rows)
        assert recording.to_markdown()
        assert recording.to_json()
        assert recording.overview()
        assert str(recording.key_averages())
        assert (recording.gaps().share or 0) <= 1
        for figures in (recording.gaps, recording.frames_per_second, recording.what_if):
            with contextlib.suppress(ValueError):  # there is no such frame
                assert str(figures(frame="frame"))
        times = {("s", name): [draw.choice([0.0, 1e-6, 1.0]) for _ in range(3)] for name in "abc"}
        summary, other = (
            profiler_with(dict(each)).get_profiling_summary() for each in ([*times.items()], [*times.items()][:2])
        )
        assert summary.to_markdown()
        assert View(summary, against=other).render("md")
        for insight in (summary.what_if, summary.warm_up, summary.frames_per_second):
            assert str(insight())


# ---- as tables


def tables(name: str) -> list[Insight[Any]]:
    recording = made(frames_of(name, 12, lambda _: (5, 80), 90, 100))
    summary = recorded_counts({name: 12})
    found: list[Insight[Any]] = [recording.gaps()]
    for of in (recording, summary):
        found += [of.what_if(), of.frames_per_second(), of.warm_up()]
    return found


@pytest.mark.parametrize("names", [NAMES[at : at + 100] for at in range(0, len(NAMES), 100)])
def test_hostile_names_are_only_names(names: tuple[str, ...]) -> None:
    """Failure scenario F4."""
    shown = ["\n".join(shown_text("name", line) for line in name.split("\n")) for name in names]
    rows = [node(name, 10 * at, 10 * at + 5) for at, name in enumerate(names)]
    recording = made([host("f", 0, 2000, kind=RECORD), *rows])
    summary = recorded_counts(dict.fromkeys(names, 1))
    edges = list(pairwise(names))
    for table in (
        recording.gaps(), recording.what_if(), recording.what_if(edges=edges), recording.warm_up(), summary.warm_up(),
        summary.what_if(), summary.what_if(edges=edges), summary.frames_per_second(), recording.frames_per_second(),
    ):  # fmt: skip
        cells = Markup(table._repr_html_())
        assert set(cells.tags) <= {
            "div", "style", "table", "thead", "tbody", "tr", "th", "td", "p", "details", "summary",
        }  # fmt: skip
        if "node" in table.columns:
            assert [text for text in cells.cells if text in shown] == shown
            assert [getattr(of, "node", None) for of in table] == list(names)
        text = table.text(None)
        assert len(text.split("\n")) == len(table) + 5 + len(table.notes)
        assert not any(character < " " or "\x7f" <= character <= "\x9f" for character in text.replace("\n", ""))
        text.encode()
        assert len(json.loads(json.dumps(table.section().rows, allow_nan=False))) == len(table)


def test_tables_are_sections_and_short() -> None:
    for table in tables("a"):
        section = table.section()
        names = [column.name for column in section.columns]
        assert names == [name for name in table.columns if name in names]
        empty = {name for at, name in enumerate(names) if all(row[at] in (None, "") for row in section.rows)}
        assert empty <= {"most"}  # which is infinite where there is one node
        assert all(column.title and column.tip for column in section.columns)
        if "share" in names:
            assert [row[names.index("share")] for row in section.rows] == [getattr(of, "share", None) for of in table]
        assert section.notes == table.notes
        assert str(table).startswith(f"{table.title}\n┌")
        assert table.text(row_limit=0).count("\n") < str(table).count("\n") + 1
        assert repr(table).startswith(f"<{type(table).__name__} of ")
    alone = recorded_counts({"a": 3}).what_if()
    assert alone[0].most == float("inf")
    assert None in alone.section().rows[0]


def test_reports_have_insights_of_what_has_nodes() -> None:
    recording = made(frames_of("a", 2, lambda _: (5, 80), 90, 100))
    assert list(View(recording).tables.sections) == ["averages", "warm_up", "gaps", "what_if", "frames"]
    assert list(View(made([host("op", 0, 9)])).tables.sections) == ["averages"]
    assert list(View(recorded_counts({"a": 3})).tables.sections) == ["warm_up", "what_if", "frames"]
    assert View(cp.ProfilingSummary()).tables.sections == {}


def test_tables_are_pandas_frames() -> None:
    pytest.importorskip("pandas")
    frame = recorded_counts({"a": 3, "b": 3}).what_if().to_pandas()
    assert list(frame["node"]) == ["a", "b"]
    assert frame["gain_ms"].tolist() == [1.0, 1.0]


def test_columns_without_anything_are_not_shown() -> None:
    table = recorded_counts({"a": 3}).frames_per_second()
    assert "p99_ms" in table.columns
    assert "p99" not in str(table)
    assert "p99_ms" not in table._repr_html_()
    assert "Gain (ms)" in str(cp.Profiler().get_profiling_summary().what_if())  # without rows all are


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1e-17, "0"), (0.00013, "0.0001300"), (1.0, "1.000"), (12.345, "12.35"), (123456.7, "123457"),
     (-12.345, "-12.35"), (float("inf"), "inf")],
)  # fmt: skip
def test_numbers_have_four_digits(value: float, text: str) -> None:
    assert shown_number(value) == text
