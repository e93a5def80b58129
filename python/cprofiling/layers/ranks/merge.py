"""Merging the files of many ranks, as the command ``merge`` does.

The files are of one kind: statistics (live files, and ``Snapshot.to_bytes()``, with or without the record of a rank),
timing reports, or Chrome traces. Where they are not, the most frequent kind is merged. A file that is damaged, empty,
of another version or kind, or has what another one has already, is named, and the others are merged. The order of the
files means nothing.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cprofiling._core import FormatError
from cprofiling._internal import arguments, file_kinds
from cprofiling._internal.files import atomic_writer, open_regular
from cprofiling._internal.progress import progress
from cprofiling._internal.tables import text_table
from cprofiling._internal.text import counted, shown_text
from cprofiling.layers.ranks import merge_statistics, merge_timing, merge_traces
from cprofiling.layers.ranks.merge_statistics import Merged, reason_of
from cprofiling.layers.ranks.skew import label_order
from cprofiling.nodes.summary_table import format_profiling_table

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath

    T = TypeVar("T")

STATISTICS, TIMING, TRACES = "statistics", "timing reports", "traces"
NOTHING = "there is nothing to merge"
_MOST_NAMED = 100  # ranks that are missing
_MOST_HOSTS = 10


class MergeError(Exception):
    """Reason why nothing was merged, with ``complaints`` on the files."""

    def __init__(self, message: str, complaints: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.complaints = tuple(complaints)


class Outcome(NamedTuple):
    """Result of merging files.

    Attributes:
        text: The printable summary of the merge, and the ranks compared.
        complaints: Lines on inputs left out and missing ranks; none if all is well.
    """

    text: str
    complaints: tuple[str, ...]


def merge_files(
    paths: Iterable[StrOrBytesPath], output: StrOrBytesPath | None = None, expected: int | None = None
) -> Outcome:
    """Merge files, and write the result.

    Args:
        paths: The files.
        output: Where to; it must be none of the files. None: nowhere; traces need one.
        expected: How many ranks there should be; None: as the files say.

    Raises TypeError and ValueError for wrong arguments, MergeError where nothing can be merged, OSError where the
    output cannot be written.
    """
    expected = arguments.index_or_none("expected", expected, 1)
    target = None if output is None else arguments.path("output", output)
    files: dict[str, str] = {}  # by what they are behind links
    refused: dict[str, str] = {}
    for path in sorted(arguments.path("paths", path) for path in paths):
        real = os.path.realpath(path)
        if real in files:
            refused[path] = f"it was given more than once{'' if files[real] == path else f', also as {files[real]}'}"
        else:
            files[real] = path
    if target is not None and os.path.realpath(target) in files:
        raise MergeError(f"{shown_text('output', target)} is one of the files to be merged")
    by_kind: dict[str, list[str]] = {STATISTICS: [], TIMING: [], TRACES: []}
    for path in files.values():
        try:
            by_kind[_kind_of(path)].append(path)
        except (OSError, FormatError) as error:
            refused[path] = reason_of(error)
    kind = max(by_kind, key=lambda kind: len(by_kind[kind]))
    for other, others in by_kind.items():
        if other != kind:
            refused.update(dict.fromkeys(others, f"it is one of {other}, and {kind} are merged"))
    if kind == TRACES and target is None:
        raise MergeError("merged traces need a file: say which with -o")
    merged = _merge(kind, by_kind[kind], target, refused)
    complaints = [_complaint(path, reason) for path, reason in sorted({**refused, **merged.refused}.items())]
    if not merged.labels:
        raise MergeError(NOTHING, complaints)
    missing = _missing(merged.labels, merged.world_size if expected is None else expected)
    where = "" if target is None else f", written to {shown_text('output', target)}"
    lines = [f"Merged: {kind} of {counted(len(merged.labels), 'rank')}{where}"]
    if merged.clock:
        lines.append(f"Clock: {merged.clock}")
    lines += _shared(merged.hosts)
    tables: list[str] = []
    if merged.snapshot is not None:
        stats = merged.snapshot.stats()
        tables.append(format_profiling_table(stats, skip_first_n=stats.skip_first_n))
        remarks = [shown_text("reason", reason) for reason in (*stats.reasons, *merged.notes)]
        tables += ["\n".join(remarks)] if remarks else []
    if merged.report is not None:
        columns = ("Stage", "Ranks", "Calls", "Slowest rank (ms)", "Share")
        tables.append(text_table(columns, [
            (name, stage["parallel_info"]["num_ranks"], stage.get("count"), f"{stage['duration_ms']:.3f}",
             f"{stage['percentage']:.1f} %")
            for name, stage in merged.report["stages"].items()
        ]))  # fmt: skip
    text = "\n\n".join(["\n".join(lines), *tables, f"Ranks\n{merged.skew}"])
    return Outcome(text, (*complaints, *missing))


def _kind_of(path: str) -> str:
    """Return the kind of a file by its first bytes."""
    with open_regular(path) as file:
        head = file.read(file_kinds.HEAD)
    if not head:
        raise FormatError("it is empty")
    kind = file_kinds.kind_of(head)
    if kind in (file_kinds.STATISTICS, file_kinds.LIVE):
        return STATISTICS
    if kind is file_kinds.TRACE:
        return TRACES
    if head.lstrip().startswith(b"{"):
        return TIMING
    raise FormatError(file_kinds.NEITHER)


def _merge(kind: str, files: Sequence[str], target: str | None, refused: dict[str, str]) -> Merged:
    """Merge files of a kind and write the result."""
    data = None
    if kind == STATISTICS:
        merged = merge_statistics.merge_parts(_read(files, merge_statistics.part_of_file, refused))
        data = None if merged.snapshot is None else merged.snapshot.to_bytes()
    elif kind == TIMING:
        merged = merge_timing.merge_reports(_read(files, merge_timing.read_report, refused))
        if merged.report is not None:
            data = json.dumps(merged.report, indent=2, allow_nan=False).encode("ascii") + b"\n"
    else:
        merged = Merged()
        traces = list(_read(files, merge_traces.read_trace, refused))
        if traces and target is not None:
            with ExitStack() as stack:
                file = stack.enter_context(atomic_writer(target))
                write: Callable[[bytes], object] = file.write
                if target.endswith(".gz"):
                    write = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0)).write
                advance = stack.enter_context(progress("writing"))
                merged = merge_traces.merge_traces(traces, lambda piece: (write(piece), advance(len(piece))))
                if not merged.labels:  # and no file
                    raise MergeError(NOTHING, [_complaint(*each) for each in merged.refused.items()])
    if target is not None and data is not None:
        with atomic_writer(target) as file:
            file.write(data)
    return merged


def _read(files: Sequence[str], read: Callable[[str], T], refused: dict[str, str]) -> Iterable[T]:
    """Yield the readable files' content, and note unreadable files."""
    with progress("merging", len(files)) as advance:
        for path in files:
            try:
                yield read(path)
            except FormatError as error:
                refused[path] = str(error).removeprefix(f"{path}: ").removeprefix(f"{shown_text('path', path)}: ")
            except OSError as error:
                refused[path] = reason_of(error)
            except MemoryError:
                refused[path] = "there is not enough memory"
            advance(1)


