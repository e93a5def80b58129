"""Statistics of the ranks of torch.distributed, gathered on one of them; dead ranks are named (D3, D14)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import NEVER, profiler_on, unwatched
from cprofiling.integrations import torch_distributed
from cprofiling.integrations.torch_distributed import GatheredStatistics, gather
from cprofiling.nodes.rank_snapshot import RankedSnapshot, take

dist: Any = pytest.importorskip("torch.distributed")
if not dist.is_available():  # pragma: no cover
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

# PyTorch and what it uses warn of deprecations of their own.
pytestmark = pytest.mark.filterwarnings("default")

ROOT = Path(__file__).resolve().parents[2]
Mail = torch_distributed._Mail


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def counted(**values: float) -> cp.Profiler:
    profiler = profiler_on()
    for node, value in values.items():
        profiler.record("train", node, value)
    return profiler


def in_threads(ranks: int, store: Any, *, target: int = 0, absent: tuple[int, ...] = ()) -> GatheredStatistics:
    """Have threads be the ranks of a group, and return what the target gets."""
    members = list(range(ranks))

    def answer(rank: int) -> None:
        taken = RankedSnapshot(counted(node=1.0 + rank).snapshot(), rank, ranks)
        Mail(store, members, target, rank).post(taken.to_bytes())

    threads = [threading.Thread(target=answer, args=(rank,)) for rank in members if rank not in (target, *absent)]
    for thread in threads:
        thread.start()
    own = RankedSnapshot(counted(node=1.0 + target).snapshot(), target, ranks)
    deadline = time.monotonic() + (0.05 if absent else NEVER)
    got = torch_distributed._received(Mail(store, members, target, target), own, target, members, deadline)
    for thread in threads:
        thread.join(NEVER)
    return got


def total(got: GatheredStatistics) -> float:
    assert got.snapshot is not None
    (stats,) = got.snapshot.stats()
    return stats.total_ms


@pytest.mark.slow
@pytest.mark.parametrize(("options", "killed"), [(("--dst", "1"), []), (("--kill", "2", "--timeout", "1"), [2])])
def test_four_real_processes(options: tuple[str, ...], killed: list[int]) -> None:
    """Counts and totals are exact, the rest within its bars; so they are of the others when a rank is killed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "python" / "benchmarks" / "ranks.py"), "--samples", "200", *options],
        env=unwatched(PYTHONPATH=str(Path(cp.__file__).parents[1])),
        capture_output=True,
        text=True,
        timeout=2 * NEVER,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    result = json.loads(done.stdout)
    assert result["missing"] == killed
    assert result["worst"]["count"] == result["worst"]["exact total"] == 0


def test_ranks_answer_through_the_store() -> None:
    store = dist.HashStore()
    for turn in range(3):
        got = in_threads(5, store, target=turn)
        assert total(got) == 15.0
        assert (list(got.ranks), dict(got.missing), dict(got.refused)) == ([0, 1, 2, 3, 4], {}, {})
    assert got.ranks[3].rank == 3
    assert repr(got) == "<GatheredStatistics of 5 processes>"
    (row,) = got.skew()
    assert (row.slowest, row.slowest_ms, row.median_ms) == ("4", 5.0, 3.0)
    left = store.num_keys()
    in_threads(5, store, target=2)
    assert store.num_keys() == left, "what was fetched is removed"


def test_large_statistics_travel_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of a TCPStore has 8 MiB at most."""
    monkeypatch.setattr(torch_distributed, "_PIECE", 100)
    store = dist.HashStore()
    assert total(in_threads(3, store)) == 6.0


def test_a_rank_that_does_not_answer_is_named() -> None:
    store = dist.HashStore()
    begin = time.monotonic()
    got = in_threads(4, store, absent=(1, 3))
    assert time.monotonic() - begin < NEVER / 2
    assert dict(got.missing) == dict.fromkeys((1, 3), "it did not answer in time")
    assert total(got) == 1.0 + 3.0
    assert repr(got) == "<GatheredStatistics of 2 processes, missing: 1, 3>"
    keys = store.num_keys()
    late = Mail(store, [0, 1, 2, 3], 0, 1)
    late.post(b"late")
    assert store.num_keys() == keys + 1, "it leaves its count of calls only"
    for absent in (3,):
        Mail(store, [0, 1, 2, 3], 0, absent).post(b"late")
    got = in_threads(4, store)
    assert (total(got), dict(got.missing)) == (10.0, {})


def test_answers_that_are_of_no_use_are_named() -> None:
    store = dist.HashStore()
    members = [0, 1, 2, 3]
    own = take(counted(a=1.0))
    Mail(store, members, 0, 1).post(b"rubbish")
    changed = Mail(store, members, 0, 2)
    changed.post(own.to_bytes())
    store.set(changed._key(2, 0), "something else")
    Mail(store, members, 0, 3).post(own.to_bytes())
    got = torch_distributed._received(Mail(store, members, 0, 0), own, 0, members, time.monotonic() + NEVER)
    assert got.missing[1].startswith("its answer is damaged: statistics begin with")
    assert got.missing[2] == "its answer is damaged: 14 bytes do not have the hash that they should"
    assert dict(got.refused) == {3: "it has the same data as 0, and is not counted again"}
    assert (total(got), list(got.ranks)) == (1.0, [0])


class Broken:
    """A store whose process is gone."""

    error: type[BaseException] = RuntimeError

    def __getattr__(self, name: str) -> Any:
        raise self.error("Connection reset\nException raised from somewhere in C++")


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_store_that_fails_loses_no_rank_and_raises_nothing(error: type[BaseException]) -> None:
    """Nor does its thread end without a sign, by whatever."""
    own = take(counted(a=1.0))
    store = Broken()
    store.error = error
    mail = Mail(store, [0, 1], 0, 0)
    with pytest.warns(RuntimeWarning, match="the store of the process group failed: Connection reset$"):
        got = torch_distributed._received(mail, own, 0, [0, 1], time.monotonic())
    assert dict(got.missing) == {1: "the store of the process group failed: Connection reset"}
    assert total(got) == 1.0


class Hanging:
    """A store whose process is stopped: it has answered once, and does not any more."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def add(self, key: str, amount: int) -> int:
        return amount

    def check(self, keys: list[str]) -> bool:
        self.released.wait()
        raise RuntimeError("it is over")


