"""What came of gathering the statistics of many processes at one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cprofiling._internal.text import counted
from cprofiling.layers.ranks import merge_statistics

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cprofiling.layers.ranks.rank_snapshot import RankedSnapshot
    from cprofiling.layers.ranks.skew import Skew
    from cprofiling.nodes.snapshot import Snapshot


@dataclass(frozen=True, repr=False)
class GatheredStatistics:
    """The statistics of many processes. They are told by their ranks, or, of workers, by their addresses.

    Attributes:
        snapshot: Those of all of them, each call counted once; None where nobody answered.
        ranks: Those of each.
        missing: The processes that did not answer in time, or whose answer was of no use, with the reason.
        refused: Those whose statistics are another one's, which are not counted again, with the reason.
    """

    snapshot: Snapshot | None
    ranks: Mapping[Any, RankedSnapshot]
    missing: Mapping[Any, str]
    refused: Mapping[Any, str]
    _skew: Skew

    def skew(self) -> Skew:
        """Return how unevenly they share the work: a table when printed; see ``cprofiling.layers.ranks.skew``."""
        return self._skew

    def __repr__(self) -> str:
        missing = f", missing: {', '.join(map(str, self.missing))}" if self.missing else ""
        return f"<GatheredStatistics of {counted(len(self.ranks), 'process', 'processes')}{missing}>"


def gathered(taken: Mapping[Any, RankedSnapshot], missing: Mapping[Any, str]) -> GatheredStatistics:
    """Merge what processes answered, by their ranks or addresses; ``missing``: who did not, and why."""
    names = {str(key): key for key in sorted(taken)}
    parts = [merge_statistics.part_of_snapshot(name, taken[key], label=name) for name, key in names.items()]
    merged = merge_statistics.merge_parts(parts)
    refused = {names[name]: reason for name, reason in merged.refused.items()}
    kept = {key: taken[key] for key in names.values() if key not in refused}
    return GatheredStatistics(merged.snapshot, kept, dict(sorted(missing.items())), refused, merged.skew)
