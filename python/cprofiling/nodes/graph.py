"""Graph of a pipeline's nodes, with its critical path and slack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from cprofiling._internal.text import checked_text, shown_value

Edge: TypeAlias = tuple[str, str]

_LONGEST_NAME = 4096  # bytes of UTF-8, as a node's name


def checked_edges(edges: object) -> tuple[Edge, ...]:
    """Return edges as pairs of plain texts, each once, in their order.

    Raises TypeError unless given an iterable of pairs of str, ValueError for a bad name of a node and for a cycle.
    """
    if isinstance(edges, (str, bytes)) or not isinstance(edges, Iterable):
        raise TypeError(f"edges must be an iterable of pairs of node names, got {shown_value(edges)}")
    found: dict[Edge, None] = {}
    for place, edge in enumerate(edges):
        if isinstance(edge, (str, bytes)) or not isinstance(edge, Sequence) or len(edge) != 2:
            raise TypeError(f"edges[{place}] must be a pair of node names, got {shown_value(edge)}")
        names = [checked_text(f"edges[{place}][{side}]", name) for side, name in enumerate(edge)]
        for side, name in enumerate(names):
            if "\0" in name or len(name.encode("utf-8", "surrogatepass")) > _LONGEST_NAME:
                raise ValueError(
                    f"edges[{place}][{side}] must be a node's name, without NUL and of at most {_LONGEST_NAME} bytes, "
                    f"got {shown_value(name)}"
                )
        found[names[0], names[1]] = None
    Graph(tuple(found))
    return tuple(found)


class Graph:
    """Nodes that each begin when those before have ended.

    Attributes:
        nodes: Their names, each after those before it.
    """

    def __init__(self, edges: Iterable[Edge]) -> None:
        """Order the nodes of some edges. ValueError for a cycle."""
        self._before: dict[str, list[str]] = {}
        for before, after in edges:
            self._before.setdefault(before, [])
            self._before.setdefault(after, []).append(before)
        try:
            self.nodes = tuple(TopologicalSorter(self._before).static_order())
        except CycleError as error:
            cycle = " -> ".join(map(repr, error.args[1]))
            raise ValueError(f"edges must not go in circles, got {cycle}") from None

    def ends(self, times: Mapping[str, float]) -> dict[str, float]:
        """Return the earliest end of each node from the first one's begin."""
        ends: dict[str, float] = {}
        for node in self.nodes:
            start = max((ends[before] for before in self._before[node]), default=0)
            ends[node] = start + times.get(node, 0)
        return ends

    def length(self, times: Mapping[str, float]) -> float:
        """Return the length of the critical path."""
        return max(self.ends(times).values(), default=0)

    def slacks(self, times: Mapping[str, float]) -> dict[str, float]:
        """Return the slack of each node, 0 on the critical path."""
        ends = self.ends(times)
        whole = max(ends.values(), default=0)
        latest = dict.fromkeys(self.nodes, whole)
        for node in reversed(self.nodes):
            for before in self._before[node]:
                latest[before] = min(latest[before], latest[node] - times.get(node, 0))
        return {node: max(latest[node] - ends[node], 0) for node in self.nodes}
