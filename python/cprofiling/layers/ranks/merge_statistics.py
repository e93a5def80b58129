"""Merging the statistics of many ranks, each of which is counted once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from cprofiling._core import FormatError
from cprofiling._internal.file_kinds import LIVE_MAGIC
from cprofiling._internal.files import open_to_read, read_whole
from cprofiling._internal.text import counted
from cprofiling.layers.ranks.rank_snapshot import RankedSnapshot, rank_of_name
from cprofiling.layers.ranks.skew import Skew, SkewBuilder, label_order
from cprofiling.nodes.live_file import reading
from cprofiling.nodes.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

_BATCH = 256  # snapshots that are in memory at once
_OVERFLOW = "with it, a count would exceed 2**63-1"
CHANGED = "it was changed while it was read"


@dataclass(frozen=True)
class Part:
    """Statistics that may be merged, described without keeping them.

    Attributes:
        name: What messages call them: a path, a rank, an address.
        label: The rank, or what stands for it.
        host: The machine; empty: not known.
        world_size: How many ranks there are, as it tells; None: not known.
        sources: Whose data they are: Profilers and generations.
        calls: How many calls they count, however these ended.
        digest: A hash of their bytes.
        load: Gives the snapshot. OSError or FormatError where it is not there any more.
        notes: What is to be said of them.
    """

    name: str
    label: str
    host: str
    world_size: int | None
    sources: tuple[tuple[bytes, int], ...]
    calls: int
    digest: bytes
    load: Callable[[], Snapshot]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MergedStatistics:
    """Statistics of several ranks as one.

    Attributes:
        snapshot: All of them, each call counted once; None where there are none.
        labels: The ranks that are in it, in their order; of files that tell no rank, their names.
        skew: Each node over the ranks.
        world_size: The most that any of them tells; None: not known.
        hosts: Rank and machine of each that is in it; empty where it is not known.
        refused: What was not merged, by its name, with the reason.
        notes: What is to be said of what was merged.
    """

    snapshot: Snapshot | None
    labels: tuple[str, ...]
    skew: Skew
    world_size: int | None
    hosts: tuple[tuple[str, str], ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def part_of_snapshot(name: str, taken: RankedSnapshot, label: str) -> Part:
    """Return statistics that are in memory as what may be merged."""
    return _part(name, taken, label, hashlib.sha256(taken.snapshot.to_bytes()).digest(), lambda: taken.snapshot)


def part_of_file(path: str) -> Part:
    """Read a file of statistics.

    Raises OSError where it cannot be read, FormatError where it is damaged.
    """
    with open_to_read(path) as file:
        if file.read(len(LIVE_MAGIC)) == LIVE_MAGIC:
            return _part_of_live_file(path)
    data = read_whole(path)
    digest = hashlib.sha256(data).digest()

    def load() -> Snapshot:
        again = read_whole(path)
        if hashlib.sha256(again).digest() != digest:
            raise FormatError(CHANGED)
        return RankedSnapshot.from_bytes(again).snapshot

    taken = RankedSnapshot.from_bytes(data)
    if taken.rank is None:
        taken = RankedSnapshot(taken.snapshot, rank_of_name(path), None, taken.host, taken.pid)
    label = path if taken.rank is None else str(taken.rank)
    return _part(path, taken, label, digest, load)


def _part_of_live_file(path: str) -> Part:
    """Read a live file and keep its statistics, as they may change."""
    statistics = reading.read(path)
    if not statistics.parts:
        raise FormatError("there are no statistics in it yet")
    rank = rank_of_name(path)
    taken = RankedSnapshot(statistics.snapshot, rank, None, statistics.process.host, statistics.process.pid)
    part = part_of_snapshot(path, taken, path if rank is None else str(rank))
    return replace(part, notes=tuple(f"{path}: {reason}" for reason in statistics.reasons))


def _part(name: str, taken: RankedSnapshot, label: str, digest: bytes, load: Callable[[], Snapshot]) -> Part:
    calls = sum(
        stats.count + stats.error_count + stats.cancelled_count + stats.skipped_count + stats.dropped_count
        for stats in taken.snapshot.stats()
    )
    return Part(name, label, taken.host, taken.world_size, taken.snapshot._sources(), calls, digest, load)


def merge_parts(parts: Iterable[Part]) -> MergedStatistics:
    """Merge statistics in any order, with the same result to the bit.

    Where two have data in common, that which counts more calls is merged, as it was taken later; of equal ones the
    first by their bytes, then by their names. The others are among ``refused``, as is what cannot be loaded.
    """
    chosen, refused = _chosen(parts)
    merger = _Merger(refused)
    for part in chosen:
        merger.add(part)
    merger.join()
    return MergedStatistics(
        merger.merged,
        tuple(sorted({part.label for part in merger.parts}, key=label_order)),
        merger.skew.build(),
        max((part.world_size for part in merger.parts if part.world_size is not None), default=None),
        tuple((part.label, part.host) for part in merger.parts),
        dict(sorted(refused.items())),
        tuple(note for part in merger.parts for note in part.notes),
    )


def _chosen(parts: Iterable[Part]) -> tuple[list[Part], dict[str, str]]:
    """Return the parts to be merged, and why the others are not."""
    chosen: list[Part] = []
    refused: dict[str, str] = {}
    owners: dict[tuple[bytes, int], Part] = {}
    for part in sorted(parts, key=lambda part: (-part.calls, part.digest, part.name)):
        other = next((owners[source] for source in part.sources if source in owners), None)
        if other is None:
            owners.update(dict.fromkeys(part.sources, part))
            chosen.append(part)
        else:
            what = "the same data as" if other.digest == part.digest else "data of the same Profiler as"
            refused[part.name] = f"it has {what} {other.name}, and is not counted again"
    return chosen, refused


class _Merger:
    """Merges as it goes, so that few snapshots are in memory at once."""

    def __init__(self, refused: dict[str, str]) -> None:
        self.merged: Snapshot | None = None
        self.parts: list[Part] = []
        self.skew = SkewBuilder()
        self._refused = refused
        self._waiting: list[tuple[Part, Snapshot]] = []

    def add(self, part: Part) -> None:
        try:
            self._waiting.append((part, part.load()))
        except (OSError, FormatError) as error:
            self._refused[part.name] = reason_of(error)
        if len(self._waiting) == _BATCH:
            self.join()

    def join(self) -> None:
        """Merge those that wait, but for those with too large counts."""
        waiting, self._waiting = self._waiting, []
        try:
            self._merge(waiting)
        except OverflowError:
            for each in waiting:
                try:
                    self._merge([each])
                except OverflowError:
                    self._refused[each[0].name] = _OVERFLOW

    def _merge(self, waiting: Sequence[tuple[Part, Snapshot]]) -> None:
        if not waiting:
            return
        before = [] if self.merged is None else [self.merged]
        self.merged = Snapshot.merge([*before, *(snapshot for _, snapshot in waiting)])
        for part, snapshot in waiting:
            self.parts.append(part)
            rows = [(str(row.stage), row.node_name, row.total_ms) for row in snapshot.stats() if row.count]
            self.skew.add(part.label, rows)


def reason_of(error: Exception) -> str:
    """Return why a file was not read, in words."""
    return str(getattr(error, "strerror", None) or error)


def missing_ranks(labels: Iterable[str], expected: int, most: int) -> tuple[int, list[str]]:
    """Return the number of missing ranks, and the first ``most`` of them."""
    known = {int(label) for label in labels if label.isdecimal()}
    count = expected - sum(rank < expected for rank in known)
    missing = (str(rank) for rank in range(expected) if rank not in known)
    return count, list(islice(missing, min(count, most)))


@dataclass(frozen=True, repr=False)
class GatheredStatistics:
    """Statistics of many processes, by rank or by address of a worker.

    Attributes:
        snapshot: Those of all of them, each call counted once; None where nobody answered.
        ranks: Those of each.
        missing: The processes that did not answer in time, or whose answer was of no use, with the reason.
        refused: Those whose statistics are another one's, which are not counted again, with the reason.
    """

    snapshot: Snapshot | None
    ranks: Mapping[Any, RankedSnapshot]
    missing: Mapping[Any, str]
    refused: Mapping[Any, str]
    _skew: Skew

    def skew(self) -> Skew:
        """Return how unevenly the processes share the work."""
        return self._skew

    def __repr__(self) -> str:
        missing = f", missing: {', '.join(map(str, self.missing))}" if self.missing else ""
        return f"<GatheredStatistics of {counted(len(self.ranks), 'process', 'processes')}{missing}>"


def gathered(taken: Mapping[Any, RankedSnapshot], missing: Mapping[Any, str]) -> GatheredStatistics:
    """Merge the statistics of processes, by their ranks or addresses.

    missing: The processes without an answer, with the reason.
    """
    names = {str(key): key for key in sorted(taken)}
    parts = [part_of_snapshot(name, taken[key], label=name) for name, key in names.items()]
    merged = merge_parts(parts)
    refused = {names[name]: reason for name, reason in merged.refused.items()}
    kept = {key: taken[key] for key in names.values() if key not in refused}
    return GatheredStatistics(merged.snapshot, kept, dict(sorted(missing.items())), refused, merged.skew)
