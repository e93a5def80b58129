"""Two timing reports compared: figures, intervals, verdicts, and what a gate makes of them (failure scenario I12)."""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_with
from cprofiling._internal.quantiles import Sample, cautious_interval, interval_of, student_quantile, welch_interval
from cprofiling.analysis.comparison import StageComparison, TimingComparison, can_lie_apart
from cprofiling.analysis.timing_reports import compare_timing_reports
from cprofiling.commands import main
from markup import Markup
from timing_reports import ours, peers, stage

ONE_RUN = (
    "Two runs with so few rows may differ by 30 % with the machine: only what changed by more is judged. "
    "Several runs a side (--baseline, --new of cprofiling compare) tell machine and program apart."
)


def compared(old: dict[str, Any], new: dict[str, Any], **options: Any) -> StageComparison:
    """The comparison of one stage, as ours has it."""
    (row,) = compare_timing_reports(ours({"vae": old}), ours({"vae": new}), **options).stages
    return row


# ---- Student's distribution and Welch's interval


def sample_of(values: list[float]) -> Sample:
    return Sample(len(values), statistics.fmean(values), statistics.variance(values))


# Quantiles of Student's distribution: as tables print them, and as found with 40 digits.
TABLE = [(1, 0.975, 12.706), (2, 0.975, 4.303), (4, 0.95, 2.132), (10, 0.995, 3.169), (30, 0.975, 2.042)]
PRECISE = [
    (1, 0.6, 0.3249196962329062),
    (1, 1 - 2**-20, 333772.1072140558),
    (1.5, 0.975, 6.016663104427928),
    (3.7, 0.5078125, 0.02093791576006012),
    (3.7, 0.999, 7.795183875029164),
    (10, 0.975, 2.228138851986274),
    (10, 1 - 2**-40, 40.92058256173976),
    (200.5, 0.6, 0.2536835374441346),
    (200.5, 1 - 2**-20, 4.907369125381847),
    (1999, 0.975, 1.961151420170562),
    (1999, 1 - 2**-40, 7.092603266955255),
    (2000.5, 0.6, 0.2533807983961834),
    (2000.5, 0.975, 1.961150529286729),
    (2000.5, 1 - 2**-20, 4.777136181223712),
    (2000.5, 1 - 2**-40, 7.09256941589856),
    (1e6, 1 - 2**-50, 7.95616601764021),
]