def test_a_store_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_distributed, "_GRACE_S", 0.05)
    store = Hanging()
    own = take(counted(a=1.0))
    with pytest.warns(RuntimeWarning, match="the store of the process group does not answer$"):
        got = torch_distributed._received(Mail(store, [0, 1], 0, 0), own, 0, [0, 1], time.monotonic())
    assert dict(got.missing) == {1: "the store of the process group does not answer"}
    assert total(got) == 1.0
    store.released.set()


def test_where_there_is_no_thread_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    own = take(counted(a=1.0))
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.warns(RuntimeWarning, match="there is no thread to be had: can't start new thread$"):
        got = torch_distributed._received(Mail(Hanging(), [0, 1], 0, 0), own, 0, [0, 1], time.monotonic())
    assert dict(got.missing) == {1: "there is no thread to be had: can't start new thread"}
    assert total(got) == 1.0


def test_one_process_alone(group: None) -> None:
    profiler = counted(a=1.0)
    got = gather(profiler)
    assert got is not None
    assert (total(got), dict(got.missing)) == (1.0, {})
    assert got.ranks[0].world_size == 1
    assert gather(profiler, group=dist.group.WORLD, timeout=0) is not None
    assert gather(profiler, group=dist.GroupMember.NON_GROUP_MEMBER) is None


def test_another_rank_gets_nothing(group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as rank 1 of a group that consists of ranks 1 and 3."""
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: [1, 3])
    assert gather(counted(a=1.0), dst=3) is None
    store = dist.distributed_c10d._get_default_store()
    data = Mail(store, [1, 3], 3, 3)
    data.open()
    taken = RankedSnapshot.from_bytes(data.fetch(1, time.monotonic() + NEVER))
    assert (taken.rank, taken.pid) == (1, os.getpid())
    with pytest.raises(ValueError, match="dst must be a rank of the group, one of 1, 3, got 0"):
        gather(counted(a=1.0))
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", Broken)
    with pytest.warns(
        RuntimeWarning, match=r"the statistics of rank 1 were not sent, as the store .*: Connection reset$"
    ):
        assert gather(counted(a=1.0), dst=3) is None
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: [0])
    assert gather(counted(a=1.0)) is None, "it is not in the group"
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: list(range(1, 40)))
    with pytest.raises(ValueError, match=r"one of 1, 2, .*, 20, \.\.\., got 0"):
        gather(counted(a=1.0))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"profiler": 3}, TypeError, "profiler must be a Profiler"),
        ({"dst": "0"}, TypeError, "dst must be an integer, got '0'"),
        ({"dst": 1}, ValueError, "dst must be a rank of the group, one of 0, got 1"),
        ({"dst": -1}, ValueError, "got -1"),
        ({"timeout": "1"}, TypeError, "timeout must be a number, got '1'"),
        ({"timeout": True}, TypeError, "timeout must be a number"),
        ({"timeout": -1}, ValueError, "timeout must be from 0 to 86400, got -1"),
        ({"timeout": float("nan")}, ValueError, "timeout must be from 0"),
        ({"group": [0]}, TypeError, "group must be a process group or None"),
    ],
)
def test_wrong_arguments(group: None, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gather(**{"profiler": cp.Profiler(), **arguments})


def test_there_has_to_be_a_process_group() -> None:
    with pytest.raises(RuntimeError, match=r"needs a process group: call torch.distributed.init_process_group"):
        gather(cp.Profiler())
