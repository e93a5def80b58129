"""Start what variables of the environment request, in every program."""

from __future__ import annotations

import atexit
import os
import sys

from cprofiling._internal import environment
from cprofiling._internal.environment import given

PATH_VARIABLE = "CPROFILING_OUTPUT_PATH"
LIVE_VARIABLE = "CPROFILING_LIVE"
CAPTURE_VARIABLE = "CPROFILING_CAPTURE"
_VENDORS_PATH_VARIABLES = ("FURIOSA_PROFILER_OUTPUT_PATH", "NUX_PROFILER_PATH")  # of Furiosa's SDK, new and old
PROGRAMS = ("run", "serve", "demo")  # subcommands that run a program, which has the statistics


def start() -> None:
    """Record the program, capture calls, and keep its statistics in a live file, as variables ask for it."""
    for variable in (PATH_VARIABLE, *_VENDORS_PATH_VARIABLES):
        path = given(variable)
        if path is not None:
            from cprofiling.recording import whole_process

            whole_process.start(path, variable)
            break
    window = given(CAPTURE_VARIABLE)
    if window is not None:
        from cprofiling.devices import capture_window

        capture_window.start(window, CAPTURE_VARIABLE)
    path = given(LIVE_VARIABLE)
    if path is not None and not _only_reads():
        from cprofiling.monitoring import live_writer
        from cprofiling.nodes.profiler import default_profiler

        live_writer.start(path, LIVE_VARIABLE, default_profiler)


def report_stages() -> None:
    """Record stages, gather those of workers and report at the end, as variables say, once layers are imported."""
    from cprofiling._internal.process import call_at_fork, unkept
    from cprofiling.layers import context

    context.choose(environment.text(environment.NAMES) or "")
    context.gather_workers()
    atexit.register(unkept(context.AtExit.write))
    _write_before_worker_ends()
    call_at_fork(after_in_child=_write_before_worker_ends)


def _write_before_worker_ends() -> None:
    from cprofiling._internal.process_exit import call_before_worker_ends
    from cprofiling.layers import context

    call_before_worker_ends(context.AtExit.write)


def _only_reads() -> bool:
    """Whether this process is the command, which counts nothing: the file may be the very one that it is to read."""
    arguments = sys.argv
    name = os.path.basename(arguments[0]) if arguments else ""
    if name == "-m":  # the module is not known yet, but stands before its arguments, as in `-m name` or `-Bmname`
        name = sys.orig_argv[-len(arguments)]
        name = name.rpartition("m")[2] if name.startswith("-") else name
    return name == "cprofiling" and arguments[1:2] not in [[program] for program in PROGRAMS]
