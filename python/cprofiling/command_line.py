"""What the commands of ``cprofiling`` share: how they fail, where output goes, and the arguments that they take."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

EXIT_FAILURE = 1
INT64_MAX = 2**63 - 1


class CommandError(Exception):
    """A failure that the user should read about in one line; ``status`` is the exit status."""

    def __init__(self, message: str, status: int = EXIT_FAILURE) -> None:
        """Take over message and status."""
        super().__init__(message)
        self.status = status


def write(text: str) -> None:
    """Print a result on stdout. CommandError when it cannot be written."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), flush=True)
    except OSError as error:
        raise CommandError(f"cannot write to stdout: {error.strerror}") from None


def fail(message: str, status: int = EXIT_FAILURE) -> int:
    """Say on stderr, in one line, what went wrong, and return the exit status for it."""
    print(f"cprofiling: {message}", file=sys.stderr)
    return status


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a converter of arguments for argparse, which refuses all but the integers from ``low`` to ``high``."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, got {text!r}")
        return value

    return convert


def not_empty(text: str) -> str:
    """Return a text as it is; for argparse, which refuses an empty one."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"expected a text that is not empty and has no NUL, got {text!a}")
    return text
