"""Statistics of torch.distributed ranks, gathered or written by each.

Files are for ``cprofiling merge``. Gathered statistics travel through the store of the process group (TCP, file or
memory), not by its collectives: they need no GPU, work alike with gloo and nccl, and a dead or late rank blocks nobody.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cprofiling._core import FormatError
from cprofiling._internal import arguments
from cprofiling._internal.messages import warn
from cprofiling._internal.text import shown_value
from cprofiling.layers.ranks.merge_statistics import GatheredStatistics, gathered
from cprofiling.nodes import rank_snapshot
from cprofiling.nodes.rank_snapshot import RankedSnapshot, write_rank_snapshot

if TYPE_CHECKING:
    from cprofiling.nodes.profiler import PipelineProfiling, Profiler

__all__ = ["GatheredStatistics", "gather", "write_rank_snapshot"]

_PREFIX = "cprofiling/gather"
_PIECE = 1 << 20  # bytes of a value: stores have a limit of 8 MiB
_SHORTEST_S, _LONGEST_S = 0.0005, 0.02  # of a pause between two looks
_MOST_S = 86_400.0
_GRACE_S = 10.0  # that the store has after the timeout for what it has begun


def gather(
    profiler: Profiler | PipelineProfiling, *, group: Any = None, dst: int = 0, timeout: float = 60.0
) -> GatheredStatistics | None:
    """Gather the statistics of all ranks of a group on one rank.

    Each rank of the group must call it. Ranks without an answer are named in ``missing``; the others go on at once. If
    the store itself stops answering, a RuntimeWarning says so, and what has arrived counts. Calls are matched by their
    number on each rank: one that leaves a call out is late in all that follow.

    Args:
        profiler: A Profiler, or a pipeline with one.
        group: The process group; None: all ranks.
        dst: The rank, as all ranks are counted, that gets the result.
        timeout: The longest time, in seconds, that it waits for the others in all, from 0 to a day; for a store that
            hangs, 10 s more.

    Returns:
        On rank ``dst`` the statistics; on the others, and on ranks outside of the group, None.

    Raises:
        TypeError: An argument is of another kind.
        ValueError: ``dst`` is not in the group, ``timeout`` out of range.
        RuntimeError: No process group is initialized.
    """
    import torch.distributed as dist

    arguments.number_between("timeout", timeout, 0, _MOST_S)
    target = arguments.index("dst", dst)
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("gather() needs a process group: call torch.distributed.init_process_group() first")
    if group is not None and group == dist.GroupMember.NON_GROUP_MEMBER:
        return None
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"group must be a process group or None, got {shown_value(group)}")
    members: list[int] = dist.get_process_group_ranks(group)
    if dist.get_rank() not in members:
        return None
    if target not in members:
        shown = ", ".join(map(str, members[:20])) + (", ..." if len(members) > 20 else "")
        raise ValueError(f"dst must be a rank of the group, one of {shown}, got {target}")
    deadline = time.monotonic() + timeout
    own = rank_snapshot.take(profiler)
    rank = dist.get_rank()
    mail = _Mail(dist.distributed_c10d._get_default_store(), members, target, rank)  # noqa: SLF001 no other way
    if rank == target:
        return _received(mail, own, rank, members, deadline)
    reason = _failure(lambda: mail.post(own.to_bytes()), deadline)
    if reason is not None:
        warn(f"the statistics of rank {rank} were not sent, as {reason}")
    return None


def _failure(talk: Callable[[], None], deadline: float) -> str | None:
    """Talk to the store in a thread, and return why it failed, or None.

    A hanging store never answers.
    """
    failures: list[str] = []

    def run() -> None:
        try:
            talk()
        except BaseException as error:  # noqa: BLE001 of any kind: the store's
            first = str(error).partition("\n")[0] or type(error).__name__  # without the trace of C++
            failures.append(f"the store of the process group failed: {first}")

    thread = threading.Thread(target=run, name="cprofiling.gather", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        return f"there is no thread to be had: {error}"
    thread.join(max(deadline - time.monotonic(), 0.0) + _GRACE_S)
    if thread.is_alive():
        return "the store of the process group does not answer"
    return failures[0] if failures else None


def _received(mail: _Mail, own: RankedSnapshot, rank: int, members: list[int], deadline: float) -> GatheredStatistics:
    """Wait for the others, and merge."""
    taken = {rank: own}
    missing: dict[int, str] = {}

    def talk() -> None:
        mail.open()
        for other in members:
            if other == rank:
                continue
            try:
                taken[other] = RankedSnapshot.from_bytes(mail.fetch(other, deadline))
            except TimeoutError:
                missing[other] = "it did not answer in time"
            except FormatError as error:
                missing[other] = f"its answer is damaged: {error}"
        mail.close()

    reason = _failure(talk, deadline)
    taken, missing = dict(taken), dict(missing)  # a store that hangs may yet go on
    if reason is not None:
        warn(reason)
        missing |= {other: reason for other in members if other not in taken and other not in missing}
    return gathered(taken, missing)


class _Mail:
    """One call's values in a store.

    Each rank stores its pieces, then their number and hash. The number of the call is part of the keys: the store
    counts each rank's calls, so that they match. Senders that are late leave nothing behind.
    """

    def __init__(self, store: Any, members: list[int], target: int, rank: int) -> None:
        group_hash = hashlib.sha256(repr((members, target)).encode("ascii")).hexdigest()[:16]
        self._store = store
        self._room = f"{_PREFIX}/{group_hash}"
        self._rank = rank
        self._call = 0  # not known yet

    def open(self) -> None:
        """Find out which call this is."""
        self._call = self._store.add(f"{self._room}/calls/{self._rank}", 1)

    def post(self, data: bytes) -> None:
        """Leave this rank's bytes, unless the receiver has gone on already."""
        self.open()
        key = f"{self._room}/closed"
        if self._store.check([key]) and int(self._store.get(key)) >= self._call:
            return
        pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
        for place, piece in enumerate(pieces):
            self._store.set(self._key(self._rank, place), piece)
        self._store.set(self._key(self._rank), f"{len(pieces)} {hashlib.sha256(data).hexdigest()}")

    def fetch(self, rank: int, deadline: float) -> bytes:
        """Return a rank's bytes, and remove them.

        Raises TimeoutError if they are late.
        """
        pause = _SHORTEST_S
        while not self._store.check([self._key(rank)]):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_S)
        count, _, digest = bytes(self._store.get(self._key(rank))).decode("ascii").partition(" ")
        keys = [self._key(rank, place) for place in range(int(count))]
        data = b"".join(bytes(self._store.get(key)) for key in keys)
        for key in (*keys, self._key(rank)):
            self._store.delete_key(key)
        if hashlib.sha256(data).hexdigest() != digest:
            raise FormatError(f"{len(data)} bytes do not have the hash that they should")
        return data

    def close(self) -> None:
        """Tell late ranks that nobody waits for them."""
        self._store.set(f"{self._room}/closed", str(self._call))

    def _key(self, rank: int, place: int | None = None) -> str:
        return f"{self._room}/{self._call}/{rank}" + ("" if place is None else f"/{place}")
