"""cprofiling: the per-node profiler that a Python pipeline can leave switched on."""

from cprofiling._core import stage
from cprofiling.control import (
    PipelineProfiling,
    Profiler,
    format_profiling_summary,
    get_profiling_summary,
    profiling_enabled,
    reset_profiling,
    set_profiling,
)
from cprofiling.format import format_profiling_table
from cprofiling.measure import Measurement, measure
from cprofiling.nodes import instrument, profile_node
from cprofiling.snapshot import FormatError, Snapshot
from cprofiling.stats import ExecutionStage, NodeProfilingStats, ProfilingSummary

__all__ = [
    "ExecutionStage",
    "FormatError",
    "Measurement",
    "NodeProfilingStats",
    "PipelineProfiling",
    "Profiler",
    "ProfilingSummary",
    "Snapshot",
    "format_profiling_summary",
    "format_profiling_table",
    "get_profiling_summary",
    "instrument",
    "measure",
    "profile_node",
    "profiling_enabled",
    "reset_profiling",
    "set_profiling",
    "stage",
]
