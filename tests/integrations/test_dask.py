"""Statistics of Dask's workers: switched on by a plugin, gathered; workers that are gone are named (D3)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

import cprofiling as cp
from calls import NEVER
from cprofiling.nodes.rank_snapshot import take

distributed: Any = pytest.importorskip("distributed")

from cprofiling.integrations import dask  # noqa: E402 it needs the package
from cprofiling.integrations.dask import ProfilingPlugin, gather  # noqa: E402

# Dask and what it uses warn of deprecations of their own, and leave sockets to the collector.
pytestmark = pytest.mark.filterwarnings("ignore")


@contextlib.contextmanager
def cluster(workers: int, *, processes: bool) -> Iterator[Any]:
    """A client of a cluster of this machine."""
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(processes=processes, **options) as made, distributed.Client(made) as client:
        yield client


def counts(snapshot: cp.Snapshot | None) -> dict[str, int]:
    assert snapshot is not None
    return {stats.node_name: stats.count for stats in snapshot.stats()}


@pytest.mark.slow
def test_workers_that_are_processes() -> None:
    def work(times: int) -> int:
        import os

        import cprofiling as cp

        for _ in range(times):
            with cp.profile_node("work"):
                pass
        return os.getpid()

    with cluster(2, processes=True) as client:
        client.register_plugin(ProfilingPlugin(skip_first_n=1))
        pids = client.run(work, 5)
        got = gather(client)
        assert (set(got.ranks), dict(got.missing), dict(got.refused)) == (set(pids), {}, {})
        assert {address: taken.pid for address, taken in got.ranks.items()} == pids
        assert counts(got.snapshot) == {"work": 8}
        assert got.snapshot is not None
        assert got.snapshot.stats().skip_first_n == 1
        assert {row.ranks for row in got.skew()} == {2}
        victim, other = pids
        os.kill(pids[victim], signal.SIGKILL)
        deadline = time.monotonic() + NEVER
        while victim in known(client):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        got = gather(client)
        assert got.missing[victim] == "it is gone"
        assert other in got.ranks
        assert counts(got.snapshot)["work"] == 4
        os.kill(pids[other], signal.SIGSTOP)
        try:
            got = gather(client, timeout=0.3)
        finally:
            os.kill(pids[other], signal.SIGCONT)
        assert got.missing[other] == "it did not answer in time"


def known(client: Any) -> set[str]:
    """The workers that the scheduler has now."""
    return set(client.sync(client.scheduler.identity)["workers"])


def test_workers_that_are_threads_share_their_statistics() -> None:
    with cluster(2, processes=False) as client:
        assert gather(client).snapshot is None, "nobody has the plugin"
        client.register_plugin(ProfilingPlugin())
        assert cp.profiling_enabled()
        with cp.profile_node("work"):
            pass
        got = gather(client)
        assert counts(got.snapshot) == {"work": 1}
        ((address, reason),) = got.refused.items()
        assert address not in got.ranks
        assert "as inproc://" in reason
        client.unregister_worker_plugin("cprofiling")
        assert not cp.profiling_enabled()
        assert counts(gather(client).snapshot) == {"work": 1}


def test_a_thread_that_ends_switches_nothing_off_for_the_others() -> None:
    with cluster(2, processes=False) as client:
        client.register_plugin(ProfilingPlugin())
        client.retire_workers([min(known(client))], close_workers=True)
        deadline = time.monotonic() + NEVER
        while len(dask._with_plugin) == 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert cp.profiling_enabled()
    assert not cp.profiling_enabled()


def test_a_client_without_its_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(client: Any) -> dict[str, bool]:
        await asyncio.sleep(NEVER)
        raise AssertionError

    with cluster(1, processes=False) as client:
        with monkeypatch.context() as patch:
            patch.setattr(dask, "_workers", silent)
            with pytest.raises(TimeoutError, match="the scheduler did not answer in time"):
                gather(client, timeout=0)
        client.close()
        with pytest.raises(ConnectionError, match="the client is closed"):
            gather(client)


def test_an_asynchronous_client() -> None:
    async def run() -> Any:
        async with (
            distributed.LocalCluster(1, processes=False, dashboard_address=":0", asynchronous=True) as made,
            distributed.Client(made, asynchronous=True) as client,
        ):
            await client.register_plugin(ProfilingPlugin())
            return await gather(client)  # type: ignore[misc]

    got = asyncio.run(run())
    assert len(got.ranks) == 1


class Answering(distributed.Client):  # type: ignore[misc]
    """A client of workers with answers known beforehand, or the error on the way to one."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.scheduler = self

    def __del__(self) -> None: ...

    def sync(self, function: Any, *arguments: Any) -> Any:
        return asyncio.run(function(*arguments))

    async def events(self, topic: str) -> list[Any]:
        return []

    async def identity(self) -> dict[str, Any]:
        return {"workers": self.answers}

    async def run(self, function: Any, workers: list[str], on_error: str) -> dict[str, Any]:
        if workers == ["broken"]:
            raise self.answers["broken"]
        return {address: self.answers[address] for address in workers}


def test_answers_that_are_of_no_use_are_named() -> None:
    good = take(cp.Profiler()).to_bytes()
    answers = {"good": good, "off": None, "rubbish": b"rubbish", "error": OSError("no way"), "silent": OSError()}
    got = gather(Answering({**answers, "broken": OSError("the scheduler is gone")}))
    missing = dict(got.missing)
    assert set(got.ranks) == {"good"}
    assert missing.pop("rubbish").startswith("its answer is damaged: statistics begin with")
    assert missing == {
        "error": "it failed: no way", "silent": "it failed: OSError", "broken": "it failed: the scheduler is gone",
    }  # fmt: skip


def test_options_of_the_plugin_are_checked_at_once() -> None:
    with pytest.raises(ValueError, match="skip_first_n must be >= 0, got -1"):
        ProfilingPlugin(skip_first_n=-1)
    with pytest.raises(TypeError):
        ProfilingPlugin(colour="red")


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match=r"client must be a distributed.Client, got 3"):
        gather(3)
    client = distributed.Client.__new__(distributed.Client)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed.Client, "__del__", lambda self: None)
        patch.setattr(distributed.Client, "__repr__", lambda self: "a client")
        for wrong in ("1", True, None):
            with pytest.raises(TypeError, match="timeout must be a number, got"):
                gather(client, timeout=wrong)  # type: ignore[arg-type]
        for outside in (-1, float("nan"), 1e9):
            with pytest.raises(ValueError, match="timeout must be from 0 to 86400, got"):
                gather(client, timeout=outside)
        del client
