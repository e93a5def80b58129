"""Show the moments of `top`, as plain lines or on the screen with rich."""

from __future__ import annotations

import math
import os
import re
import select
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from cprofiling._internal.text import counted, plain_table, shown_text
from cprofiling.monitoring.top.samples import (
    HEADINGS,
    MINUTE_S,
    SORT_KEYS,
    TEXTS,
    WINDOWS,
    Choice,
    Faults,
    Moment,
    Row,
    age,
    change,
    clock,
    spans_of,
)

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

Calls, Mean, Total           of the window, exact, without calls that raised
Errors          calls that raised, and their share of all calls
Load            time in calls a second; 100 % is one thread that does nothing else
Calls/s, Load   of the window; "now": of the last interval, beside figures since the start
p50, p99, Max   of the window within 1 %; - where the source sends no histogram
last 60 s       mean of each of the last intervals, scaled to the largest; red: with errors
yellow name     last interval's mean is half as much again as the last minute's
red             errors in the window; below the table, when they began
"""
_TREND = 10, 60  # intervals, at least and at most
_BARS = "▁▂▃▄▅▆▇█"
_SORTED = {
    "total": "Total", "load": "Load", "rate": "Calls/s", "count": "Calls", "mean": "Mean", "p99": "p99", "max": "Max",
    "errors": "Errors", "name": "Node",
}  # fmt: skip
_SLOWER = 1.5  # times the mean of the last minute
_UP, _DOWN = " above (Up, PageUp)", " more (Down, PageDown)"
_DISPENSABLE = ("p50", "Max", "Total", "Load", "Calls", "Stage", "Calls/s", "Errors")
_OLD_S = 2.0  # beyond the interval, from which on it is told how old the figures are
_AWAY = 2.5  # intervals from one moment to the next, from which on there is a gap in the trend
_GAP, _LEAST_NAME = 3, 20  # columns of characters: between two, and what names have at least
_KEY_S = 0.05  # between two looks for a key
_AGE_S = 1.1  # after which the ages on the screen are told anew, unless a moment comes
# Keys that are no characters send sequences, which begin as the key Escape does: ECMA-48, 5.4.
_ONE_KEY = re.compile("\x1b+(?:\\[[0-?]*[ -/]*[@-~]|O[ -~]|[^\x1b])?|[^\x1b]", re.DOTALL)
_BEGUN = re.compile("\x1b(?:\\[[0-?]*[ -/]*|O)?\\Z")
_ALL = 1_000_000  # lines
_AROUND = 8  # lines of the screen that are no rows: title, facts, frame and heading, how many more there are, keys
_FAULTS = 3  # nodes whose errors are dated below the table, at most
_SIDES = 2  # columns of characters beside the table


def show_plain(moments: Iterable[Moment], choice: Choice, write: Callable[[str], None]) -> None:
    """Write each moment below the one before it."""
    screen = _Screen(choice)
    for now in moments:
        is_first = screen.now is _NO_MOMENT
        screen.take(now)
        text = now.away() or screen.plain_text()
        write(text if is_first else f"\n{text}")


_NO_MOMENT = Moment("", 0.0, ())


@dataclass
class _Screen:
    """State of the screen, changed by keys.

    Attributes:
        choice: Which nodes are shown.
        now: The moment that is shown.
        before: The one before it.
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
        begun_s: When the first one was taken.
        anew_s: When counts began anew, by a restart or reset.
        faults: When the nodes failed, by label, name and stage.
    """

    choice: Choice
    now: Moment = _NO_MOMENT
    before: Moment = _NO_MOMENT
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
    begun_s: float = 0.0
    anew_s: float = -math.inf
    faults: dict[tuple[str, str, str], Faults] = field(default_factory=dict)
    _known: tuple[Moment, Choice, list[Row]] = (_NO_MOMENT, Choice(), [])

    def take(self, moment: Moment) -> None:
        """Show the next moment, unless the user looks at this one."""
        if self.is_paused:
            self.waiting = moment
        else:
            if self.now is not _NO_MOMENT:
                moment = replace(moment, parts=tuple(each.after(self.now.part(each.label)) for each in moment.parts))
            if moment.taken_s != self.now.taken_s:
                self.before = self.now  # else nothing was written since
                self._note_changes(moment)
            self.now = moment
            self.waiting = None
            if moment.is_over:  # what is left to be read is the whole
                self.choice = replace(self.choice, window="total")
            if self.history and moment.taken_s < self.history[-1].taken_s:
                self.history.clear()  # the clock was set
            if not self.history or moment.taken_s > self.history[-1].taken_s:
                self.history.append(moment)
            while len(self.history) > 2 and self.history[1].taken_s <= moment.taken_s - MINUTE_S:
                del self.history[0]

    def _note_changes(self, moment: Moment) -> None:
        """Note which nodes have failed since the moment before, and whether counts began anew."""
        is_first = self.now is _NO_MOMENT
        if is_first:
            self.begun_s = moment.taken_s
        for part in moment.parts:
            before = self.now.part(part.label)
            is_anew = before is not None and before.run != part.run
            if is_anew:
                self.anew_s = moment.taken_s
            known = before.stats if before is not None and not is_anew else ()
            old = {(each.node_name, each.stage): each.error_count for each in known}
            for each in part.stats:
                key = (part.label, each.node_name, each.stage)
                if is_first and each.error_count:
                    self.faults[key] = Faults(None, None)
                elif each.error_count > old.get(key[1:], 0):
                    first_s = self.faults[key].first_s if key in self.faults else moment.taken_s
                    self.faults[key] = Faults(first_s, moment.taken_s)

    def _dated(self, rows: list[Row]) -> list[tuple[str, bool]]:
        """Return when each shown node failed, those of the window and the latest to begin first, and whether in it."""
        found = [
            (row, faults)
            for row in (rows if self.now.taken_s > self.begun_s else ())
            if (faults := self.faults.get((row.label, row.stats.node_name, row.stats.stage)))
        ]
        found.sort(key=lambda each: (not each[0].stats.error_count, -(each[1].first_s or 0.0), each[0].name))
        names = Counter(row.name for row in rows)
        dated = []
        for row, faults in found:
            stage = f" ({shown_text('stage', row.stats.stage)})" if names[row.name] > 1 else ""
            dated.append((f"{row.name}{stage}: {faults.text(self.begun_s)}", bool(row.stats.error_count)))
        return dated

    def _notes(self) -> list[str]:
        """Return the remarks on the moment."""
        notes = list(self.now.notes)
        if self.now.taken_s - self.anew_s < MINUTE_S:
            notes.append(f"the counts began anew at {clock(self.anew_s)}, by a restart or reset")
        return [f"note: {shown_text('note', note)}" for note in (*notes, *filter(None, [self.message]))]

    def plain_text(self) -> str:
        """Return the moment as text with title, facts, table and notes."""
        rows = self._rows()
        is_text = [place < TEXTS for place in range(len(HEADINGS))]
        table = self.choice.nothing(self.now)
        if rows:
            table = plain_table([self.choice.headings(self.since()), *(row.cells() for row in rows)], is_text)
        dated = [text for text, _ in self._dated(rows)]
        return "\n".join([self.now.title, self._facts(), table, *dated, *self._notes()])

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
            if self.now.away():
                self.message = "the server is away: profiling is not switched"
            else:
                cannot = "a live file is only read: it cannot be switched"
                self.message = self.now.switch() if self.now.switch else cannot
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
        notes = [Text(note, style="yellow") for note in self._notes()]
        dated = self._dated(self._rows())
        most = len(dated) if lines == _ALL else min(len(dated), _FAULTS, max(1, lines // 6))
        faults = [Text(text, style="red" if is_recent else "dim") for text, is_recent in dated[:most]]
        if len(dated) > most:
            faults[-1].append(f"   +{counted(len(dated) - most, 'node')}", style="dim")
        room = max(1, lines - _AROUND - sum(len(_folded(text, columns)) for text in (*faults, *notes)))
        table = self._table(columns, room)
        beyond = ", ".join(f"{count}{side}" for count, side in ((self.first, _UP), (self.below, _DOWN)) if count)
        order = f"by {self.choice.sort_by}{', reversed' if self.choice.reverse else ''}"
        keys = f"{order}{', paused' if self.is_paused else ''}   {_KEYS}"
        return Group(
            _line(self.now.title, "bold"),
            _line(self.now.away() or self._facts(), "bold red" if self.now.away() else "dim"),
            table,
            *([_line(f"... {beyond}", "dim")] if beyond else []),
            *faults,
            *notes,
            _line(keys, "dim"),
        )

    def _facts(self) -> str:
        """Return the line below the title."""
        spans = {"interval": "last interval", "minute": "last minute", "total": "since the start"}
        earlier = self.since()
        facts = [spans[self.choice.window if earlier else "total"], clock(self.now.taken_s)]
        if self.interval_s is not None and time.time() - self.now.taken_s > self.interval_s + _OLD_S:
            facts[-1] += f", {age(self.now.taken_s)}"
        if earlier and self.choice.window == "minute":
            seconds = self.now.taken_s - earlier[0].taken_s
            facts[0] += f" ({seconds:.0f} s so far)" if seconds < MINUTE_S - 1 else ""
        if self.now.uptime_s is not None:
            minutes, seconds = divmod(int(self.now.uptime_s), 60)
            facts.append(f"up {minutes // 60}:{minutes % 60:02}:{seconds:02}")
        if self.interval_s is not None:
            facts.append(f"every {self.interval_s:g} s")
        facts += [] if self.choice.stage is None else [f"stage {shown_text('stage', self.choice.stage)}"]
        return ", ".join(facts)

    def since(self) -> list[Moment]:
        """Return the moments of the window before this one, oldest first."""
        if self.choice.window == "minute" and len(self.history) > 1:
            return self.history[:-1]
        is_known = self.before is not _NO_MOMENT and self.before.taken_s < self.now.taken_s
        return [self.before] if is_known else []

    def _rows(self) -> list[Row]:
        """Return the rows of the moment, found once, as percentiles of many nodes take long."""
        now, choice, rows = self._known
        if now is not self.now or choice is not self.choice:
            rows = self.choice.rows(self.now, self.since())
            self._known = (self.now, self.choice, rows)
        return rows

    def _trends(self, rows: Sequence[Row], intervals: int) -> list[list[tuple[float, int]]]:
        """Return the mean and the errors of each row's last intervals, oldest first, zeros without calls."""
        trends: list[list[tuple[float, int]]] = [[] for _ in rows]
        for earlier, later in pairwise(self.history[-intervals - 1 :]):
            spans = {part.label: spans_of(part, [earlier]) for part in later.parts}
            passed = (later.taken_s - earlier.taken_s) / self.interval_s if self.interval_s else 1.0
            for row, trend in zip(rows, trends, strict=True):
                calls, total_ms, errors = change(spans.get(row.label, ()), (row.stats.node_name, row.stats.stage))
                trend.extend([(0.0, 0)] * (round(passed) - 1 if passed > _AWAY else 0))
                trend.append((total_ms / calls if calls else 0.0, errors))
        return [trend[-intervals:] for trend in trends]

    def _is_slower(self, row: Row, trend: Sequence[tuple[float, int]]) -> bool:
        """Return whether a row's last interval is slower than the last minute."""
        part = self.now.part(row.label)
        if part is None or not trend:
            return False
        calls, total_ms, _ = change(spans_of(part, self.history[:-1]), (row.stats.node_name, row.stats.stage))
        return trend[-1][0] * calls > _SLOWER * total_ms

    def _table(self, columns: int, room: int) -> Any:
        """Return the rows that fit, at least one, and count those above and below."""
        from rich import box
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        rows = self._rows()
        headings = self.choice.headings(self.since())
        self.first = max(0, min(self.first, len(rows) - 1))
        reserve = _TREND[0] + _GAP if self.has_bars and len(self.history) > 1 and columns >= 80 else 0
        for first in (0, self.first):  # from the first one if all of them fit
            cells = [row.cells() for row in rows[first : first + room]]
            widths = [max(map(cell_len, column)) + _GAP for column in zip(headings, *cells, strict=True)]
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
        shown = rows[self.first : self.first + self.shown]
        trends = self._trends(shown, trend_width or 1)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place in places:
            # Figures keep their width on a narrow screen; names are folded.
            is_sorted = HEADINGS[place] == _SORTED[self.choice.sort_by]
            table.add_column(
                Text(headings[place], style="bold reverse" if is_sorted else ""),
                justify="left" if place < TEXTS else "right",
                no_wrap=place > 0,
                overflow="fold",
                width=None if place else name_width,
            )
        if trend_width:
            table.add_column(self._axis(max(map(len, trends)), trend_width), no_wrap=True, width=trend_width)
        for row, texts, trend in zip(shown, cells, trends, strict=False):
            failed = "red" if row.stats.error_count else ""
            styled = [Text(texts[place], style=failed if HEADINGS[place] == "Errors" else "") for place in places]
            if self._is_slower(row, trend):
                styled[0].stylize("bold yellow")
            if trend_width:
                bars = Text(" " * (trend_width - len(trend)))
                most = max(mean for mean, _ in trend)
                for mean, errors in trend:
                    bar = _BARS[int(7 * mean / most)] if mean else _BARS[0] if errors else " "
                    bars.append(bar, style="red" if errors else "")
                styled.append(bars)
            table.add_row(*styled, style="dim" if row.rate == 0 else "")
        return table

    def _axis(self, intervals: int, width: int) -> str:
        """Return the heading of the trends, whose newest interval is the rightmost."""
        seconds = (self.now.taken_s - self.history[0].taken_s) * width / intervals
        left, right = f"{seconds:.0f} s ago", "now"
        if width > len(left) + len(right):
            return f"{left}{right:>{width - len(left)}}"
        return f"last {seconds:.0f} s"[-width:]


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

        shown_s, size = -math.inf, console.size

        def refresh() -> None:
            nonlocal shown_s, size
            shown_s, size = time.monotonic(), console.size
            if screen.now is not _NO_MOMENT:
                live.update(screen.render(*size), refresh=True)

        def wait(seconds: float) -> bool:
            until = time.monotonic() + seconds
            while not screen.is_over and (left := until - time.monotonic()) > 0:
                answer()
                if time.monotonic() >= shown_s + _AGE_S or console.size != size:
                    refresh()
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
