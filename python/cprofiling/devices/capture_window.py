"""Capture window of ``CPROFILING_CAPTURE``, for NVIDIA's tools.

They record certain calls of one node only.
"""

from __future__ import annotations

import atexit
import os

from cprofiling import _core
from cprofiling._internal.messages import mention, say
from cprofiling._internal.process import is_first_with

OWNER = "CPROFILING_CAPTURE_OWNER"  # says to other processes who tells of the window
_SHOWN = 80  # characters of a value
_NO_CALL = "there was no call"  # among the words of the core's report
_MOST = 2**63 - 1
_EXPECTED = f"expected node:skip:count, both numbers whole, count from 1 to {_MOST}"


class WindowError(ValueError):
    """A text that names no window, with the reason."""


def start(value: str, variable: str) -> None:
    """Set the capture window that an environment variable describes.

    Warns once if it describes none. At exit a line on stderr reports a window without its calls or without the driver.
    Child processes have a window each, reported only if they had a call.
    """
    is_first = is_first_with(OWNER)
    try:
        name, skip, count = parsed(value)
        _core.set_capture(name, skip, count)
    except (WindowError, RuntimeError) as error:  # RuntimeError: another interpreter in this process has set one
        if is_first:  # the others would repeat it
            shown = ascii(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!a}..."
            mention(f"{variable}={shown} is not used, nothing is captured: {error}")
    else:
        atexit.register(_tell, variable, count, is_first)


def parsed(value: str) -> tuple[str, int, int]:
    """Parse name, skip and count.

    The form is ``node:skip:count``, where the name may have colons. Raises WindowError.
    """
    parts = value.rsplit(":", 2)
    if len(parts) < 3:
        raise WindowError(_EXPECTED)
    name, skip, count = parts[0], _number(parts[1]), _number(parts[2])
    if skip is None or not count:
        raise WindowError(_EXPECTED)
    try:
        return _core.convert_name(name), skip, count
    except ValueError as error:
        raise WindowError(str(error)) from None


def _number(text: str) -> int | None:
    """Return a number in plain digits, without sign, blank or underscore."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST))):
        return None
    number = int(text)
    return number if number <= _MOST else None


def say_nothing() -> None:
    """Report nothing at exit, as this command only starts the program."""
    atexit.unregister(_tell)
    if is_first_with(OWNER):
        os.environ.pop(OWNER, None)


def _tell(variable: str, count: int, is_first: bool) -> None:
    report = _core.capture_report()
    if report is None or (report.startswith(f"{count} of {count} calls captured") and ";" not in report):
        return
    if is_first or _NO_CALL not in report:
        say(f"{variable}: {report}")