def _complaint(path: str, reason: str) -> str:
    return f"{shown_text('path', path)} is not merged: {shown_text('reason', reason)}"


def _missing(labels: Sequence[str], expected: int | None) -> list[str]:
    """Return a line on missing ranks, if any."""
    if expected is None:
        return []
    known = {int(label) for label in labels if label.isdecimal()}
    missing = expected - sum(rank < expected for rank in known)
    unnamed = sum(not label.isdecimal() for label in labels)
    if unnamed >= missing:
        return []
    if unnamed:
        return [f"{missing - unnamed:,} of {expected:,} ranks are missing; of {unnamed:,} files the rank is not known"]
    named = list(islice((str(rank) for rank in range(expected) if rank not in known), min(missing, _MOST_NAMED)))
    more = f" and {missing - len(named):,} more" if missing > len(named) else ""
    return [f"missing of {expected:,} ranks: {', '.join(named)}{more}"]


def _shared(hosts: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line on ranks that several machines claim, if any."""
    hosts_of: dict[str, set[str]] = {}
    for label, host in hosts:
        if host:
            hosts_of.setdefault(label, set()).add(host)
    shared = sorted((label for label in hosts_of if len(hosts_of[label]) > 1), key=label_order)
    if not shared:
        return []
    machines = ", ".join(shown_text("host", host) for host in sorted(hosts_of[shared[0]])[:_MOST_HOSTS])
    more = f"; {counted(len(shared) - 1, 'more rank')} likewise" if len(shared) > 1 else ""
    return [f"Rank {shown_text('rank', shared[0])} is of several machines, and adds up: {machines}{more}"]
