"""Times compared as interleaved pairs: bootstrap intervals, verdicts, and what two callables and their nodes take."""

from __future__ import annotations

import functools
import itertools
import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

import cprofiling as cp
from cprofiling.gates import PairedComparison, bootstrap, compare_pairs, pairs, series, turns
from cprofiling.gates.bootstrap import (
    METRICS,
    Rule,
    interval_of,
    paired_change,
    quantile,
    rule_of,
    separate_change,
    verdict_of,
)

Steps = list[tuple[float, float]]


class FakeTimer:
    """Times that are known beforehand, by what is called: (wall, cpu, waited) in ms."""

    times: dict[Any, Any] = {}  # noqa: RUF012

    def time(self, function: Callable[[], object]) -> turns.Turn:
        function()
        rows, waited = next(self.times[function])
        return turns.Turn({name: turns.Times(*each) for name, each in rows.items()}, waited)

    def close(self) -> None:
        pass


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeTimer]:
    monkeypatch.setattr(pairs, "Timer", FakeTimer)
    monkeypatch.setattr(turns, "Timer", FakeTimer)
    monkeypatch.setattr(FakeTimer, "times", {})
    return FakeTimer


def noisy(mean: float, spread: float, seed: int = 0, *, waited: float = 0.0, node: float | None = 0.5) -> Any:
    """Times around a mean, of a call and of a node that takes a part of it."""
    source = random.Random(seed)
    for _ in itertools.count():
        wall = mean * source.uniform(1 - spread, 1 + spread)
        rows = {turns.CALL: (2 * wall, wall)}
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
        assert interval_of(draw, 0.95) == pytest.approx((50, 50))
        change, draw = separate_change([2.0] * 30, [3.0] * 25, METRICS[metric])
        assert (change, *interval_of(draw, 0.95)) == pytest.approx((50, 50, 50))


def test_intervals_cover_what_they_should() -> None:
    source = random.Random(5)
    covered = 0
    for _ in range(8):
        before = [source.gauss(10, 1) for _ in range(60)]
        after = [source.gauss(11, 1) for _ in range(60)]
        low, high = interval_of(paired_change(before, after, "mean")[1], 0.95)
        assert high - low < 12
        covered += low <= 10 <= high
    assert covered >= 6


def test_what_disturbs_both_sides_of_a_pair_cancels_in_the_median() -> None:
    source = random.Random(1)
    before = [source.uniform(1, 10) for _ in range(40)]
    change, draw = paired_change(before, [1.1 * time for time in before], "median")
    assert (change, *interval_of(draw, 0.95)) == pytest.approx((10, 10, 10))


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


def test_quantiles_interpolate() -> None:
    assert (quantile([3.0, 1.0, 2.0], 0.5), quantile([1.0, 2.0], 0.75), quantile([7.0], 0.95)) == (2.0, 1.75, 7.0)


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [((5.1, 9), "slower"), ((-9, -5.1), "faster"), ((-5, 5), "same"), ((4.9, 9), "unknown"), ((-6, 6), "unknown")],
)
def test_verdicts(interval: tuple[float, float], verdict: str) -> None:
    assert verdict_of(interval, 5) == verdict


@pytest.mark.parametrize("text", ["mean", "mean:5", "mean:-5%", "mean:5%%", "max:5%", "mean:1e3%", "mean:9999999%", ""])
def test_wrong_rules(text: str) -> None:
    with pytest.raises(ValueError, match="METRIC:PERCENT%"):
        rule_of(text)


def test_rules() -> None:
    assert (rule_of("mean:5%"), rule_of("p95:2.5%")) == (Rule("mean", 5), Rule("p95", 2.5))
    with pytest.raises(TypeError, match="fail must be a str"):
        rule_of(5)  # type: ignore[arg-type]


# ---- pairs ---------------------------------------------------------------------------------------


def test_what_is_slower_is_found_and_named(fake: type[FakeTimer]) -> None:
    found = compared(fake, noisy(10, 0.1), noisy(11, 0.1, 1), pairs=60)
    assert (found.call.verdict, found.nodes[0].verdict, found.nodes[0].name, found.clock) == (
        "slower",
        "slower",
        "node",
        "cpu",
    )
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


def test_noise_makes_it_go_on_and_then_unknown(fake: type[FakeTimer]) -> None:
    found = compared(fake, noisy(10, 0.9), noisy(10.5, 0.9, 1), pairs=30)
    assert (found.call.verdict, found.call.pairs, found.has_regressed) == ("unknown", 120, False)
    assert str(found).splitlines()[0].endswith("120 pairs: the interval is too wide")


