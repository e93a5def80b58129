"""The command ``top`` on live files and processes, and what it shows of moments wherever they are from."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import errno
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import command
import cprofiling as cp
from calls import profiler_on
from cprofiling import live
from cprofiling.commands import main, top
from cprofiling.monitoring import live_writer
from cprofiling.monitoring.top import from_live_file, samples
from cprofiling.monitoring.top import screen as showing
from cprofiling.monitoring.top.samples import Choice, Moment, Part
from cprofiling.nodes.stats import NodeProfilingStats

COMMAND = (*command.COMMAND, "top")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("CPROFILING_")},
    "PYTHONPATH": str(Path(cp.__file__).parents[1]),
}
BUSY = """
import sys, time
import cprofiling as cp
cp.set_profiling(True, live=sys.argv[1])
print("ready", flush=True)
while True:
    with cp.profile_node("load"):
        time.sleep(0.002)
    with cp.profile_node("model"):
        time.sleep(0.004)
"""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "live"
    live_writer._close_all()


@pytest.fixture
def busy(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BUSY, str(path)], env=ENVIRONMENT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        child.kill()


def shown(*arguments: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main.main(["top", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out.splitlines()


def failed(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main.main(["top", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("cprofiling: ").rstrip("\n")


# ---- Live files


def test_a_file_that_is_complete_is_shown_once(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profiler = profiler_on(live=path)
    profiler.record("train", "node", 1.5)
    profiler.record("val", "other\x1b", 4)
    profiler.set_profiling(False)
    title, facts, headings, rule, *rows = shown(str(path), capsys=capsys)
    assert title.startswith(f"process {os.getpid()}, ended: ")
    assert re.fullmatch(r"since the start, \d\d:\d\d:\d\d", facts)
    assert headings.split() == [
        "Node", "Stage", "Calls", "Calls/s", "now", "Load", "now", "Mean", "p50", "p99", "Max", "Total", "Errors",
    ]  # fmt: skip
    assert set(rule) == {"-"}
    assert [row.split() for row in rows] == [
        ["other\\x1b", "val", "1", "-", "-", *(["4.00", "ms"] * 5), "0"],
        ["node", "train", "1", "-", "-", *(["1.50", "ms"] * 5), "0"],
    ]
    assert [row.split()[0] for row in shown(str(path), "--reverse", "-n", "no*", capsys=capsys)[4:]] == ["node"]


def test_what_leaves_no_node_is_told_with_what_there_is(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profiler = profiler_on(live=path)
    assert shown(str(path), "-n", "a", "--updates", "1", capsys=capsys)[2:] == ["No profiling data collected."]
    for number in range(12):
        profiler.record("train", f"node {number:02}", 1.5)
    profiler.record("val", "other\x1b", 4)
    profiler.set_profiling(False)
    names = ", ".join(f"'node {number:02}'" for number in range(10))
    for arguments, told in (
        (["--stage", "trian"], "There is no stage 'trian'; there are: 'train', 'val'"),
        (["-n", "z*"], f"No node matches 'z*'; there are: {names} and 3 more"),
        (["-n", "z", "--stage", "val"], "No node in the stage 'val' matches 'z'; there are: 'other\\x1b'"),
    ):
        assert shown(str(path), *arguments, capsys=capsys)[2:] == [told]


def test_what_a_process_does_is_shown_with_rates(
    busy: subprocess.Popen[bytes],
    path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def counts() -> dict[str, int]:
        return {row.node_name: row.count for part in live.read(path).parts for row in part.summary}

    def until_it_has_gone_on(seconds: float) -> None:
        assert seconds == 0.4
        before, end = counts(), time.monotonic() + 60
        while any(counts().get(name, 0) < before.get(name, 0) + 10 for name in ("load", "model")):
            assert time.monotonic() < end
            time.sleep(0.05)

    monkeypatch.setattr(top, "time", SimpleNamespace(sleep=until_it_has_gone_on))
    lines = shown(str(path), "--updates", "3", "--interval", "0.4", "--sort-by", "name", capsys=capsys)
    tables = "\n".join(lines).split("\n\n")
    assert len(tables) == 3
    before, now = (
        {row.split()[0]: row.split() for row in table.splitlines()[4:] if not row.startswith("note: ")}
        for table in tables[1:]
    )
    assert list(now) == ["load", "model"]
    for name, row in now.items():
        assert int(row[2].replace(",", "")) >= int(before[name][2].replace(",", "")) + 10
        assert float(row[3].replace(",", "")) > 0  # calls a second
        assert float(row[4]) > 0
    assert lines[0].startswith(f"process {busy.pid}, running: python -c")
    assert shown(str(busy.pid), "--updates", "1", "--sort-by", "count", capsys=capsys)[0] == lines[0]


def test_the_end_of_a_process_is_the_end(
    busy: subprocess.Popen[bytes], path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(
        [*COMMAND, str(path), "--interval", "0.1"], env=ENVIRONMENT, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        busy.kill()
        busy.wait()
        out = reader.stdout.read().decode()
    assert reader.returncode == 0
    assert out.rstrip().splitlines()[-1].startswith("note: the process was killed")


def test_the_environment_names_the_file(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler_on(live=path).set_profiling(False)
    monkeypatch.setenv("CPROFILING_LIVE", str(path))
    assert "ended" in shown(capsys=capsys)[0]
    monkeypatch.delenv("CPROFILING_LIVE")
    with pytest.raises(SystemExit):
        main.main(["top"])
    assert "what to show is required: TARGET" in capsys.readouterr().err


def test_what_is_no_live_file(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(b"other")
    assert failed(str(path), capsys=capsys) == f"{str(path)!r}: it is no live file: wrong bytes at its start"
    assert failed(str(tmp_path / "none"), capsys=capsys).endswith("No such file or directory")
    assert "writes no live file: it does when it is started with CPROFILING_LIVE" in failed("1", capsys=capsys)
    assert failed("4194300", capsys=capsys) == "there is no process 4194300"


def test_a_process_with_several_files(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = str(os.getpid())
    profilers = [profiler_on(live=each) for each in (path, tmp_path / "second")]
    assert f"several live files, give one of them: '{path}', " in failed(pid, capsys=capsys)
    for each in profilers:
        each.set_profiling(False)

    def refused(_path: str) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", refused)
        with pytest.raises(from_live_file.NoLiveFileError, match=f"process {pid}: Permission denied"):
            from_live_file.of_process(os.getpid()).__enter__()
    monkeypatch.setattr(os, "stat", refused)
    with pytest.raises(from_live_file.NoLiveFileError, match="writes no live file"):
        from_live_file.of_process(os.getpid()).__enter__()


def test_a_process_whose_file_has_another_name_here(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a container, or when somebody has deleted it: what is read is the file, also after the process."""
    profiler = profiler_on(live=path)
    profiler.record("train", "node", 1)
    live_writer.commit()
    path.rename(path.with_name("other"))
    path.write_bytes(b"no live file")
    assert "node" in "".join(shown(str(os.getpid()), "--updates", "1", capsys=capsys))
    path.with_name("other").unlink()
    with from_live_file.of_process(os.getpid()) as found:
        with pytest.warns(RuntimeWarning, match=f"the newest statistics are not in '{path}': Stale file handle"):
            profiler.set_profiling(False)
        assert live.read(found).state == "ended"
    (left,) = path.parent.iterdir()
    assert left == path


