"""Measure the cost of a profiled or recorded call on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import repeat
from statistics import median
from time import perf_counter_ns
from typing import Any

from cprofiling import _core
from cprofiling.nodes.profiler import Profiler

_CALLS, _ROUNDS = 100, 21
_RECORDED_CALLS, _RECORDED_ROUNDS = 5_000, 5
_DRIVER = "CPROFILING_LIBCUDA"


def own_costs_ns() -> dict[str, float]:
    """Return the cost per call in ns over an unprofiled call, by option.

    Each includes the cost of plain statistics. Figures are medians of short interleaved loops, with one Profiler per
    option. Refused counters are left out, and so is CUPTI, which other tools may use. No device is used: ``gpu_time``
    is the cost without one.
    """
    counters = [name for name, _, reason in _core.perf_status() if reason is None]
    options: dict[str, dict[str, Any]] = {
        "gpu_time": {"gpu_time": True},
        "memory": {"memory": True},
        **{name: {"counters": (name,)} for name in counters},
    }
    nodes: dict[str, Callable[[], None]] = {}
    rounds: list[dict[str, float]] = []
    hidden = os.environ.pop(_DRIVER, None)  # so that no call loads the driver that the environment names
    try:
        for name, keywords in options.items():
            profiler = Profiler()
            profiler.set_profiling(True, **keywords)
            nodes[name] = profiler.profile_node("nothing")(_nothing)
        for _ in range(_ROUNDS + 1):
            bare_ns = _loop_ns(_nothing)
            rounds.append({name: (_loop_ns(node) - bare_ns) / _CALLS for name, node in nodes.items()})
    finally:
        if hidden is not None:
            os.environ[_DRIVER] = hidden
    return {name: round(max(median(each[name] for each in rounds[1:]), 0.0), 1) for name in nodes}


def recorded_call_ns() -> float:
    """Return what recording adds to a call in ns, where no recording runs.

    Measured in a recording of its own, which is dropped. It is long enough to need new memory for its events all the
    time, as others do: that is half of the cost.
    """
    node = Profiler().profile_node("nothing")(_nothing)
    recorder = _core.Recorder(_RECORDED_CALLS * _RECORDED_ROUNDS, False, None, False, None, True)
    rounds = [_loop_ns(node, _RECORDED_CALLS) - _loop_ns(_nothing, _RECORDED_CALLS) for _ in range(_RECORDED_ROUNDS)]
    del recorder  # which ends it
    return max(median(rounds) / _RECORDED_CALLS, 0.0)


def _nothing() -> None:
    """Do nothing."""


def _loop_ns(function: Callable[[], None], calls: int = _CALLS) -> int:
    start_ns = perf_counter_ns()
    for _ in repeat(None, calls):
        function()
    return perf_counter_ns() - start_ns