@pytest.mark.parametrize(("freedom", "probability", "quantile"), TABLE)
def test_quantiles_of_tables(freedom: float, probability: float, quantile: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(quantile, abs=5e-4)


@pytest.mark.parametrize(("freedom", "probability", "quantile"), PRECISE)
def test_quantiles_are_as_precise_as_is_said(freedom: float, probability: float, quantile: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(quantile, rel=1e-9)
    assert student_quantile(0.5, freedom) == pytest.approx(0, abs=1e-12)


def test_equal_and_other_variances_are_both_allowed_for() -> None:
    small, large = Sample(20, 10.0, 0.01), Sample(200, 10.2, 1.0)
    freedom = 218
    pooled = [((19 * 0.01 + 199 * 1.0) / freedom * (1 / 20 + 1 / 200), freedom)]
    assert cautious_interval(small, large, 0.95) == interval_of(large.mean - small.mean, pooled, 0.95)
    few = Sample(20, 10.0, 1.0)
    assert cautious_interval(few, Sample(200, 10.2, 0.01), 0.95) == welch_interval(few, Sample(200, 10.2, 0.01), 0.95)


def test_an_interval_has_the_degrees_of_freedom_of_both_samples() -> None:
    """Two equal terms with 3 and 15 degrees of freedom have 10 together: 1 / (1/4 / 3 + 1/4 / 15)."""
    half = 2.228138851986274 * math.sqrt(2)
    interval = welch_interval(Sample(4, 10.0, 4.0), Sample(16, 13.0, 16.0), 0.95)
    assert interval == pytest.approx((3 - half, 3 + half), rel=1e-9)


def test_intervals_hold_the_difference_as_often_as_they_say() -> None:
    numbers = random.Random(2)
    held = 0
    for _ in range(400):
        samples = []
        for count, mean, spread in ((4, 10, 1), (8, 12, 3)):
            values = [numbers.gauss(mean, spread) for _ in range(count)]
            samples.append(sample_of(values))
        low, high = welch_interval(samples[0], samples[1], 0.95)
        held += low <= 2 <= high
    assert 364 <= held <= 394  # 380 are expected; 4.4 is one standard deviation


# ---- Verdicts


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (stage(20, 10, 0.1), stage(20, 14, 0.1), "slower"),
        (stage(20, 15, 0.1), stage(20, 10, 0.1), "faster"),
        (stage(20, 10, 0.1), stage(20, 13, 0.1), "unclear"),  # no more than two runs may differ by
        (stage(20, 13, 0.1), stage(20, 10, 0.1), "unclear"),
        (stage(20, 10, 0.1), stage(20, 10.1, 0.1), "unclear"),
        (stage(20, 10, 2), stage(20, 14, 2), "unclear"),  # more than that, by no more than noise
        (stage(20, 15, 3), stage(20, 10, 3), "unclear"),
        (stage(3, 10, 3), stage(3, 13, 3), "unclear"),
        (stage(20, 10, 3), stage(20, 10, 3), "unclear"),  # what is hidden is not the same
        (stage(20, 10, 0), stage(20, 10, 0), "unclear"),
        (stage(20, 10, 0), stage(30, 13.3, 0), "slower"),
        (stage(20, 0, 0), stage(20, 5, 0.1), "slower"),
        (stage(20, 5, 0.1), stage(20, 0, 0), "faster"),
        (stage(20, 0, 0), stage(20, 0, 0), "same"),
        (stage(1, 10, 0), stage(1, 20, 0), "not enough samples"),
        (stage(20, 10, 1), stage(1, 10.5, 0), "not enough samples"),
        (stage(20, 10, 1), stage(1, 20, 0), "not enough samples"),  # as chance does that in 1 of 21 cases
        (stage(2000, 10, 1), stage(1, 20, 0), "slower"),
        (stage(1, 20, 0), stage(2000, 10, 1), "faster"),
        (stage(2000, 10, 0), stage(1, 10.1, 0), "not enough samples"),  # apart, by less than counts
        (stage(20, 10, 1), {**stage(20, 20, 1), "std_ms": None}, "slower"),
        (stage(20, 10, 1), {**stage(20, 20, 1), "std_ms": None, "min_ms": None}, "unknown"),
        (stage(2000, 10, 1), {**stage(1, 20, 0), "mean_ms": None, "min_ms": None}, "slower"),
        # All calls of one are above all of the other, of which the mean says nothing.
        (stage(20, 10, 1), {**stage(20, 500, 900), "min_ms": 12.0}, "slower"),
        (stage(5, 10, 1), {**stage(5, 500, 900), "min_ms": 12.0}, "unclear"),
        ({**stage(20, 500, 900), "min_ms": 12.0}, stage(20, 10, 1), "faster"),
        (stage(0, 0, 0), stage(20, 5, 1), "unknown"),
        (stage(20, 5, 1), stage(0, 0, 0), "unknown"),
        (stage(20, 1e18 / 20, 0), stage(20, 0, 0), "faster"),
        (stage(20, 5e-324, 0), stage(20, 1e16, 0), "slower"),
    ],
)
def test_verdicts(old: dict[str, Any], new: dict[str, Any], verdict: str) -> None:
    row = compared(old, new)
    assert row.verdict == verdict
    assert bool(row.reason) >= (row.interval_ms is None)


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        (stage(20, 10.1, 0.1), "same"),  # more than noise, and less than counts
        (stage(20, 9.9, 0.1), "same"),
        (stage(20, 10.25, 0.2), "unclear"),  # more than counts, by no more than noise
        (stage(20, 9.75, 0.2), "unclear"),
        (stage(20, 12, 0.1), "slower"),
        (stage(20, 8, 0.1), "faster"),
    ],
)
def test_verdicts_beside_rows_that_did_not_change(new: dict[str, Any], verdict: str) -> None:
    rest = {f"s{number}": stage(20, 10, 0.1) for number in range(4)}
    result = compare_timing_reports(ours({"vae": stage(20, 10, 0.1), **rest}), ours({"vae": new, **rest}))
    assert [row.verdict for row in result.stages] == [verdict] + ["same"] * 4


