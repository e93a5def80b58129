"""What the environment says about stage reports."""

from __future__ import annotations

import os

from cprofiling.warn import mention

DEBUG = "CPROFILING_PROFILE_DEBUG"
PIPELINE = "CPROFILING_PIPELINE_NAME"
OUTPUT_DIR = "CPROFILING_OUTPUT_DIR"
TIMING_REPORT = "CPROFILING_TIMING_REPORT"
NAMES = "CPROFILING_PROFILER_NAMES"
SHAPES = "CPROFILING_RECORD_SHAPES"
MEMORY = "CPROFILING_PROFILE_MEMORY"
STACK = "CPROFILING_WITH_STACK"

DEFAULT_PIPELINE = "default"

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def boolean(variable: str, default: bool) -> bool:
    """Return what a variable says; the default where it is not set or empty, and, with a warning, where it says else."""
    value = os.environ.get(variable, "")
    word = value.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    if word:
        mention(
            f"{variable} must be one of {', '.join(_TRUE)}, or one of {', '.join(_FALSE)}, got {value!a}: "
            f"it is taken as {str(default).lower()}"
        )
    return default


def text(variable: str) -> str | None:
    """Return what a variable says now; None where it is not set or empty."""
    return os.environ.get(variable) or None
