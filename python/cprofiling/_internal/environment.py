"""The only door for this package's variables of the environment.

They are not there under Python's options ``-E`` and ``-I``, and in programs that run with others' rights.
"""

from __future__ import annotations

import os

from cprofiling import _core
from cprofiling._internal.messages import mention

DEBUG = "CPROFILING_PROFILE_DEBUG"
PIPELINE = "CPROFILING_PIPELINE_NAME"
OUTPUT_DIR = "CPROFILING_OUTPUT_DIR"
TIMING_REPORT = "CPROFILING_TIMING_REPORT"
NAMES = "CPROFILING_PROFILER_NAMES"
SHAPES = "CPROFILING_RECORD_SHAPES"
MEMORY = "CPROFILING_PROFILE_MEMORY"
STACK = "CPROFILING_WITH_STACK"

DEFAULT_PIPELINE = "default"

_others: dict[str, tuple[str, ...]] = {}

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def given(variable: str) -> str | None:
    """Return a variable, None if it is not set or not to be trusted."""
    value = os.environ.get(variable)
    return value if value is not None and _core.environment_is_trusted() else None


def is_set_in_vain(variable: str) -> bool:
    """Return whether a variable is set in an untrusted environment."""
    return bool(os.environ.get(variable)) and not _core.environment_is_trusted()


def boolean(variable: str, default: bool) -> bool:
    """Return a switch, or the default, with a warning for another word."""
    variable = _that_is_set(variable)
    value = given(variable) or ""
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
    """Return a variable as text, None where it is not set or empty."""
    return given(_that_is_set(variable)) or None


def also(variable: str, *others: str) -> None:
    """Have other variables, as of another profiler, looked at before one."""
    _others[variable] = others


def _that_is_set(variable: str) -> str:
    """Return the first other name of a variable that is set, else its own."""
    return next(filter(given, _others.get(variable, ())), variable)
