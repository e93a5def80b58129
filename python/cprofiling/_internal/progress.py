"""A line on stderr while something takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

AFTER_S = 1.0  # what is done by then shows nothing
_EVERY_S = 0.25
_WIDTH = 25
_drawing = threading.Lock()  # held by the one that has the line


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show how far something is, in a terminal or a notebook.

    The line appears after a second and is removed at the end. Of several at once, the first that appears is shown.

    Args:
        what: What is being done, such as "reading".
        total: How much there is to do. None or 0: not known; then the bytes so far are shown.

    Gives a function to be called with how much more is done.
    """
    stream = sys.stderr
    done, line, next_s = 0, "", time.monotonic() + AFTER_S

    def draw(text: str) -> None:
        with suppress(OSError, ValueError):  # it is closed, or takes nothing at present
            stream.write(f"\r{text}")
            stream.flush()

    def advance(count: int) -> None:
        nonlocal done, line, next_s
        done += count
        if time.monotonic() < next_s or not (line or _drawing.acquire(blocking=False)):
            return
        next_s = time.monotonic() + _EVERY_S
        text = f"{what}: {done / 1e6:,.1f} MB"
        if total:
            part = min(done / total, 1.0)
            text = f"{what} {'#' * int(_WIDTH * part):{_WIDTH}} {100 * part:3.0f} %"
        line = text.ljust(len(line))
        draw(line)

    is_watched = type(stream).__module__.partition(".")[0] == "ipykernel"
    with suppress(AttributeError, ValueError):  # there is none, a program's own, or one that is closed
        is_watched = is_watched or stream.isatty()
    if not is_watched:
        yield lambda _count: None
        return
    try:
        yield advance
    finally:
        if line:
            draw(" " * len(line))
            draw("")
            _drawing.release()