def test_figures_of_a_stage() -> None:
    row = compared(stage(4, 10, 1), stage(9, 15, 2))
    assert (row.baseline_ms, row.new_ms, row.difference_ms, row.difference_pct) == (10, 15, 5, 50)
    assert (row.baseline_count, row.new_count, row.reason, row.is_missing) == (4, 9, "", False)
    # By hand: variances 1 * 4/3 and 4 * 9/8, together 40/11 with 11 degrees of freedom.
    half = student_quantile(0.975, 11) * math.sqrt(40 / 11 * (1 / 4 + 1 / 9))
    half += 3  # what two runs may differ by
    assert row.interval_ms == pytest.approx((5 - half, 5 + half), rel=1e-12)
    assert compared({**stage(4, 10, 1), "mean_ms": None}, stage(9, 15, 2)) == row
    narrow = compared(stage(4, 10, 1), stage(9, 15, 2), confidence=0.5).interval_ms
    assert narrow is not None
    assert narrow[0] > 2 - (half - 3) / 2


def test_a_baseline_of_zero_has_no_percentage() -> None:
    row = compared(stage(4, 0, 0), stage(4, 5, 1))
    assert (row.difference_ms, row.difference_pct) == (5, None)
    assert compared(stage(4, 5e-324, 0), stage(4, 5, 1)).difference_pct is None
    result = compare_timing_reports(peers({"vae": 0.0}), peers({"vae": 0.0}))
    assert (result.total.difference_ms, result.total.difference_pct) == (0, None)


def test_the_smallest_change_that_counts_can_be_chosen() -> None:
    old, new = stage(20, 10, 0.1), stage(20, 13.5, 0.1)
    assert [compared(old, new, min_change_pct=pct).verdict for pct in (0, 4, 5.1, 100)] == [
        "slower", "slower", "unclear", "same",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (stage(1, 10, 0), stage(1, 11, 0), "only one call in both"),
        (stage(1, 10, 0), stage(5, 11, 2), "only one call in the baseline"),
        ({**stage(3, 1, 0), "std_ms": None}, stage(1, 1, 0), "no spread known in the baseline, only one call in the"),
        (stage(1, 10, 0), stage(5, 20, 1), "only one call in the baseline"),
        (stage(1, 10, 0), stage(2000, 20, 1), "by ranges that do not overlap: only one call in the baseline"),
        (stage(20, 10, 1), {**stage(20, 500, 900), "min_ms": 12.0}, "by ranges that do not overlap"),
        (stage(0, 0, 0), stage(5, 20, 1), "no completed call in the baseline"),
        (stage(0, 0, 0), stage(0, 0, 0), "no completed call in the baseline and no completed call in the new report"),
    ],
)  # fmt: skip
def test_reasons(old: dict[str, Any], new: dict[str, Any], reason: str) -> None:
    assert reason in compared(old, new).reason


def test_reports_of_telefuser_tell_no_spread(tmp_path: Path) -> None:
    result = compare_timing_reports(peers({"vae": 10.0, "dit": 20.0}), peers({"vae": 30.0, "dit": 20.0}))
    assert [(row.difference_ms, row.difference_pct, row.verdict) for row in result.stages] == [
        (20, 200, "unknown"),
        (0, 0, "unknown"),
    ]
    assert (result.total.baseline_ms, result.total.new_ms, result.total.verdict) == (30, 50, "unknown")
    assert not result.has_regressed
    assert str(result).splitlines()[2] == "**No verdict (stages: 2 unknown)**"
    mixed = compare_timing_reports(peers({"vae": 10.0}), ours({"vae": stage(5, 11, 0.1)}))
    assert (mixed.stages[0].verdict, mixed.stages[0].reason) == ("unknown", "no spread known in the baseline")
    older = {"total_ms": 40, "stages": {"vae": {"duration_ms": 10}}}
    assert compare_timing_reports(older, {"stages": {"vae": {"duration_ms": 10}}}).total.difference_ms == -30


# ---- Totals


def test_the_total_is_judged_where_the_same_calls_were_made() -> None:
    ends = {"min_ms": 5, "max_ms": 30}
    old = ours({"vae": stage(10, 10, 1) | ends, "dit": stage(10, 20, 1) | ends})
    # Each stage may have changed by less than counts, all together have by more.
    new = ours({"vae": stage(10, 14.3, 1) | ends, "dit": stage(10, 27.4, 1) | ends})
    result = compare_timing_reports(old, new)
    assert [row.verdict for row in result.stages] == ["unclear", "unclear"]
    assert (result.total.verdict, result.total.reason) == ("slower", "")
    assert result.total.difference_ms == pytest.approx(117)
    assert result.has_regressed
    interval = result.total.interval_ms
    assert interval is not None
    spread = math.sqrt(4 * 10 * 10 / 9)  # of four sums of ten calls each
    assert interval[1] - interval[0] == pytest.approx(2 * student_quantile(1 - 0.025 / 3, 36) * spread + 2 * 90)


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ({"vae": stage(10, 50, 1), "dit": stage(10, 1, 0.1)}, "the reports have different stages"),
        ({"vae": stage(11, 50, 1)}, "the rows have different numbers of calls"),
        ({"vae": {**stage(10, 50, 1), "std_ms": None}}, "the spread of the calls is not known for every row"),
    ],
)
def test_totals_of_other_calls_are_not_judged(new: dict[str, Any], reason: str) -> None:
    total = compare_timing_reports(ours({"vae": stage(10, 10, 1)}), ours(new)).total
    assert (total.verdict, total.reason, total.interval_ms) == ("unknown", reason, None)


