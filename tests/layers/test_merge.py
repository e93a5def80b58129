"""``cprofiling merge`` of statistics, the record of a rank, and how ranks are compared (D13, D14, E10, I9)."""

from __future__ import annotations

import itertools
import os
import sys
import types
import zlib
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on
from cprofiling import FormatError, Snapshot
from cprofiling._internal import process
from cprofiling.commands import main
from cprofiling.integrations.torch_distributed import write_rank_snapshot
from cprofiling.layers.ranks import merge_statistics
from cprofiling.layers.ranks.merge import MergeError, merge_files
from cprofiling.layers.ranks.merge_statistics import merge_parts, part_of_file, part_of_snapshot
from cprofiling.layers.ranks.skew import Skew, SkewBuilder
from cprofiling.monitoring import live_writer
from cprofiling.nodes import live_file as live_files
from cprofiling.nodes import rank_snapshot
from cprofiling.nodes.rank_snapshot import RankedSnapshot, rank_of_name, take

Values = dict[str, list[float]]


def counted(values: Values, stage: str = "train") -> cp.Profiler:
    profiler = profiler_on()
    for node, samples in values.items():
        for sample in samples:
            profiler.record(stage, node, sample)
    return profiler


def snapshot_of(values: Values) -> Snapshot:
    return counted(values).snapshot()


def ranked(rank: int | None, values: Values, world_size: int | None = None) -> RankedSnapshot:
    return RankedSnapshot(snapshot_of(values), rank, world_size, "host", 7)


