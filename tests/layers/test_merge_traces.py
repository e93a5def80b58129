"""``cprofiling merge`` of traces: a row for each rank, on one clock, with what is certain about it (D13, D14, I9)."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from cprofiling.commands import main
from cprofiling.layers.ranks import merge_traces as module
from cprofiling.layers.ranks.merge import MergeError, merge_files
from cprofiling.layers.ranks.merge_traces import ON_ONE_CLOCK, ON_SEVERAL, Trace, merge_traces, read_trace
from cprofiling.recording.result import Recording

BASE = 1_700_000_000 * 10**9


def process(host: str = "h", pid: int = 1, **more: Any) -> dict[str, Any]:
    return {"host": host, "pid": pid, "id": f"{host} {pid}", "clock": f"boot of {host}", "since_epoch_ns": 0, **more}


def event(name: str, ts: float = 10, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 5, **more}


def written(
    folder: Path, rank: int | None, events: list[Any], own: Any = None, base: int = BASE, size: int = 4, **more: Any
) -> Path:
    """A trace as we write them, or nearly so."""
    content: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": events}
    if own is not None:
        content["cprofiling"] = {"format_version": 1, "process": own, **more}
    if rank is not None:
        content["distributedInfo"] = {"rank": rank, "world_size": size}
    path = folder / f"t{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(content))
    return path


def merged(paths: list[Path], out: Path) -> tuple[dict[str, Any], Recording]:
    outcome = merge_files(paths, out)
    assert outcome.complaints == () or all("missing of" in line for line in outcome.complaints)
    data = gzip.decompress(out.read_bytes()) if out.suffix == ".gz" else out.read_bytes()
    return json.loads(data), cp.load_trace(out)


def spans(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in content["traceEvents"] if each["ph"] != "M"}


def names(content: dict[str, Any], kind: str = "process_name") -> dict[int, Any]:
    found = [each for each in content["traceEvents"] if each["name"] == kind]
    return {each["pid"]: next(iter(each["args"].values())) for each in found}


def test_recordings_of_two_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setattr(os, "getpid", lambda rank=rank: 4000)
        monkeypatch.setattr(os, "readlink", lambda path, rank=rank: f"time namespace {rank}")
        paths.append(tmp_path / f"{rank}.json.gz")
        with cp.profile(file=paths[-1]), cp.record(f"block {rank}"), cp.profile_node(f"node {rank}"):
            pass
        monkeypatch.undo()
        monkeypatch.setenv("WORLD_SIZE", "2")
    content, recording = merged(paths, tmp_path / "out.json.gz")
    assert [each.name for each in recording.events()] == ["block 0", "node 0", "block 1", "node 1"]
    parents = [each.parent for each in recording.events()]
    assert parents == [None, 0, None, 2]
    for each in (0, 1):
        alone = cp.load_trace(paths[each]).events()
        together = [row for row in recording.events() if str(each) in row.name]
        assert [(row.start, row.end) for row in alone] == [(row.start, row.end) for row in together]
    shown = names(content)
    assert len(shown) == 2, "two containers may have the same number"
    assert [name.startswith(f"rank {rank}: ") for rank, name in enumerate(shown.values())] == [True, True]
    assert list(names(content, "process_sort_index").values()) == [0, 10_000_000]
    assert content["distributedInfo"] == {"backend": "", "rank": 0, "world_size": 2}
    assert content["cprofiling"]["merged"]["clock"] == ON_SEVERAL
    assert [each["rank"] for each in content["cprofiling"]["merged"]["ranks"]] == ["0", "1"]


def test_where_functions_are_is_known_of_merged_traces(tmp_path: Path) -> None:
    """Where ranks have one function at several places, it stays with the calls."""
    texts = []
    for rank, places in enumerate(({"a": "f.py:1", "b": "f.py:2"}, {"a": "f.py:1", "b": "g.py:2"})):
        events = [
            event(name, args={"kind": "node", "source": place, "span_id": f"{rank + 1:016x}"})
            for name, place in places.items()
        ]
        texts.append(written(tmp_path, rank, events, process(pid=rank), sources=places))
    content, recording = merged(texts, tmp_path / "out.json")
    assert content["cprofiling"]["sources"] == {"a": "f.py:1"}
    told = sorted((each["name"], each["args"]["source"]) for each in content["traceEvents"] if each["ph"] == "X")
    assert told == [("a", "f.py:1"), ("a", "f.py:1"), ("b", "f.py:2"), ("b", "g.py:2")]
    kept = {(each.name, recording.args(each.row) is None) for each in recording.events()}
    assert kept == {("a", True), ("b", False)}


def test_what_a_recording_says_of_its_process() -> None:
    with cp.profile() as prof:
        pass
    own = json.loads(prof.recording.facts["cprofiling"])["process"]
    assert (own["host"], own["pid"], len(own["id"])) == (os.uname().nodename, os.getpid(), 32)
    assert own["clock"].startswith(Path("/proc/sys/kernel/random/boot_id").read_text().strip() + " time:[")
    assert abs(own["since_epoch_ns"] - (time.time_ns() - time.monotonic_ns())) < 10**9


def test_traces_of_one_machine_are_on_its_monotonic_clock(tmp_path: Path) -> None:
    """The time of day was set between their starts; their clock was not."""
    a = written(tmp_path, 0, [event("a", 10)], process(pid=1, since_epoch_ns=BASE))
    b = written(tmp_path, 1, [event("b", 20.5)], process(pid=2, since_epoch_ns=BASE + 5_000_000_500))
    content, recording = merged([b, a], tmp_path / "out.json")
    starts = {each.name: each.start - BASE for each in recording.events()}
    assert starts == {"a": 10_000, "b": 20_500 - 5_000_000_500}
    assert content["cprofiling"]["merged"] == {
        "clock": ON_ONE_CLOCK,
        "ranks": [
            {"rank": "0", "where": "h:1", "shift_ns": 0, "events": 1},
            {"rank": "1", "where": "h:2", "shift_ns": -5_000_000_500, "events": 1},
        ],
    }


def test_other_machines_have_the_time_of_day_only(tmp_path: Path) -> None:
    a = written(tmp_path, 0, [event("a")], process("a", since_epoch_ns=5))
    b = written(tmp_path, 1, [event("b")], process("b", since_epoch_ns=9), base=BASE + 10**9)
    c = written(tmp_path, 2, [event("c")], process("b", pid=3, since_epoch_ns=12), base=BASE + 10**9)
    d = written(tmp_path, 3, [event("d")], base=BASE - 10**9)
    content, recording = merged([d, c, b, a], tmp_path / "out.json")
    assert {each.name: each.start - BASE - 10_000 for each in recording.events()} == {
        "a": 0, "b": 10**9, "c": 10**9 - 3, "d": -(10**9),
    }  # fmt: skip
    assert content["cprofiling"]["merged"]["clock"] == ON_SEVERAL
    assert all(each["ts"] >= 0 for each in spans(content).values())


def test_times_before_the_epoch_are_moved_to_the_ns(tmp_path: Path) -> None:
    a = written(tmp_path, 0, [event("a", -3.001)], process(pid=1, since_epoch_ns=0), base=0)
    b = written(tmp_path, 1, [event("b", -2.5)], process(pid=2, since_epoch_ns=1_501), base=0)
    _, recording = merged([a, b], tmp_path / "out.json")
    assert {each.name: each.start for each in recording.events()} == {"a": -3_001, "b": -2_500 - 1_501}


def test_ids_of_ranks_do_not_collide(tmp_path: Path) -> None:
    """Devices are processes 0, 1, ... of each rank; correlations count from 1 in each."""
    arrows = [
        {"ph": "s", "id": 7, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": 11},
        {"ph": "f", "id": 7, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 20, "bp": "e"},
    ]
    large = 2**60
    events = [
        event("launch", cat="cuda_runtime", args={"correlation": 7, "External id": 3, "note": '"correlation": 7'}),
        event("kernel", 20, cat="kernel", pid=0, tid=7, args={"correlation": 7, "device": 0, "stream": 7}),
        event("text", 40, pid="Spans", tid="all", args={"correlation": large, "External id": 0}),
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": 'GPU "0"'}},
        {"ph": "M", "name": "process_sort_index", "pid": 0, "tid": 0, "args": {"sort_index": 5_000_000}},
        {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}},
        {"ph": "i", "s": "t", "name": "moment", "cat": "c", "pid": 1, "tid": 1, "ts": 12},
        {"ph": "C", "name": "counter", "cat": "c", "pid": 1, "tid": 1, "ts": 12, "args": {"value": 3}},
    ]
    paths = [written(tmp_path, rank, [*events, *arrows], process(pid=1, host=f"h{rank}")) for rank in range(3)]
    content, recording = merged(paths, tmp_path / "out.json")
    shown = [each for each in content["traceEvents"] if each["ph"] != "M"]
    assert len(shown) == 3 * (5 + 2)
    places = [(each["pid"], each["name"]) for each in shown if each["ph"] == "X"]
    assert len(set(places)) == 9
    joined = [[each["args"]["correlation"] for each in shown if each["name"] == name] for name in ("launch", "kernel")]
    assert joined[0] == joined[1]
    assert len(set(joined[0])) == 3
    arrow_ids = [[each["id"] for each in shown if each["ph"] == phase] for phase in "sf"]
    assert arrow_ids == joined
    assert {each["args"]["correlation"] for each in shown if each["name"] == "text"} == {large}
    assert {each["args"]["External id"] for each in shown if each["name"] == "text"} == {0}
    assert {each["args"]["note"] for each in shown if each["name"] == "launch"} == {'"correlation": 7'}
    assert len({each["args"]["External id"] for each in shown if each["name"] == "launch"}) == 3
    shown_names = set(names(content).values())
    assert {f'rank {rank}: GPU "0" (h{rank}:1)' for rank in range(3)} <= shown_names
    assert {f"rank {rank}: Spans (h{rank}:1)" for rank in range(3)} <= shown_names
    assert 15_000_000 in names(content, "process_sort_index").values()
    assert len(recording) == 3 * 5
    (launched,) = recording.launch_statistics()
    assert launched.count == 3


def test_traces_of_one_process_share_its_row(tmp_path: Path) -> None:
    a = written(tmp_path, 0, [event("a")], process(id="1"))
    b = written(tmp_path, 0, [event("b", 100)], process(id="2"))
    content, _ = merged([a, b], tmp_path / "out.json")
    assert set(names(content).values()) == {"rank 0: 1 (h:1)"}
    assert len(names(content)) == 1


def test_any_order_gives_the_same_trace(tmp_path: Path) -> None:
    paths = [written(tmp_path, rank, [event(f"n{rank}")], process(pid=rank + 1)) for rank in range(3)]
    results = set()
    for order in itertools.permutations(paths):
        merge_files(order, tmp_path / "out.json")
        results.add((tmp_path / "out.json").read_bytes())
    assert len(results) == 1


def test_a_recording_counts_once_and_bad_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = written(tmp_path, 0, [event("a"), event("b", 50)], process())
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(good.read_bytes()))
    nameless = [written(tmp_path, None, [event("n")]) for _ in range(2)]
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"traceEvents": [{"ph": "X", oops')
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(packed.read_bytes()[:-12])
    bomb = tmp_path / "other_rank1.json"
    bomb.write_bytes(b'{"stages": {}}')
    status = main.main(["merge", *map(str, (packed, good, *nameless, damaged, cut, bomb)), "-o", str(tmp_path / "out")])
    printed = capsys.readouterr()
    assert status == 1
    lines = printed.err.splitlines()
    assert len(lines) == 6
    assert any(f"{good} is not merged: it has the same recording as {packed}" in line for line in lines)
    assert any(f"it has the same recording as {nameless[0]}" in line for line in lines)
    assert any("damaged.json is not merged" in line for line in lines)
    assert any("ends in the middle" in line for line in lines)
    assert any("one of timing reports" in line for line in lines)
    assert lines[-1].startswith("cprofiling: missing of 4 ranks") or any("2 of 4 ranks" in line for line in lines)
    assert f"Clock: {ON_SEVERAL}" in printed.out
    assert [each.name for each in cp.load_trace(tmp_path / "out").events()] == ["a", "n", "b"]


def test_what_is_merged_already_or_of_another_version_is_named(tmp_path: Path) -> None:
    """In a merged trace nobody finds out what is there twice."""
    paths = [written(tmp_path, rank, [event(f"e{rank}")], process(pid=rank), size=2) for rank in range(2)]
    merge_files(paths, tmp_path / "merged.json")
    newer = tmp_path / "newer_rank1.json"
    newer.write_text(json.dumps({"cprofiling": {"format_version": 2}, "traceEvents": [event("new")]}))
    outcome = merge_files([*paths, tmp_path / "merged.json", newer], tmp_path / "again.json")
    assert outcome.complaints == (
        f"{tmp_path}/merged.json is not merged: it is merged already: merge the traces that it is made of",
        f"{newer} is not merged: it is of format version 2 (int), expected 1",
    )
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "merged.json").read_bytes()


def test_the_rank_of_a_trace(tmp_path: Path) -> None:
    def rank_of(name: str, info: Any) -> str:
        path = tmp_path / name
        path.write_text(json.dumps({"distributedInfo": info, "cprofiling": 3, "traceEvents": []}))
        return read_trace(str(path)).label

    assert rank_of("a.json", {"rank": 3, "world_size": 4}) == "3"
    assert rank_of("x_rank2.json", {"rank": 0, "world_size": 1}) == "2"
    assert rank_of("x_rank2.json", {"rank": 1, "world_size": 4}) == "1"
    assert rank_of("b.json", {"rank": 5, "world_size": 1}) == "5"
    for info in ({"rank": 0, "world_size": 1}, {"rank": True}, {}, 3, {"rank": -1, "world_size": 3}):
        assert rank_of("c.json", info) == str(tmp_path / "c.json")


def test_times_of_nodes_are_compared(tmp_path: Path) -> None:
    def node(rank: int, turn: int) -> dict[str, Any]:
        args = {"kind": "node", "stage": "train", "span_id": f"{rank * 1000 + turn + 1:016x}"}
        return event("n", 10 * turn, args=args, dur=5 if rank == 2 else 1)

    paths = [written(tmp_path, rank, [node(rank, turn) for turn in range(1000)]) for rank in range(3)]
    result = merge_traces([read_trace(str(path)) for path in paths], lambda piece: None)
    ((row),) = result.skew
    assert (row.node_name, row.stage, row.ranks, row.slowest, row.slowest_ms, row.median_ms) == (
        "n", "train", 3, "2", 5.0, 1.0,
    )  # fmt: skip


def test_traces_need_a_file_and_nothing_is_written_of_nothing(tmp_path: Path) -> None:
    good = written(tmp_path, 0, [event("a")], process())
    with pytest.raises(MergeError, match="merged traces need a file: say which with -o"):
        merge_files([good])
    good.write_text('{"traceEvents": [oops')
    with pytest.raises(MergeError, match="there is nothing to merge"):
        merge_files([good], tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


def test_a_trace_that_changes_meanwhile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [written(tmp_path, rank, [event(f"n{rank}")], process(pid=rank)) for rank in range(3)]

    def read(path: str) -> Trace:
        found = read_trace(path)
        if path == str(paths[1]):
            paths[1].write_text(paths[1].read_text().replace("n1", "m1"))
        if path == str(paths[2]):
            paths[2].unlink()
        return found

    monkeypatch.setattr(module, "read_trace", read)
    outcome = merge_files(paths, tmp_path / "out.json", 1)
    assert outcome.complaints == (
        f"{paths[1]} is not merged: it was changed while it was read",
        f"{paths[2]} is not merged: No such file or directory",
    )
    paths[0].unlink()
    alone = written(tmp_path, 0, [event("n")], process())

    def vanish(path: str) -> Trace:
        found = read_trace(path)
        Path(path).unlink()
        return found

    monkeypatch.setattr(module, "read_trace", vanish)
    with pytest.raises(MergeError, match="nothing to merge") as raised:
        merge_files([alone], tmp_path / "none.json")
    assert raised.value.complaints == (f"{alone} is not merged: No such file or directory",)
    assert not (tmp_path / "none.json").exists()


def test_args_that_look_like_events_stay_args(tmp_path: Path) -> None:
    """Args are kept as they were written; they may be written so that they look like events (I9)."""
    path = tmp_path / "hidden.json"
    args = '{"x":[{"a":1},\n{"ph":"X","pid":1,"ts":5,"correlation":3}]}'
    path.write_text('{"traceEvents":[{"ph":"X","name":"n","pid":1,"tid":1,"ts":1,"dur":1,"args":' + args + "}]}")
    content, recording = merged([path], tmp_path / "out.json")
    assert spans(content)["n"]["args"] == json.loads(args)
    assert len(recording) == 1


def test_dropped_events_add_up(tmp_path: Path) -> None:
    paths = []
    for rank in range(2):
        paths.append(tmp_path / f"rank{rank}.json")
        with cp.profile(file=paths[-1], capacity=1):
            for turn in range(3):
                with cp.record(str(turn)):
                    pass
    content, recording = merged(paths, tmp_path / "out.json")
    assert content["droppedEvents"] == recording.dropped == 4
