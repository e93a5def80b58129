"""Builds the extension: the core in cprofiling/ and the CPython binding in csrc/. All else is in pyproject.toml."""

import os
from pathlib import Path

from setuptools import Extension, setup

CORE = (
    "accum alloc arrow chrome_event chrome_row chrome_track chrome_value clock cupti cupti_calls cupti_events"
    " cupti_launches cupti_library cupti_records cupti_rows cupti_threads cupti_timeline cupti_trace extra"
    " gpu_cuda hash histogram json_read json_text json_write lock moments names p2 process registry snapshot"
    " snapshot_bytes snapshot_key span status table table_finish table_lanes thread trace trace_collect"
    " trace_detail trace_json trace_label trace_load utf8"
)
BINDING = (
    "async_generator_type block_type context_stack convert cost device_activity fault function_type"
    " generator_type method_switch_type module node opening pipeline profiler_type program ptrmap ready_type"
    " record_type recorder_type recording_add recording_read recording_stream recording_type snapshot_type"
    " stage_type summary suspendable sync view weak"
)

compile_args = ["-std=c11", "-O3", "-fvisibility=hidden", "-ffp-contract=off", "-fno-semantic-interposition"]
link_args: list[str] = []
if os.environ.get("CPROFILING_WERROR"):
    compile_args += ["-Wall", "-Wextra", "-Wshadow", "-Werror"]
if sanitizers := os.environ.get("CPROFILING_SANITIZE"):
    flags = [f"-fsanitize={sanitizers}", "-fno-omit-frame-pointer", "-g", "-O1"]
    compile_args += flags
    link_args += flags
if os.environ.get("CPROFILING_COVERAGE"):
    compile_args += ["--coverage", "-O0", "-g"]
    link_args += ["--coverage"]

setup(
    license="MIT",
    ext_modules=[
        Extension(
            "cprofiling._core",
            sources=[f"cprofiling/{unit}.c" for unit in CORE.split()] + [f"csrc/{unit}.c" for unit in BINDING.split()],
            depends=sorted(str(header) for room in ("cprofiling", "csrc") for header in Path(room).glob("*.h")),
            include_dirs=["."],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
        )
    ],
)
