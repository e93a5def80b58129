"""Call of one test, the record of its counts, and the limits of its marker."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from cprofiling._internal import arguments
from cprofiling._internal.text import checked_text, shown_text, shown_value
from cprofiling.devices.cupti import NO_CUDA
from cprofiling.testing.counting.calls import count_calls
from cprofiling.testing.counting.dispatches import count_dispatches
from cprofiling.testing.counting.functions import checked_patterns
from cprofiling.testing.gates.fixtures import NodeProfiler

if TYPE_CHECKING:
    from cprofiling.testing.gates.plugin import Gate
    from cprofiling.testing.gates.series import Series

MARKER = "cprofiling_limit"
_COUNTS = ("native_calls", "operators", "launches")
_KNOWN = (*_COUNTS, "p95_ms", "native")
_SEPARATORS = {"native_calls": ":", "operators": "::"}
_SHOWN = 12  # names in a message


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


class Limits(NamedTuple):
    """Limits of a test, numbers or numbers by name, None without."""

    native_calls: int | Mapping[str, int] | None = None
    operators: int | Mapping[str, int] | None = None
    launches: int | None = None
    p95_ms: float | Mapping[str, float] | None = None
    native: tuple[str, ...] = ()


def limits_of(marks: Iterable[Any], native: Iterable[str]) -> Limits:
    """Return the limits in a test's markers, the nearest first.

    Raises TypeError or ValueError for what makes no sense.
    """
    said: dict[str, Any] = {}
    for mark in reversed(list(marks)):
        if mark.args or not mark.kwargs:
            raise TypeError(f"{MARKER} takes keywords only ({', '.join(_KNOWN)}), got {shown_value(mark.args)}")
        said.update(mark.kwargs)
    for name in said:
        if name not in _KNOWN:
            raise TypeError(f"{MARKER} takes {', '.join(_KNOWN)}, got {name!r}")
    named = said.get("native", ())
    if not isinstance(named, (str, list, tuple)):
        raise TypeError(f"native must be a pattern or a list of them, got {shown_value(named)}")
    p95_ms = said.get("p95_ms")
    if isinstance(p95_ms, Mapping):
        p95_ms = {str(name): arguments.number_between(f"p95_ms[{name!r}]", ms, 0, 1e12) for name, ms in p95_ms.items()}
    elif p95_ms is not None:
        p95_ms = arguments.number_between("p95_ms", p95_ms, 0, 1e12)
    patterns = (*native, *((named,) if isinstance(named, str) else named))
    return Limits(
        _counts("native_calls", said.get("native_calls")),
        _counts("operators", said.get("operators")),
        None if said.get("launches") is None else arguments.index_between("launches", said["launches"], 0),
        p95_ms,
        checked_patterns(patterns) if patterns else (),
    )


def _counts(parameter: str, value: Any) -> int | dict[str, int] | None:
    if not isinstance(value, Mapping):
        return None if value is None else arguments.index_between(parameter, value, 0)
    for name in value:
        if _SEPARATORS[parameter] not in checked_text(parameter, name):
            raise ValueError(f"{parameter} must be by names with a {_SEPARATORS[parameter]!r}, got {shown_value(name)}")
    return {name: arguments.index_between(f"{parameter}[{name!r}]", most, 0) for name, most in value.items()}


def complaints(limits: Limits, measured: Measured) -> list[str]:
    """Return the limits that a test exceeded or that cannot be judged."""
    found = []
    native = measured.native_calls if measured.limited_calls is None else measured.limited_calls
    for what, most, counts, reason in (
        ("native_calls", limits.native_calls, native, "nothing is named as native: native=..."),
        ("operators", limits.operators, measured.operators, "they were not counted"),
    ):
        if most is not None:
            found += [f"{what} cannot be judged: {reason}"] if counts is None else _beyond(what, most, counts)
    if limits.launches is not None and measured.launches is None:
        # Without CUDA in the process there was no launch, which is no doubt, and no failure.
        if measured.launches_reason != NO_CUDA:
            found.append(f"launches cannot be judged: {measured.launches_reason}")
    elif limits.launches is not None and (measured.launches or 0) > limits.launches:
        found.append(f"launches: {measured.launches}, the limit is {limits.launches}")
    if limits.p95_ms is None:
        return found
    known: dict[str, float] = {}
    for row in measured.nodes:
        if row["count"]:
            known[row["node"]] = max(row["p95_ms"], known.get(row["node"], 0.0))  # of its stages
    by_node = limits.p95_ms
    if not isinstance(by_node, Mapping):
        if not known:
            found.append("p95_ms cannot be judged: no node ran that belongs to no Profiler of its own")
        by_node = dict.fromkeys(known, by_node)
    for node, limit in by_node.items():
        if node not in known:
            found.append(f"p95_ms of {shown_text('name', node)} cannot be judged: the node did not run")
        elif known[node] > limit:
            found.append(f"p95_ms of {shown_text('name', node)}: {known[node]:.3f} ms, the limit is {limit:g} ms")
    return found


def _beyond(what: str, most: int | Mapping[str, int], counts: Mapping[str, int]) -> list[str]:
    if isinstance(most, Mapping):
        # Functions that are counted are all in the counts, operators only where they were called.
        unknown = [name for name in most if name not in counts] if what == "native_calls" else []
        return [
            f"{what} of {shown_text('name', name)} cannot be judged: it is not among what is counted"
            for name in unknown
        ] + [
            f"{what} of {shown_text('name', name)}: {counts[name]}, the limit is {limit}"
            for name, limit in most.items()
            if counts.get(name, 0) > limit
        ]
    total = sum(counts.values())
    if total <= most:
        return []
    ranked = sorted(((name, count) for name, count in counts.items() if count), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{shown_text('name', name)} {count}" for name, count in ranked[:_SHOWN])
    more = f" and {len(ranked) - _SHOWN} more" if len(ranked) > _SHOWN else ""
    return [f"{what}: {total}, the limit is {most}: {shown}{more}"]
