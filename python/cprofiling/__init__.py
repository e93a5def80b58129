"""The per-node profiler that a Python pipeline can leave switched on.

    import cprofiling as cp

    @cp.profile_node                    # a function, method, coroutine or generator; or: with cp.profile_node("name"):
    def load(path):
        return path.read_bytes()

    cp.set_profiling(True)
    with cp.stage("train"):
        ...                             # calls of load() count
    print(cp.format_profiling_summary())

    with cp.profile() as prof:          # a recording: each call, with the operators of PyTorch where it is loaded
        ...
    print(prof.key_averages())

Nodes: profile_node, instrument, stage, PipelineProfiling, Profiler, default_profiler.
Statistics: set_profiling, profiling_enabled, reset_profiling, get_profiling_summary, format_profiling_summary,
    format_profiling_table, ProfilingSummary, NodeProfilingStats, ExecutionStage, Snapshot, FormatError.
Recordings: profile, record (record_function), schedule, ProfilerAction, ProfilerActivity, supported_activities,
    Resource, RecordFormat, Recording, Event, load_trace, tensorboard_trace_handler.
Results: Histogram, ShapeSummary, ShapeStats, ShapeVerdict, WarmUp, Gaps, FramesPerSecond, WhatIf, WhatIfFigures.
Measuring: measure, Measurement, analyze_ncu_report.
Notebooks: load_ipython_extension, unload_ipython_extension.

PYTEST_DONT_REWRITE: it is there before pytest where it runs tests itself, and has no asserts.
"""

from typing import TYPE_CHECKING, Any

from cprofiling import _build, _startup  # noqa: F401  the one checks, the other is used below
from cprofiling._core import FormatError, record, stage
from cprofiling._core import record as record_function
from cprofiling._internal.faces import adopt
from cprofiling.nodes.decorators import profile_node
from cprofiling.nodes.input_shapes import ShapeStats, ShapeSummary, ShapeVerdict
from cprofiling.nodes.instrumentation import instrument
from cprofiling.nodes.profiler import (
    PipelineProfiling,
    Profiler,
    default_profiler,
    format_profiling_summary,
    get_profiling_summary,
    profiling_enabled,
    reset_profiling,
    set_profiling,
)
from cprofiling.nodes.snapshot import Snapshot
from cprofiling.nodes.stats import ExecutionStage, NodeProfilingStats, ProfilingSummary
from cprofiling.nodes.summary_table import format_profiling_table
from cprofiling.recording.activities import ProfilerActivity, RecordFormat, Resource, supported_activities
from cprofiling.recording.exports import load_trace, tensorboard_trace_handler
from cprofiling.recording.profile import profile
from cprofiling.recording.result import Event, Recording
from cprofiling.recording.schedule import ProfilerAction, schedule
from cprofiling.report.ipython_extension import load_ipython_extension, unload_ipython_extension

if TYPE_CHECKING:
    from cprofiling.analysis.frames import FramesPerSecond
    from cprofiling.analysis.gaps import Gaps
    from cprofiling.analysis.warm_up import WarmUp
    from cprofiling.analysis.what_if import WhatIf, WhatIfFigures
    from cprofiling.devices.nsight.report import analyze_ncu_report
    from cprofiling.nodes.histogram import Histogram
    from cprofiling.testing.measure import Measurement, measure

__version__ = "0.1.0"  # said here only: the build, the command and reports have it from here

__all__ = [
    "Event",
    "ExecutionStage",
    "FormatError",
    "FramesPerSecond",
    "Gaps",
    "Histogram",
    "Measurement",
    "NodeProfilingStats",
    "PipelineProfiling",
    "Profiler",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilingSummary",
    "RecordFormat",
    "Recording",
    "Resource",
    "ShapeStats",
    "ShapeSummary",
    "ShapeVerdict",
    "Snapshot",
    "WarmUp",
    "WhatIf",
    "WhatIfFigures",
    "analyze_ncu_report",
    "default_profiler",
    "format_profiling_summary",
    "format_profiling_table",
    "get_profiling_summary",
    "instrument",
    "load_ipython_extension",
    "load_trace",
    "measure",
    "profile",
    "profile_node",
    "profiling_enabled",
    "record",
    "record_function",
    "reset_profiling",
    "schedule",
    "set_profiling",
    "stage",
    "supported_activities",
    "tensorboard_trace_handler",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    """Load what few programs use: measuring, reports of ncu, and some results."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cprofiling.analysis.frames import FramesPerSecond
    from cprofiling.analysis.gaps import Gaps
    from cprofiling.analysis.warm_up import WarmUp
    from cprofiling.analysis.what_if import WhatIf, WhatIfFigures
    from cprofiling.devices.nsight.report import analyze_ncu_report
    from cprofiling.nodes.histogram import Histogram
    from cprofiling.testing.measure import Measurement, measure

    loaded = (
        FramesPerSecond, Gaps, Histogram, Measurement, WarmUp, WhatIf, WhatIfFigures, analyze_ncu_report, measure,
    )  # fmt: skip
    globals().update({each.__name__: each for each in loaded})
    return globals()[name]


adopt(globals())
_startup.start()