def test_a_child_that_nobody_waits_for_is_over(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = f"import cprofiling as cp, os; cp.set_profiling(True, live={str(path)!r}); os.kill(os.getpid(), 9)"
    child = subprocess.Popen([sys.executable, "-c", program], env=ENVIRONMENT)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert "killed" in shown(str(path), capsys=capsys)[0]
    child.wait()


def test_profilers_are_told_apart(path: Path) -> None:
    class Pipeline(cp.PipelineProfiling):
        pass

    pipelines = [Pipeline(), Pipeline()]
    for number, pipeline in enumerate(pipelines):
        pipeline.set_profiling(True, live=path)
        pipeline.profiler.record("train", "node", number)
    profiler = profiler_on(live=path)
    del pipeline, pipelines[0]
    live_writer.commit()
    moment = from_live_file.moment_of(live.read(path))
    shown_parts = [(part.label, len(part.stats)) for part in moment.parts]
    assert shown_parts == [("Pipeline 2", 1), ("Profiler", 0), ("before", 1)]
    assert {row.name for row in Choice().rows(moment)} == {"Pipeline 2: node", "before: node"}
    assert [row.name for row in Choice(globs=("Pipe*",)).rows(moment)] == ["Pipeline 2: node"]
    assert len(Choice(globs=("node",)).rows(moment)) == 2
    assert any("merged" in note for note in moment.notes)
    profiler.set_profiling(False)


def test_a_process_that_is_silent_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = profiler_on(live=path)
    read = live.read(path)
    later = read.taken_ns / 1e9 + 90
    monkeypatch.setattr("time.time", lambda: later)
    assert from_live_file.moment_of(read).notes == ("nothing was written for 90 s: the process may be stopped",)
    profiler.set_profiling(False)


# ---- What changes between two moments


def stats(name: str, count: int, total_ms: float, stage: str = "train", **more: Any) -> NodeProfilingStats:
    mean = total_ms / count if count else 0.0
    return NodeProfilingStats(name, stage, count, mean, mean, 0.0, mean, mean, total_ms, mean, **more)


def at(taken_s: float, *rows: NodeProfilingStats, origin: str = "me", **more: Any) -> Moment:
    return Moment("title", taken_s, (Part("", rows, origin=origin),), **more)


def screen_of(*moments: Moment, window: str = "total") -> Any:
    """The screen after these moments."""
    screen = showing._Screen(Choice(window=window), interval_s=1.0)
    for moment in moments:
        screen.take(moment)
    return screen


def rows_of(screen: Any) -> list[samples.Row]:
    return list(screen.choice.rows(screen.now, screen.since()))


def test_rates_are_of_what_was_counted_since() -> None:
    before = at(10.0, stats("steady", 100, 1000.0), stats("idle", 5, 5.0))
    now = at(12.0, stats("steady", 140, 1500.0), stats("idle", 5, 5.0), stats("new", 2, 1.0))
    rows = {row.name: (row.rate, row.load) for row in rows_of(screen_of(before, now))}
    assert rows == {"steady": (20.0, 0.25), "idle": (0.0, 0.0), "new": (1.0, 0.0005)}
    for earlier in ([], [at(12.0)], [at(13.0)]):
        assert {(row.rate, row.load) for row in rows_of(screen_of(*earlier, now))} == {(None, None)}


@pytest.mark.parametrize("origin", ["me", "another process"])
def test_windows_go_on_over_a_restart(origin: str) -> None:
    """Counts that began anew are added to those of the time before, whether lower or of another process."""
    count = 30 if origin == "me" else 130
    moments = [
        at(0.0, stats("node", 1000, 1000.0, error_count=5)),
        at(1.0, stats("node", 1100, 1300.0, error_count=6)),
        at(2.0, stats("node", count, 60.0, error_count=2), origin=origin),
    ]
    screen = screen_of(*moments, window="interval")
    (row,) = rows_of(screen)
    assert (row.stats.count, row.stats.total_ms, row.stats.error_count, row.rate) == (count, 60.0, 2, count)
    assert "the counts began anew at " in screen.plain_text()
    screen.take(at(4.0, stats("node", count + 10, 80.0, error_count=2), origin=origin))
    screen.press("w")
    (row,) = rows_of(screen)
    assert (row.stats.count, row.stats.total_ms, row.stats.error_count) == (110 + count, 380.0, 3)
    assert row.rate == (110 + count) / 4
    assert screen._trends([row], 10)[0] == [(3.0, 1), (60.0 / count, 2), (2.0, 0)]
    screen.take(at(70.0, stats("node", count + 10, 80.0, error_count=2), origin=origin))
    assert "anew" not in screen.plain_text()


def test_a_moment_that_is_read_twice_keeps_its_rates() -> None:
    first, second, third = (at(float(number), stats("node", 100 * number, 1.0)) for number in (1, 2, 3))
    written: list[str] = []
    showing.show_plain(iter([first, first, second, second, second, third]), Choice(), written.append)
    assert [text.rstrip().splitlines()[-1].split()[3] for text in written] == ["-", "-", *["100.0"] * 4]


@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("total", "cab"), ("load", "bca"), ("rate", "bac"), ("count", "abc"), ("mean", "cba"), ("p99", "bca"),
        ("max", "cba"), ("errors", "acb"), ("name", "abc"),
    ],
)  # fmt: skip
def test_each_order(key: str, order: str) -> None:
    before = at(0.0, stats("a", 90, 25.0), stats("b", 0, 0.0), stats("c", 3, 70.0))
    now = at(
        1.0,
        stats("a", 100, 30.0, p99_ms=1.0, error_count=3),
        stats("b", 20, 20.0, p99_ms=3.0),
        stats("c", 4, 80.0, p99_ms=2.0, error_count=1),
    )
    assert "".join(row.name for row in Choice(key).rows(now, [before])) == order
    assert "".join(row.name for row in Choice(key, reverse=True).rows(now, [before])) == order[::-1]
    assert key in samples.SORT_KEYS


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        *((name, True) for name in ("127.0.0.1:50051", "host:1", "[::1]:80")),
        *((name, False) for name in ("live", "123", ":80", "a:b", "a:123456", "C:")),
    ],
)
def test_what_is_an_address(target: str, expected: bool) -> None:
    assert top.is_address(target) is expected


