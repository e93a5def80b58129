"""A progress bar on a terminal; nothing anywhere else."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WIDTH = 25


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show how much of ``total`` is done, on stderr if that is a terminal: by tqdm, or plainly where there is none.

    Gives a function to be called whenever one more is done.
    """
    stream = sys.stderr
    try:
        is_shown = total > 0 and stream.isatty()
    except (AttributeError, ValueError):  # there is none, a program's own, or one that is closed
        is_shown = False
    if not is_shown:
        yield lambda: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        bar = _PlainBar(what, total)
        try:
            yield bar.advance
        finally:
            stream.write("\n")
    else:
        with tqdm(total=total, desc=what, file=stream) as shown:
            yield lambda: shown.update() and None


class _PlainBar:
    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = -1
        self.advance()

    def advance(self) -> None:
        self._done += 1
        bar = "#" * (self._done * _WIDTH // self._total)
        sys.stderr.write(f"\r{self._what} {bar:{_WIDTH}} {self._done}/{self._total}")
        sys.stderr.flush()