def written(folder: Path, rank: int, values: Values, world_size: int | None = None) -> Path:
    path = folder / f"statistics_rank{rank}_x.cprof"
    path.write_bytes(ranked(rank, values, world_size).to_bytes())
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, list[str]]:
    status = main.main(["merge", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, [line.removeprefix("cprofiling: ") for line in printed.err.splitlines()]


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    values: list[Values] = [{"a": [1.0, 2.0], "b": [5.5]}, {"a": [3.25]}, {"a": [40.0], "c": [0.125, 0.5]}]
    return [written(tmp_path, rank, each) for rank, each in enumerate(values)]


# ---- Live files


def live_file(path: Path, values: Values) -> Path:
    profiler = counted(values)
    profiler.set_profiling(True, live=path)
    profiler.set_profiling(False)
    return path


def test_live_files_are_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [live_file(tmp_path / f"live_{pid}.cprof", {"a": [1.0, 2.0]}) for pid in (7, 8)]
    stored = written(tmp_path, 2, {"a": [4.0]})
    status, printed, complaints = run(capsys, *paths, stored, "-o", tmp_path / "all.cprof")
    assert (status, complaints) == (0, [])
    assert "Merged: statistics of 3 ranks" in printed
    assert [row.count for row in Snapshot.from_bytes((tmp_path / "all.cprof").read_bytes()).stats()] == [5]
    _, _, complaints = run(capsys, tmp_path / "all.cprof", paths[0])
    assert complaints == [
        f"{paths[0]} is not merged: it has data of the same Profiler as {tmp_path / 'all.cprof'}, "
        "and is not counted again"
    ]


def test_live_files_while_they_are_written_of_ranks_and_of_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler = profiler_on(live=tmp_path / "live_rank1.cprof")
    part = part_of_file(str(live_file(tmp_path / "live_rank0.cprof", {"a": [1.0]})))
    assert (part.label, part.load().stats()[0].count) == ("0", 1)
    (tmp_path / "cut.cprof").write_bytes((tmp_path / "live_rank0.cprof").read_bytes()[:5000])
    nobody = live_writer._opened(str(tmp_path / "nobody.cprof"), print)
    live_writer.commit()
    status, printed, complaints = run(capsys, *tmp_path.iterdir())
    nobody.close()
    profiler.set_profiling(False)
    assert status == 1
    assert "Merged: statistics of 2 ranks" in printed
    assert complaints == [
        f"{tmp_path / 'cut.cprof'} is not merged: cut or changed bytes: wrong checksum of its statistics",
        f"{tmp_path / 'nobody.cprof'} is not merged: there are no statistics in it yet",
    ]


def test_what_a_killed_process_lost_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "live.cprof"
    profiler = profiler_on(live=path)
    profiler.record("train", "a", 1.0)
    live_writer.commit()
    monkeypatch.setattr(live_files.Head, "is_alive", lambda _: False)
    status, printed, _ = run(capsys, path)
    profiler.set_profiling(False)
    assert status == 0
    assert f"\n{path}: the process was killed, or ended without its interpreter" in printed


# ---- The record of a rank


def test_a_record_travels_with_the_snapshot() -> None:
    for taken in (ranked(3, {"a": [1.0]}, 8), RankedSnapshot(snapshot_of({"a": [1.0]}), host="h" * 255)):
        assert RankedSnapshot.from_bytes(taken.to_bytes()) == taken
    assert ranked(3, {}).label == "3"
    assert ranked(None, {}).label == "host:7"
    assert RankedSnapshot(snapshot_of({})).label == ""
    plain = snapshot_of({"a": [1.0]})
    assert RankedSnapshot.from_bytes(plain.to_bytes()) == RankedSnapshot(plain)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"snapshot": b""}, TypeError, "snapshot must be a Snapshot"),
        ({"rank": -1}, ValueError, "rank must be from 0 to 2147483647, got -1"),
        ({"rank": 4, "world_size": 4}, ValueError, "rank must be from 0 to 3, got 4"),
        ({"rank": True}, TypeError, "rank must be an integer"),
        ({"world_size": 0}, ValueError, "world_size must be from 1"),
        ({"host": 3}, TypeError, "host must be a str"),
        ({"host": "h" * 256}, TypeError, "at most 255 characters"),
        ({"pid": -1}, ValueError, "pid must be >= 0"),
        ({"pid": "1"}, TypeError, "pid must be an integer or None"),
    ],
)
def test_a_record_is_checked(values: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RankedSnapshot(**{"snapshot": snapshot_of({}), **values})


def test_every_cut_and_every_changed_bit_of_a_record_shows() -> None:
    data = RankedSnapshot(snapshot_of({"a": [1.0]}), 1, 2).to_bytes()
    for end in range(len(data)):
        with pytest.raises(FormatError):
            RankedSnapshot.from_bytes(data[:end])
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(FormatError):
            RankedSnapshot.from_bytes(bytes(changed))


def sealed(record: bytes, rest: bytes | None = None, version: int = 1) -> bytes:
    data = rank_snapshot.MAGIC + version.to_bytes(4, "little") + len(record).to_bytes(4, "little") + record
    data += snapshot_of({"a": [1.0]}).to_bytes() if rest is None else rest
    return data + zlib.crc32(data).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no bytes"),
        (b"hello", "begin with"),
        (sealed(b"{}", version=2), "version 2, expected 1"),
        (sealed(b"{}", b"CPROFSNP"), "damaged"),
        (sealed(b"[]"), "must be an object of rank"),
        (sealed(b"{"), "damaged"),
        (sealed(b"[" * 100_000), "nested too deeply|damaged"),
        (sealed(b'{"rank": NaN}'), "rank must be an integer"),
        (sealed(b'{"color": 1}'), "must be an object of rank"),
        (sealed(b'{"rank": 5, "world_size": 2}'), "rank must be from 0 to 1"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        RankedSnapshot.from_bytes(data)
    assert RankedSnapshot.from_bytes(sealed(b"{}")).rank is None


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("statistics_rank3_77.cprof", 3), ("/rank7/x.cprof", None), ("rank12", 12), ("a.rank0.bin", 0),
        ("rank1_rank2.cprof", 2), ("crank3.cprof", None), ("rank3a", None), ("rank1234567890", None),
        ("frank.cprof", None),
    ],
)  # fmt: skip
def test_names_of_files_tell_ranks(name: str, rank: int | None) -> None:
    assert rank_of_name(name) == rank


