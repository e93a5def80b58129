"""The figures of a stage, and of each process that has used it, as reports have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

    from cprofiling.layers.memory import StageMemory
    from cprofiling.nodes.stats import NodeProfilingStats

_GIBIBYTE = 1024**3
_DIGITS = 6  # of milliseconds: nanoseconds


class RankUse(NamedTuple):
    """What one process has of a stage."""

    rank: int
    row: NodeProfilingStats
    memory: StageMemory | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as reports have it; the memory is the highest that was reserved, in units of 1024**3 bytes."""
        peak = round(self.memory.peak_reserved / _GIBIBYTE, 4) if self.memory is not None else None
        return {"rank": self.rank, **times_of(self.row), "peak_memory_gb": peak}


def times_of(row: NodeProfilingStats) -> dict[str, Any]:
    """Return the times of a stage as reports have them, in ms."""
    return {
        "count": row.count,
        "duration_ms": ms(row.total_ms),
        "mean_ms": ms(row.mean_ms),
        "min_ms": ms(row.min_ms),
        "max_ms": ms(row.max_ms),
        "std_ms": ms(row.std_ms),
    }


def ms(value: float) -> float:
    """Return milliseconds as reports have them."""
    return round(value, _DIGITS)
