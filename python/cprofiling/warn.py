"""Warnings that point to the user's line."""

from __future__ import annotations

import sys
import warnings

_OWN = __name__.rpartition(".")[0]


def warn(message: str) -> None:
    """Give a RuntimeWarning at the innermost frame that is not of this package."""
    level = 1
    frame = sys._getframe(0)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _OWN:
        frame = frame.f_back
        level += 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
