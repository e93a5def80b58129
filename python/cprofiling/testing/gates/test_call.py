"""Call of one test, the record of its counts, and their judgement."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from cprofiling.testing.counting.calls import count_calls
from cprofiling.testing.counting.dispatches import count_dispatches
from cprofiling.testing.gates.fixtures import NodeProfiler
from cprofiling.testing.gates.limits import MARKER, complaints, limits_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Any

    from cprofiling.testing.gates.plugin import Gate
    from cprofiling.testing.gates.series import Series


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
        series: The pairs timed by ``node_profiler.pairs``, by name.
        notes: What a comparison found that is no failure.
    """

    native_calls: dict[str, int] | None = None
    limited_calls: dict[str, int] | None = None
    operators: dict[str, int] | None = None
    launches: int | None = None
    launches_reason: str | None = None
    nodes: list[dict[str, Any]] = field(default_factory=list)
    series: dict[str, Series] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

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


MEASURED = pytest.StashKey[Measured]()


class Phase:
    """Context around the call of a test with the marker or a fixture."""

    def __init__(self, item: pytest.Item) -> None:
        """Read the markers. TypeError or ValueError for what makes no sense there."""
        self._item = item
        self._limits = limits_of(item.iter_markers(MARKER), item.config.getini("cprofiling_native"))
        self._gate: Gate | None = item.config.pluginmanager.get_plugin("cprofiling-gate")
        fixtures = getattr(item, "funcargs", {})
        self._profiler: NodeProfiler | None = fixtures.get("node_profiler")
        self._counter = fixtures.get("call_counter")
        self._stack = ExitStack()
        self._calls: Any = None
        self._dispatches: Any = None
        self._before: dict[str, int] = {}
        self._measured = Measured()

    def __enter__(self) -> None:
        with ExitStack() as stack:
            if self._profiler is None and self._limits.p95_ms is not None:
                self._profiler = stack.enter_context(NodeProfiler())
                self._profiler.set_profiling(True)
            if self._limits.native:
                self._calls = stack.enter_context(count_calls(*self._limits.native))
            if self._wants_dispatches():
                self._dispatches = stack.enter_context(count_dispatches())
            if self._profiler is not None:
                self._profiler.reset_profiling()
                self._profiler.without_counting = self._without_counting
            self._before = (self._counter and self._counter.counts()) or {}
            self._stack = stack.pop_all()

    def _wants_dispatches(self) -> bool:
        """Tell whether to count operators and launches, for which torch is loaded.

        Without need they are not: each operator takes some microseconds longer for it.
        """
        if self._limits.operators is not None or self._limits.launches is not None:
            return True
        if self._gate is None:
            return False
        expected = self._gate.expected(self._item.nodeid)
        return "torch" in sys.modules or (expected is not None and expected["operators"] is not None)

    @contextmanager
    def _without_counting(self) -> Iterator[None]:
        """Count nothing while a block runs, in the thread of the test."""
        with ExitStack() as stack:
            for count in (self._dispatches, self._calls, *(self._counter or ())):
                if count is not None and count.is_on:
                    count.__exit__(None, None, None)
                    stack.callback(count.__enter__)
            yield

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)
        measured = self._measured
        if self._calls is not None:
            measured.limited_calls = dict(self._calls)
        now = None if self._counter is None else self._counter.counts()
        if measured.limited_calls is not None or now is not None:
            more = {name: count - self._before.get(name, 0) for name, count in (now or {}).items()}
            measured.native_calls = {**(measured.limited_calls or {}), **more}
        if self._dispatches is not None:
            measured.operators = self._dispatches.operators
            measured.launches = self._dispatches.cuda_launches
            measured.launches_reason = self._dispatches.cuda_launches_reason
        if self._profiler is not None:
            measured.nodes = [
                {
                    "node": stats.node_name,
                    "stage": str(getattr(stats.stage, "value", stats.stage)),
                    "count": stats.count,
                    "error_count": stats.error_count,
                    "mean_ms": stats.mean_ms,
                    "p95_ms": stats.p95_ms,
                }
                for stats in self._profiler.get_profiling_summary()
            ]
            measured.series = dict(self._profiler.series)

    def judge(self, outcome: Any) -> None:
        """Fail the test, unless it has failed already, for all that is too much."""
        if outcome.excinfo is not None:  # what it did up to there is nothing to compare with
            return
        self._item.stash[MEASURED] = self._measured
        found = complaints(self._limits, self._measured)
        is_strict = self._gate is not None and self._gate.is_strict
        comparisons = [] if self._profiler is None else self._profiler.comparisons
        found += [str(each) for each in comparisons if each.has_regressed or (is_strict and each.is_unsure)]
        if self._gate is not None:
            found += self._gate.complaints(self._item.nodeid, self._measured)
        if found:
            outcome.force_exception(pytest.fail.Exception("cprofiling: " + "\n".join(found), pytrace=False))