# ---- Several runs a side


def runs(*means_ms: float) -> list[dict[str, Any]]:
    """Runs of a stage of which the calls say that they are all alike."""
    return [ours({"vae": stage(50, mean, 0.01)}, request_id=f"{place} {mean}") for place, mean in enumerate(means_ms)]


def test_the_noise_from_run_to_run_is_known_of_several_runs() -> None:
    old, new = runs(10.0, 11.0, 10.2, 10.9), runs(10.6, 11.4, 10.3)
    alone = compare_timing_reports(old[0], new[0])
    assert (alone.stages[0].verdict, alone.total.verdict, alone.notes) == ("unclear", "unclear", (ONE_RUN,))
    result = compare_timing_reports(old, new)
    assert ONE_RUN not in result.notes
    row = result.stages[0]
    assert (row.verdict, result.total.verdict, result.has_regressed) == ("unclear", "unclear", False)
    assert (row.baseline_count, row.new_count) == (200, 150)
    assert (result.baseline_runs, result.new_runs) == (4, 3)
    assert row.baseline_ms == pytest.approx(10.525)
    assert row.interval_ms == pytest.approx(
        cautious_interval(sample_of([10.0, 11.0, 10.2, 10.9]), sample_of([10.6, 11.4, 10.3]), 0.975)
    )
    assert result.total.interval_ms == pytest.approx(tuple(50 * bound for bound in row.interval_ms or ()))
    assert "from the spread of 4 and 3 runs" in str(result)
    assert compare_timing_reports(old, runs(15.0, 15.5)).exit_status == 3


@pytest.mark.parametrize("turned", [False, True])
def test_one_run_is_as_uncertain_as_each_of_several(turned: bool) -> None:
    old, one = runs(10.0, 11.0, 10.2), runs(10.9)
    row = compare_timing_reports(*((one, old) if turned else (old, one))).stages[0]
    assert row.verdict == "unclear"
    assert row.interval_ms is not None
    width = 2 * student_quantile(0.9875, 2) * math.sqrt(statistics.variance([10.0, 11.0, 10.2]) * 4 / 3)
    assert row.interval_ms[1] - row.interval_ms[0] == pytest.approx(width)


def test_runs_of_telefuser_have_a_spread_together() -> None:
    old = [peers({"vae": time_ms, "dit": 5.0}) for time_ms in (10.0, 10.1, 10.2)]
    new = [peers({"vae": time_ms}) for time_ms in (12.0, 12.1)]
    result = compare_timing_reports(old, new)
    assert [(row.verdict, row.is_missing) for row in result.stages] == [("slower", False), ("unknown", True)]
    assert (result.stages[0].baseline_count, result.total.reason) == (None, "the reports have different stages")


def test_a_stage_of_some_runs_only() -> None:
    old = [ours({}, request_id="a"), *runs(10.0, 10.1)]
    row = compare_timing_reports(old, [ours({"vae": stage(0, 0, 0)}), *runs(10.0, 10.1)]).stages[0]
    assert (row.verdict, row.baseline_count, row.new_count) == ("unclear", 100, 100)


# ---- Many rows


def calls_of_a_run(source: random.Random, rows: int, count: int) -> dict[str, Any]:
    """Stages with times as calls have them: a log-normal body, and a few that take several times as long."""
    stages = {}
    for row in range(rows):
        times = [
            source.lognormvariate(row / 5, 0.2) * (source.uniform(2, 8) if source.random() < 0.03 else 1.0)
            for _ in range(count)
        ]
        spread = {"min_ms": min(times), "max_ms": max(times)}
        stages[f"s{row}"] = {**stage(count, statistics.fmean(times), statistics.pstdev(times)), **spread}
    return ours(stages, request_id=str(source.random()))


