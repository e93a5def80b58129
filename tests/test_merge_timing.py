"""``cprofiling merge`` of timing reports: a stage lasts as long as on its slowest rank (D14, I9, I12)."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from cprofiling import FormatError, cli
from cprofiling.stages import merge_timing
from cprofiling.stages.merge import merge_files
from cprofiling.stages.merge_timing import merge_reports, read_report

MEMORY = {"allocated_mb": 10.0, "reserved_mb": 20.0, "peak_allocated_mb": 2048.0, "peak_reserved_mb": 3000.0}


def stage(count: int, *times: float, **more: Any) -> dict[str, Any]:
    mean = sum(times) / count
    std = (sum((time - mean) ** 2 for time in times) / count) ** 0.5
    figures = {"count": count, "duration_ms": sum(times), "mean_ms": mean, "min_ms": min(times), "max_ms": max(times)}
    return {**figures, "std_ms": std, "percentage": 100.0, **more}


def report(rank: int, stages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema_version": 1, "request_id": "r", "timestamp": f"2026-01-01T00:00:0{rank}+00:00",
        "wall_clock_ms": 100.0 + rank, "total_stages_ms": 1.0, "num_stages": len(stages), "stages": stages,
        "metadata": {"model": "m", "rank": rank}, "rank": rank, "world_size": 3,
        "process": {"host": "h", "pid": 7, "id": f"id{rank}"}, **more,
    }  # fmt: skip


def write(folder: Path, name: str, content: Any) -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.fixture
def three(tmp_path: Path) -> list[str]:
    contents = [
        report(0, {"encode": stage(2, 1.0, 3.0), "decode": stage(1, 5.0, memory=MEMORY, error_count=1)}),
        report(1, {"encode": stage(2, 10.0, 20.0, memory=MEMORY), "decode": stage(1, 4.0, error_count=2)}),
        report(2, {"extra": stage(1, 0.5), "encode": stage(1, 2.0)}, memory={"peak_reserved_mb": 7.0}),
    ]
    return [write(tmp_path, f"t{rank}.json", content) for rank, content in enumerate(contents)]


def test_any_order_gives_the_same_report(three: list[str], tmp_path: Path) -> None:
    out = tmp_path / "merged.json"
    results = set()
    for order in itertools.permutations(three):
        outcome = merge_files(order, out)
        assert outcome.complaints == ()
        results.add((outcome.text, out.read_text()))
    assert len(results) == 1
    assert "Merged: timing reports of 3 ranks, written to" in outcome.text
    assert "│ encode ┆ 3     ┆ 2     ┆ 30.000" in outcome.text
    assert "Stragglers: 1 (1 node, 26.0 ms beyond the median)." in outcome.text


def test_a_stage_lasts_as_long_as_on_its_slowest_rank(three: list[str]) -> None:
    merged = merge_reports(map(read_report, three)).report
    assert merged is not None
    assert list(merged["stages"]) == ["encode", "extra", "decode"]
    encode = merged["stages"]["encode"]
    parallel = encode.pop("parallel_info")
    assert encode == {
        "count": 2, "duration_ms": 30.0, "mean_ms": 15.0, "std_ms": 5.0, "min_ms": 1.0, "max_ms": 20.0,
        "memory": MEMORY, "percentage": pytest.approx(100 * 30 / 35.5),
    }  # fmt: skip
    assert parallel["num_ranks"] == 3
    assert [rank["rank"] for rank in parallel["ranks"]] == [0, 1, 2]
    assert parallel["ranks"][1] == {
        "rank": 1, "count": 2, "duration_ms": 30.0, "mean_ms": 15.0, "min_ms": 10.0, "max_ms": 20.0, "std_ms": 5.0,
        "peak_memory_gb": 2.0,
    }  # fmt: skip
    assert merged["stages"]["decode"]["error_count"] == 3
    assert {key: merged[key] for key in merged if key != "stages"} == {
        "schema_version": 1, "request_id": "r", "timestamp": "2026-01-01T00:00:02+00:00", "wall_clock_ms": 102.0,
        "total_stages_ms": 35.5, "num_stages": 3, "metadata": {"model": "m"}, "rank": 0, "world_size": 3,
        "processes": [{"host": "h", "pid": 7, "id": f"id{rank}", "rank": rank} for rank in range(3)],
        "memory": {"peak_reserved_mb": 7.0, "snapshots": {}},
    }  # fmt: skip


def test_a_merged_report_merges_again_and_nothing_counts_twice(three: list[str], tmp_path: Path) -> None:
    out = tmp_path / "ab.json"
    merge_files(three[:2], out)
    merge_files([out, three[2]], tmp_path / "all.json")
    merge_files(three, tmp_path / "at_once.json")
    assert json.loads((tmp_path / "all.json").read_text()) == json.loads((tmp_path / "at_once.json").read_text())
    outcome = merge_files([out, *three], tmp_path / "again.json")
    assert [line.partition(" is not")[0] for line in outcome.complaints] == three[:2]
    assert all(f"of the same process and request as {out}" in line for line in outcome.complaints)
    assert (tmp_path / "again.json").read_text() == (tmp_path / "all.json").read_text()


def test_processes_of_one_rank_add_up(tmp_path: Path) -> None:
    a = report(0, {"s": stage(2, 1.0, 3.0, error_count=1, memory=MEMORY), "u": {"duration_ms": 1.0}})
    b = report(0, {"s": stage(1, 8.0, memory={"peak_allocated_mb": 4096.0}), "u": {"duration_ms": 2.0}})
    b["process"]["id"] = "another"
    paths = [write(tmp_path, name, each) for name, each in (("a", a), ("b", b))]
    merged = merge_reports(map(read_report, paths))
    assert merged.report is not None
    assert merged.labels == ("0",)
    together = merged.report["stages"]["s"]
    (rank,) = together.pop("parallel_info")["ranks"]
    expected = stage(3, 1.0, 3.0, 8.0)
    for key in ("count", "duration_ms", "mean_ms", "min_ms", "max_ms", "std_ms"):
        assert together[key] == rank[key] == pytest.approx(expected[key])
    assert rank["peak_memory_gb"] == 4.0
    assert together["memory"] == {**MEMORY, "peak_allocated_mb": 4096.0}
    assert "error_count" not in together, "only one of them knows"
    assert merged.report["stages"]["u"]["duration_ms"] == 3.0
    assert "count" not in merged.report["stages"]["u"]


def test_reports_of_telefuser_are_merged_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They have neither rank nor process."""
    foreign = {
        "request_id": "a",
        "stages": {"s": {"duration_ms": 2.0, "memory": None}},
        "memory": {"peak_reserved_mb": "?"},
    }
    one = write(tmp_path, "x_rank1.json", foreign)
    two = write(tmp_path, "y.json", {**foreign, "request_id": "b", "stages": {"s": {"duration_ms": 3.0}}})
    same = write(tmp_path, "z_rank3.json", copy.deepcopy(foreign))
    merged = merge_reports(map(read_report, (same, two, one)))
    assert merged.report is not None
    assert merged.labels == ("1", two)
    assert list(merged.refused) == [same]
    assert [rank["rank"] for rank in merged.report["stages"]["s"]["parallel_info"]["ranks"]] == [1, 2]
    assert (merged.report["request_id"], merged.report["processes"]) == ("merged", [])
    assert merged.world_size is None
    empty = write(tmp_path, "e.json", {"stages": {}})
    assert merge_reports([read_report(empty)]).labels == (empty,)
    zero = write(tmp_path, "n.json", {"stages": {"s": {"duration_ms": 0}}})
    nothing = merge_reports([read_report(zero)]).report
    assert nothing is not None
    assert nothing["stages"]["s"]["percentage"] == 0.0
    assert cli.main(["merge", one, two, "--expect", "2"]) == 0
    assert capsys.readouterr().err == ""
    assert merge_reports([]).report is None


