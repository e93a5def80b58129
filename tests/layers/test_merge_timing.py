"""``cprofiling merge`` of timing reports: a stage lasts as long as on its slowest rank (D14, I9, I12)."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from cprofiling.commands import main
from cprofiling.layers.ranks.merge import merge_files
from cprofiling.layers.ranks.merge_timing import merge_reports, read_report

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
        "memory": MEMORY, "percentage": 84.51,
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
        "processes": [{"host": "h", "pid": 7, "id": f"id{rank}", "rank": rank, "request_id": "r"} for rank in range(3)],
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
    a = report(0, {"s": stage(2, 1.0, 3.0, error_count=1, memory=MEMORY)})
    b = report(0, {"s": stage(1, 8.0, memory={"peak_allocated_mb": 4096.0})})
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
    assert together["error_count"] == 1, "what is not said of the other is none"


def test_reports_of_telefuser_are_merged_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They have neither rank nor process."""

    def told(name: str, **stages: Any) -> str:
        durations = {stage: {"duration_ms": time_ms} for stage, time_ms in stages.items()}
        return write(tmp_path, name, {"request_id": name[0], "stages": durations})

    one, two, same, again = told("x_rank1", s=2.0), told("y", s=3.0), told("x_rank3", s=2.0), told("y_rank1", s=5.0)
    merged = merge_reports(map(read_report, (same, two, one)))
    assert merged.report is not None
    assert (merged.labels, list(merged.refused), merged.world_size) == (("1", two), [same], None)
    assert [rank["rank"] for rank in merged.report["stages"]["s"]["parallel_info"]["ranks"]] == [1, 2]
    assert (merged.report["request_id"], merged.report["processes"]) == ("merged", [])
    added = merge_reports(map(read_report, (one, again))).report
    assert added is not None
    assert (added["stages"]["s"]["duration_ms"], "count" in added["stages"]["s"]) == (7.0, False)
    empty = told("e")
    assert merge_reports([read_report(empty)]).labels == (empty,)
    nothing = merge_reports([read_report(told("n", s=0.0))]).report
    assert nothing is not None
    assert nothing["stages"]["s"]["percentage"] == 0.0
    assert main.main(["merge", one, two, "--expect", "2"]) == 0
    assert capsys.readouterr().err == ""
    assert merge_reports([]).report is None


def test_what_is_no_timing_report_is_named(three: list[str], tmp_path: Path) -> None:
    bad = write(tmp_path, "b\nd.json", '{"stages": {"s": {"duration_ms": 1, "cancelled_count": -1}}}')
    (complaint,) = merge_files([*three, bad]).complaints
    assert complaint.startswith(f"{tmp_path}/b\\nd.json is not merged: $.stages.s.cancelled_count: must be a whole")


def test_data_of_a_merged_report_are_known_by_their_requests(tmp_path: Path) -> None:
    one = write(tmp_path, "a", report(0, {"s": stage(1, 1.0)}))
    two = write(tmp_path, "b", report(1, {"s": stage(1, 2.0)}, request_id="another"))
    merge_files([one, two], tmp_path / "merged")
    merged = merge_reports(map(read_report, (one, two, str(tmp_path / "merged"))))
    assert list(merged.refused) == [one, two]


def test_one_rank_on_several_machines_is_said(tmp_path: Path) -> None:
    paths = [
        write(tmp_path, host, report(0, {"s": stage(1, 1.0)}, process={"host": host, "pid": 7, "id": host}))
        for host in "ba"
    ]
    line = "Rank 0 is of several machines, and adds up: a, b"
    merge_files(paths, tmp_path / "merged")
    assert line in merge_files([tmp_path / "merged"]).text


def test_a_process_without_a_call_tells_no_times(tmp_path: Path) -> None:
    failed = {**stage(1, 0.0), "count": 0, "error_count": 2}
    a = report(0, {"s": failed, "t": failed})
    b = report(0, {"s": stage(2, 1.0, 3.0), "t": failed}, process={"host": "h", "pid": 8, "id": "another"})
    c = report(1, {"s": failed})
    paths = [write(tmp_path, name, each) for name, each in (("a", a), ("b", b), ("c", c))]
    merged = merge_reports(map(read_report, paths)).report
    assert merged is not None
    s, t = merged["stages"]["s"], merged["stages"]["t"]
    expected = stage(2, 1.0, 3.0, error_count=4, percentage=100.0)
    assert {key: s[key] for key in expected} == expected
    assert [rank["error_count"] for rank in s["parallel_info"]["ranks"]] == [2, 2]
    assert (t["count"], t["error_count"], t.keys() & {"mean_ms", "min_ms", "max_ms", "std_ms"}) == (0, 4, set())


def test_faults_of_a_stage_over_workers_are_not_lost(tmp_path: Path) -> None:
    """Such a stage tells its faults, and its ranks do not."""
    ranks = [{"rank": rank, "duration_ms": 1.0, "count": 1} for rank in range(2)]
    parallel = {"num_ranks": 2, "ranks": ranks}
    path = write(
        tmp_path, "a", report(0, {"s": stage(1, 1.0, error_count=2, cancelled_count=1, parallel_info=parallel)})
    )
    merge_files([path], tmp_path / "once")
    merge_files([tmp_path / "once"], tmp_path / "twice")
    for name in ("once", "twice"):
        merged = json.loads((tmp_path / name).read_text())["stages"]["s"]
        assert (merged["error_count"], merged["cancelled_count"]) == (2, 1)