@pytest.mark.slow
def test_identical_runs_are_found_slower_by_chance_only_seldom() -> None:
    """200 comparisons of 15 rows: 5 are expected to say slower anywhere at most."""
    source = random.Random(11)
    verdicts = [
        compare_timing_reports(calls_of_a_run(source, 15, count), calls_of_a_run(source, 15, other)).exit_status
        for count, other in ((5, 5), (20, 20), (200, 200), (20, 200), (200, 20))
        for _ in range(40)
    ]
    assert verdicts.count(3) <= 10
    assert set(verdicts) <= {0, 3}


def test_one_row_of_many_is_found_slower() -> None:
    source = random.Random(12)
    for _ in range(5):
        old, new = calls_of_a_run(source, 15, 1000), calls_of_a_run(source, 15, 1000)
        slow = new["stages"]["s7"]
        for figure in ("duration_ms", "mean_ms", "min_ms", "max_ms", "std_ms"):
            slow[figure] *= 1.5
        assert compare_timing_reports(old, new).stages[7].verdict == "slower"


def test_what_most_rows_changed_by_is_no_row_s_own() -> None:
    """Two single runs differ by what a busier machine does to all rows, but by no more than twice the time."""

    def times(factor: float, **others: dict[str, Any]) -> dict[str, Any]:
        same = {f"s{row}": stage(100, 10 * factor, 0.1) for row in range(6)}
        return ours({**same, **others}, request_id=str(factor))

    found = compare_timing_reports(times(1.0, a=stage(100, 10, 0.1)), times(1.2, a=stage(100, 13, 0.1)))
    assert [row.verdict for row in found.stages] == ["unclear"] * 6 + ["slower"]
    assert found.total.verdict == "unclear"
    assert found.notes[-1] == (
        "Most rows changed by up to 20 %, as on a busier or less busy machine: only what changed by more is judged. "
        "Several runs a side (--baseline, --new of cprofiling compare) tell machine and program apart."
    )
    many = compare_timing_reports(times(1.0), times(3.0))
    assert {row.verdict for row in (*many.stages, many.total)} == {"slower"}
    several = compare_timing_reports([times(1.0), times(1.01)], [times(1.2), times(1.21)])
    assert {row.verdict for row in (*several.stages, several.total)} == {"slower"}
    few = compare_timing_reports(ours({"a": stage(100, 10, 0.1)}), ours({"a": stage(100, 12, 0.1)}, request_id="b"))
    assert (few.stages[0].verdict, few.notes) == ("unclear", (ONE_RUN,))
    enough = compare_timing_reports(ours({"a": stage(9, 10, 1)}), ours({"a": stage(9, 12, 1)}), min_change_pct=30)
    assert not any(note.startswith("Two runs") for note in enough.notes)  # what counts is no less than that


def test_the_more_rows_the_wider_the_intervals() -> None:
    old, new = stage(20, 10, 1), stage(20, 11.2, 1)
    rest = {f"s{number}": stage(20, 10, 1) for number in range(30)}
    some = {name: rest[name] for name in list(rest)[:4]}
    few = compare_timing_reports(ours({"vae": old, **some}), ours({"vae": new, **some})).stages[0]
    many = compare_timing_reports(ours({"vae": old, **rest}), ours({"vae": new, **rest}), confidence=0.95).stages[0]
    assert (few.verdict, many.verdict) == ("slower", "unclear")
    assert many.interval_ms == pytest.approx(
        cautious_interval(Sample(20, 10, 20 / 19), Sample(20, 11.2, 20 / 19), 1 - 0.05 / 32)
    )


@pytest.mark.parametrize(
    ("old", "new", "rows", "is_enough"),
    [
        (20, 1, 1, False), (1000, 1, 1, True), (999, 1, 1, False), (6, 6, 1, False), (7, 7, 1, True), (7, 7, 3, True),
        (7, 7, 4, False), (0, 50, 1, False), (10**12, 10**12, 65_536, True),
    ],
)  # fmt: skip
def test_how_many_samples_chance_cannot_part(old: int, new: int, rows: int, is_enough: bool) -> None:
    assert can_lie_apart(old, new, rows) is is_enough


# ---- A gate


