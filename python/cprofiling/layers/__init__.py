"""Reports of the stages of a pipeline, always on.

They have times, memory, signatures, and traces of chosen stages.

``ProfilingContext`` measures each use of a stage and logs a line. ``get_timing_report`` returns the figures of all
uses, ``enable_profiler_for_names`` records stages, ``dump_io_signatures`` writes the signatures of their inputs, with
which ``cprofiling.harness`` runs one of them alone.

The environment, beside the functions of the same meaning: ``CPROFILING_PROFILE_DEBUG`` (false; read when this is
imported), ``CPROFILING_PROFILER_NAMES`` (read when this is imported), ``CPROFILING_PIPELINE_NAME``,
``CPROFILING_OUTPUT_DIR``, ``CPROFILING_TIMING_REPORT``, and, for recordings, ``CPROFILING_RECORD_SHAPES``,
``CPROFILING_PROFILE_MEMORY`` and ``CPROFILING_WITH_STACK`` (all true).

In debug mode, or where ``CPROFILING_TIMING_REPORT`` says where, the reports are written when the process ends: also by
an exception or ``sys.exit``, but not by a signal that it does not handle, or ``os._exit``.
"""

from cprofiling import _startup
from cprofiling._internal.faces import adopt
from cprofiling.analysis.comparison import StageComparison, TimingComparison
from cprofiling.analysis.timing_reports import compare_timing_reports
from cprofiling.layers.context import (
    ProfilingContext,
    ProfilingContextDebug,
    dump_io_signatures,
    dump_timing_report,
    enable_profiler_for_names,
    get_io_signatures,
    get_profiler_output_dir,
    get_timing_report,
    mark_as_worker_process,
    print_timing_summary,
    reset_timing_registry,
    set_pipeline_name,
    set_profiler_output_dir,
    set_timing_metadata,
)
from cprofiling.layers.signatures import StageIOSignature

__all__ = [
    "ProfilingContext",
    "ProfilingContextDebug",
    "StageComparison",
    "StageIOSignature",
    "TimingComparison",
    "compare_timing_reports",
    "dump_io_signatures",
    "dump_timing_report",
    "enable_profiler_for_names",
    "get_io_signatures",
    "get_profiler_output_dir",
    "get_timing_report",
    "mark_as_worker_process",
    "print_timing_summary",
    "reset_timing_registry",
    "set_pipeline_name",
    "set_profiler_output_dir",
    "set_timing_metadata",
]

adopt(globals())
_startup.report_stages()
