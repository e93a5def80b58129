"""Profile Ray's workers with a hook, and gather their statistics.

::

    ray.init(runtime_env={"worker_process_setup_hook": profiling_hook("/tmp/stats")})
    ...
    print(gather(actors, folder="/tmp/stats").skew())

Needs the package ``ray``, here and in the workers, which need this package, too.
"""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from cprofiling._core import FormatError
from cprofiling._internal import arguments
from cprofiling._internal.files import make_folders
from cprofiling._internal.messages import say
from cprofiling._internal.optional import imported
from cprofiling._internal.text import shown_value
from cprofiling.layers.ranks.merge_statistics import GatheredStatistics, gathered, reason_of
from cprofiling.nodes import live_file, profiler, rank_snapshot
from cprofiling.nodes.rank_snapshot import RankedSnapshot

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

__all__ = ["GatheredStatistics", "gather", "profiling_hook"]

ray = imported("ray", install="ray")
_placement = imported("ray.util.scheduling_strategies", install="ray")

_MOST_S = 86_400.0
_PAUSE_S = 0.05  # between two looks at a file
_LONGEST_REASON = 200  # characters: Ray's own have up to a thousand
_PROCESS = re.compile(r"^\tpid: (\d+)$.*^\tip: (\S+)$", re.MULTILINE | re.DOTALL)  # what Ray says of a dead actor


class _Kept(NamedTuple):
    """Statistics that a worker has in a file."""

    path: str
    process: tuple[str, str]  # number, and the machine's address
    data: bytes  # none where it cannot be read
    wrong: str


def profiling_hook(folder: StrOrBytesPath | None = None, **options: Any) -> Callable[[], None]:
    """Return a hook that profiles in each worker.

    It is for ``ray.init(runtime_env={"worker_process_setup_hook": ...})``, and enables the default Profiler of all
    processes of actors and tasks. A worker that cannot do so says why on stderr, and works on.

    Args:
        folder: Where each worker keeps a live file on its own machine, for ``gather``; it is made. None: no files.
            A worker whose own code calls ``set_profiling`` ends its file.
        options: Those of ``Profiler.set_profiling``, without ``enabled`` and ``live``.

    Raises TypeError or ValueError for wrong arguments.
    """
    where = None if folder is None else os.path.abspath(arguments.path("folder", folder))
    if "live" in options:
        raise TypeError("live is the file of a single process: use folder, in which each worker has a live file")
    trial = profiler.Profiler()
    trial.set_profiling(True, **options)
    trial.set_profiling(False)

    def switch_on() -> None:  # it is sent by value, so that it runs where there is no cprofiling
        try:
            from cprofiling.integrations.ray import _profile_worker
        except ImportError as error:
            import sys

            sys.stderr.write(f"cprofiling: this worker is not profiled: {error}: pip install cprofiling\n")
        else:
            _profile_worker(where, options)

    return switch_on


def _profile_worker(folder: str | None, options: dict[str, Any]) -> None:
    """Switch profiling on in a worker, with a file whose name tells job, node and worker."""
    if folder is not None:
        context = ray.get_runtime_context()
        name = f"{context.get_job_id()}_{context.get_node_id()}_{context.get_worker_id()}"
        try:
            make_folders(folder)
            profiler.set_profiling(True, live=os.path.join(folder, f"{name}.cprof"), **options)
            return
        except OSError as error:
            say(f"the statistics of this worker cannot be kept in {folder!a}: {reason_of(error)}")
    profiler.set_profiling(True, **options)


def gather(
    actors: Iterable[Any] = (), *, folder: StrOrBytesPath | None = None, timeout: float = 30.0
) -> GatheredStatistics:
    """Gather the statistics of actors, and those in the files of all workers.

    Actors are told by their ``repr``. One that is dead, is busy for longer than the timeout, or has its profiling off
    is named in ``missing``; the others count.

    With ``folder`` the statistics have all workers of this job that have, or had, the hook: those of tasks, too, and
    those that have ended. They are told by host and process number, dead actors by their ``repr``. A killed worker is
    also in ``missing``, as the last tenth of a second is not in its file; nodes that are gone are there.

    Args:
        actors: The actors, of any class and job, with the hook or without.
        folder: That of the hook. Files of workers that run are complete about two seconds later, which it waits for.
        timeout: The longest time to wait, in seconds, from 0 to a day.

    Raises TypeError and ValueError for wrong arguments, RuntimeError before ``ray.init()``.
    """
    seconds = arguments.number_between("timeout", timeout, 0, _MOST_S)
    where = None if folder is None else os.path.abspath(arguments.path("folder", folder))
    named = _by_name(actors)
    if not ray.is_initialized():
        raise RuntimeError("gather() needs a running Ray: call ray.init() first")
    asked = {actor.__ray_call__.remote(_take): name for name, actor in named.items()}
    missing: dict[str, str] = {}
    for node in ray.nodes() if where is not None else ():
        name = f"node {node['NodeID']}"
        if not node["Alive"]:
            missing[name] = "it is gone, with the files of its workers"
            continue
        there = _placement.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        reader = ray.remote(_read_files).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        asked[reader.remote(where, ray.get_runtime_context().get_job_id(), seconds / 2)] = name
    done, pending = ray.wait([*asked], num_returns=len(asked), timeout=seconds) if asked else ([], [])
    for reference in pending:
        ray.cancel(reference)
        missing[asked[reference]] = "it did not answer in time"
    taken: dict[str, RankedSnapshot] = {}
    files: list[_Kept] = []
    dead: dict[Any, str] = {}  # actors by process
    for reference in done:
        name = asked[reference]
        try:
            answer = ray.get(reference)
            if isinstance(answer, list):
                files += answer
            elif answer is None:
                missing[name] = "its profiling is off, and it has counted nothing"
            else:
                taken[name] = RankedSnapshot.from_bytes(answer)
        except FormatError as error:
            missing[name] = f"its answer is damaged: {error}"
        except Exception as error:  # noqa: BLE001 of any kind: the worker's, or of the way to it
            missing[name] = _reason(error)
            if process := _PROCESS.search(str(error)):
                dead[process.groups()] = name
    _add_files(files, dead, taken, missing)
    return gathered(taken, missing)