def test_a_file_may_be_called_as_an_address_or_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("host:80", "1"):
        profiler_on(live=name).set_profiling(False)
        assert "ended" in shown(name, capsys=capsys)[0]


# ---- Terminals


def test_a_terminal_needs_rich(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    profiler_on(live=path).set_profiling(False)
    monkeypatch.setitem(sys.modules, "rich.live", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert failed(str(path), capsys=capsys).endswith(': pip install "cprofiling[rich]"')


class Terminal:
    """A terminal of a size, with the command in it."""

    def __init__(self, *arguments: str, columns: int = 110, lines: int = 24, **environment: str) -> None:
        self.master, slave = pty.openpty()
        settings = {**ENVIRONMENT, "COLUMNS": str(columns), "LINES": str(lines), "TERM": "xterm", **environment}
        self.child = subprocess.Popen(
            [*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=settings
        )
        os.close(slave)
        self.read = ""
        self.decode = codecs.getincrementaldecoder("utf-8")().decode  # a character may come in two parts

    def wait_for(self, *texts: str) -> None:
        """Read until each text has come since the last wait."""
        self.read = ""
        until = time.monotonic() + 60
        while not all(text in self.read for text in texts):
            assert time.monotonic() < until, self.read
            if select.select([self.master], [], [], 1.0)[0]:
                self.read += self.decode(os.read(self.master, 65536))

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> str:
        """Wait for the end; what is left on the screen then."""
        with contextlib.suppress(OSError):  # nobody has it any more
            while True:
                self.read += self.decode(os.read(self.master, 65536))
        assert self.child.wait(60) == 0
        assert self.child.stderr is not None
        assert self.child.stderr.read() == b""
        self.child.stderr.close()
        os.close(self.master)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.read.rpartition("\x1b[?1049l")[2])


def test_a_terminal_with_rich_and_its_keys(busy: subprocess.Popen[bytes], path: Path) -> None:
    pytest.importorskip("rich")
    terminal = Terminal(str(path), "--interval", "0.2")
    terminal.wait_for("by total", "model", "Calls/s")
    terminal.press("s")
    terminal.wait_for("by load")
    terminal.press("r")
    terminal.wait_for("by load, reversed")
    terminal.press("p")
    terminal.wait_for("paused")
    terminal.press("\x1b[A\x1bOB")  # the wheel, or arrow keys
    terminal.press("s")
    terminal.wait_for("by rate, reversed")
    terminal.press("x q")
    left = terminal.end()
    assert left.splitlines()[0].startswith(f"process {busy.pid}, running")
    assert "model" in left


def test_an_interrupt_leaves_the_last_table(path: Path) -> None:
    pytest.importorskip("rich")
    profiler_on(live=path).record("train", "node", 1.5)
    live_writer.commit()
    terminal = Terminal(str(path), "--interval", "3600")
    terminal.wait_for("by total")
    terminal.press("?")
    terminal.wait_for("back to the table")
    terminal.child.send_signal(signal.SIGINT)
    left = terminal.end()
    assert f"process {os.getpid()}, running" in left
    assert "node" in left


def test_keys_are_answered_while_the_next_moment_is_waited_for(path: Path) -> None:
    pytest.importorskip("rich")
    profiler_on(live=path)
    terminal = Terminal(str(path), "--interval", "3600")
    for awaited, key in (("by total", "s"), ("by load", "r"), ("reversed", "q")):
        terminal.wait_for(awaited)
        terminal.press(key)
    assert f"process {os.getpid()}, running" in terminal.end()


def test_a_narrow_terminal_leaves_columns_out(path: Path) -> None:
    pytest.importorskip("rich")
    profiler = profiler_on(live=path)
    for number in range(40):
        profiler.record("train", f"node {number}", 1 + number)
    profiler.set_profiling(False)
    left = Terminal(str(path), columns=60, lines=12).end()
    assert "Mean" in left
    assert "p50" not in left
    assert all(len(line) <= 60 for line in left.splitlines())
    assert all(f"node {number} " in left for number in range(40))  # what stays is all of it


def screen_text(screen: Any, columns: int, lines: int) -> str:
    console = pytest.importorskip("rich.console").Console
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        recorded = console(record=True, width=columns, file=nowhere)
        recorded.print(screen.render(columns, lines))
        text: str = recorded.export_text()
    return text


def test_the_screen_shows_as_much_as_it_has_room_for() -> None:
    many = [stats(f"node {number:02}", number, float(number)) for number in range(30)]
    screen = showing._Screen(Choice("name"), at(0.0, *many))
    lines = screen_text(screen, 120, 12).splitlines()
    assert len(lines) <= 12
    assert "... 26 more" in "\n".join(lines)
    assert "Mean" in screen_text(screen, 60, 12)
    assert "p50" not in screen_text(screen, 60, 12)
    assert "No profiling data collected." in screen_text(showing._Screen(Choice(), at(0.0)), 120, 12)
    failing = at(1.0, stats("node", 1, 1.0, error_count=2))
    noted = Moment(failing.title, failing.taken_s, failing.parts, ("a\x1b[31m note",))
    assert "note: a\\x1b[31m note" in screen_text(showing._Screen(Choice(), noted, at(0.0)), 120, 12)


@pytest.mark.parametrize(("length", "columns"), [(5, 120), (60, 70), (200, 40)])
def test_nodes_that_there_is_no_room_for_are_counted_and_scrolled_to(length: int, columns: int) -> None:
    many = [stats(f"{number:02} {'long name ' * length}"[: length + 3], number, float(number)) for number in range(40)]
    screen = showing._Screen(Choice("name"), at(0.0, *many))

    def look(*keys: str) -> tuple[int, int, int]:
        for key in keys:
            screen.press(key)
            lines = screen_text(screen, columns, 15).splitlines()
        assert len(lines) <= 15
        names = [int(found[1]) for line in lines if (found := re.match(r" (\d\d) ", line))]
        assert names == list(range(screen.first, screen.first + screen.shown))
        above = f"{screen.first} above (Up, PageUp)" if screen.first else ""
        below = f"{screen.below} more (Down, PageDown)" if screen.below else ""
        assert "... " + ", ".join(filter(None, (above, below)))[: columns - 5] in "\n".join(lines)
        return screen.first, screen.shown, screen.below

    _, count, below = look("x")
    assert count + below == 40
    assert look("\x1b[B", "\x1bOB") == (2, count, 38 - count)
    assert look("\x1b[A") == (1, count, 39 - count)
    assert look("\x1b[6~") == (1 + count, count, 39 - 2 * count)
    assert look("\x1b[5~", "\x1b[5~", "\x1bOA") == (0, count, below)
    first, shown_now, none = look(*["\x1b[6~"] * 50)
    assert (first + shown_now, none) == (40, 0)
    assert look("\x1b[B", "\x1b[6~") == (first, shown_now, 0)
    assert "above" not in screen_text(screen, columns, 1000)  # all of it, however far it was scrolled
    look(*["\x1b[6~"] * 50)
    screen.press("r")
    assert screen.first == 0


def test_the_end_is_shown_also_while_paused(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich")
    keys = iter(["p"])
    monkeypatch.setattr(showing, "_keys", lambda: contextlib.nullcontext(lambda: next(keys, "")))

    def source(wait: Any) -> Iterator[Moment]:
        yield Moment("running", 0.0, at(0.0).parts)
        yield Moment("killed", 1.0, at(1.0).parts, is_over=True)

    showing.show_rich(source, Choice())  # type: ignore[arg-type]
    left = capsys.readouterr().out.rpartition("\x1b[?1049l")[2]
    assert "killed" in left
    assert "running" not in left
    assert "paused" not in left


def test_a_paused_screen_does_not_change() -> None:
    screen = showing._Screen(Choice("name"))
    screen.take(at(0.0))
    screen.press(" ")
    screen.take(at(1.0))
    assert (screen.now, screen.waiting) == (at(0.0), at(1.0))
    screen.press("p")
    screen.press("s")
    screen.take(at(2.0))
    assert (screen.now, screen.before) == (at(2.0), at(0.0))
    assert screen.choice.sort_by == "total"  # after the last comes the first


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, Any]]:
    """What writes on a terminal that is stdin, and that terminal."""
    master, slave = pty.openpty()
    with os.fdopen(slave) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield master, stdin
    os.close(master)


def keys_of(pressed: Any) -> list[str]:
    return list(iter(pressed, ""))


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("q", ["q"]),
        ("x\u00e9 q", ["x", "\ufffd", "\ufffd", " ", "q"]),
        ("\x1b", ["\x1b"]),
        ("\x1b\x1b", ["\x1b"]),
        ("\x1b[A", ["\x1b[A"]),
        ("\x1bOA\x1bOBs", ["\x1bOA", "\x1bOB", "s"]),
        ("\x1b[1;5C\x1b[200~q", ["\x1b[1;5C", "\x1b[200~", "q"]),
        ("\x1b\x1b[Ar", ["\x1b\x1b[A", "r"]),
        ("\x1bq", ["\x1bq"]),
        ("\x1b[", ["\x1b["]),
        ("\n", ["\n"]),
    ],
)
def test_keys_are_characters_or_sequences(keyboard: tuple[int, Any], typed: str, keys: list[str]) -> None:
    master, _ = keyboard
    with showing._keys() as pressed:
        assert keys_of(pressed) == []
        os.write(master, typed.encode())
        assert keys_of(pressed) == keys
        screen = showing._Screen(Choice("name"))
        for key in keys:
            screen.press(key)
        assert screen.is_over is bool({"q", "\x1b"} & set(keys))


