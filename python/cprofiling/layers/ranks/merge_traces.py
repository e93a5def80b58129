"""Merging the traces of many ranks into one, on a common clock.

Times of traces of one boot of one machine are brought to its CLOCK_MONOTONIC, which all its processes share: their
uncertainty is that of the clock's calibration, about a microsecond. Between machines, and for traces that do not tell
their clock, there is only the time of day: as good as the machines' clocks agree, which nobody has measured.
The merged trace says so among its facts: ``cprofiling.merged``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from cprofiling._core import FormatError
from cprofiling._internal.row_kinds import NODE
from cprofiling._internal.text import shown_value
from cprofiling.layers.ranks.merge_statistics import CHANGED, Merged, choose, merged_of, reason_of
from cprofiling.layers.ranks.skew import SkewBuilder, label_order
from cprofiling.nodes.rank_snapshot import rank_of_name
from cprofiling.recording.columns import sources_of
from cprofiling.recording.metadata import FORMAT_VERSION
from cprofiling.recording.traces.reader import load_moved

ON_ONE_CLOCK = "CLOCK_MONOTONIC of one machine: exact to about a microsecond"
ON_SEVERAL = (
    "the time of day of several machines, or of traces that do not tell their clock: as good as these clocks agree, "
    "which was not measured; within one machine exact to about a microsecond"
)
_SORT_STEP = 10_000_000  # between the processes of a rank and those of the next; Kineto's own numbers are below
_MOST_PID = 10**9


class Track(NamedTuple):
    """The process of a track: number or text, name and place in the order."""

    pid: int | str
    name: str | None
    sort: int


class Trace(NamedTuple):
    """Trace that may be merged, described without its rows."""

    path: str
    label: str  # the rank, or the path where none is known
    world_size: int | None  # as the trace tells
    identity: str  # what tells the recording: its id, or the digest
    digest: str  # a hash of its text
    events: int  # rows
    dropped: int  # further rows that are missing
    base_ns: int  # what the times in its file are counted from
    clock: str | None  # which CLOCK_MONOTONIC it has, if known,
    since_epoch_ns: int  # and what its times are ahead of that
    host: str  # empty: not known
    where: str  # host and process, as far as they are known
    totals: tuple[tuple[str, str, float], ...]  # of each node: stage, name, ms
    tracks: tuple[Track, ...]
    sources: dict[str, str]  # file and line by node


def read_trace(path: str) -> Trace:
    """Read a trace and describe it.

    Raises OSError where it cannot be read, FormatError for one that is damaged, of another version, or merged already.
    """
    text = hashlib.sha256()
    recording, _ = load_moved(path, look=text.update)
    recording._finish()
    known: dict[str, Any] = {}
    for key, value in recording.facts.items():
        with suppress(ValueError, RecursionError):
            known[key] = json.loads(value)
    own = _object(known, "cprofiling")
    version = own.get("format_version", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise FormatError(f"it is of format version {shown_value(version)}, expected {FORMAT_VERSION}")
    if "merged" in own:  # which hides that a recording is there twice
        raise FormatError("it is merged already: merge the traces that it is made of")
    process = _object(own, "process")
    distributed = _object(known, "distributedInfo")
    told: Any = distributed.get("rank")
    world_size: Any = distributed.get("world_size")
    size = world_size if _is_index(world_size) else None
    rank = int(told) if _is_index(told) else None
    if rank is None or size is None or size < 2:  # the name tells more than one process of one
        named = rank_of_name(path)
        rank = named if named is not None else rank or None
    clock, since_epoch_ns = process.get("clock"), process.get("since_epoch_ns")
    if not (isinstance(clock, str) and isinstance(since_epoch_ns, int) and abs(since_epoch_ns) < 2**62):
        clock, since_epoch_ns = None, 0
    sums: dict[tuple[int, int], int] = {}  # of nodes, in ns
    kinds, texts, starts, ends = (recording.column(each) or () for each in ("kind", "name", "start_ns", "end_ns"))
    stages = recording.column("stage") or [0] * len(recording)
    for kind, name, stage, start, end in zip(kinds, texts, stages, starts, ends, strict=True):
        if kind == NODE:
            sums[stage, name] = sums.get((stage, name), 0) + end - start
    strings = recording.strings
    identity, digest = process.get("id"), text.hexdigest()
    return Trace(
        path,
        path if rank is None else str(rank),
        None if rank is None else size,
        identity if isinstance(identity, str) else digest,
        digest,
        len(recording),
        recording.dropped,
        recording._chrome_base,
        clock,
        since_epoch_ns,
        process["host"] if isinstance(process.get("host"), str) else "",
        ":".join(str(process[key]) for key in ("host", "pid") if isinstance(process.get(key), (str, int))),
        tuple((strings[stage], strings[name], total / 1e6) for (stage, name), total in sums.items()),
        tuple(
            Track(pid if text is None else text, name, sort or 0)
            for pid, _, text, _, name, _, _, sort, *_ in recording.tracks
        ),
        sources_of(recording),
    )


def _object(known: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an object of the facts, or an empty one."""
    value = known.get(key)
    return value if isinstance(value, dict) else {}


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def merge_traces(traces: Iterable[Trace], write: Callable[[bytes], object]) -> Merged:
    """Merge traces in any order, with the same result, through ``write``.

    At any time one of them is in memory. Of two with the same recording the one with more events is merged, the other
    refused; so is one that cannot be read again. Raises what ``write`` raises.
    """
    chosen, refused = choose(
        sorted(traces, key=lambda trace: (-trace.events, trace.digest, trace.path)),
        lambda trace: (trace.identity,),
        lambda trace: trace.path,
        lambda _, other: f"it has the same recording as {other.path}, and is not merged again",
    )
    chosen.sort(key=lambda trace: (label_order(trace.label), trace.where, trace.digest))
    firsts: dict[str, int] = {}  # the lowest rank of each machine keeps its times of day, and the others follow it
    for trace in chosen:
        if trace.clock is not None:
            firsts.setdefault(trace.clock, trace.since_epoch_ns)
    shifts = {trace.path: 0 if trace.clock is None else firsts[trace.clock] - trace.since_epoch_ns for trace in chosen}
    clock = ON_ONE_CLOCK if len({trace.clock for trace in chosen}) == 1 and firsts else ON_SEVERAL
    base_ns = min((trace.base_ns + shifts[trace.path] for trace in chosen), default=0)
    facts = _facts(chosen, shifts, clock, base_ns)
    text = ",\n".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in facts.items())
    write(f'{{\n{text},\n"traceEvents":['.encode("ascii"))
    skew = SkewBuilder()
    numbers = _Numbers()
    merged: list[Trace] = []
    greatest_id = 0
    for place, trace in enumerate(chosen):
        digest = hashlib.sha256()
        try:
            recording, own_greatest = load_moved(trace.path, shifts[trace.path], greatest_id, digest.update)
            if digest.hexdigest() != trace.digest:
                raise FormatError(CHANGED)
        except (OSError, FormatError) as error:
            refused[trace.path] = reason_of(error)
            continue
        greatest_id = max(greatest_id, own_greatest)
        whose = f"rank {trace.label}" if trace.label.isdecimal() else trace.label
        where = f" ({trace.where})" if trace.where else ""
        for pid, name, sort in dict.fromkeys(trace.tracks):
            sort_index = place * _SORT_STEP + min(max(sort, 0), _SORT_STEP - 1)
            recording._name_process(pid, f"{whose}: {name or pid}{where}", None, sort_index)
        recording._renumber([numbers.of(trace, each.pid) for each in trace.tracks])
        recording._finish()
        recording._write_events(write, base_ns, not any(each.tracks for each in merged))
        skew.add(trace.label, trace.totals)
        merged.append(trace)
    write(b"\n]}\n")
    return merged_of(merged, skew, refused, clock=clock)


