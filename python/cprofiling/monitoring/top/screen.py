"""Show the moments of `top`, as plain lines or on the screen with rich."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from cprofiling._internal.text import shown_text
from cprofiling.monitoring.top.samples import HEADINGS, SORT_KEYS, TEXTS, Choice, Moment, plain_text

if TYPE_CHECKING:
    # Waits for so many seconds, in which keys are answered, and returns whether there is to be another moment.
    Wait: TypeAlias = Callable[[float], bool]
    Source: TypeAlias = Callable[[Wait], Generator[Moment, None, None]]

_KEYS = "q quit   s sort by the next   r reverse   p pause"
_UP, _DOWN = " above (Up, PageUp)", " more (Down, PageDown)"
_DISPENSABLE = ("p50", "Max", "Total", "Stage", "Errors", "Load", "Calls/s", "Calls")
_GAP, _LEAST_NAME = 3, 20  # columns of characters: between two, and what names have at least
_KEY_S = 0.05  # between two looks for a key
# Keys that are no characters send sequences, which begin as the key Escape does: ECMA-48, 5.4.
_ONE_KEY = re.compile("\x1b+(?:\\[[0-?]*[ -/]*[@-~]|O[ -~]|[^\x1b])?|[^\x1b]", re.DOTALL)
_BEGUN = re.compile("\x1b(?:\\[[0-?]*[ -/]*|O)?\\Z")
_ALL = 1_000_000  # lines
_AROUND = 7  # lines of the screen that are no rows: title, frame and heading, how many more there are, keys
_SIDES = 2  # columns of characters beside the table


def show_plain(moments: Iterable[Moment], choice: Choice, write: Callable[[str], None]) -> None:
    """Write each moment below the one before it."""
    before = last = None
    for now in moments:
        before = _earlier(now, last, before)
        text = plain_text(now, before, choice)
        write(f"\n{text}" if last is not None else text)
        last = now


def _earlier(now: Moment, last: Moment | None, before: Moment | None) -> Moment | None:
    """Return the sample to compare with, older if nothing was written since."""
    is_same = last is not None and (now.origin, now.taken_s) == (last.origin, last.taken_s)
    return before if is_same else last


_NO_MOMENT = Moment("", None, 0.0, ())


@dataclass
class _Screen:
    """State of the screen, changed by keys.

    Attributes:
        choice: Which nodes are shown.
        now: The moment that is shown.
        before: What it is compared with.
        is_paused: Whether the next ones have to wait.
        is_over: Whether the user has ended it.
        waiting: The last one that came while it was paused.
        first: The number of rows above the shown ones.
        shown: The number of those.
        below: The number of rows below them.
    """

    choice: Choice
    now: Moment = _NO_MOMENT
    before: Moment | None = None
    is_paused: bool = False
    is_over: bool = False
    waiting: Moment | None = None
    first: int = 0
    shown: int = 0
    below: int = 0

    def take(self, moment: Moment) -> None:
        """Show the next moment, unless the user looks at this one."""
        if self.is_paused:
            self.waiting = moment
        else:
            self.before, self.now = _earlier(moment, self.now, self.before), moment
            self.waiting = None

    def end(self) -> None:
        """Show the last moment, also where the user still looks at an earlier one."""
        self.is_paused = False
        if self.waiting is not None:
            self.take(self.waiting)

    def press(self, key: str) -> None:
        """Handle a key."""
        if key in {"q", "Q", "\x1b"}:
            self.is_over = True
        elif key == "s":
            following = SORT_KEYS[(SORT_KEYS.index(self.choice.sort_by) + 1) % len(SORT_KEYS)]
            self.choice, self.first = replace(self.choice, sort_by=following), 0
        elif key == "r":
            self.choice, self.first = replace(self.choice, reverse=not self.choice.reverse), 0
        elif key in {"p", " "}:
            self.is_paused = not self.is_paused
        elif key in {"\x1b[A", "\x1bOA", "\x1b[5~"}:  # Up, PageUp
            self.first = max(self.first - (self.shown if key == "\x1b[5~" else 1), 0)
        elif key in {"\x1b[B", "\x1bOB", "\x1b[6~"}:  # Down, PageDown
            self.first += min(self.shown if key == "\x1b[6~" else 1, self.below)

    def render(self, columns: int, lines: int) -> Any:
        """Return rich's content for a screen of this size in characters."""
        from rich.console import Group
        from rich.text import Text

        notes = [Text(f"note: {shown_text('note', note)}", style="yellow") for note in self.now.notes]
        room = max(1, lines - _AROUND - sum(len(_folded(note, columns)) for note in notes))
        table = self._table(columns, room)
        beyond = ", ".join(f"{count}{side}" for count, side in ((self.first, _UP), (self.below, _DOWN)) if count)
        order = f"by {self.choice.sort_by}{', reversed' if self.choice.reverse else ''}"
        keys = f"{order}{', paused' if self.is_paused else ''}   {_KEYS}"
        return Group(
            _line(self.now.title, "bold"),
            table,
            *([_line(f"... {beyond}", "dim")] if beyond else []),
            *notes,
            _line(keys, "dim"),
        )

    def _table(self, columns: int, room: int) -> Any:
        """Return the rows that fit, at least one, and count those above and below."""
        from rich import box
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        rows = self.choice.rows(self.now, self.before)
        self.first = max(0, min(self.first, len(rows) - 1))
        for first in (0, self.first):  # from the first one if all of them fit
            cells = [row.cells() for row in rows[first : first + room]]
            widths = [max(map(cell_len, column)) + _GAP for column in zip(HEADINGS, *cells, strict=True)]
            least = [min(widths[0], _LEAST_NAME), *widths[1:]]
            places = list(range(len(HEADINGS)))
            for heading in _DISPENSABLE:  # the least needed first
                if sum(least[place] for place in places) <= columns:
                    break
                places.remove(HEADINGS.index(heading))
            name_width = max(1, min(widths[0] - _GAP, columns - _SIDES - sum(widths[place] for place in places[1:])))
            heights = accumulate(len(_folded(Text(each[0]), name_width)) for each in cells)
            self.shown = sum(height <= room for height in heights)
            if first == self.first or self.shown == len(rows):
                self.first = first
                break
        if not rows:
            self.below = 0
            return Text(f"\n{self.choice.nothing(self.now)}\n")
        if not self.shown:  # the screen is too small for the first name: its beginning
            name, *figures = cells[0]
            cells[0] = ("\n".join(_folded(Text(name), name_width)[:room]), *figures)
            self.shown = 1
        self.below = len(rows) - self.first - self.shown
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place in places:
            # Figures keep their width on a narrow screen; names are folded.
            table.add_column(
                HEADINGS[place],
                justify="left" if place < TEXTS else "right",
                no_wrap=place > 0,
                overflow="fold",
                width=None if place else name_width,
            )
        for row, texts in zip(rows[self.first :], cells[: self.shown], strict=False):
            failed = "red" if row.stats.error_count else ""
            styled = [Text(texts[place], style=failed if HEADINGS[place] == "Errors" else "") for place in places]
            table.add_row(*styled, style="dim" if row.rate == 0 else "")
        return table


