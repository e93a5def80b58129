"""Capture window of ``CPROFILING_CAPTURE``, for NVIDIA's tools.

They record certain calls of one node only.
"""

from __future__ import annotations

import atexit
import os
import re

from cprofiling import _core
from cprofiling._internal.messages import mention, say
from cprofiling._internal.process import is_first_with

OWNER = "CPROFILING_CAPTURE_OWNER"  # says to other processes who tells of the window
_SHOWN = 80  # characters of a value
_NO_CALL = "there was no call"  # among the words of the core's report
_MOST = 2**63 - 1
_FORM = re.compile(r"(.*):([0-9]{1,19}):([0-9]{1,19})", re.DOTALL)
_EXPECTED = f"expected node:skip:count, both numbers whole, count from 1 to {_MOST}"


def start(value: str, variable: str) -> None:
    """Set the capture window that an environment variable describes.

    Warns once if it describes none. At exit a line on stderr reports a window without its calls or without the driver.
    Child processes have a window each, reported only if they had a call.
    """
    is_first = is_first_with(OWNER)
    try:
        name, skip, count = parsed(value)
        _core.set_capture(name, skip, count)
    except (ValueError, RuntimeError) as error:  # RuntimeError: another interpreter in this process has set one
        if is_first:  # the others would repeat it
            shown = ascii(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!a}..."
            mention(f"{variable}={shown} is not used, nothing is captured: {error}")
    else:
        atexit.register(_tell, variable, count, is_first)


def parsed(value: str) -> tuple[str, int, int]:
    """Parse name, skip and count.

    The form is ``node:skip:count``, where the name may have colons. Raises ValueError.
    """
    match = _FORM.fullmatch(value)
    if match is None or max(skip := int(match[2]), count := int(match[3])) > _MOST or count == 0:
        raise ValueError(_EXPECTED)
    return _core.convert_name(match[1]), skip, count


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
