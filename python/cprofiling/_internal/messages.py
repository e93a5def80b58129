"""Warnings that point to the user's line."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from types import FrameType

from cprofiling._internal.text import shown_text

_OWN = __name__.partition(".")[0]


def is_own(frame: FrameType) -> bool:
    """Whether a frame is of this package."""
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] == _OWN


def is_import(frame: FrameType) -> bool:
    """Whether a frame is of the import system, which ``warnings`` skips."""
    return "importlib" in frame.f_code.co_filename and "_bootstrap" in frame.f_code.co_filename


def warn(message: str) -> None:
    """Give a RuntimeWarning at the line of the user."""
    level = 1
    frame = sys._getframe(0)
    while frame.f_back is not None and (is_own(frame) or is_import(frame)):
        frame = frame.f_back
        level += not is_import(frame)
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def mention(message: str) -> None:
    """Warn beside an exception of the user, by stderr if warnings raise."""
    try:
        warn(message)
    except RuntimeWarning:
        if sys.stderr is not None:
            sys.stderr.write(f"cprofiling: {message}\n")


def say(message: str) -> None:
    """Write a line to stderr, if there is one."""
    line = f"cprofiling: {shown_text('message', message)}\n"
    with suppress(Exception):
        sys.stderr.write(line)
        sys.stderr.flush()