def test_calls_that_wait_are_judged_by_the_clock(fake: type[FakeTimer]) -> None:
    found = compared(fake, noisy(10, 0.01, waited=5), noisy(10, 0.01, 1, waited=5))
    assert (found.clock, found.call.verdict) == ("wall", "same")
    assert found.call.old_ms == pytest.approx(20, rel=0.01)


def test_too_few_pairs_too_short_times_and_nodes_of_one_side_are_unknown(fake: type[FakeTimer]) -> None:
    few = compared(fake, noisy(10, 0.1), noisy(20, 0.1, 1), pairs=19)
    assert (few.call.verdict, few.call.reason) == ("unknown", "19 pairs are too few, 20 are needed")
    assert "too few" in str(few)
    short = compared(fake, noisy(0.01, 0.1), noisy(0.02, 0.1, 1), pairs=20)
    assert (short.call.verdict, short.call.reason[:26]) == ("unknown", "it takes less than 0.05 ms")
    one = compared(fake, noisy(10, 0.1, node=None), noisy(10, 0.1, 1), pairs=20)
    assert (one.nodes[0].verdict, one.nodes[0].pairs) == ("unknown", 0)
    assert "only in the new one" in one.nodes[0].reason
    other = compared(fake, noisy(10, 0.1), noisy(10, 0.1, 1, node=None), pairs=20)
    assert "only in the baseline" in str(other)


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

    timer = turns.Timer()
    try:
        turn = timer.time(lambda: (node(), node()))
        empty = timer.time(old)
    finally:
        timer.close()
        timer.close()
    assert list(turn.rows) == [turns.CALL, "node"]
    assert list(empty.rows) == [turns.CALL]
    assert turn.rows["node"].wall_ms <= turn.rows[turns.CALL].wall_ms
    assert 0 < (turn.rows["node"].cpu_ms or 0) <= (turn.rows[turns.CALL].cpu_ms or 0)
    assert turn.waited_ms >= 0


def test_a_node_s_time_is_that_of_all_its_stages() -> None:
    def run(*more: str) -> None:
        for stage in ("train", *more):
            with cp.profile_node("node", stage=stage):
                sum(range(200_000))

    timer = turns.Timer()
    one, both = (min(timer.time(call).rows["node"] for _ in range(5)) for call in (run, functools.partial(run, "val")))
    timer.close()
    assert both.wall_ms > 1.3 * one.wall_ms
    known = turns.Times(1.0, 2.0)
    assert turns._sum(known, turns.Times(3.0, None)) == turns.Times(4.0, None)
    assert turns._sum(known, known) == turns.Times(2.0, 4.0)


def test_a_node_without_a_name_is_not_taken_for_the_whole_call() -> None:
    def run() -> None:
        with cp.profile_node(turns.CALL):
            sum(range(200_000))

    timer = turns.Timer()
    start = time.perf_counter()
    times = timer.time(run).rows
    elapsed_ms = 1000 * (time.perf_counter() - start)
    timer.close()
    assert list(times) == [turns.CALL]
    assert times[turns.CALL].wall_ms <= elapsed_ms


def test_waiting_is_told_from_standing_in_line_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = turns.Timer()
    assert timer.time(lambda: time.sleep(0.05)).waited_ms > 25
    in_line = itertools.count(step=10**12)
    monkeypatch.setattr(timer._in_line, "now_ns", lambda: next(in_line))
    assert timer.time(old).waited_ms == 0
    timer.close()


def test_where_the_system_does_not_account_for_lines_nobody_waits_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(os, "open", refuse)
    timer = turns.Timer()
    assert timer.time(old).waited_ms >= 0
    timer.close()


def waiting(*waited: float) -> list[turns.Turn]:
    """Calls of 10 ms that waited so long."""
    return [turns.Turn({turns.CALL: turns.Times(10.0, 10.0 - each)}, each) for each in waited]


def test_calls_that_wait_are_told_from_machines_that_stand_still() -> None:
    assert turns.only_compute(waiting(0, 0.4, 0.5))
    assert not turns.only_compute(waiting(0, 3, 3))
    assert turns.only_compute(waiting(0, 0, 9))  # one of them: that is the machine
    assert turns.only_compute(waiting(3, 3, 3), waiting(3, 3, 3))  # so does work that never waits
    assert not turns.only_compute(waiting(3, 3, 3), waiting(2, 2, 2))
    nothing = turns.Turn({turns.CALL: turns.Times(0.0, 0.0)}, 0.0)
    assert turns.only_compute([nothing])


