"""Times compared as interleaved pairs: bootstrap intervals, verdicts, and what two callables and their nodes take."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import cprofiling as cp
from cprofiling.gates import PairedComparison, compare_pairs
from cprofiling.testing.gates import bootstrap, pairs, series, timed_call
from cprofiling.testing.gates.bootstrap import (
    METRICS,
    Rule,
    interval_of,
    paired_change,
    rule_of,
    separate_change,
)

Steps = list[tuple[float, float]]


class FakeTimer:
    """Times that are known beforehand, by what is called: (wall, cpu, waited) in ms."""

    times: dict[Any, Any] = {}  # noqa: RUF012

    def time(self, function: Callable[[], object]) -> timed_call.Turn:
        function()
        rows, waited = next(self.times[function])
        return timed_call.Turn({name: timed_call.Times(*each) for name, each in rows.items()}, waited)

    def close(self) -> None:
        pass


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeTimer]:
    monkeypatch.setattr(pairs, "Timer", FakeTimer)
    monkeypatch.setattr(series, "Timer", FakeTimer)
    monkeypatch.setattr(FakeTimer, "times", {})
    return FakeTimer


def noisy(mean: float, spread: float, seed: int = 0, *, waited: float = 0.0, node: float | None = 0.5) -> Any:
    """Times around a mean, of a call and of a node that takes a part of it."""
    source = random.Random(seed)
    for _ in itertools.count():
        wall = mean * source.uniform(1 - spread, 1 + spread)
        rows = {timed_call.CALL: (2 * wall, wall)}
        if node is not None:
            rows["node"] = (wall, wall * node)
        yield rows, waited


def old() -> None:
    pass


def new() -> None:
    pass


def compared(fake: type[FakeTimer], before: Any, after: Any, **arguments: Any) -> PairedComparison:
    fake.times = {old: before, new: after}
    return compare_pairs(old, new, warmup=1, **arguments)


# ---- intervals -----------------------------------------------------------------------------------


def test_equal_values_have_no_interval_to_speak_of() -> None:
    for metric in ("mean", "median", "p95"):
        change, draw = paired_change([2.0] * 30, [3.0] * 30, metric)
        assert change == pytest.approx(50)
        assert interval_of(change, draw, 30, 0.95) == pytest.approx((50, 50))
        change, draw = separate_change([2.0] * 30, [3.0] * 25, METRICS[metric])
        assert (change, *interval_of(change, draw, 25, 0.95)) == pytest.approx((50, 50, 50))


def test_intervals_cover_what_they_should() -> None:
    source = random.Random(5)
    covered = 0
    for _ in range(8):
        before = [source.gauss(10, 1) for _ in range(60)]
        after = [source.gauss(11, 1) for _ in range(60)]
        low, high = interval_of(*paired_change(before, after, "mean"), 60, 0.95)
        assert high - low < 12
        covered += low <= 10 <= high
    assert covered >= 6


def test_what_disturbs_both_sides_of_a_pair_cancels_in_the_median() -> None:
    source = random.Random(1)
    before = [source.uniform(1, 10) for _ in range(40)]
    change, draw = paired_change(before, [1.1 * time for time in before], "median")
    assert (change, *interval_of(change, draw, 40, 0.95)) == pytest.approx((10, 10, 10))


def test_the_median_is_that_of_the_pairs_own_changes() -> None:
    before, after = [1.0, 10.0, 100.0] * 10, [1.0, 20.0, 100.0] * 10
    assert paired_change(before, after, "median")[0] == 0
    assert separate_change(before, after, METRICS["median"])[0] == 100


def test_values_are_redrawn_in_blocks_that_go_round() -> None:
    source = random.Random(3)
    values = list(range(10))
    drawn = [bootstrap._redrawn(values, source) for _ in range(300)]
    assert {len(each) for each in drawn} == {10}
    assert {each[0] for each in drawn} == {each[-1] for each in drawn} == set(values)
    assert all(each[1] == (each[0] + 1) % 10 for each in drawn)


def test_rules() -> None:
    assert (rule_of("mean:5%"), rule_of("p95:2.5%")) == (Rule("mean", 5), Rule("p95", 2.5))
    with pytest.raises(TypeError, match="fail must be a str"):
        rule_of(5)  # type: ignore[arg-type]
    for text in ("mean", "mean:5", "mean:-5%", "mean:5%%", "max:5%", "mean:1e3%", "mean:9999999%", ""):
        with pytest.raises(ValueError, match="METRIC:PERCENT%"):
            rule_of(text)


# ---- pairs ---------------------------------------------------------------------------------------


def test_what_is_slower_is_found_and_named(fake: type[FakeTimer]) -> None:
    found = compared(fake, noisy(10, 0.1), noisy(11, 0.1, 1), pairs=60)
    [node] = found.nodes
    assert (found.call.verdict, node.verdict, node.name, found.clock) == ("slower", "slower", "node", "cpu")
    assert found.has_regressed
    assert found.call.new_ms == pytest.approx(11, rel=0.05)
    lines = str(found).splitlines()
    assert lines[0].startswith("(call): slower: mean ")
    assert lines[1].startswith("node: slower: mean ")
    assert lines[0].endswith("limit 5 %, 60 pairs")


def test_what_is_faster_or_the_same_is_not_slower(fake: type[FakeTimer]) -> None:
    assert compared(fake, noisy(10, 0.1), noisy(9, 0.1, 1)).call.verdict == "faster"
    same = compared(fake, noisy(10, 0.1), noisy(10, 0.1, 1), fail="median:5%")
    assert (same.call.verdict, same.has_regressed, same.call.reason) == ("same", False, "")


def test_noise_makes_it_go_on_and_then_unclear(fake: type[FakeTimer]) -> None:
    found = compared(fake, noisy(10, 0.9), noisy(10.5, 0.9, 1), pairs=30)
    assert (found.call.verdict, found.call.pairs, found.has_regressed) == ("unclear", 120, False)
    assert found.is_unsure
    assert str(found).splitlines()[0].endswith("120 pairs: the interval is too wide")


def test_calls_that_wait_are_judged_by_the_clock(fake: type[FakeTimer]) -> None:
    found = compared(fake, noisy(10, 0.01, waited=5), noisy(10, 0.01, 1, waited=5))
    assert (found.clock, found.call.verdict) == ("wall", "same")
    assert found.call.old_ms == pytest.approx(20, rel=0.01)


def test_too_few_pairs_too_short_times_and_nodes_of_one_side_are_unknown(fake: type[FakeTimer]) -> None:
    few = compared(fake, noisy(10, 0.1), noisy(11, 0.1, 1), pairs=19)
    assert (few.call.verdict, few.call.reason) == ("not enough samples", "19 pairs are too few, 20 are needed")
    assert "too few" in str(few)
    short = compared(fake, noisy(0.01, 0.1), noisy(0.02, 0.1, 1), pairs=20)
    assert (short.call.verdict, short.call.reason[:26]) == ("unknown", "it takes less than 0.05 ms")
    one = compared(fake, noisy(10, 0.1, node=None), noisy(10, 0.1, 1), pairs=20)
    assert (one.nodes[0].verdict, one.nodes[0].pairs) == ("unknown", 0)
    assert "only in the new one" in one.nodes[0].reason
    other = compared(fake, noisy(10, 0.1), noisy(10, 0.1, 1, node=None), pairs=20)
    assert "only in the baseline" in str(other)


def test_few_pairs_are_enough_where_all_of_one_side_are_slower(fake: type[FakeTimer]) -> None:
    verdicts = [
        compared(fake, noisy(10, 0.1), noisy(20, 0.1, 1), pairs=count, fail=fail).call.verdict
        for count, fail in ((7, "mean:5%"), (6, "mean:5%"), (7, "mean:200%"))
    ]
    assert verdicts == ["slower", "not enough samples", "not enough samples"]


def test_each_is_called_as_often_as_promised_and_exceptions_pass() -> None:
    calls: list[str] = []
    compare_pairs(lambda: calls.append("old"), lambda: calls.append("new"), pairs=25, warmup=2)
    assert (calls.count("old"), calls.count("new")) == (27, 27)
    assert {tuple(calls[place : place + 2]) for place in range(4, 54, 2)} == {("old", "new"), ("new", "old")}
    with pytest.raises(ZeroDivisionError):
        compare_pairs(lambda: 1 // 0, lambda: 1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"baseline": 1}, TypeError),
        ({"new": None}, TypeError),
        ({"pairs": 1}, ValueError),
        ({"pairs": True}, TypeError),
        ({"warmup": -1}, ValueError),
        ({"confidence": 1.0}, ValueError),
        ({"confidence": "high"}, TypeError),
        ({"fail": "mean"}, ValueError),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        compare_pairs(**{"baseline": old, "new": new, **arguments})


# ---- turns ---------------------------------------------------------------------------------------


def test_a_turn_tells_of_the_call_and_its_nodes() -> None:
    @cp.profile_node("node")
    def node() -> int:
        return sum(range(20_000))

    timer = timed_call.Timer()
    try:
        turn = timer.time(lambda: (node(), node()))
        empty = timer.time(old)
    finally:
        timer.close()
        timer.close()
    assert list(turn.rows) == [timed_call.CALL, "node"]
    assert list(empty.rows) == [timed_call.CALL]
    assert turn.rows["node"].wall_ms <= turn.rows[timed_call.CALL].wall_ms
    assert 0 < (turn.rows["node"].cpu_ms or 0) <= (turn.rows[timed_call.CALL].cpu_ms or 0)
    assert turn.waited_ms >= 0


def test_a_node_s_time_is_that_of_all_its_stages() -> None:
    def run() -> None:
        for stage in ("train", "val", "test"):
            with cp.profile_node("node", stage=stage):
                sum(range(200_000))

    timer = timed_call.Timer()
    times = timer.time(run).rows
    timer.close()
    whole, node = times[timed_call.CALL], times["node"]
    assert node.wall_ms <= whole.wall_ms
    assert (node.cpu_ms or 0.0) > 0.75 * (whole.cpu_ms or 0.0)


def test_a_node_without_a_name_is_not_taken_for_the_whole_call() -> None:
    def run() -> None:
        with cp.profile_node(timed_call.CALL):
            sum(range(200_000))

    timer = timed_call.Timer()
    start = time.perf_counter()
    times = timer.time(run).rows
    elapsed_ms = 1000 * (time.perf_counter() - start)
    timer.close()
    assert list(times) == [timed_call.CALL]
    assert times[timed_call.CALL].wall_ms <= elapsed_ms


def test_waiting_is_told_from_standing_in_line_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = timed_call.Timer()
    assert timer.time(lambda: time.sleep(0.05)).waited_ms > 25
    in_line = itertools.count(step=10**12)
    monkeypatch.setattr(timer._in_line, "now_ns", lambda: next(in_line))
    assert timer.time(old).waited_ms == 0
    timer.close()


def test_where_the_system_does_not_account_for_lines_nobody_waits_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(os, "open", refuse)
    timer = timed_call.Timer()
    turn = timer.time(old)
    assert turn.waited_ms >= 0
    assert turn.in_line_ms is None
    timer.close()


def test_what_others_compute_for_a_call_is_told() -> None:
    def compute() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    def other() -> None:
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()

    child = "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass"
    timer = timed_call.Timer()
    assert timer.time(compute).others_cpu_ms < 25
    assert timer.time(other).others_cpu_ms > 40
    assert timer.time(lambda: subprocess.run([sys.executable, "-c", child], check=True)).others_cpu_ms > 40
    timer.close()


def waiting(*waited: float) -> list[timed_call.Turn]:
    """Calls of 10 ms that waited so long."""
    return [timed_call.Turn({timed_call.CALL: timed_call.Times(10.0, 10.0 - each)}, each) for each in waited]


def test_calls_that_wait_are_told_from_machines_that_stand_still() -> None:
    assert timed_call.only_compute(waiting(0, 0.4, 0.5))
    assert not timed_call.only_compute(waiting(0, 3, 3))
    assert timed_call.only_compute(waiting(0, 0, 9))  # one of them: that is the machine
    assert timed_call.only_compute(waiting(3, 3, 3), waiting(3, 3, 3))  # so does work that never waits
    assert not timed_call.only_compute(waiting(3, 3, 3), waiting(2, 2, 2))
    nothing = timed_call.Turn({timed_call.CALL: timed_call.Times(0.0, 0.0)}, 0.0)
    assert timed_call.only_compute([nothing])


def test_nodes_whose_processor_time_is_not_known_are_judged_by_the_clock() -> None:
    some = [
        timed_call.Turn({timed_call.CALL: timed_call.Times(4.0, 3.0), "node": timed_call.Times(2.0, None)}, 0.0)
    ] * 2
    assert timed_call.series(some, timed_call.CALL, by_cpu=True) == [3.0, 3.0]
    assert timed_call.series(some, "node", by_cpu=True) == [2.0, 2.0]
    assert timed_call.series(some, "none", by_cpu=True) == []


# ---- series --------------------------------------------------------------------------------------


def made(times: list[float], cpu: list[float] | None = None, *, computes: bool = True) -> series.Series:
    beside, nothing = [2.0] * len(times), [0.0] * len(times)
    return series.Series(computes, {"": series.Row(times, cpu, nothing, nothing, beside, beside)})


def test_series_of_two_runs_are_compared() -> None:
    before, after = made([10.0] * 30, [8.0] * 30), made([11.0] * 20, [12.0] * 20)
    rule = Rule("mean", 5)
    change = series.change(before, after, "", rule)
    assert (change.verdict, change.text[:14]) == ("slower", "slower: mean +")
    assert "+50.0 %" in change.text
    assert change.text.endswith("cpu time")
    by_wall = series.change(before, made([11.0] * 20, None), "", rule)
    assert "+10.0 %" in by_wall.text
    assert by_wall.text.endswith("wall time")
    waiting = series.change(before, made([11.0] * 20, [9.0] * 20, computes=False), "", rule)
    assert "+10.0 %" in waiting.text
    assert series.change(before, before, "", rule).verdict == "same"
    assert "less than" in series.change(before, made([0.01] * 20), "", rule).text


def test_disjoint_times_are_slower_where_chance_does_not_explain_them() -> None:
    """Of 8 and 8 times all of one side are above the others in 1 of 12,870 cases, of 20 rows in 1 of 644."""
    rule, before, slow = Rule("mean", 5), made([10.0, 11.0] * 4), made([30.0, 500.0] * 4)
    change = series.change(before, slow, "", rule)
    assert change.verdict == "slower"
    assert "all 8 times are above all 8 before" in change.text
    assert series.change(before, slow, "", rule, family=12).verdict == "slower"
    many = series.change(before, slow, "", rule, family=20)
    assert many == ("not enough samples", "not enough samples: 8 times, 20 are needed")
    assert series.change(before, made([10.5] * 8), "", rule).verdict == "not enough samples"
    apart_by_less = made([10.2] * 8)  # than counts
    assert series.change(made([10.0] * 8), apart_by_less, "", rule).verdict == "not enough samples"
    # Times that spread so much that their mean has no interval to speak of.
    wild = made([12.0] * 29 + [50_000.0])
    assert "all 30 times are above all 30 before" in series.change(made([10.0] * 30), wild, "", rule).text


def waits(
    time: float,
    beside: float = 2.0,
    beside_cpu: float = 2.0,
    *,
    in_line: float | None = 0.0,
    others: float = 0.0,
    computes: bool = False,
) -> series.Series:
    """Series of 20 times of which 1 ms is computed."""
    lines = None if in_line is None else [in_line] * 20
    row = series.Row([time] * 20, [1.0] * 20, lines, [others] * 20, [beside] * 20, [beside_cpu] * 20)
    return series.Series(computes, {"": row})


def test_by_the_clock_a_verdict_has_to_hold_with_and_without_the_work_beside() -> None:
    """A slower machine has computing take longer, and waiting not."""
    rule = Rule("mean", 5)
    before = waits(10)
    assert series.change(before, waits(11), "", rule).verdict == "slower"
    assert series.change(before, waits(9), "", rule).verdict == "faster"
    faster_machine = series.change(before, waits(10, 1.8, 1.8), "", rule)
    assert faster_machine.verdict == "unclear"
    assert "+11.1 % [+8.0, +14.2] beside work that is always the same, +0.0 % [-3.1, +3.1] without" in (
        faster_machine.text
    )
    assert series.change(before, waits(11, 2, 0), "", rule).text == (
        "unknown: the clock is too coarse for the work beside"
    )


def test_load_excuses_what_it_explains_and_nothing_else() -> None:
    rule, before = Rule("mean", 5), waits(10)
    busy = "the machine was busy, by 100 % of the time, limit 5 %, wall time"
    for one, other in ((before, waits(10, 4, 2)), (waits(10, 4, 2), before), (before, waits(9, 4, 2))):
        change = series.change(one, other, "", rule)
        assert change.verdict == "unknown"
        assert change.text.endswith(busy)
    verdicts = {
        (time, *told): series.change(before, waits(time, 4, 2, in_line=told[0], others=told[1]), "", rule).verdict
        for time in (20.0, 200.0)
        for told in ((0.0, 0.0), (10.0, 0.0), (None, 0.0), (0.0, 10.0))
    }
    assert verdicts == {
        (20.0, 0.0, 0.0): "slower",  # it did not stand in line, and nobody computed for it
        (20.0, 10.0, 0.0): "unknown",
        (20.0, None, 0.0): "slower",  # 1 ms of computing explains 1 ms of delay
        (20.0, 0.0, 10.0): "unknown",
        (200.0, 0.0, 0.0): "slower",
        (200.0, 10.0, 0.0): "slower",
        (200.0, None, 0.0): "slower",
        (200.0, 0.0, 10.0): "slower",
    }
    line = series.change(before, waits(12, in_line=1.9), "", rule)
    assert line.verdict == "unknown"
    assert line.text.endswith("the machine was busy, by 16 % of the time, limit 5 %, wall time")
    # What computes only is judged by the processor's time, of which load is no part.
    assert series.change(waits(10, computes=True), waits(200, 4, 2, computes=True), "", rule).verdict == "same"


def test_runs_differ_by_more_than_their_calls_the_more_the_machine_does() -> None:
    def computes(time: float, beside: float) -> series.Series:
        times, besides, nothing = [time] * 20, [beside] * 20, [0.0] * 20
        return series.Series(True, {"": series.Row(times, times, [9.0] * 20, nothing, besides, besides)})

    rule = Rule("mean", 5)
    before = computes(10, 2)
    assert series.change(before, computes(10.8, 2), "", rule).verdict == "slower"
    assert series.change(before, computes(10.6, 2), "", rule).verdict == "unclear"
    assert series.change(before, computes(10.2, 2), "", rule).verdict == "same"
    assert series.change(before, computes(9.2, 2), "", rule).verdict == "faster"
    # 8 %, on a machine half as fast again
    assert series.change(before, computes(16.2, 3), "", rule).verdict == "unclear"
    assert series.change(computes(16.2, 3), before, "", rule).verdict == "unclear"


def drawn_series(source: random.Random, factor: float, load: float) -> series.Series:
    """40 times of three rows, which wait and compute, on a machine with a load."""
    rows = {}
    for name in ("", "a", "b"):
        computed = [source.gauss(3, 0.1) for _ in range(40)]
        lines = [source.expovariate(1 / (3 * load)) if load else 0.0 for _ in range(40)]
        waited = [factor * source.lognormvariate(1.5, 0.3) for _ in range(40)]
        beside = [source.gauss(1, 0.02) for _ in range(40)]
        slowed = [each * (1 + load * source.random() * 2) for each in beside]
        wall = [factor * cpu + line + wait for cpu, line, wait in zip(computed, lines, waited, strict=True)]
        rows[name] = series.Row(wall, [factor * cpu for cpu in computed], lines, [0.0] * 40, slowed, beside)
    return series.Series(False, rows)


@pytest.mark.slow
def test_planted_regressions_are_found_under_load_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 times a side: 20 that are 1.5 times as long, and 40 that are unchanged, with loads that differ."""
    monkeypatch.setattr(bootstrap, "RESAMPLES", 200)  # which is enough for that, and takes less time
    source, rule = random.Random(7), Rule("mean", 5)

    def fails(factor: float) -> bool:
        old, new = (drawn_series(source, each, source.choice((0.0, 1.0, 2.0))) for each in (1.0, factor))
        return any(series.change(old, new, row, rule, family=3).verdict == "slower" for row in old.rows)

    assert sum(fails(1.5) for _ in range(20)) == 20
    assert sum(fails(1.0) for _ in range(40)) <= 2