@pytest.mark.parametrize(
    ("rank", "world_size", "group", "known", "ranks"),
    [
        (None, None, None, (None, None), (0, 1)),
        ("none", None, None, (None, None), (0, 1)),
        ("1" * 19, None, None, (None, None), (0, 1)),
        ("2", None, None, (2, None), (2, 1)),
        ("2", "4", None, (2, 4), (2, 4)),
        ("2", "4", False, (2, 4), (2, 4)),
        ("2", "4", True, (5, 6), (5, 6)),
    ],
)
def test_where_a_rank_is_known_from(
    rank: str | None,
    world_size: str | None,
    group: bool | None,
    known: Any,
    ranks: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", world_size)):
        monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name, raising=False)
    torch = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: group, get_rank=lambda: 5, get_world_size=lambda: 6
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", torch if group is not None else object())
    taken = take(profiler_on())
    assert (taken.rank, taken.world_size) == known
    assert (process.rank(), process.world_size()) == ranks


def test_a_rank_writes_its_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    profiler, other = counted({"a": [1.0]}), counted({"a": [1.0]})
    folder = tmp_path / "out" / "deep"
    path, beside = (Path(write_rank_snapshot(each, folder, "../ev/il")) for each in (profiler, other))
    assert path.parent == beside.parent == folder
    assert path.name.startswith("..%2Fev%2Fil_rank2_")
    assert path != beside, "two processes have two names (D13)"
    assert (path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    profiler.record("train", "a", 2.0)
    assert write_rank_snapshot(profiler, folder, "../ev/il") == str(path)
    taken = RankedSnapshot.from_bytes(path.read_bytes())
    assert (taken.rank, taken.world_size, taken.pid) == (2, 4, os.getpid())
    assert taken.host
    assert taken.snapshot.stats()[0].count == 2
    monkeypatch.delenv("RANK")
    assert "rank" not in Path(write_rank_snapshot(profiler, folder)).name


def test_a_pipeline_is_taken_as_its_profiler() -> None:
    pipeline = type("Pipeline", (cp.PipelineProfiling,), {})()
    pipeline.set_profiling(True)
    pipeline.profiler.record("train", "a", 1.0)
    assert [stats.node_name for stats in take(pipeline).snapshot.stats()] == ["a"]


# ---- Merging


def test_any_order_of_the_files_gives_the_same_bytes(three: list[Path], tmp_path: Path) -> None:
    results = set()
    for order in itertools.permutations(three):
        outcome = merge_files(order, tmp_path / "merged")
        assert outcome.complaints == ()
        results.add((outcome.text, (tmp_path / "merged").read_bytes()))
    assert len(results) == 1
    merged = Snapshot.from_bytes((tmp_path / "merged").read_bytes())
    assert {stats.node_name: (stats.count, stats.total_ms) for stats in merged.stats()} == {
        "a": (4, 46.25), "b": (1, 5.5), "c": (2, 0.625),
    }  # fmt: skip
    parts = [RankedSnapshot.from_bytes(path.read_bytes()).snapshot for path in three]
    assert Snapshot.merge(parts) == merged


def test_what_the_command_prints(three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, errors = run(capsys, *three, "-o", tmp_path / "all\n.cprof")
    assert (status, errors) == (0, [])
    first, blank, second = out.splitlines()[:3]
    assert (first, blank, second) == (
        f"Merged: statistics of 3 ranks, written to {tmp_path}/all\\n.cprof", "", "Profiling Summary",
    )  # fmt: skip
    assert "the statistics are merged: last_ms is that of the snapshot taken last" in out
    skew = out[out.index("\nRanks\n") :]
    rows = [line.strip("│").split("┆") for line in skew.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["Node", "Stage", "Ranks", "Slowest", "Total (ms)", "Median (ms)", "Ratio", "Straggler"],
        ["a", "train", "3", "2", "40.000", "3.250", "12.31", "2"],
        ["b", "train", "1", "0", "5.500", "5.500", "1.00", "-"],
        ["c", "train", "1", "2", "0.625", "0.625", "1.00", "-"],
    ]
    assert "Stragglers: 2 (1 node, 36.8 ms beyond the median).\n" in skew
    assert "at least 1.2 times the median" in skew
    status, out, errors = run(capsys, tmp_path / "all\n.cprof")
    assert (status, errors) == (0, [])
    assert out.startswith("Merged: statistics of 1 rank\n")


def test_one_bad_file_does_not_lose_the_others(
    three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Truncated, changed, empty, of another version or kind, missing, twice: named; the others merge (D14, I9)."""
    good = three[0].read_bytes()
    bad = {
        "cut": good[:-20], "empty": b"", "other": b"hello", "report": b'{"stages": {"a": {"duration_ms": 1}}}',
        "version": good[:8] + b"\x09" + good[9:], "flip": good[:-30] + bytes([good[-30] ^ 1]) + good[-29:],
        "plain": b"CPROFSNP" + bytes(30), "rank9.cprof": good, "trace": b'{"traceEvents": []}',
    }  # fmt: skip
    for name, data in bad.items():
        (tmp_path / name).write_bytes(data)
    os.mkfifo(tmp_path / "pipe")
    given = [*three, *(tmp_path / name for name in bad), tmp_path / "pipe", tmp_path / "nowhere", tmp_path, three[1]]
    status, out, errors = run(capsys, *given, "-o", tmp_path / "merged")
    assert status == 1
    reasons = {Path(line.split(" is not merged: ")[0]).name: line.split(" is not merged: ")[1] for line in errors}
    assert set(reasons) == {*bad, "pipe", "nowhere", tmp_path.name, three[1].name} - {"rank9.cprof"} | {
        three[0].name if "rank9.cprof" not in reasons else "rank9.cprof"
    }
    for name, words in {
        "cut": "checksum", "empty": "it is empty", "other": "it holds neither", "version": "version 9, expected 1",
        "report": "one of timing reports, and statistics are merged", "flip": "checksum", "plain": "byte",
        "pipe": "no regular file", "nowhere": "No such file", tmp_path.name: "s a directory", "trace": "one of traces",
        three[1].name: "given more than once",
    }.items():  # fmt: skip
        assert words in reasons[name], name
    twice = reasons.get("rank9.cprof") or reasons[three[0].name]
    assert "it has the same data as" in twice
    merged = Snapshot.from_bytes((tmp_path / "merged").read_bytes())
    assert merged == Snapshot.merge([RankedSnapshot.from_bytes(path.read_bytes()).snapshot for path in three])
    assert "Merged: statistics of 3 ranks" in out


def test_nothing_good_is_one_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_bytes(b"")
    status, out, errors = run(capsys, tmp_path / "empty", "-o", tmp_path / "out")
    assert (status, out, (tmp_path / "out").exists()) == (1, "", False)
    assert errors == [f"{tmp_path}/empty is not merged: it is empty", "there is nothing to merge"]


def test_the_later_one_of_two_snapshots_of_a_profiler_counts(tmp_path: Path) -> None:
    profiler = counted({"a": [1.0]})
    early = tmp_path / "early_rank0"
    early.write_bytes(profiler.snapshot().to_bytes())
    profiler.record("train", "a", 2.0)
    late = tmp_path / "late_rank0"
    late.write_bytes(profiler.snapshot().to_bytes())
    for order in ((early, late), (late, early)):
        outcome = merge_files(order, tmp_path / "out")
        assert outcome.complaints == (
            f"{early} is not merged: it has data of the same Profiler as {late}, and is not counted again",
        )
        assert Snapshot.from_bytes((tmp_path / "out").read_bytes()).stats()[0].count == 2


def test_a_file_that_changes_meanwhile_is_named(three: list[Path]) -> None:
    parts = [part_of_file(str(path)) for path in three]
    three[0].write_bytes(three[1].read_bytes())
    three[1].unlink()
    merged = merge_parts(parts)
    assert merged.refused == {
        str(three[0]): "it was changed while it was read",
        str(three[1]): "No such file or directory",
    }
    assert merged.labels == ("2",)


def test_a_count_that_would_be_too_large_is_named() -> None:
    """Snapshots whose counts add up to more than 2**63-1 exist only by hand (I9)."""
    whole = merge_parts([part_of_snapshot(name, ranked(0, {"a": [1.0]}), name) for name in "ab"])

    class Refusing:
        @staticmethod
        def merge(snapshots: list[Snapshot]) -> Snapshot:
            if len(snapshots) > 1:
                raise OverflowError
            return Snapshot.merge(snapshots)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_statistics, "Snapshot", Refusing)
        merged = merge_parts([part_of_snapshot(name, ranked(0, {"a": [1.0]}), name) for name in "ab"])
    assert list(merged.refused.values()) == ["with it, a count would exceed 2**63-1"]
    assert len(merged.labels) == 1
    assert whole.labels == ("a", "b")


def test_one_rank_in_several_files_adds_up(tmp_path: Path) -> None:
    paths = []
    for place, total in enumerate((1.0, 2.0)):
        paths.append(tmp_path / f"x{place}_rank0")
        paths[-1].write_bytes(snapshot_of({"a": [total]}).to_bytes())
    merged = merge_parts(map(part_of_file, map(str, paths)))
    assert merged.labels == ("0",)
    assert [(row.ranks, row.slowest_ms) for row in merged.skew] == [(1, 3.0)]


def test_one_rank_on_several_machines_is_said(tmp_path: Path) -> None:
    """Of two jobs, perhaps: each has a rank 0 (D13)."""
    paths: list[Path] = []
    for rank, host in ((0, "b"), (0, "a\n"), (1, "a\n"), (1, "c"), (2, "a\n"), (2, "")):
        paths.append(tmp_path / f"s{len(paths)}")
        paths[-1].write_bytes(RankedSnapshot(snapshot_of({"a": [1.0]}), rank, None, host).to_bytes())
    both = merge_files(paths).text.splitlines()[:3]
    line = "Rank 0 is of several machines, and adds up: a\\n, b"
    assert both == ["Merged: statistics of 3 ranks", f"{line}; 1 more rank likewise", ""]
    assert merge_files(paths[:2]).text.splitlines()[1] == line
    assert merge_files(paths[1:3]).text.splitlines()[1] == ""


# ---- Missing ranks


def test_missing_ranks_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [written(tmp_path, rank, {"a": [1.0]}, 5) for rank in (0, 3)]
    status, out, errors = run(capsys, *paths)
    assert (status, errors) == (1, ["missing of 5 ranks: 1, 2, 4"])
    assert out.startswith("Merged: statistics of 2 ranks\n")
    status, out, errors = run(capsys, *paths, "--expect", 2)
    assert (status, errors) == (1, ["missing of 2 ranks: 1"])
    _, _, errors = run(capsys, *paths, "--expect", 2**62)
    assert errors[0].startswith(f"missing of {2**62:,} ranks: 1, 2, 4, 5, ")
    assert errors[0].endswith(f" and {2**62 - 102:,} more")


def test_files_that_tell_no_rank_may_be_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.write_bytes(snapshot_of({"a": [1.0]}).to_bytes())
    assert run(capsys, *paths, "--expect", 2)[::2] == (0, [])
    missing = "1 of 3 ranks are missing; of 2 files the rank is not known"
    assert run(capsys, *paths, "--expect", 3)[::2] == (1, [missing])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "required: FILE"),
        (["x", "--expect", "0"], "of at least 1"),
        (["x", "--expect", "many"], "of at least 1"),
        ([""], "not empty"),
        (["x", "-o", ""], "not empty"),
    ],
)
def test_wrong_arguments(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main.main(["merge", *arguments])
    assert stopped.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: merge_files([], expected="3"), TypeError, "expected must be an integer or None"),  # type: ignore[arg-type]
        (lambda: merge_files([], expected=0), ValueError, "expected must be >= 1, got 0"),
        (lambda: merge_files([3]), TypeError, "paths must be a path"),  # type: ignore[list-item]
        (lambda: merge_files([]), MergeError, "nothing to merge"),
        (lambda: take(3), TypeError, "profiler must be a Profiler or a PipelineProfiling, got 3"),  # type: ignore[arg-type]
        (lambda: write_rank_snapshot(profiler_on(), ".", 3), TypeError, "name must be a str"),  # type: ignore[arg-type]
        (lambda: write_rank_snapshot(profiler_on(), ""), ValueError, "folder must not be empty"),
    ],
)
def test_arguments_of_functions(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_the_output_is_none_of_the_files(three: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    before = three[0].read_bytes()
    status, out, errors = run(capsys, *three, "-o", three[0])
    assert (status, out) == (1, "")
    assert errors == [f"{three[0]} is one of the files to be merged"]
    assert three[0].read_bytes() == before
    status, _, errors = run(capsys, *three, "-o", "/nowhere/at/all")
    assert (status, errors) == (1, ["cannot write /nowhere/at/all: No such file or directory"])


# ---- Skew


def skew_of(totals: dict[str, Values]) -> Skew:
    builder = SkewBuilder()
    for label, nodes in totals.items():
        for node, times in nodes.items():
            for time_ms in times:
                builder.add(label, [("s", node, time_ms)])
    return builder.build()


def test_a_straggler_is_one_by_the_rule() -> None:
    ranks_of = {str(rank): {"big": [1000.0], "small": [1.0], "none": [0.0]} for rank in range(4)}
    even = skew_of(ranks_of)
    assert even.stragglers() == {}
    assert "No rank is a straggler." in str(even)
    assert {row.node_name: row.ratio for row in even} == {"big": 1.0, "small": 1.0, "none": None}
    ranks_of["2"]["big"] = [1199.0]
    ranks_of["1"]["small"] = [9.0]
    assert skew_of(ranks_of).stragglers() == {}, "below 1.2 times; and too little to matter"
    ranks_of["2"]["big"] = [600.0, 600.0]
    ranks_of["3"]["small"] = [500.0]
    found = skew_of(ranks_of)
    assert found.stragglers() == {"3": (1, 494.0) if found[0].median_ms == 6.0 else (1, 495.0), "2": (1, 200.0)}
    assert [row.node_name for row in found] == ["small", "big", "none"]
    assert (found[1].slowest, found[1].slowest_ms, found[1].ratio) == ("2", 1200.0, 1.2)


def test_skew_shows_itself() -> None:
    many = {str(rank): {"n": [1.0]} for rank in range(60)} | {f"host:{rank}": {"n": [9.0]} for rank in range(25)}
    found = skew_of(many)
    assert repr(found) == "<Skew: 1 node>"
    assert repr(Skew()) == "<Skew, empty>"
    assert " and 5 more." in str(found)
    assert "host:0 (1 node, 8.0 ms beyond the median)" in str(found)
    assert "1 more row is not shown" in skew_of({"0": {"a": [1.0], "b": [2.0]}}).text(1)
    assert str(SkewBuilder().build()).startswith("┌")
    pytest.importorskip("pandas")
    frame = found.to_pandas()
    assert list(frame.columns)[:4] == ["node_name", "stage", "ranks", "slowest"]
    assert frame["ranks"].tolist() == [85]
