"""The kernels that took the most time, node by node."""

from __future__ import annotations

from dataclasses import dataclass

from cprofiling._internal import arguments
from cprofiling._internal.tables import Figures
from cprofiling._internal.text import shown_value
from cprofiling.analysis.device_figures import work_rows
from cprofiling.recording.columns import COPIES, SETS, Recording, column, drop_notes, texts_of
from cprofiling.recording.intervals import length, union
from cprofiling.recording.tree import device_owners, host_tree, nodes_around

_NOTHING = "No kernel of a device was recorded."


@dataclass(frozen=True)
class NodeKernel:
    """The figures of one kernel in one node, in ns.

    Attributes:
        node: The node that started it, the innermost; None where that was outside of nodes, or is not known.
        kernel: The kernel's name.
        count: How often it ran for the node, 1 or more.
        total_ns: Its time, added up.
        mean_ns: Its mean time.
        share: Its part of the time of all kernels of the node, from 0 to 1; 0.0 where they took none.
        node_launches: Kernels that ran for the node.
        node_busy_ns: The time in which a device was at work for the node, copies included; what overlaps counts once.
        node_span_ns: The time from the start of the first such work to the end of the last, in all calls of the node.
    """

    node: str | None
    kernel: str
    count: int
    total_ns: int
    mean_ns: float
    share: float
    node_launches: int
    node_busy_ns: int
    node_span_ns: int


class _Node:
    """The work for one node, while the rows are looked through."""

    def __init__(self) -> None:
        self.kernels: dict[int, list[int]] = {}  # by name: how often, how long
        self.work: list[tuple[int, int]] = []

    def figures(self, node: str | None, strings: list[str], most: int) -> list[NodeKernel]:
        all_ns = sum(time for _, time in self.kernels.values())
        launched = sum(count for count, _ in self.kernels.values())
        busy = union(self.work)
        span = busy[-1][1] - busy[0][0] if busy else 0
        order = sorted(self.kernels.items(), key=lambda of: (-of[1][1], strings[of[0]]))
        return [
            NodeKernel(
                node, strings[name], count, time, time / count, time / all_ns if all_ns else 0.0, launched,
                length(busy), span,
            )
            for name, (count, time) in order[:most]
        ]  # fmt: skip


def top_kernels(recording: Recording, n: int = 5, *, node: str | None = None) -> Figures[NodeKernel]:
    """Return the longest kernels of each node, busiest node first.

    Args:
        recording: The recording.
        n: How many of each node, 1 or more.
        node: The node whose kernels are wanted; None: all nodes, and what was started outside of them.

    Raises TypeError and ValueError for a wrong ``n`` or ``node``; a node that is not in the recording has no kernels.
    """
    most = arguments.index_between("n", n, 1)
    if node is not None and not isinstance(node, str):
        raise TypeError(f"node must be a str or None, got {shown_value(node)}")
    figures: list[NodeKernel] = []
    tree = host_tree(recording, merging=False)
    around = nodes_around(recording, tree, device_owners(recording, tree))
    starts, ends, names, cats = (column(recording, name) for name in ("start_ns", "end_ns", "name", "cat"))
    memory = texts_of(recording, *COPIES, *SETS)
    found: dict[str | None, _Node] = {}
    for row in work_rows(recording):
        key = recording.strings[names[around[row]]] if around[row] >= 0 else None
        of = found.setdefault(key, _Node())
        of.work.append((starts[row], ends[row]))
        if cats[row] not in memory:
            kernel = of.kernels.setdefault(names[row], [0, 0])
            kernel[0] += 1
            kernel[1] += ends[row] - starts[row]
    for name, of in sorted(found.items(), key=lambda item: (-length(union(item[1].work)), item[0] or "")):
        if node is None or name == node:
            figures += of.figures(name, recording.strings, most)
    notes = drop_notes(recording) if figures else [_NOTHING, *drop_notes(recording)]
    return Figures(NodeKernel, figures, notes)