def test_a_missing_stage_fails_a_gate_and_a_new_one_does_not() -> None:
    both, one = ours({"vae": stage(5, 1, 0), "dit": stage(5, 1, 0.1)}), ours({"vae": stage(5, 1, 0)})
    result = compare_timing_reports(both, one)
    assert [(row.name, row.verdict, row.is_missing) for row in result.stages] == [
        ("vae", "unclear", False),
        ("dit", "unknown", True),
    ]
    assert (result.has_regressed, result.exit_status) == (True, 3)
    assert "Missing in the new report: dit." in result.notes
    assert "**missing (not in the new report)**" in str(result)
    result = compare_timing_reports(one, both)
    assert [row.name for row in result.stages] == ["vae", "dit"]
    assert (result.has_regressed, result.exit_status) == (False, 0)
    assert "Without times in the baseline: dit." in result.notes
    failed = ours({"vae": stage(0, 0, 0, error_count=1)})
    result = compare_timing_reports(one, failed)
    assert (result.exit_status, result.stages[0].reason) == (3, "no completed call in the new report")
    assert "More calls failed than in the baseline: vae." in result.notes


def test_other_machines_and_other_numbers_of_ranks_are_said() -> None:
    vae = {"vae": stage(5, 1, 0.01)}
    other = ours(vae, process={"host": "the|re\n", "pid": 7, "id": "11"}, world_size=4)
    result = compare_timing_reports(ours(vae), other)
    assert result.notes == (
        "The reports are from different machines: here; the|re\\n.",
        "The reports are of different numbers of ranks: 1, 4.",
        ONE_RUN,
    )
    assert "- The reports are from different machines: here; the&#124;re&#92;n." in str(result)
    assert compare_timing_reports(ours(vae), ours(vae)).notes == ("A report is on both sides.", ONE_RUN)
    assert compare_timing_reports(ours(vae), ours(vae, request_id="req_2")).notes == (ONE_RUN,)
    assert compare_timing_reports(peers({"vae": 1.0}), ours(vae)).notes == ()


def test_noise_in_which_much_could_hide_is_said() -> None:
    noisy = {f"s{number}": stage(5, 10, 1.5) for number in range(12)}
    result = compare_timing_reports(ours(noisy), ours(noisy, request_id="req_2"))
    assert result.notes == (
        "Times spread so much that a change of 10 % could be hidden; more calls or runs tell more: "
        "s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 2 more.",
    )


# ---- Arguments


def test_wrong_arguments() -> None:
    report = peers({"vae": 1.0})
    for wrong in (None, 1, [None], object()):
        with pytest.raises(TypeError, match="baseline must be a path or a report as a dict, got "):
            compare_timing_reports(wrong, report)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="new must be a path or a report as a dict, got "):
            compare_timing_reports(report, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"baseline must have at least one report, got \[\]"):
        compare_timing_reports([], report)
    twice = ours({"vae": stage(5, 1, 0)})
    with pytest.raises(ValueError, match="new must not have a report twice: that of 'req_1'"):
        compare_timing_reports(report, (twice, peers({"vae": 1.0}), dict(twice)))
    with pytest.raises(cp.FormatError, match=r"^new: \$\.stages: it is missing"):
        compare_timing_reports(report, {})
    for pct, error in (
        (-1, ValueError),
        (math.nan, ValueError),
        (1e7, ValueError),
        (True, TypeError),
        ("2", TypeError),
    ):
        with pytest.raises(error, match="min_change_pct must be "):
            compare_timing_reports(report, report, min_change_pct=pct)  # type: ignore[arg-type]
    assert compare_timing_reports(report, report, min_change_pct=1e6).min_change_pct == 1e6
    for level in (0, 1, math.inf):
        with pytest.raises(ValueError, match=r"confidence must be from 1e-06 to 0\.999999"):
            compare_timing_reports(report, report, confidence=level)


def test_paths_and_dicts_can_be_mixed(tmp_path: Path) -> None:
    path = tmp_path / "timing.json"
    path.write_text(json.dumps(ours({"vae": stage(5, 10, 1)})))
    new = ours({"vae": stage(5, 20, 1)})
    for baseline in (path, str(path), str(path).encode()):
        assert compare_timing_reports(baseline, new).stages[0].verdict == "slower"


# ---- Presentations

NAMES = [
    "vae_decode",
    "a|b",
    "\\|",
    "`x`",
    "<script>",
    "a\nb",
    "",
    " ",
    "*x*",
    "&lt;",
    "@team #1",
    "\ud800",
    "🧑‍🚀",
    "](",
]


