"""Lines that tell how far something is: where somebody looks, when it takes long, and gone afterwards."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from cprofiling._internal import progress as module
from cprofiling._internal.progress import progress
from cprofiling.layers.ranks.merge import merge_files

SLOW = """
import sys, time
import cprofiling as cp

class Slow:
    mode = "wb"
    def write(self, piece):
        time.sleep(0.05)

with cp.profile(operators=False) as prof:
    for _ in range(40_000):
        with cp.record("a block with a long name, so that the trace has many pieces"):
            pass
began = time.monotonic()
while time.monotonic() < began + 1.5:
    prof.export_chrome_trace(file=Slow())
print("done", file=sys.stderr)
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def impatient(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal, before which nobody has to wait."""
    shown = Terminal()
    monkeypatch.setattr(module, "AFTER_S", 0.0)
    monkeypatch.setattr(module, "_EVERY_S", 0.0)
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


def lines(terminal: Terminal) -> list[str]:
    return [line.rstrip() for line in terminal.getvalue().split("\r")]


def test_a_real_terminal_shows_a_long_export_and_keeps_nothing_of_it() -> None:
    ours, theirs = pty.openpty()
    try:
        run = subprocess.Popen([sys.executable, "-c", SLOW], stderr=theirs)
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # Linux's word for the end
            pass
        assert run.wait() == 0
    finally:
        os.close(ours)
    *before, last = shown.decode().split("\r\n")[0].split("\r")
    assert any(re.fullmatch(r"writing: \d+\.\d MB *", line) for line in before), shown
    assert (before[-1].strip(), last) == ("", "done")


def test_nothing_is_shown_to_a_pipe() -> None:
    run = subprocess.run([sys.executable, "-c", SLOW], stderr=subprocess.PIPE, check=True)
    assert run.stderr == b"done\n"


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_files_are_read_and_written_with_a_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = impatient(monkeypatch)
    with cp.profile(operators=False) as prof:
        for number in range(20_000):
            cp.record(f"block {number}").__enter__().__exit__(None, None, None)
    prof.export_chrome_trace(tmp_path / name)
    cp.load_trace(tmp_path / name)
    found = lines(terminal)
    written = [float(line[9:-3]) for line in found if line.startswith("writing: ")]
    read = [int(line[-5:-2]) for line in found if line.startswith("reading ")]
    assert written == sorted(written)
    assert written[-1] > 1
    assert read == sorted(read)
    assert read[-1] == 100
    assert found[-2:] == ["", ""]


def test_a_merge_of_ranks_tells_how_many_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    for rank in range(4):
        with cp.profile(operators=False) as prof, cp.record("block"):
            pass
        paths.append(tmp_path / f"trace_rank{rank}.json")
        prof.export_chrome_trace(paths[-1])
    terminal = impatient(monkeypatch)
    merge_files(paths, tmp_path / "merged.json")
    found = lines(terminal)
    assert [line[-5:] for line in found if line.startswith("merging ")] == [" 25 %", " 50 %", " 75 %", "100 %"]
    assert any(line.startswith("writing: ") for line in found)


def test_what_is_soon_done_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(), [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("reading", 4) as advance:
        for clock[0], shown in ((0.9, ""), (1.1, f"\rreading {'#' * 12:25}  50 %")):
            advance(1)
            assert terminal.getvalue() == shown


def test_one_line_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = impatient(monkeypatch)
    with progress("outer", 4) as outer:
        outer(1)
        with progress("inner", 2) as inner:
            inner(1)
        thread = threading.Thread(target=lambda: progress("other").__enter__()(1))
        thread.start()
        thread.join()
        outer(3)
    with progress("next") as following:
        following(2_500_000)
    assert lines(terminal) == [
        "", f"outer {'######':25}  25 %", f"outer {'#' * 25} 100 %", "", "", "next: 2.5 MB", "", "",
    ]  # fmt: skip


@pytest.mark.parametrize("stream", [None, object(), io.StringIO()])
def test_streams_of_all_kinds(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AFTER_S", 0.0)
    closed = Terminal()
    for each in (stream, closed):
        monkeypatch.setattr(sys, "stderr", each)
        with progress("work", 2) as advance:
            closed.close()
            advance(1)
    assert not isinstance(stream, io.StringIO) or stream.getvalue() == ""
