"""Log lines of stage reports."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

from cprofiling._internal import environment

logger = logging.getLogger("cprofiling")

debug = environment.boolean(environment.DEBUG, default=False)
"""Whether this process runs in debug mode, as the environment had it when this was imported."""


def is_heard() -> bool:
    """Whether a line that is said now goes anywhere."""
    return debug or logger.isEnabledFor(logging.INFO)


def say(line: str) -> None:
    """Log a line at INFO, to stderr in debug mode without any handler."""
    if debug and not logger.hasHandlers():
        if sys.stderr is not None:
            with suppress(OSError, ValueError):
                sys.stderr.write(f"{line}\n")  # at once: other processes write too
        return
    logger.info("%s", line)


def complain(line: str) -> None:
    """Log at WARNING a request that failed, without raising."""
    with suppress(Exception):  # a handler's or filter's
        logger.warning("%s", line)