@pytest.fixture
def result() -> TimingComparison:
    old = {name: stage(5, 10, 0.1) for name in NAMES}
    new = ours({**old, "a|b": stage(5, 15, 0.1)}, request_id="req_2")
    return compare_timing_reports(ours(old), new)


def test_markdown_has_names_as_they_are_and_nothing_else(result: TimingComparison) -> None:
    lines = str(result).splitlines()
    assert lines[2] == f"**Slower than the baseline (stages: 1 slower, {len(NAMES) - 1} unclear)**"
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == len(NAMES) + 3
    assert {line.count("|") for line in table} == {9}
    assert table[0] == (
        "| Stage | Calls | Baseline (ms) | New (ms) | Difference (ms) | Change | 95 % interval (ms) | Verdict |"
    )
    assert table[2].startswith("| `vae_decode` | 5 / 5 | 10.000 | 10.000 | +0.000 | +0.0 % | -0.")
    assert table[3].startswith("| <code>a&#124;b</code> | 5 / 5 | 10.000 | 15.000 | +5.000 | +50.0 % | ")
    assert table[3].endswith(" | **slower** |")
    assert table[-1].startswith("| **Total** |  | 700.000 | 725.000 | +25.000 | +3.6 % | +")
    shown = [line.split(" | ")[0].removeprefix("| ") for line in table[2:-1]]
    for name, cell in zip(NAMES, shown, strict=True):
        text = cell.strip("`") if cell.startswith("`") else "".join(Markup(cell).texts)
        assert text == name.replace("\n", "\\n").replace("\ud800", "\\ud800")
        assert set(Markup(cell).tags) <= {"code"}
    str(result).encode()
    notebook = Markup(result._repr_html_())
    assert {"table", "td"} <= set(notebook.tags)
    assert "script" not in notebook.tags
    assert "<script>" in "".join(notebook.texts)


def test_text_for_terminals(result: TimingComparison) -> None:
    lines = result.to_text().splitlines()
    assert lines[0] == f"Slower than the baseline (stages: 1 slower, {len(NAMES) - 1} unclear)"
    assert lines[2].split("  ")[0] == "Stage"
    assert lines[3] == lines[-4] == "-" * len(lines[3])
    assert lines[4].startswith("vae_decode  5 / 5")
    assert lines[5].startswith("a|b         5 / 5")
    assert lines[5].endswith("+5.000  +50.0 %    +4.709 to +5.291  slower")
    assert lines[-3].startswith("Total")
    assert lines[-1].startswith("Times are means per call")
    assert all(line == line.rstrip() for line in lines)


def test_small_times_keep_their_digits() -> None:
    result = compare_timing_reports(ours({"vae": stage(5, 0.00123, 0)}), ours({"vae": stage(5, 0.00246, 0)}))
    assert "| 0.00123 | 0.00246 | +0.00123 | +100.0 % | +0.000861 to +0.0016 | **slower** |" in str(result)


def test_json_has_all_of_it(result: TimingComparison) -> None:
    told = json.loads(result.to_json())
    assert [row["name"] for row in told["stages"]] == NAMES
    assert told["stages"][1]["verdict"] == "slower"
    assert told["total"]["name"] == "Total"
    assert (told["has_regressed"], told["exit_status"], told["confidence"]) == (True, 3, 0.95)


# ---- The command


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    paths = tmp_path / "old.json", tmp_path / "new.json"
    for path, mean_ms in zip(paths, (10, 15), strict=True):
        path.write_text(json.dumps(ours({"vae": stage(5, mean_ms, 0.1)}, request_id=path.name)))
    return str(paths[0]), str(paths[1])


