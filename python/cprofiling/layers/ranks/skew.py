"""Uneven work of ranks, with the stragglers in each node.

A rank is a straggler in a node if its total time there is at least 1.2 times the median of the ranks that ran the node,
and exceeds it by at least 1 % of a rank's time in all nodes (the median of the ranks).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from cprofiling._internal.tables import Shown, Table, Tabular, frame_of, short_repr
from cprofiling._internal.text import counted, shown_text

if TYPE_CHECKING:
    import pandas as pd

LEAST_RATIO = 1.2
LEAST_SHARE = 0.01
RULE = (
    f"A straggler takes at least {LEAST_RATIO} times the median of the ranks in a node, "
    f"and {LEAST_SHARE * 100:.0f} % of a rank's time in all nodes more than that."
)
_COLUMNS = ("Node", "Stage", "Ranks", "Slowest", "Total (ms)", "Median (ms)", "Ratio", "Straggler")
_MOST_NAMED = 20  # stragglers


@dataclass(frozen=True)
class NodeSkew:
    """One node over the ranks that ran it.

    Attributes:
        node_name: The node.
        stage: Its execution stage; empty without one.
        ranks: How many ranks ran it.
        slowest: The label of the rank with the largest total time; of equal ones the first.
        slowest_ms: That total, in ms.
        median_ms: The median of the totals.
        ratio: ``slowest_ms / median_ms``; None where the median is 0.
        stragglers: The ranks that are stragglers in this node: label, and ms beyond the median.
    """

    node_name: str
    stage: str
    ranks: int
    slowest: str
    slowest_ms: float
    median_ms: float
    ratio: float | None
    stragglers: tuple[tuple[str, float], ...]


class Skew(Tabular, list[NodeSkew]):
    """Nodes over the ranks, the most uneven first.

    It is text when it is printed, and has ``to_pandas()``.
    """

    def stragglers(self) -> dict[str, tuple[int, float]]:
        """Return the straggling ranks, with their nodes and excess in ms.

        The slowest come first.
        """
        found: dict[str, tuple[int, float]] = {}
        for row in self:
            for label, more_ms in row.stragglers:
                nodes, beyond_ms = found.get(label, (0, 0.0))
                found[label] = nodes + 1, beyond_ms + more_ms
        return dict(sorted(found.items(), key=lambda item: (-item[1][1], -item[1][0], label_order(item[0]))))

    def _table(self) -> Table:
        rows = []
        for row in self:
            ratio = None if row.ratio is None else Shown(f"{row.ratio:.2f}")
            times = (Shown(f"{row.slowest_ms:.3f}"), Shown(f"{row.median_ms:.3f}"))
            slow = ", ".join(label for label, _ in row.stragglers) or None
            rows.append((row.node_name, row.stage, row.ranks, row.slowest, *times, ratio, slow))
        found = list(self.stragglers().items())
        named = [
            f"{shown_text('rank', label)} ({counted(nodes, 'node')}, {beyond:,.1f} ms beyond the median)"
            for label, (nodes, beyond) in found[:_MOST_NAMED]
        ]
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        told = f"Stragglers: {', '.join(named)}{more}." if found else "No rank is a straggler."
        return Table(_COLUMNS, rows, [told, RULE])

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame.

        Raises ImportError, with the extra, where pandas is missing.
        """
        names = tuple(NodeSkew.__dataclass_fields__)
        return frame_of(names, [tuple(getattr(row, name) for name in names) for row in self])

    def __repr__(self) -> str:
        return short_repr("Skew", len(self), "node")


def label_order(label: str) -> tuple[bool, int, str]:
    """Return a sort key for labels of ranks, numbers first."""
    is_number = label.isdecimal() and label.isascii()
    return (not is_number, int(label) if is_number else 0, label)


class SkewBuilder:
    """Collect the total times of nodes from each rank, in any order."""

    def __init__(self) -> None:
        self._times_ms: dict[tuple[str, str], dict[str, list[float]]] = {}  # by stage and node, then by label

    def add(self, label: str, totals: Iterable[tuple[str, str, float]]) -> None:
        """Add stage, node and total time in ms of a rank's nodes."""
        for stage, node, total_ms in totals:
            self._times_ms.setdefault((stage, node), {}).setdefault(label, []).append(total_ms)

    def build(self) -> Skew:
        """Return the table."""
        nodes = {  # a rank's parts are sorted, so that their order does not matter
            key: {label: sum(sorted(times_by_label[label])) for label in sorted(times_by_label, key=label_order)}
            for key, times_by_label in self._times_ms.items()
        }
        of_ranks: dict[str, list[float]] = {}
        for totals in nodes.values():
            for label, total_ms in totals.items():
                of_ranks.setdefault(label, []).append(total_ms)
        floor_ms = LEAST_SHARE * median([sum(sorted(times)) for times in of_ranks.values()] or [0.0])
        rows = []
        for (stage, node), totals in nodes.items():
            middle = median(totals.values())
            slowest = max(totals, key=lambda label: totals[label])
            slow = tuple(
                (label, total_ms - middle)
                for label, total_ms in totals.items()
                if total_ms > 0 and total_ms >= LEAST_RATIO * middle and total_ms - middle >= floor_ms
            )
            ratio = totals[slowest] / middle if middle > 0 else None
            rows.append(NodeSkew(node, stage, len(totals), slowest, totals[slowest], middle, ratio, slow))
        rows.sort(key=lambda row: (row.median_ms - row.slowest_ms, row.stage, row.node_name))
        return Skew(rows)
