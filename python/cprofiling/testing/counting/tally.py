"""Counts by name and node that threads add to without losing any."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from cprofiling import _core

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    Node: TypeAlias = tuple[str, str] | None
    Key: TypeAlias = tuple[str, Node]

_add_one = next  # under a name of our own, as the program may have calls of ``next`` counted


class Tally:
    """Counts of names, by node.

    Neither adding nor reading takes a lock: either may come while the same thread adds already, from a finaliser or a
    signal's handler, and in a child that was forked meanwhile. What they do are single steps for the interpreter.
    """

    def __init__(self) -> None:
        self._counters: dict[Key, count[int]] = {}

    def add(self, name: str) -> None:
        """Count a name once, for the node in which this thread is."""
        key = (name, _core.open_node())
        counter = self._counters.get(key)
        _add_one(self._counters.setdefault(key, count()) if counter is None else counter)

    def by_name(self) -> dict[str, int]:
        """Return how often each name was met."""
        found: dict[str, int] = {}
        for (name, _), met in self._met():
            found[name] = found.get(name, 0) + met
        return found

    def total(self) -> int:
        """Return how often all names together were met."""
        total = 0
        for _, met in self._met():
            total += met
        return total

    def by_node(self) -> dict[str, dict[str, int]]:
        """Return the counts in each node, without those inside it.

        A node's stages are one. What was met outside of nodes is left out.
        """
        found: dict[str, dict[str, int]] = {}
        for (name, node), met in self._met():
            if node is not None:
                names = found.setdefault(node[1], {})
                names[name] = names.get(name, 0) + met
        return found

    def _met(self) -> Iterator[tuple[Key, int]]:
        for key, counter in self._counters.copy().items():
            # ``count(3)``: what else tells the number counts one itself.
            yield key, int(count.__repr__(counter)[6:-1])