def test_the_command_is_a_gate(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    old, new = files
    assert main.main(["compare", old, new]) == 3
    assert "slower" in capsys.readouterr().out
    assert main.main(["compare", new, old]) == 0
    assert main.main(["compare", old, old, "--min-change", "0"]) == 0
    assert main.main(["compare", "--min-change", "60", old, new]) == 0
    assert capsys.readouterr().err == ""
    assert main.main(["compare", old, new, "--baseline", new]) == 0
    assert "2 and 1 runs" in capsys.readouterr().out
    assert main.main(["compare", old, new, "--new", old, "--new", old]) == 1
    assert "new must not have a report twice" in capsys.readouterr().err
    assert capsys.readouterr().err == ""


def test_formats_of_the_command(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    result = compare_timing_reports(*files)
    for name, text in (("md", str(result)), ("json", result.to_json()), ("text", result.to_text())):
        assert main.main(["compare", *files, "--format", name]) == 3
        assert capsys.readouterr().out == f"{text}\n"


def test_failures_of_the_command(tmp_path: Path, files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "bro\nken.json"
    broken.write_text('{"stages": {"a": {"duration_ms": -1}}}')
    for path, complaint in (
        (str(broken), "bro\\nken.json: $.stages.a.duration_ms: must be a number"),
        (str(tmp_path / "nothing.json"), "No such file or directory"),
    ):
        assert main.main(["compare", path, files[1]]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert complaint in printed.err
        assert printed.err.count("\n") == 1


def statistics_file(path: Path, *times_ms: float) -> str:
    path.write_bytes(profiler_with({("train", "load"): list(times_ms)}).snapshot().to_bytes())
    return str(path)


def trace_file(path: Path, nap_s: float) -> str:
    with cp.profile() as recorded:
        for _ in range(10):
            with cp.record("load"):
                time.sleep(nap_s)
    recorded.export_chrome_trace(path)
    return str(path)


def test_one_command_compares_statistics_and_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fast, slow = [1.0, 1.1] * 10, [2.0, 2.1] * 10
    for old, new in (
        (statistics_file(tmp_path / "a.cprof", *fast), statistics_file(tmp_path / "b.cprof", *slow)),
        (trace_file(tmp_path / "a.json", 0.001), trace_file(tmp_path / "b.json.gz", 0.03)),
    ):
        assert main.main(["compare", old, new]) == main.main(["report", new, "--against", old]) == 3
        assert capsys.readouterr().out.count("Slower than the baseline (nodes: 1 slower)") == 2
        assert main.main(["compare", new, old]) == main.main(["report", old, "--against", new]) == 0
        assert main.main(["report", new, "--against", old, "-o", str(tmp_path / "page.md")]) == 3
        capsys.readouterr()
    again = [statistics_file(tmp_path / f"{place}.cprof", *(each + place / 9 for each in fast)) for place in range(4)]
    assert main.main(["compare", again[0], again[1], "--baseline", again[2], "--new", again[3]]) == 0
    assert "2 and 2 runs" in capsys.readouterr().out
    assert main.main(["compare", again[0], again[1], "--new", again[1]]) == 1
    assert "new must not have a report twice: that of '" in capsys.readouterr().err
    few = statistics_file(tmp_path / "few.cprof", 5.0)
    assert main.main(["compare", few, again[0]]) == main.main(["report", again[0], "--against", few]) == 1
    assert capsys.readouterr().err.count("cprofiling: no row can be judged") == 2


def test_files_that_cannot_be_compared(
    tmp_path: Path, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    counts, report = statistics_file(tmp_path / "a.cprof", 1.0), tmp_path / "r.json"
    report.write_text(cp.Profiler().snapshot().to_json())
    assert main.main(["compare", counts, files[0]]) == 1
    told = "what is compared must be of one kind, got statistics with timing"
    assert capsys.readouterr().err == f"cprofiling: {told}\n"
    for given in ([str(report), files[1]], [files[0], str(report)]):
        assert main.main(["compare", *given]) == 1
        assert capsys.readouterr().err.startswith(f"cprofiling: {report}: it is a report already, of -r json or save()")
    assert main.main(["compare", files[0], str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"cprofiling: cannot read {tmp_path}: Is a directory\n"


def test_a_gate_does_not_pass_what_it_cannot_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One call each, of which nobody knows the spread, and no stage in common (I12)."""
    paths = [tmp_path / name for name in ("old", "new", "empty")]
    for path, stages in zip(paths, ({"a": stage(1, 1.0, 0)}, {"a": stage(1, 9.0, 0)}, {}), strict=True):
        path.write_text(json.dumps(ours(stages, process={"host": "here", "pid": 7, "id": path.name})))
    old, new, empty = map(str, paths)
    for pair in ((old, new), (empty, new), (empty, empty)):
        assert main.main(["compare", *pair]) == 1
        printed = capsys.readouterr()
        assert "No verdict" in printed.out
        assert "no row can be judged" in printed.err


@pytest.mark.parametrize(
    "options", [["--min-change", "x"], ["--min-change", "-1"], ["--min-change", "nan"], ["--format", "x"]]
)
def test_wrong_arguments_of_the_command(
    options: list[str], files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main(["compare", *files, *options])
    assert exit_.value.code == 2
    assert options[1] in capsys.readouterr().err
