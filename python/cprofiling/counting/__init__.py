"""Counting what a program does, which no noise can change: calls of native functions, operators, launches."""

from cprofiling.counting.dispatches import DispatchCount, count_dispatches
from cprofiling.counting.native import CallCount, count_calls

__all__ = ["CallCount", "DispatchCount", "count_calls", "count_dispatches"]
