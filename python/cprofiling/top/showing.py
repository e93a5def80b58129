"""Where ``top`` shows its moments: a pipe or a file, a plain terminal, or one with rich."""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate

from cprofiling.format import shown_text
from cprofiling.top.moments import HEADINGS, SORT_KEYS, TEXTS, Choice, Moment, Row, plain_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from typing import Any, TypeAlias

    # Waits for so many seconds, in which keys are answered, and returns whether there is to be another moment.
    Wait: TypeAlias = Callable[[float], bool]
    Source: TypeAlias = Callable[[Wait], Generator[Moment, None, None]]

_HOME, _END_LINE, _END = "\x1b[H", "\x1b[K\n", "\x1b[K\x1b[J"  # go there; what was on the line, and below it, goes
_KEYS = "q quit   s sort by the next   r reverse   p pause"
_DISPENSABLE = ("p50", "Max", "Total", "Stage", "Errors", "Load", "Calls/s", "Calls")
_GAP, _LEAST_NAME = 3, 20  # columns of characters: between two, and what names have at least
_KEY_S = 0.05  # between two looks for a key
# Keys that are no characters send sequences, which begin as the key Escape does: ECMA-48, 5.4.
_ONE_KEY = re.compile("\x1b+(?:\\[[0-?]*[ -/]*[@-~]|O[ -~]|[^\x1b])?|[^\x1b]", re.DOTALL)
_BEGUN = re.compile("\x1b(?:\\[[0-?]*[ -/]*|O)?\\Z")
_ALL = 1_000_000  # lines
_AROUND = 7  # lines of the screen that are no rows: title, frame and heading, keys


def show_plain(moments: Iterable[Moment], choice: Choice, write: Callable[[str], None], *, is_terminal: bool) -> None:
    """Write each moment: below the one before it, or, on a terminal, in its place, as far as there is room."""
    before = last = None
    for now in moments:
        before = _earlier(now, last, before)
        text = plain_text(now, before, choice)
        if is_terminal:
            columns, lines = shutil.get_terminal_size()  # on CPython 3.10 perhaps 0 where they are not known
            write(_HOME + _END_LINE.join(_fitted(text.split("\n"), columns or 80, (lines or 24) - 1)) + _END)
        else:
            write(f"\n{text}" if last is not None else text)
        last = now


def _earlier(now: Moment, last: Moment | None, before: Moment | None) -> Moment | None:
    """Return what a moment is compared with: the last one, or what that was, if nothing was written since."""
    is_same = last is not None and (now.whose, now.taken_s) == (last.whose, last.taken_s)
    return before if is_same else last


def _fitted(lines: list[str], columns: int, room: int) -> list[str]:
    """Return the first lines, as many as there is room for where long ones take several; the last says what lacks."""
    heights = list(accumulate(max(1, -(-len(line) // columns)) for line in lines))
    if heights[-1] <= room:
        return lines
    kept = max(1, sum(height < room for height in heights))
    return [*lines[:kept], f"... {len(lines) - kept} more lines"]


_NO_MOMENT = Moment("", None, 0.0, ())


@dataclass
class _Screen:
    """What is on the screen, and what the keys have changed."""

    choice: Choice
    now: Moment = _NO_MOMENT
    before: Moment | None = None
    is_paused: bool = False
    is_over: bool = False

    def take(self, moment: Moment) -> None:
        """Show the next moment, unless the user looks at this one."""
        if not self.is_paused:
            self.before, self.now = _earlier(moment, self.now, self.before), moment

    def press(self, key: str) -> None:
        """Do what a key is for."""
        if key in {"q", "Q", "\x1b"}:
            self.is_over = True
        elif key == "s":
            following = SORT_KEYS[(SORT_KEYS.index(self.choice.sort_by) + 1) % len(SORT_KEYS)]
            self.choice = replace(self.choice, sort_by=following)
        elif key == "r":
            self.choice = replace(self.choice, reverse=not self.choice.reverse)
        elif key in {"p", " "}:
            self.is_paused = not self.is_paused

    def render(self, columns: int, lines: int) -> Any:
        """Return what rich is to show on a screen of this size, in characters."""
        from rich.console import Group
        from rich.text import Text

        notes = [Text(f"note: {shown_text('note', note)}", style="yellow") for note in self.now.notes]
        title = Text(self.now.title, style="bold", no_wrap=True, overflow="ellipsis")
        order = f"by {self.choice.sort_by}{', reversed' if self.choice.reverse else ''}"
        state = "   paused" if self.is_paused else ""
        keys = Text(f"{_KEYS}   {order}{state}", style="dim")
        return Group(title, self._table(columns, max(1, lines - _AROUND - len(notes))), *notes, keys)

    def _table(self, columns: int, room: int) -> Any:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        rows = self.choice.rows(self.now, self.before)
        shown = [row.cells() for row in rows[:room]]
        places = _fitting(shown, columns)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place in places:
            # Figures keep their width where there is little; names are folded.
            table.add_column(
                HEADINGS[place], justify="left" if place < TEXTS else "right", no_wrap=place > 0, overflow="fold"
            )
        for row, cells in zip(rows, shown, strict=False):
            texts = [Text(cells[place], style=_style(row, HEADINGS[place])) for place in places]
            table.add_row(*texts, style="dim" if row.rate == 0 else "")
        if not rows:
            return Text(f"\n{self.choice.nothing(self.now)}\n")
        if len(rows) > room:
            table.add_row(f"... {len(rows) - room} more")
        return table


def _style(row: Row, heading: str) -> str:
    return "red" if heading == "Errors" and row.stats.error_count else ""


def _fitting(rows: list[tuple[str, ...]], columns: int) -> list[int]:
    """Return the places of the columns that there is room for; the least needed ones go first."""
    widths = [max(map(len, column)) + _GAP for column in zip(HEADINGS, *rows, strict=True)]
    widths[0] = min(widths[0], _LEAST_NAME)
    places = list(range(len(HEADINGS)))
    for heading in _DISPENSABLE:
        if sum(widths[place] for place in places) <= columns:
            break
        places.remove(HEADINGS.index(heading))
    return places


def show_rich(source: Source, choice: Choice) -> None:
    """Show the moments on the whole screen, until the last or until a key ends it; the last one stays to be read.

    Raises ImportError without rich.
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
    if screen.now is not _NO_MOMENT:
        console.print(screen.render(console.size.width, _ALL))


@contextmanager
def _keys() -> Iterator[Callable[[], str]]:
    """Give a function that returns the key pressed next, or "", without waiting; the terminal shows none of them."""
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
            waiting.extend(reversed(_keys_in(_pending(descriptor))))
        return waiting.pop() if waiting else ""

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        # What was typed and not read is not for whoever reads next, which is the user's shell.
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, settings)


def _pending(descriptor: int) -> str:
    """Return what was typed; the rest of a sequence that has begun to come is waited for, but not for long."""
    read = ""
    while select.select([descriptor], [], [], _KEY_S if read else 0)[0]:
        more = os.read(descriptor, 1024).decode("ascii", "replace")
        read += more
        if not more or not _BEGUN.search(read):
            break
    return read


def _keys_in(typed: str) -> list[str]:
    """Return the keys of what was typed: characters, and those that send sequences, as arrows and the wheel do.

    The key Escape is what none of these begins with.
    """
    return ["\x1b" if not key.strip("\x1b") else key for key in _ONE_KEY.findall(typed)]