def test_nodes_whose_processor_time_is_not_known_are_judged_by_the_clock() -> None:
    some = [turns.Turn({turns.CALL: turns.Times(4.0, 3.0), "node": turns.Times(2.0, None)}, 0.0)] * 2
    assert turns.series(some, turns.CALL, by_cpu=True) == [3.0, 3.0]
    assert turns.series(some, "node", by_cpu=True) == [2.0, 2.0]
    assert turns.series(some, "none", by_cpu=True) == []


# ---- series --------------------------------------------------------------------------------------


def made(times: list[float], cpu: list[float] | None = None, *, computes: bool = True) -> series.Series:
    beside = [2.0] * len(times)
    return series.Series(computes, {"": series.Row(times, cpu, beside, beside)})


def test_series_are_told_as_json_and_back() -> None:
    some = made([1.0, 2.0], [0.5, 1.0])
    assert series.Series.from_dict(some.to_dict()) == some


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
    waiting = series.change(before, made([11.0] * 20, [12.0] * 20, computes=False), "", rule)
    assert "+10.0 %" in waiting.text
    assert series.change(before, before, "", rule).verdict == "same"
    assert "too few" in series.change(before, made([1.0] * 19), "", rule).text
    assert "less than" in series.change(before, made([0.01] * 20), "", rule).text


def test_by_the_clock_a_verdict_has_to_hold_with_and_without_the_work_beside() -> None:
    """A slower machine has computing take longer, and waiting not."""
    rule = Rule("mean", 5)

    def waits(time: float, beside: float, beside_cpu: float) -> series.Series:
        row = series.Row([time] * 20, [1.0] * 20, [beside] * 20, [beside_cpu] * 20)
        return series.Series(False, {"": row})

    before = waits(10, 2, 2)
    assert series.change(before, waits(11, 2, 2), "", rule).verdict == "slower"
    assert series.change(before, waits(9, 2, 2), "", rule).verdict == "faster"
    faster_machine = series.change(before, waits(10, 1.8, 1.8), "", rule)
    assert faster_machine.verdict == "unknown"
    assert "+11.1 % [+8.0, +14.2] beside work that is always the same, +0.0 % [-3.1, +3.1] without" in (
        faster_machine.text
    )
    for one, other in ((before, waits(20, 4, 2)), (waits(20, 4, 2), before)):
        busy = series.change(one, other, "", rule)
        assert busy.text == "unknown: the machine was busy: work that only computes took 100 % longer than it computed"
    assert (
        series.change(before, waits(11, 2, 0), "", rule).text == "unknown: the clock is too coarse for the work beside"
    )
    in_line = waits(11, 2, 2)._replace(in_line_pct=1.5)
    for one, other in ((before, in_line), (in_line, before)):
        assert series.change(one, other, "", rule).text == (
            "unknown: the machine was busy: it stood in line for a processor"
        )


def test_runs_differ_by_more_than_their_calls_the_more_the_machine_does() -> None:
    def computes(time: float, beside: float) -> series.Series:
        return series.Series(True, {"": series.Row([time] * 20, [time] * 20, [beside] * 20, [beside] * 20)}, 90.0)

    rule = Rule("mean", 5)
    before = computes(10, 2)
    assert series.change(before, computes(10.8, 2), "", rule).verdict == "slower"
    assert series.change(before, computes(10.6, 2), "", rule).verdict == "unknown"
    assert series.change(before, computes(10.2, 2), "", rule).verdict == "same"
    assert series.change(before, computes(9.2, 2), "", rule).verdict == "faster"
    assert (
        series.change(before, computes(16.2, 3), "", rule).verdict == "unknown"
    )  # 8 %, on a machine half as fast again
    assert series.change(computes(16.2, 3), before, "", rule).verdict == "unknown"


def test_the_mean_of_a_side_is_no_mean_of_quotients() -> None:
    side = [(10.0, 1.0), (10.0, 4.0)]
    assert (series._figure(side, "mean"), series._figure(side, "median")) == (4.0, 6.25)


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


def test_the_work_beside_is_always_the_same() -> None:
    assert series.reference_work() == series.reference_work() > 0


@pytest.mark.parametrize(
    ("arguments", "error"), [((1, 20, 0), TypeError), ((old, 19, 0), ValueError), ((old, 20, -1), ValueError)]
)
def test_arguments_of_series_are_checked(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        series.measured(*arguments)
