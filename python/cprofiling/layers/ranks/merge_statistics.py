"""Merging the statistics of many ranks, each counted once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from cprofiling._core import FormatError
from cprofiling._internal.file_kinds import LIVE_MAGIC
from cprofiling._internal.files import open_to_read, read_whole
from cprofiling._internal.text import counted
from cprofiling.layers.ranks.skew import Skew, SkewBuilder, label_order
from cprofiling.nodes import live_file
from cprofiling.nodes.rank_snapshot import RankedSnapshot, rank_of_name
from cprofiling.nodes.snapshot import Snapshot

T = TypeVar("T")
_BATCH = 256  # snapshots that are in memory at once
_OVERFLOW = "with it, a count would exceed 2**63-1"
CHANGED = "it was changed while it was read"


class Part(NamedTuple):
    """Statistics that may be merged, described without keeping them."""

    name: str  # what messages call them: a path, a rank, an address
    label: str  # the rank, or what stands for it
    host: str  # empty: not known
    world_size: int | None  # as they tell
    sources: tuple[tuple[bytes, int], ...]  # Profilers and generations
    calls: int  # however these ended
    digest: bytes  # a hash of their bytes
    load: Callable[[], Snapshot]  # OSError or FormatError where it is not there any more
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Merged:
    """Files of several ranks as one.

    Attributes:
        labels: The ranks that are in it, in their order; of files that tell no rank, their names.
        skew: Each node over the ranks.
        world_size: The most that any of them tells; None: not known.
        hosts: Rank and machine of each that is in it; empty where it is not known.
        refused: The inputs left out, by name, with the reason.
        snapshot: Merged statistics, each call counted once, or None.
        report: The merged timing report, or None.
        clock: Certainty of the times of merged traces.
        notes: Remarks on the merged inputs.
    """

    labels: tuple[str, ...] = ()
    skew: Skew = field(default_factory=Skew)
    world_size: int | None = None
    hosts: tuple[tuple[str, str], ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    snapshot: Snapshot | None = None
    report: dict[str, Any] | None = None
    clock: str = ""
    notes: tuple[str, ...] = ()


def part_of_snapshot(
    name: str,
    taken: RankedSnapshot,
    label: str,
    digest: bytes | None = None,
    load: Callable[[], Snapshot] | None = None,
) -> Part:
    """Return statistics to be merged, in memory unless ``load`` is given."""
    snapshot = taken.snapshot
    calls = sum(
        row.count + row.error_count + row.cancelled_count + row.skipped_count + row.dropped_count
        for row in snapshot._rows(None).rows
    )
    digest = digest or hashlib.sha256(snapshot.to_bytes()).digest()
    load = load or (lambda: snapshot)
    return Part(name, label, taken.host, taken.world_size, snapshot._sources(), calls, digest, load)


def part_of_file(path: str) -> Part:
    """Read a file of statistics.

    Those of a live file, which may change, stay in memory.

    Raises OSError where it cannot be read, FormatError where it is damaged.
    """
    rank = rank_of_name(path)
    label = path if rank is None else str(rank)
    with open_to_read(path) as file:
        is_live = file.read(len(LIVE_MAGIC)) == LIVE_MAGIC
    if is_live:
        statistics = live_file.read(path)
        if not statistics.parts:
            raise FormatError("there are no statistics in it yet")
        taken = RankedSnapshot(statistics.snapshot, host=statistics.process.host)
        notes = tuple(f"{path}: {reason}" for reason in statistics.reasons)
        return part_of_snapshot(path, taken, label)._replace(notes=notes)
    data = read_whole(path)
    digest = hashlib.sha256(data).digest()

    def load() -> Snapshot:
        again = read_whole(path)
        if hashlib.sha256(again).digest() != digest:
            raise FormatError(CHANGED)
        return RankedSnapshot.from_bytes(again).snapshot

    taken = RankedSnapshot.from_bytes(data)
    part = part_of_snapshot(path, taken, label if taken.rank is None else str(taken.rank), digest, load)
    return part._replace(world_size=None) if taken.rank is None else part


def choose(
    parts: Iterable[T],
    sources: Callable[[T], Iterable[Hashable]],
    name: Callable[[T], str],
    refusal: Callable[[T, T], str],
) -> tuple[list[T], dict[str, str]]:
    """Return the parts without data of earlier ones, and why others go.

    Args:
        parts: The best ones first.
        sources: Gives the owners of a part's data.
        name: Gives what messages call a part.
        refusal: Gives the reason why a part is refused, for it and the one that has its data.
    """
    chosen: list[T] = []
    refused: dict[str, str] = {}
    owners: dict[Hashable, T] = {}
    for part in parts:
        own = tuple(sources(part))
        other = next((owners[source] for source in own if source in owners), None)
        if other is None:
            owners.update(dict.fromkeys(own, part))
            chosen.append(part)
        else:
            refused[name(part)] = refusal(part, other)
    return chosen, refused


def merge_parts(parts: Iterable[Part]) -> Merged:
    """Merge statistics in any order, with the same result to the bit.

    Of two with common data, the one with more calls, which was taken later, is merged; of equal ones the first by
    bytes, then by name. The others are among ``refused``, with the unreadable ones.
    """
    chosen, refused = choose(
        sorted(parts, key=lambda part: (-part.calls, part.digest, part.name)),
        lambda part: part.sources,
        lambda part: part.name,
        lambda part, other: (
            f"it has {'the same data as' if other.digest == part.digest else 'data of the same Profiler as'} "
            f"{other.name}, and is not counted again"
        ),
    )
    merged: list[Snapshot] = []  # one, but at first
    kept: list[Part] = []
    skew = SkewBuilder()
    for first in range(0, len(chosen), _BATCH):
        batch: list[tuple[Part, Snapshot]] = []
        for part in chosen[first : first + _BATCH]:
            try:
                batch.append((part, part.load()))
            except (OSError, FormatError) as error:
                refused[part.name] = reason_of(error)
        try:
            merged = [Snapshot.merge([*merged, *(snapshot for _, snapshot in batch)])] if batch else merged
        except OverflowError:  # by some of them
            for each in list(batch):
                try:
                    merged = [Snapshot.merge([*merged, each[1]])]
                except OverflowError:
                    refused[each[0].name] = _OVERFLOW
                    batch.remove(each)
        for part, snapshot in batch:
            kept.append(part)
            rows = snapshot._rows(None).rows
            skew.add(part.label, [(row.stage, row.node_name, row.total_ms) for row in rows if row.count])
    notes = tuple(note for part in kept for note in part.notes)
    return merged_of(kept, skew, refused, snapshot=merged[0] if merged else None, notes=notes)


def merged_of(kept: Sequence[Any], skew: SkewBuilder, refused: Mapping[str, str], **more: Any) -> Merged:
    """Return a merge of parts, each with ``label``, ``world_size`` and ``host``."""
    return Merged(
        tuple(sorted({part.label for part in kept}, key=label_order)),
        skew.build(),
        max((part.world_size for part in kept if part.world_size is not None), default=None),
        tuple((part.label, part.host) for part in kept),
        dict(sorted(refused.items())),
        **more,
    )


def reason_of(error: Exception) -> str:
    """Return why a file was not read, in words."""
    return str(getattr(error, "strerror", None) or error)


@dataclass(frozen=True, repr=False)
class GatheredStatistics:
    """Statistics of many processes, by rank or by address of a worker.

    Attributes:
        snapshot: Those of all of them, each call counted once; None where nobody answered.
        ranks: Those of each.
        missing: The processes without a useful answer in time, with the reason.
        refused: Those with statistics of another one, not counted again, with the reason.
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
    merged = merge_parts([part_of_snapshot(name, taken[key], label=name) for name, key in names.items()])
    refused = {names[name]: reason for name, reason in merged.refused.items()}
    kept = {key: taken[key] for key in names.values() if key not in refused}
    return GatheredStatistics(merged.snapshot, kept, dict(sorted(missing.items())), refused, merged.skew)