def test_a_sequence_may_come_in_parts(keyboard: tuple[int, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    master, _ = keyboard
    wait, parts = select.select, [b"A", b"[1;", b"\x1b"]

    def select_later(*arguments: Any) -> Any:
        if parts:
            os.write(master, parts.pop())
        return wait(*arguments)

    monkeypatch.setattr(select, "select", select_later)
    with showing._keys() as pressed:
        assert keys_of(pressed) == ["\x1b[1;A"]


def test_what_was_typed_is_not_left_to_the_shell(keyboard: tuple[int, Any]) -> None:
    master, stdin = keyboard
    with showing._keys() as pressed:
        os.write(master, b"q")
        assert pressed() == "q"
        os.write(master, b"rm *\n")
        select.select([stdin], [], [], 10)
    assert select.select([stdin], [], [], 0)[0] == []


def test_without_a_keyboard_no_key_is_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with showing._keys() as pressed:
        assert pressed() == ""


# ---- Windows


def test_a_window_has_the_figures_of_its_calls_only(path: Path) -> None:
    profiler = profiler_on(live=path)

    def moment_after(time_ms: float, taken_s: float) -> Moment:
        for _ in range(100):
            profiler.record("train", "node", time_ms)
        live_writer.commit()
        return dataclasses.replace(from_live_file.moment_of(live.read(path)), taken_s=taken_s)

    screen = showing._Screen(Choice(window="interval"))
    for time_ms, taken_s in ((1.0, 0.0), (2.0, 1.0), (50.0, 2.0)):
        screen.take(moment_after(time_ms, taken_s))
    assert (screen.now.uptime_s or -1.0) > 0
    for window, calls, p50, p99, rate in (("interval", 100, 50, 50, 100.0), ("minute", 200, 2, 50, 100.0)):
        screen.choice = Choice(window=window)
        (row,) = screen.choice.rows(screen.now, screen.since())
        assert (row.stats.count, row.rate) == (calls, rate)
        assert row.stats.p50_ms == pytest.approx(p50, rel=0.01)
        assert row.stats.p99_ms == pytest.approx(p99, rel=0.01)
        assert row.stats.max_ms == pytest.approx(50, rel=0.01)
    text = screen_text(screen, 130, 20)
    assert "last minute" in text
    assert "▁█" in text  # the slow interval stands out
    screen.press("w")
    assert "since the start" in screen_text(screen, 130, 20)
    screen.press("?")
    assert "back to the table" in screen_text(screen, 80, 24)
    screen.press("?")
    screen.press("O")
    assert "it cannot be switched" in screen_text(screen, 80, 24)
    profiler.set_profiling(False)


def test_a_source_without_histograms_has_no_percentiles_of_a_window() -> None:
    before, now = (at(float(n), stats("node", 10 * n, 100.0 * n, p99_ms=9.0, error_count=n)) for n in (1, 3))
    (row,) = Choice(window="interval").rows(now, [before])
    assert (row.stats.count, row.stats.mean_ms, row.stats.error_count, row.stats.p99_ms) == (20, 10.0, 2, None)
    assert row.cells()[6:9] == ("-", "-", "-")
    for key in ("max", "p99"):
        assert [each.cells() for each in Choice(key, window="interval").rows(now, [before])] == [row.cells()]


# ---- Faults


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """The time that it is."""
    fixed = time.time()
    monkeypatch.setattr("time.time", lambda: fixed)
    return fixed


def test_errors_have_a_share_and_a_beginning(now_s: float) -> None:
    """Those that were there at the start are told from those that began since, on the screen and piped."""
    old = {"old": 4, "both": 1, "well": 0, "new": 0}
    counted = [old, old, {**old, "both": 2, "new": 3}, {**old, "both": 2, "new": 7}]
    moments = [
        at(now_s - ago, *(stats(name, 100 + place, 1.0, error_count=count) for name, count in errors.items()))
        for place, (ago, errors) in enumerate(zip((200, 140, 50, 10), counted, strict=True))
    ]
    assert "already" not in screen_of(moments[0]).plain_text()  # of which there is nothing to say yet
    screen = screen_of(*moments)
    start, began = (samples.clock(now_s - ago) for ago in (200, 50))
    lines = screen.plain_text().splitlines()
    assert lines[-3:] == [
        f"new: first error 50 s ago ({began}), last 10 s ago",
        f"both: had errors already when top began at {start}, last 50 s ago",
        f"old: had errors already when top began at {start}, none since",
    ]
    assert [row.cells()[-1] for row in rows_of(screen)] == ["4 (3.7 %)", "2 (1.9 %)", "0", "7 (6.4 %)"]
    assert samples.Row("n", stats("n", 10_000, 1.0, error_count=2), None, None).cells()[-1] == "2 (<0.1 %)"
    text = screen_text(screen, 80, 24)
    assert all(line in text for line in lines[-3:])
    assert "+" not in text
    assert "+2 nodes" in screen_text(screen, 80, 10)


def test_ages_are_told_in_fitting_units(now_s: float) -> None:
    for ago, text in ((0, "0 s"), (119, "119 s"), (130, "2 min"), (7000, "117 min"), (7300, "2 h")):
        assert samples.Faults(now_s - ago, now_s - ago).text(0.0).endswith(f", last {text} ago")


def test_the_trend_has_a_time_axis_and_shows_errors_and_gaps(now_s: float) -> None:
    screen = screen_of(*(at(now_s - 9 + second, stats("node", second, float(second))) for second in (*range(5), 8)))
    screen.take(at(now_s, stats("node", 9, 12.0, error_count=1)))
    heading, _, row = screen_text(screen, 200, 24).splitlines()[3:6]
    assert re.search(r"60 s ago +now *$", heading)
    assert row.rstrip().endswith("▂▂▂▂   ▂█")  # 3 s without a sample
    assert row.index("█") == heading.rindex("now") + 2  # the last interval
    narrow = screen_text(screen, 80, 24).splitlines()[3]
    assert re.search(r"last \d+ s *$|\d+ s ago +now *$", narrow)
    assert narrow.rstrip().endswith(("s", "now"))
    console = pytest.importorskip("rich.console").Console
    segments = console(width=200).render(screen.render(200, 24))
    assert [str(each.style) for each in segments if each.text == "█"] == ["red"]


# ---- A server that is away


def test_a_terminal_follows_a_server_over_a_restart() -> None:
    for name in ("rich", "grpc", "grpc_health", "grpc_reflection"):
        pytest.importorskip(name)
    serve = pytest.importorskip("cprofiling.server").serve
    first, second = profiler_on(), profiler_on()
    first.record("train", "before", 1.0)
    second.record("train", "after", 1.0)
    with serve({"p": first}) as server:
        terminal = Terminal(server.address, "--interval", "0.2")
        terminal.wait_for("by total", "before", "p99")
    terminal.wait_for("server away for 2 s, last figures of ")
    terminal.press("s?")
    terminal.wait_for("back to the table")
    terminal.press("?")
    with serve({"p": second}, address=server.address):
        terminal.wait_for("after", "the counts began anew at ")
    terminal.press("q")
    assert f"session p at {server.address}" in terminal.end()


def test_a_source_that_is_away_is_told_with_the_last_figures(now_s: float) -> None:
    here = at(now_s - 20, stats("node", 100, 1.0), switch=lambda: "switched")
    assert f"{samples.clock(now_s - 20)}, 20 s ago" in screen_text(screen_of(here), 80, 24)
    away = dataclasses.replace(here, away_s=now_s - 12)
    told = f"server away for 12 s, last figures of {samples.clock(now_s - 20)}"
    written: list[str] = []
    showing.show_plain(iter([here, away, at(now_s, stats("node", 120, 1.0))]), Choice(), written.append)
    assert written[1] == f"\n{told}"
    assert written[2].splitlines()[-1].split()[3] == "1.0"  # calls a second, of the 20 s
    screen = screen_of(here, away)
    screen.press("O")
    text = screen_text(screen, 80, 24)
    assert told in text
    assert "node " in text
    assert "the server is away: profiling is not switched" in text