def test_series_are_measured_in_turns_until_they_are_sure(fake: type[FakeTimer]) -> None:
    fake.times = {old: noisy(10, 0.5), series.reference_work: noisy(1, 0.001, 1, node=None)}
    found = series.measured(old, 20, 1)
    assert len(found.rows[""].wall_ms) == 80
    assert found.computes
    fake.times = {old: noisy(10, 0.001), series.reference_work: noisy(1, 0.001, 1, node=None)}
    found = series.measured(old, 20, 0)
    assert (len(found.rows["node"].wall_ms), list(found.rows)) == (20, ["", "node"])
    fake.times = {old: noisy(10, 0.001, waited=5), series.reference_work: noisy(1, 0.001, waited=0.5)}
    assert series.measured(old, 20, 0).computes  # the machine stands still, for work that never waits, too
    fake.times = {old: noisy(10, 0.001, waited=5), series.reference_work: noisy(1, 0.001)}
    assert not series.measured(old, 20, 0).computes
    fake.times = {old: noisy(10, 0.001), series.reference_work: noisy(0, 0)}
    assert len(series.measured(old, 20, 0).rows[""].wall_ms) == 20


@pytest.mark.parametrize(
    ("arguments", "error"), [((1, 20, 0), TypeError), ((old, 19, 0), ValueError), ((old, 20, -1), ValueError)]
)
def test_arguments_of_series_are_checked(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        series.measured(*arguments)
