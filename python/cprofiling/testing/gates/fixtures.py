"""Fixtures of the pytest plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

from cprofiling._internal.text import checked_text
from cprofiling.nodes.decorators import default_name
from cprofiling.nodes.profiler import Profiler
from cprofiling.testing.counting.calls import CallCount
from cprofiling.testing.counting.functions import checked_patterns
from cprofiling.testing.gates import series
from cprofiling.testing.gates.pairs import compare_pairs

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cprofiling.testing.gates.pairs import PairedComparison


class NodeProfiler(Profiler):
    """Fixture ``node_profiler``, a Profiler bound to the test's thread.

    It counts the nodes that belong to no other Profiler. At the beginning of the test's call it is empty.

    While it times something, nothing is counted: neither its nodes, nor calls, operators and launches. How often
    something is called then depends on how much times spread, and counting would be a part of them.
    """

    def __init__(self) -> None:
        """Make one that is off."""
        self.series: dict[str, series.Series] = {}
        self.comparisons: list[PairedComparison] = []
        self.without_counting: Callable[[], AbstractContextManager[object]] = nullcontext

    def pairs(
        self, function: Callable[[], object], *, repeat: int = 100, warmup: int = 3, name: str | None = None
    ) -> None:
        """Time a callable for a comparison with another run.

        The nodes in it are timed, too.

        Args:
            function: Called without arguments.
            repeat: How many times, 20 to 100,000; up to four times as many where times spread much.
            warmup: Calls before that are not timed, 0 to 100,000.
            name: Its name in the file; default: its qualified name.

        Raises:
            TypeError, ValueError: An argument is of another type or range, or the name was there already.
            RuntimeError: Operators are counted, and this is not the thread of the test.
        """
        label = default_name(function) if name is None else checked_text("name", name)
        if label in self.series:
            raise ValueError(f"name must be another one for each callable of a test, got {label!r} twice")
        with self.without_counting():
            self.series[label] = series.measured(function, repeat, warmup)

    def compare(
        self,
        baseline: Callable[[], object],
        new: Callable[[], object],
        *,
        pairs: int = 100,
        warmup: int = 3,
        fail: str = "mean:5%",
    ) -> PairedComparison:
        """Compare two callables, and fail the test if the second is slower."""
        with self.without_counting():
            found = compare_pairs(baseline, new, pairs=pairs, warmup=warmup, fail=fail)
        self.comparisons.append(found)
        return found


class CallCounter:
    """Fixture ``call_counter``, which counts calls to the end of the test."""

    def __init__(self) -> None:
        """Make one that counts nothing yet."""
        self._stack = ExitStack()
        self._started: list[CallCount] = []

    def __call__(self, *patterns: str) -> CallCount:
        """Begin to count without ``with``, as ``cprofiling.counting.count_calls``."""
        calls = _Started(checked_patterns(patterns))
        self._stack.enter_context(calls)
        self._started.append(calls)
        return calls

    def __iter__(self) -> Iterator[CallCount]:
        """Iterate over the counts begun."""
        return iter(self._started)

    def counts(self) -> dict[str, int] | None:
        """Return the counts by function up to now, None if nothing is counted."""
        found: dict[str, int] = {}
        for calls in self._started:
            found.update({name: max(count, found.get(name, 0)) for name, count in calls.items()})
        return found if self._started else None

    def close(self) -> None:
        """Put all functions back."""
        self._stack.close()


class _Started(CallCount):
    """Count that has begun, which a ``with`` block ends earlier."""

    def __enter__(self) -> CallCount:
        return self if self.is_on else super().__enter__()