class _Numbers:
    """Numbers of processes, each of one process only.

    Several traces of one process, by rank, host and number, have its number in common.
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._next = 1
        self._known: dict[tuple[str, str, int | str], int] = {}

    def of(self, trace: Trace, wanted: int | str) -> int:
        """Return the wanted number if it is free, else another one."""
        key = (trace.label, trace.where or trace.path, wanted)
        if key not in self._known:
            if isinstance(wanted, str) or not 0 < wanted < _MOST_PID or wanted in self._taken:
                while self._next in self._taken:
                    self._next += 1
                wanted = self._next
            self._taken.add(wanted)
            self._known[key] = wanted
        return self._known[key]


def _facts(traces: Sequence[Trace], shifts: dict[str, int], clock: str, base_ns: int) -> dict[str, Any]:
    ranks = [
        {"rank": trace.label, "where": trace.where, "shift_ns": shifts[trace.path], "events": trace.events}
        for trace in traces
    ]
    sizes = [trace.world_size for trace in traces if trace.world_size]
    told = {place for trace in traces for place in trace.sources.items()}
    several = {name for name, count in Counter(name for name, _ in told).items() if count > 1}
    sources = dict(sorted((name, place) for name, place in told if name not in several))
    dropped = sum(trace.dropped for trace in traces)
    return {
        "schemaVersion": 1,
        "baseTimeNanoseconds": base_ns,
        "displayTimeUnit": "ms",
        "deviceProperties": [],
        "distributedInfo": {"backend": "", "rank": 0, "world_size": max([len({t.label for t in traces}), *sizes])},
        **({"droppedEvents": dropped} if dropped else {}),
        "cprofiling": {
            "format_version": FORMAT_VERSION,
            "merged": {"clock": clock, "ranks": ranks},
            **({"sources": sources} if sources else {}),
        },
    }
