"""Counts of native calls, operators and launches of a program."""

from cprofiling._internal.faces import adopt
from cprofiling.testing.counting.calls import CallCount, count_calls
from cprofiling.testing.counting.dispatches import DispatchCount, count_dispatches

__all__ = ["CallCount", "DispatchCount", "count_calls", "count_dispatches"]

adopt(globals())