def _by_name(actors: Any) -> dict[str, Any]:
    try:
        named = {repr(actor): actor for actor in actors}
    except TypeError:
        raise TypeError(f"actors must be an iterable of Ray's actors, got {shown_value(actors)}") from None
    for actor in named.values():
        if not isinstance(actor, ray.actor.ActorHandle):
            raise TypeError(f"actors must be Ray's actors, got {shown_value(actor)}")
    return named


def _take(_actor: object) -> bytes | None:
    """Return an actor's answer, None if off and nothing was counted."""
    if not profiler.profiling_enabled() and not profiler.get_profiling_summary():
        return None
    return rank_snapshot.take(profiler.default_profiler).to_bytes()


def _reason(error: Exception) -> str:
    """Return why there is no answer, in a line."""
    last = re.split(r"\n[ \t][^\n]*", str(error))[-1]  # a traceback, or a list of facts, is before it
    last = last.strip().removeprefix("The actor is dead because ").rstrip(".")
    said = textwrap.shorten(last, _LONGEST_REASON, placeholder=" ...") or type(error).__name__
    if isinstance(error, ray.exceptions.RayActorError):
        is_unreachable = isinstance(error, ray.exceptions.ActorUnavailableError)
        return f"it cannot be reached: {said}" if is_unreachable else f"it is dead: {said}"
    return f"it failed: {said}"


def _read_files(folder: str, job: str, seconds: float) -> list[_Kept]:
    """Return what the workers of this node have in their files.

    A commit after the next one began after this was called, and has all that was counted before.
    """
    deadline = time.monotonic() + seconds
    begin = f"{job}_{ray.get_runtime_context().get_node_id()}_"
    commits: dict[str, int] = {}
    found: list[_Kept] = []
    address = ray.util.get_node_ip_address()
    waiting = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.startswith(begin)]
    while waiting:
        for path in list(waiting):
            try:
                statistics = live_file.read(path)
                needed = commits.setdefault(path, statistics.commits + 2)
                is_over = statistics.state in (live_file.ENDED, live_file.KILLED)
                is_late = not is_over and statistics.commits < needed
                if is_late and time.monotonic() < deadline:
                    continue
                waiting.remove(path)
                wrong = "it did not write its file in time, so that its newest calls may be missing" if is_late else ""
                if statistics.state == live_file.KILLED:
                    wrong = "it was killed: its figures lack the last moments"
                if statistics.parts and statistics.snapshot.stats():
                    process = statistics.process
                    taken = RankedSnapshot(statistics.snapshot, host=process.host, pid=process.pid)
                    found.append(_Kept(path, (str(process.pid), address), taken.to_bytes(), wrong))
            except (OSError, FormatError) as error:
                waiting.remove(path)
                found.append(_Kept(path, ("", ""), b"", f"it cannot be read: {reason_of(error)}"))
        time.sleep(_PAUSE_S if waiting else 0)
    return found


def _add_files(
    files: Iterable[_Kept], dead: dict[Any, str], taken: dict[str, RankedSnapshot], missing: dict[str, str]
) -> None:
    """Add the statistics of workers that did not answer themselves."""
    answered = {profiler for answer in taken.values() for profiler, _ in answer.snapshot._sources()}  # noqa: SLF001
    for path, process, data, wrong in files:
        if not data:
            missing[path] = wrong
            continue
        found = RankedSnapshot.from_bytes(data)
        if answered & {profiler for profiler, _ in found.snapshot._sources()}:  # noqa: SLF001 the package's own
            continue
        name = dead.get(process, found.label)
        name = f"{name} {os.path.basename(path)}" if name in taken else name  # numbers of processes come again
        taken[name] = found
        if name in missing:
            missing[name] += "; its last figures are counted"
        elif wrong:
            missing[name] = wrong
