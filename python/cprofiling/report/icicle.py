"""The tree of self times of a recording."""

from __future__ import annotations

from cprofiling.recording.columns import Recording, column
from cprofiling.recording.tree import host_tree, self_times, sum_up
from cprofiling.report.document import IcicleNode

MOST_DEPTH = 100
_SMALLEST = 4000  # the part of all time below which callees of one caller are shown as one: half a pixel of a page
OTHERS = "(smaller ones)"


def icicle(recording: Recording) -> tuple[IcicleNode, ...]:
    """Return the tree of calls on the host, with host self times.

    Calls of a name below the same callers are one, on whichever thread they ran. Callees that have less than 1/4000 of
    all time are one, named ``(smaller ones)``, with all that is inside; what is inside more than 100 others counts for
    the last of these. Callers are before their callees, of the same caller the longest first.
    """
    names, parents, self_ns, counts = _merged(recording)
    totals = sum_up(self_ns, parents)
    least = sum(self_ns) / _SMALLEST
    callees: dict[int, list[int]] = {}
    for place, parent in enumerate(parents):
        callees.setdefault(parent, []).append(place)
    strings = recording.strings
    shown: list[IcicleNode] = []
    waiting: list[tuple[list[int], int]] = [([-1], -1)]  # places that are shown as one, and below which
    while waiting:
        places, at = waiting.pop()
        if places != [-1]:
            name = strings[names[places[0]]] if len(places) == 1 else OTHERS
            total_ms = sum(totals[place] for place in places) / 1e6
            self_ms = self_ns[places[0]] / 1e6 if len(places) == 1 else total_ms
            shown.append(IcicleNode(name, at, self_ms, total_ms, sum(counts[place] for place in places)))
            at = len(shown) - 1
        if len(places) == 1:
            below = sorted(callees.get(places[0], ()), key=lambda place: totals[place])
            small = [place for place in below if totals[place] < least]
            waiting += [(small, at)] if small else []
            waiting += [([place], at) for place in below[len(small) :]]
    return tuple(shown)


def _merged(recording: Recording) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return names, parents, self times in ns and counts of merged calls."""
    host = host_tree(recording)
    times, names = self_times(recording, host), column(recording, "name")
    shown: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
    depths: list[int] = []
    known: dict[tuple[int, int], int] = {}
    places: dict[int, int] = {}
    for row, parent in enumerate(host.parents):
        if parent == -2:
            continue
        place = around = places.get(parent, -1)
        is_too_deep = around >= 0 and depths[around] + 1 >= MOST_DEPTH
        if not is_too_deep:
            place = known.setdefault((around, names[row]), len(depths))
        if place == len(depths):
            depths.append(depths[around] + 1 if around >= 0 else 0)
            for values, first in zip(shown, (names[row], around, 0, 0), strict=True):
                values.append(first)
        places[row] = place
        shown[2][place] += times[row]
        shown[3][place] += not is_too_deep
    return shown
