"""Show the moments of `top`, as plain lines or on the screen with rich."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from cprofiling._internal.text import shown_text
from cprofiling.monitoring.top.samples import HEADINGS, MINUTE_S, SORT_KEYS, TEXTS, WINDOWS, Choice, Moment, plain_text

if TYPE_CHECKING:
    # Waits for so many seconds, in which keys are answered, and returns whether there is to be another moment.
    Wait: TypeAlias = Callable[[float], bool]
    Source: TypeAlias = Callable[[Wait], Generator[Moment, None, None]]

_KEYS = "? help   q quit   w window   s sort   r reverse   p pause"
_HELP = """
q, Escape       quit
w               figures of the last interval, the last minute, or since the start
s, r            sort by the next column, reverse the order
p, Space        pause
O               switch profiling on or off (servers; other options then have their defaults)
Up, Down, PageUp, PageDown   scroll
?               back to the table

Calls, Calls/s, Load, Mean, Total, Errors   of the window, exact
p50, p99, Max   of the window within 1 %; - where the source sends no histogram
Trend           mean of each of the last intervals, scaled to the largest
yellow name     last interval's mean is half as much again as the last minute's
red             errors in the window
"""
_TREND = 8, 60  # intervals, at least and at most
_BARS = "▁▂▃▄▅▆▇█"
_SORTED = {
    "total": "Total", "load": "Load", "rate": "Calls/s", "count": "Calls", "mean": "Mean", "p99": "p99", "max": "Max",
    "errors": "Errors", "name": "Node",
}  # fmt: skip
_SLOWER = 1.5  # times the mean of the last minute
_UP, _DOWN = " above (Up, PageUp)", " more (Down, PageDown)"
_DISPENSABLE = ("p50", "Max", "Total", "Load", "Calls", "Stage", "Errors", "Calls/s")
_GAP, _LEAST_NAME = 3, 20  # columns of characters: between two, and what names have at least
_KEY_S = 0.05  # between two looks for a key
# Keys that are no characters send sequences, which begin as the key Escape does: ECMA-48, 5.4.
_ONE_KEY = re.compile("\x1b+(?:\\[[0-?]*[ -/]*[@-~]|O[ -~]|[^\x1b])?|[^\x1b]", re.DOTALL)
_BEGUN = re.compile("\x1b(?:\\[[0-?]*[ -/]*|O)?\\Z")
_ALL = 1_000_000  # lines
_AROUND = 8  # lines of the screen that are no rows: title, facts, frame and heading, how many more there are, keys
_SIDES = 2  # columns of characters beside the table


def show_plain(moments: Iterable[Moment], choice: Choice, write: Callable[[str], None]) -> None:
    """Write each moment below the one before it."""
    screen = _Screen(choice)
    for now in moments:
        is_first = screen.now is _NO_MOMENT
        screen.take(now)
        text = plain_text(now, screen.since(), choice)
        write(text if is_first else f"\n{text}")


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
        interval_s: Seconds between two moments; None: not known.
        has_bars: Whether the terminal can show the bars of trends.
        is_help: Whether the help is shown in place of the table.
        message: What the last key led to.
        history: The moments of the last minute, oldest first.
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
    interval_s: float | None = None
    has_bars: bool = True
    is_help: bool = False
    message: str = ""
    history: list[Moment] = field(default_factory=list)

    def take(self, moment: Moment) -> None:
        """Show the next moment, unless the user looks at this one."""
        if self.is_paused:
            self.waiting = moment
        else:
            if (moment.origin, moment.taken_s) != (self.now.origin, self.now.taken_s):
                self.before = self.now  # else nothing was written since
            self.now = moment
            self.waiting = None
            if moment.is_over:  # what is left to be read is the whole
                self.choice = replace(self.choice, window="total")
            if self.history and self.history[-1].origin != moment.origin:
                self.history.clear()
            if not self.history or moment.taken_s > self.history[-1].taken_s:
                self.history.append(moment)
            while len(self.history) > 2 and self.history[1].taken_s <= moment.taken_s - MINUTE_S:
                del self.history[0]

    def end(self) -> None:
        """Show the last moment, also where the user still looks at an earlier one."""
        self.is_paused = False
        if self.waiting is not None:
            self.take(self.waiting)

    def press(self, key: str) -> None:
        """Handle a key."""
        self.message = ""
        if key in {"q", "Q", "\x1b"}:
            self.is_over = True
        elif key == "s":
            following = SORT_KEYS[(SORT_KEYS.index(self.choice.sort_by) + 1) % len(SORT_KEYS)]
            self.choice, self.first = replace(self.choice, sort_by=following), 0
        elif key == "w":
            following = WINDOWS[(WINDOWS.index(self.choice.window) + 1) % len(WINDOWS)]
            self.choice, self.first = replace(self.choice, window=following), 0
        elif key == "?":
            self.is_help = not self.is_help
        elif key == "O":
            self.message = self.now.switch() if self.now.switch else "a live file is only read: it cannot be switched"
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

        if self.is_help:
            return Group(*(_line(text, "") for text in _HELP.strip("\n").splitlines()[: max(1, lines - 1)]))
        notes = [
            Text(f"note: {shown_text('note', note)}", style="yellow")
            for note in (*self.now.notes, *filter(None, [self.message]))
        ]
        room = max(1, lines - _AROUND - sum(len(_folded(note, columns)) for note in notes))
        table = self._table(columns, room)
        beyond = ", ".join(f"{count}{side}" for count, side in ((self.first, _UP), (self.below, _DOWN)) if count)
        order = f"by {self.choice.sort_by}{', reversed' if self.choice.reverse else ''}"
        keys = f"{order}{', paused' if self.is_paused else ''}   {_KEYS}"
        return Group(
            _line(self.now.title, "bold"),
            _line(self._facts(), "dim"),
            table,
            *([_line(f"... {beyond}", "dim")] if beyond else []),
            *notes,
            _line(keys, "dim"),
        )

    def _facts(self) -> str:
        """Return the line below the title."""
        spans = {"interval": "last interval", "minute": "last minute", "total": "since the start"}
        earlier = self.since()
        facts = [spans["total" if earlier is None else self.choice.window], time.strftime("%H:%M:%S")]
        if earlier is not None and self.choice.window == "minute":
            seconds = self.now.taken_s - earlier.taken_s
            facts[0] += f" ({seconds:.0f} s so far)" if seconds < MINUTE_S - 1 else ""
        if self.now.uptime_s is not None:
            minutes, seconds = divmod(int(self.now.uptime_s), 60)
            facts.append(f"up {minutes // 60}:{minutes % 60:02}:{seconds:02}")
        if self.interval_s is not None:
            facts.append(f"every {self.interval_s:g} s")
        facts += [] if self.choice.stage is None else [f"stage {shown_text('stage', self.choice.stage)}"]
        return ", ".join(facts)

    def since(self) -> Moment | None:
        """Return the moment that the figures are compared with."""
        if self.choice.window == "minute" and len(self.history) > 1:
            return self.history[0]
        return None if self.before is _NO_MOMENT else self.before

    def _trends(self, intervals: int) -> dict[tuple[str, str, str], list[float]]:
        """Return the mean of each of the last intervals, and of the minute, 0 without calls."""
        recent = self.history[-intervals - 1 :]
        known: dict[tuple[str, str, str], list[float]] = {}
        for earlier, later in [*pairwise(recent), (self.history[0], self.history[-1])] if len(recent) > 1 else []:
            old = {(part.label, each.node_name, each.stage): each for part in earlier.parts for each in part.stats}
            for part in later.parts:
                for each in part.stats:
                    key = (part.label, each.node_name, each.stage)
                    count, total_ms = each.count, each.total_ms
                    if key in old and old[key].count <= count:
                        count, total_ms = count - old[key].count, total_ms - old[key].total_ms
                    known.setdefault(key, []).append(total_ms / count if count else 0.0)
        return known

    def _table(self, columns: int, room: int) -> Any:
        """Return the rows that fit, at least one, and count those above and below."""
        from rich import box
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        rows = self.choice.rows(self.now, self.since())
        self.first = max(0, min(self.first, len(rows) - 1))
        reserve = _TREND[0] + _GAP if self.has_bars and len(self.history) > 1 and columns >= 80 else 0
        for first in (0, self.first):  # from the first one if all of them fit
            cells = [row.cells() for row in rows[first : first + room]]
            widths = [max(map(cell_len, column)) + _GAP for column in zip(HEADINGS, *cells, strict=True)]
            least = [min(widths[0], _LEAST_NAME), *widths[1:]]
            places = list(range(len(HEADINGS)))
            for heading in sorted(_DISPENSABLE, key=_SORTED[self.choice.sort_by].__eq__):  # the least needed first
                if sum(least[place] for place in places) + reserve <= columns:
                    break
                places.remove(HEADINGS.index(heading))
            others = sum(widths[place] for place in places[1:])
            name_width = max(1, min(widths[0] - _GAP, columns - _SIDES - others - reserve))
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
        trend_width = min(_TREND[1], columns - _SIDES - name_width - _GAP - others) if reserve else 0
        trends = self._trends(trend_width or _TREND[0])
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place in places:
            # Figures keep their width on a narrow screen; names are folded.
            table.add_column(
                Text(HEADINGS[place], style="bold reverse" if HEADINGS[place] == _SORTED[self.choice.sort_by] else ""),
                justify="left" if place < TEXTS else "right",
                no_wrap=place > 0,
                overflow="fold",
                width=None if place else name_width,
            )
        if trend_width:
            table.add_column("Trend", no_wrap=True, width=trend_width)
        for row, texts in zip(rows[self.first :], cells[: self.shown], strict=False):
            failed = "red" if row.stats.error_count else ""
            styled = [Text(texts[place], style=failed if HEADINGS[place] == "Errors" else "") for place in places]
            *means, minute = trends.get((row.label, row.stats.node_name, row.stats.stage), [0.0])
            if means and minute and means[-1] > _SLOWER * minute:
                styled[0].stylize("bold yellow")
            if trend_width:
                most = max(means, default=0.0)
                styled.append(Text("".join(_BARS[int(7 * mean / most)] if mean else " " for mean in means)))
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


def show_rich(source: Source, choice: Choice, interval_s: float | None = None) -> None:
    """Show samples on the whole screen until the last one or a key.

    The last sample stays to be read, also after an interrupt or error.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console()
    screen = _Screen(choice, interval_s=interval_s, has_bars=console.encoding.startswith("utf"))

    def leave() -> None:
        screen.is_help = False
        if screen.now is not _NO_MOMENT:
            console.print(screen.render(console.size.width, _ALL))

    with (
        ExitStack() as afterwards,
        _keys() as pressed,
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        afterwards.callback(leave)

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
