"""Executions, the device work of each pipeline call on one device."""

from __future__ import annotations

from dataclasses import dataclass, field

from cprofiling._internal.row_kinds import NODE, RECORD, STEP
from cprofiling.recording.columns import ANNOTATIONS, COPIES, SETS, Recording, column, texts_of
from cprofiling.recording.tree import device_owners, host_tree


@dataclass
class Execution:
    """Work of one device that one host span started.

    Attributes:
        span: The row of the host: the innermost node, labelled block or step around the start of the work; where there
            is none, the outermost operator.
        device: The number of the device.
        index: The running number of the execution on its device, from 0, by the start of its first work.
        start: When its first work started.
        end: When the last of its work ended.
        run: The time of its computations (what is no copy and no setting of memory), added up; of those inside each
            other on one stream, as an NPU's execution and its operators, that of the outermost.
        rows: The rows of the work, by their start.
    """

    span: int
    device: int
    index: int
    start: int
    end: int
    run: int = 0
    rows: list[int] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The time from its start to its end."""
        return self.end - self.start

    @property
    def io_wait(self) -> int:
        """Time of copies and waits in ns, ``total - run``.

        Negative where computations overlapped.
        """
        return self.total - self.run


def executions(recording: Recording) -> list[Execution]:
    """Return the executions of a recording, by start.

    Work of unknown origin is in none.
    """
    tree = host_tree(recording, merging=False)
    starts, ends, devices, cats, tracks, kinds = (
        column(recording, name) for name in ("start_ns", "end_ns", "device", "cat", "track", "kind")
    )
    annotations = texts_of(recording, *ANNOTATIONS)
    spans = tree.nearest(  # each host row's innermost span, else its outermost row
        lambda row: tree.parents[row] < 0 or kinds[row] in (NODE, RECORD, STEP) or cats[row] in annotations
    )
    memory = texts_of(recording, *COPIES, *SETS)
    found: dict[tuple[int, int], Execution] = {}
    counts: dict[int, int] = {}
    ran_to: dict[int, int] = {}  # by track
    for row, owner in sorted(device_owners(recording, tree).items()):
        key = span, device = spans[owner], devices[row]
        execution = found.get(key)
        if execution is None:
            index = counts.get(device, 0)
            counts[device] = index + 1
            execution = found[key] = Execution(span, device, index, starts[row], ends[row])
        execution.rows.append(row)
        execution.end = max(execution.end, ends[row])
        if cats[row] not in memory and ends[row] > ran_to.get(tracks[row], starts[row]):
            execution.run += ends[row] - starts[row]
            ran_to[tracks[row]] = ends[row]
    return list(found.values())