def _line(text: str, style: str) -> Any:
    from rich.text import Text

    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _folded(text: Any, width: int) -> list[str]:
    """Return the lines that a text takes."""
    from rich.console import Console

    if text.cell_len <= width:
        return [text.plain]
    return [line.plain for line in text.wrap(Console(), width, overflow="fold")]


def show_rich(source: Source, choice: Choice) -> None:
    """Show samples on the whole screen until the last one or a key.

    The last sample stays to be read.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console()
    screen = _Screen(choice)
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:

        def refresh() -> None:
            if screen.now is not _NO_MOMENT:
                live.update(screen.render(*console.size), refresh=True)

        def wait(seconds: float) -> bool:
            until = time.monotonic() + seconds
            while not screen.is_over and (left := until - time.monotonic()) > 0:
                answer()
                time.sleep(min(_KEY_S, left))
            return not screen.is_over

        def answer() -> None:
            while not screen.is_over and (key := pressed()):
                screen.press(key)
                refresh()

        with closing(source(wait)) as moments:
            for moment in moments:
                screen.take(moment)
                refresh()
                answer()
                if screen.is_over:
                    break
            else:
                screen.end()
    if screen.now is not _NO_MOMENT:
        console.print(screen.render(console.size.width, _ALL))


@contextmanager
def _keys() -> Iterator[Callable[[], str]]:
    """Yield a function for the next key or "", without waiting or echo."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield lambda: ""
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    settings = termios.tcgetattr(descriptor)
    waiting: list[str] = []

    def pressed() -> str:
        if not waiting:
            read = ""  # with a short wait for the rest of a sequence
            while select.select([descriptor], [], [], _KEY_S if read else 0)[0]:
                more = os.read(descriptor, 1024).decode("ascii", "replace")
                read += more
                if not more or not _BEGUN.search(read):
                    break
            typed = _ONE_KEY.findall(read)
            waiting.extend("\x1b" if not key.strip("\x1b") else key for key in reversed(typed))  # Escape by itself
        return waiting.pop() if waiting else ""

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        # Unread keys must not reach the user's shell.
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, settings)
