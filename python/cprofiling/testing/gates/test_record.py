"""Record of one test's call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cprofiling.testing.gates.series import Series

if TYPE_CHECKING:
    from typing import Any

    from cprofiling.testing.gates.fixtures import NodeProfiler


@dataclass
class Measured:
    """Counts and times of a test, None for those not counted.

    Attributes:
        native_calls: Calls by function.
        limited_calls: Those of them that a marker names; None: it names none, and all of them count.
        operators: Operators by name.
        launches: Launches of CUDA.
        launches_reason: Why they are not known.
        nodes: For each node, in each stage: ``node``, ``stage``, ``count``, ``error_count``, ``mean_ms``, ``p95_ms``.
        series: What was timed by ``node_profiler.pairs``, by name.
        notes: What a comparison found that is no failure.
        has_no_cuda: There was no CUDA in the process, so that nothing was launched.
    """

    native_calls: dict[str, int] | None = None
    limited_calls: dict[str, int] | None = None
    operators: dict[str, int] | None = None
    launches: int | None = None
    launches_reason: str | None = None
    nodes: list[dict[str, Any]] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    has_no_cuda: bool = False

    def take_nodes(self, profiler: NodeProfiler) -> None:
        """Take over what a Profiler knows."""
        self.nodes = [
            {
                "node": stats.node_name,
                "stage": str(stats.stage.value if hasattr(stats.stage, "value") else stats.stage),
                "count": stats.count,
                "error_count": stats.error_count,
                "mean_ms": stats.mean_ms,
                "p95_ms": stats.p95_ms,
            }
            for stats in profiler.get_profiling_summary()
        ]
        self.series = dict(profiler.series)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the file has it."""
        return {
            "native_calls": self.native_calls,
            "operators": self.operators,
            "launches": self.launches,
            "launches_reason": self.launches_reason,
            "nodes": self.nodes,
            "series": {name: each.to_dict() for name, each in self.series.items()},
        }