GOOD = {"s": {"duration_ms": 1.0}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it is no JSON"),
        ("{", "it is no JSON"),
        ("\x00", "it is no JSON"),
        ('{"stages": {"s": {"duration_ms": NaN}}}', "there is no NaN in JSON"),
        ('{"a":' * 100_000, "nested too deeply|no JSON"),
        ([], "no object of stages"),
        ({"stages": []}, "no object of stages"),
        ({"stages": GOOD, "schema_version": 2}, "schema version 2 .*expected 1"),
        ({"stages": GOOD, "rank": -1}, "rank must be an integer from 0"),
        ({"stages": GOOD, "world_size": True}, "world_size must be an integer"),
        ({"stages": GOOD, "processes": {}}, "processes must be a list"),
        ({"stages": GOOD, "metadata": 3}, "metadata an object"),
        ({"stages": {"s": 3}}, "stage 's' .*must be an object"),
        ({"stages": {"s": {}}}, "duration_ms must be a number"),
        ({"stages": {"s": {"duration_ms": -1}}}, "duration_ms must be a number from 0"),
        ({"stages": {"s": {"duration_ms": 10**400}}}, "duration_ms must be a number|no JSON"),
        ({"stages": {"s": {"duration_ms": 1, "count": 1.5}}}, "count must be an integer"),
        ({"stages": {"s": {"duration_ms": 1, "mean_ms": "1"}}}, "mean_ms must be a number"),
        ({"stages": {"s": {"duration_ms": 1, "memory": []}}}, "memory must be an object"),
        ({"stages": {"s": {"duration_ms": 1, "memory": {"allocated_mb": "x"}}}}, "allocated_mb must be a number"),
        ({"stages": {"s": {"duration_ms": 1, "parallel_info": []}}}, "must have a list of ranks"),
        ({"stages": {"s": {"duration_ms": 1, "parallel_info": {}}}}, "must have a list of ranks"),
        ({"stages": {"s": {"duration_ms": 1, "parallel_info": {"ranks": [3]}}}}, "each of the ranks"),
        ({"stages": {"s": {"duration_ms": 1, "parallel_info": {"ranks": [{}]}}}}, "rank must be an integer"),
        ({"stages": {"s": {"duration_ms": 1, "parallel_info": {"ranks": [{"rank": 0}]}}}}, "of a rank must be"),
    ],
)
def test_what_is_no_timing_report_is_named(content: Any, message: str, three: list[str], tmp_path: Path) -> None:
    bad = write(tmp_path, "bad.json", content)
    with pytest.raises(FormatError, match=message):
        read_report(bad)
    outcome = merge_files([*three, bad])
    assert len(outcome.complaints) == 1
    assert outcome.complaints[0].startswith(f"{bad} is not merged: ")
    assert "timing reports of 3 ranks" in outcome.text


def test_a_report_of_gigabytes_is_none(three: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_timing, "_MOST_BYTES", 50)
    with pytest.raises(FormatError, match="more than 50 bytes"):
        read_report(three[0])
