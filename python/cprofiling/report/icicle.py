"""The tree of self times of a recording."""

from __future__ import annotations

from cprofiling.recording.columns import Recording, column
from cprofiling.recording.tree import host_tree, self_times, sum_up
from cprofiling.report.document import IcicleNode

MOST_DEPTH = 100
_SMALLEST = 4000  # the part of all time below which callees of one caller are shown as one: half a pixel of a page
OTHERS = "(smaller ones)"


class _Tree:
    """A tree under way, a place for each name below the same callers."""

    def __init__(self) -> None:
        self.names: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self.self_ns: list[int] = []
        self.counts: list[int] = []
        self._places: dict[tuple[int, int], int] = {}

    def place(self, parent: int, name: int) -> int:
        """Return the place of a name below another place, -1 for none."""
        found = self._places.setdefault((parent, name), len(self.names))
        if found == len(self.names):
            self.names.append(name)
            self.parents.append(parent)
            self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
            self.self_ns.append(0)
            self.counts.append(0)
        return found


def icicle(recording: Recording) -> tuple[IcicleNode, ...]:
    """Return the tree of calls on the host, with host self times.

    Calls of a name below the same callers are one, on whichever thread they ran. Callees that have less than 1/4000 of
    all time are one, named ``(smaller ones)``, with all that is inside; what is inside more than 100 others counts for
    the last of these. Callers are before their callees, of the same caller the longest first.
    """
    tree = _merged(recording)
    totals = sum_up(tree.self_ns, tree.parents)
    least = sum(tree.self_ns) / _SMALLEST
    callees: dict[int, list[int]] = {}
    for place, parent in enumerate(tree.parents):
        callees.setdefault(parent, []).append(place)
    strings = recording.strings
    shown: list[IcicleNode] = []
    waiting: list[tuple[list[int], int]] = [([-1], -1)]  # places that are shown as one, and below which
    while waiting:
        places, at = waiting.pop()
        if places != [-1]:
            name = strings[tree.names[places[0]]] if len(places) == 1 else OTHERS
            total_ms = sum(totals[place] for place in places) / 1e6
            self_ms = tree.self_ns[places[0]] / 1e6 if len(places) == 1 else total_ms
            shown.append(IcicleNode(name, at, self_ms, total_ms, sum(tree.counts[place] for place in places)))
            at = len(shown) - 1
        if len(places) == 1:
            below = sorted(callees.get(places[0], ()), key=lambda place: totals[place])
            small = [place for place in below if totals[place] < least]
            waiting += [(small, at)] if small else []
            waiting += [([place], at) for place in below[len(small) :]]
    return tuple(shown)


def _merged(recording: Recording) -> _Tree:
    """Return the tree of all of a recording."""
    host = host_tree(recording)
    times, names = self_times(recording, host), column(recording, "name")
    tree = _Tree()
    places: dict[int, int] = {}
    for row, parent in enumerate(host.parents):
        if parent == -2:
            continue
        around = places.get(parent, -1)
        is_too_deep = around >= 0 and tree.depths[around] + 1 >= MOST_DEPTH
        places[row] = place = around if is_too_deep else tree.place(around, names[row])
        tree.self_ns[place] += times[row]
        tree.counts[place] += not is_too_deep
    return tree
