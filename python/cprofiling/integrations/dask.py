"""Profile Dask workers with a plugin, and gather their statistics.

::

    client.register_plugin(ProfilingPlugin(skip_first_n=3))
    ...
    print(gather(client).skew())

Needs the package ``distributed``, here and on the workers, which need this package, too.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from distributed import Client, WorkerPlugin

from cprofiling._core import FormatError
from cprofiling._internal import arguments
from cprofiling._internal.text import shown_value
from cprofiling.layers.ranks.merge_statistics import GatheredStatistics, gathered
from cprofiling.nodes import profiler, rank_snapshot
from cprofiling.nodes.rank_snapshot import RankedSnapshot

__all__ = ["GatheredStatistics", "ProfilingPlugin", "gather"]

_TOPIC = "cprofiling"  # of the scheduler's events: which workers have the plugin
_MOST_S = 86_400.0
_with_plugin: set[str] = set()  # workers of this process: there are several where they are threads


class ProfilingPlugin(WorkerPlugin):  # type: ignore[misc]  # there are no types of it
    """Plugin that profiles on each worker, for ``client.register_plugin``.

    It enables the default Profiler, also of workers that come later.

    options: those of ``Profiler.set_profiling``, without ``enabled``. Raises TypeError or ValueError for wrong ones.
    """

    name = "cprofiling"

    def __init__(self, **options: Any) -> None:
        trial = profiler.Profiler()
        trial.set_profiling(True, **options)
        trial.set_profiling(False)
        self._options = options

    def setup(self, worker: Any) -> None:
        """Switch profiling on in a worker. Dask calls it."""
        profiler.set_profiling(True, **self._options)
        _with_plugin.add(worker.address)
        worker.log_event(_TOPIC, {"worker": worker.address, "pid": os.getpid()})

    def teardown(self, worker: Any) -> None:
        """Switch profiling off after the plugin or the last worker ends.

        Dask calls it.
        """
        _with_plugin.discard(worker.address)
        if not _with_plugin:
            profiler.set_profiling(False)


def gather(client: Client, *, timeout: float = 30.0) -> GatheredStatistics:
    """Gather the statistics of all workers that have, or had, the plugin.

    They are told by their addresses. A worker that does not answer in time, and one that is gone, are named in
    ``missing``. Workers that are threads of one process share its statistics, which count once: the others of them
    are in ``refused``.

    client: The client of the cluster; of an asynchronous one, the result is to be awaited. timeout: The longest time
        to wait, in seconds, from 0 to a day.

    Raises TypeError and ValueError for wrong arguments, OSError and TimeoutError where the scheduler does not answer.
    """
    if not isinstance(client, Client):
        raise TypeError(f"client must be a distributed.Client, got {shown_value(client)}")
    seconds = arguments.number_between("timeout", timeout, 0, _MOST_S)
    result: GatheredStatistics = client.sync(_collect, client, seconds)
    return result


async def _collect(client: Any, timeout: float) -> GatheredStatistics:
    try:
        known = await asyncio.wait_for(_workers(client), max(timeout, 1.0))
    except asyncio.TimeoutError:
        raise TimeoutError("the scheduler did not answer in time") from None
    taken: dict[str, RankedSnapshot] = {}
    missing = {address: "it is gone" for address, is_there in known.items() if not is_there}
    asked = {
        asyncio.ensure_future(client.run(_take, workers=[address], on_error="return")): address
        for address, is_there in known.items()
        if is_there
    }
    done, pending = await asyncio.wait(asked, timeout=timeout) if asked else (set(), set())
    for task in pending:
        task.cancel()
        missing[asked[task]] = "it did not answer in time"
    for task in done:
        address = asked[task]
        try:
            answer = task.result()[address]
            if isinstance(answer, BaseException):
                raise answer
            if answer is not None:
                taken[address] = RankedSnapshot.from_bytes(answer)
        except FormatError as error:
            missing[address] = f"its answer is damaged: {error}"
        except Exception as error:  # noqa: BLE001 of any kind: the worker's, or of the way to it
            missing[address] = f"it failed: {str(error) or type(error).__name__}"
    return gathered(taken, missing)


async def _workers(client: Any) -> dict[str, bool]:
    """Return addresses of past and present workers, with their presence."""
    if client.scheduler is None:
        raise ConnectionError("the client is closed")
    events = await client.scheduler.events(topic=_TOPIC)
    present = (await client.scheduler.identity())["workers"]
    return {**{event["worker"]: False for _, event in events}, **dict.fromkeys(present, True)}


def _take() -> bytes | None:
    """Return a worker's answer, None if off and nothing was counted."""
    if not profiler.profiling_enabled() and not profiler.get_profiling_summary():
        return None
    return rank_snapshot.take(profiler.default_profiler).to_bytes()
