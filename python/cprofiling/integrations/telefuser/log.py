"""Output of telefuser's drop-in."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

from cprofiling._internal import log


def tell(text: str) -> None:
    """Log a text at INFO, or print it on stderr if logging would hide it."""
    if log.logger.isEnabledFor(logging.INFO) and log.logger.hasHandlers():
        log.logger.info("%s", text)
    elif sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr)
