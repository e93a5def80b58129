"""``cprofiling report`` of all kinds of files in every format."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import threading
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cprofiling as cp
import timing_reports
from calls import profiler_on, profiler_with
from command import COMMAND
from cprofiling._internal.text import shown_text
from cprofiling.commands import main
from cprofiling.monitoring import live_writer
from cprofiling.nodes.rank_snapshot import RankedSnapshot
from cprofiling.report.format_list import FORMATS
from cprofiling.report.html import render as html_page
from cprofiling.testing.gates import baseline
from cprofiling.views import FORMATS as ALL_FORMATS
from hostile_names import NAMES
from recorded import inner


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each kind, in a folder."""
    folder = tmp_path_factory.mktemp("files")
    for name, mean in (("a.bin", 1.0), ("b.bin", 2.0)):
        profiler = profiler_with({("train", "net|"): [mean + number / 1000 for number in range(20)]})
        (folder / name).write_bytes(profiler.snapshot().to_bytes())
    ranked = RankedSnapshot(cp.Snapshot.from_bytes((folder / "a.bin").read_bytes()), 3, 8, "box", 77)
    (folder / "rank.bin").write_bytes(ranked.to_bytes())
    (folder / "timing.json").write_text(json.dumps(timing_reports.OURS), encoding="ascii")
    (folder / "peers.json").write_text(json.dumps(timing_reports.PEERS, indent=2), encoding="ascii")
    with cp.profile(file=folder / "trace.json.gz"), cp.record("block"):
        pass
    return folder


def report(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    assert main.main(["report", *map(str, arguments)]) == status
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def failure(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main.main(["report", *map(str, arguments)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("cprofiling: ").rstrip("\n")


def test_the_command_knows_all_formats() -> None:
    assert FORMATS == ALL_FORMATS


def test_statistics_as_text(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = report(capsys, files / "a.bin").splitlines()
    assert lines[:2] == [str(files / "a.bin"), ""]
    assert lines[2].split()[:4] == ["Node", "Stage", "Count", "Mean"]
    assert lines[4].split()[:5] == ["net|", "train", "20", "1.01", "ms"]
    assert any(line.startswith("clock: ") for line in lines)
    assert "rank: 3\nworld size: 8\nhost: box\npid: 77\n" in report(capsys, files / "rank.bin")


def test_timing_reports_of_all_kinds(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = report(capsys, files / "timing.json")
    assert [line.split()[0] for line in text.splitlines()[4:6]] == ["vae", "dit"]
    assert "Device memory\n" in text
    assert report(capsys, files / "peers.json").splitlines()[2].split() == ["Node", "Total"]


@pytest.mark.parametrize("name", ["a.bin", "rank.bin", "timing.json", "peers.json", "trace.json.gz"])
def test_every_kind_of_file_in_every_format_that_is_text(
    name: str, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(report(capsys, files / name, "-r", "json"))
    assert (document["schema"], document["source"]) == ("cprofiling.report", str(files / name))
    assert report(capsys, files / name, "-r", "md").startswith("# ")
    assert report(capsys, files / name, "--format", "csv").startswith('"')
    for suffix in ("json", "md", "csv", "txt"):
        out = tmp_path / f"out.{suffix}"
        assert report(capsys, files / name, "-o", out) == ""
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
        printed = report(capsys, files / name, "-r", "text" if suffix == "txt" else suffix)
        assert out.read_text(encoding="utf-8").rstrip("\n") == printed.rstrip("\n")


def test_formats_that_need_packages(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("prometheus_client")
    for name in ("a.bin", "timing.json", "trace.json.gz"):
        assert report(capsys, files / name, "-o", tmp_path / "x.html") == ""
        assert (tmp_path / "x.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        report(capsys, files / name, "-o", tmp_path / "x.parquet")
        assert parquet.read_table(tmp_path / "x.parquet").num_rows in (1, 2)
    assert 'cprofiling_node_calls_total{node="net|",stage="train"} 20.0' in report(
        capsys, files / "a.bin", "-r", "prom"
    )


def test_a_trace_again(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(capsys, files / "trace.json.gz", "-o", tmp_path / "again.json.gz")
    assert len(cp.load_trace(tmp_path / "again.json.gz")) == 1
    report(capsys, files / "trace.json.gz", "-r", "chrome", "-o", tmp_path / "plain.json")
    assert json.loads((tmp_path / "plain.json").read_text(encoding="utf-8"))["traceEvents"]


def test_two_runs(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = report(capsys, files / "b.bin", "--against", files / "a.bin", status=3)
    assert "Slower than the baseline (nodes: 1 slower)" in text
    assert "<code>net&#124;</code>" in report(
        capsys, files / "b.bin", "--against", files / "a.bin", "-r", "md", status=3
    )
    document = json.loads(report(capsys, files / "b.bin", "--against", files / "a.bin", "-r", "json", status=3))
    assert document["kind"] == "comparison"
    assert document["sections"]["comparison"]["title"] == f"Compared with {files / 'a.bin'}"
    trace = files / "trace.json.gz"
    assert main.main(["report", str(trace), "--against", str(trace)]) == 1
    text, told = capsys.readouterr()
    assert told == "cprofiling: no row can be judged\n"
    assert text.startswith(f"{trace}: ")
    assert text.index("Node ") < text.index("Averages, by")
    message = failure(capsys, files / "a.bin", "--against", trace)
    assert message == "against must be of the same kind, got a summary with a recording"
    assert failure(capsys, files / "a.bin", "--against", files / "b.bin", "-r", "csv").startswith(
        "two runs are compared as"
    )


@pytest.mark.slow
def test_a_terminal_gets_no_control_characters_of_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("prometheus_client")
    names = (*NAMES, "\x1b]0;title\x07", "tab\tor\rreturn", "\x9b31m")
    profiler = profiler_with({(name, name): [1.0] for name in names})
    (tmp_path / "h.bin").write_bytes(profiler.snapshot().to_bytes())
    for kind in ("text", "md", "csv", "json", "prom"):
        with monkeypatch.context() as patch:
            patch.setattr("cprofiling.commands.parsing.is_terminal", lambda: True)
            printed = report(capsys, tmp_path / "h.bin", "-r", kind)
        assert "\n" in printed
        assert {each for each in printed if unicodedata.category(each) == "Cc"} == {"\n"}
        piped = report(capsys, tmp_path / "h.bin", "-r", kind)
        assert ("\x1b" in piped) is (kind in {"csv", "prom"})
        assert "\n".join(shown_text("line", line) for line in piped.split("\n")) == printed


def test_what_does_not_fit_is_one_line(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statistics, trace, timing = files / "a.bin", files / "trace.json.gz", files / "timing.json"
    for kind in ("chrome", "parquet"):
        assert failure(capsys, trace, "-r", kind) == f"{kind} needs a file: say which with -o"
    told = "prom is a format of snapshots of statistics, not of a recording"
    assert failure(capsys, trace, "-r", "prom") == told
    ends = ".txt, .html, .htm, .md, .markdown, .json, .csv, .parquet, .pq"
    for path, fitting in (
        ((statistics,), f"{ends}, .prom"),
        ((timing,), ends),
        ((trace,), f"{ends}, .json.gz"),
        ((statistics, "--against", statistics), ".txt, .html, .htm, .md, .markdown, .json"),
    ):
        told = f"-o: path must end in one of {fitting}, got 'x.doc' (str); or say the format with -r"
        assert failure(capsys, *path, "-o", "x.doc") == told
    assert failure(capsys, statistics, "-o", tmp_path) == f"cannot write {tmp_path}: Is a directory"
    assert failure(capsys, statistics, "-r", "json", "-o", statistics) == f"{statistics} is the file to be shown"
    missing = tmp_path / "no\nwhere" / "x.md"
    assert (
        failure(capsys, statistics, "-o", missing)
        == f"cannot write {tmp_path}/no\\nwhere/x.md: No such file or directory"
    )
    assert failure(capsys, statistics, "-o", missing.with_suffix(".txt")).startswith("cannot write ")
    for option in (("--sort-by", "count"), ("--limit", "3"), ("--group-by-node",)):
        assert failure(capsys, statistics, *option) == f"{option[0]} is for the text of traces only"
        assert failure(capsys, trace, "-r", "md", *option) == f"{option[0]} is for the text of traces only"
    assert list(tmp_path.iterdir()) == []


def test_damaged_files(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = tmp_path / "damaged"
    data = (files / "a.bin").read_bytes()
    damaged.write_bytes(data[:-1])
    assert failure(capsys, damaged).startswith(f"{damaged}: ")
    damaged.write_bytes((files / "rank.bin").read_bytes()[:-1])
    assert "checksum" in failure(capsys, damaged)
    damaged.write_text('{"request_id": "x", "stages": {"a": 3}}', encoding="ascii")
    assert failure(capsys, damaged) == f"{damaged}: $.stages.a: must be an object, got 3 (int)"
    damaged.write_text(report(capsys, files / "a.bin", "-r", "json"), encoding="ascii")
    assert (
        failure(capsys, damaged)
        == f"{damaged}: it is a report already, of -r json or save(): give the file that it was made of"
    )
    damaged.write_text("[]", encoding="ascii")
    assert failure(capsys, files / "a.bin", "--against", tmp_path / "nowhere").startswith("cannot read ")
    assert main.main(["report", str(damaged)]) == 0  # a trace of nothing


@pytest.mark.parametrize(
    "data", [b"{}", b'{"a": [1]}', b"import os\n", b"PAR1\x15\x04", b"<!doctype html>", b"node,stage\n"]
)
def test_files_of_other_kinds(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other"
    path.write_bytes(data)
    assert failure(capsys, path) == f"{path}: it holds neither statistics nor a timing report nor a trace"


def test_kinds_that_other_commands_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline.save(str(tmp_path / "tests.json"), {})
    told = "it is a file of --cprofiling-json: cprofiling compare compares two"
    assert failure(capsys, tmp_path / "tests.json") == f"{tmp_path}/tests.json: {told}"
    with cp.profile() as recorded, cp.record("label"):
        pass
    recorded.save(tmp_path / "report.json")
    profiler_on(live=tmp_path / "live.cprof")
    (tmp_path / "timing.json").write_text('{"request_id": "x", "stages": {}}')
    for name, told in (
        (
            "report.json",
            "it is a report already, of -r json or save(), and no trace: give the file that it was made of",
        ),
        ("live.cprof", "it is a live file, and no trace: cprofiling report and cprofiling top show it"),
        (
            "timing.json",
            "it is a timing report, and no trace: cprofiling report shows it, and cprofiling compare compares two",
        ),
    ):
        with pytest.raises(cp.FormatError, match=f"^{re.escape(f'{tmp_path}/{name}: {told}')}$"):
            cp.load_trace(tmp_path / name)


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[Callable[[bytes], Path]]:
    """What makes a pipe from which some bytes come."""
    path, writers = tmp_path / "pipe", list[threading.Thread]()
    os.mkfifo(path)

    def pipe(data: bytes) -> Path:
        writers.append(threading.Thread(target=path.write_bytes, args=(data,)))
        writers[-1].start()
        return path

    yield pipe
    for writer in writers:
        writer.join()


@pytest.mark.parametrize("name", ["a.bin", "rank.bin", "timing.json", "peers.json", "trace.json.gz"])
def test_files_of_each_kind_from_a_pipe(
    name: str, files: Path, piped: Callable[[bytes], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data = (files / name).read_bytes()
    for kind in ("text", "csv", "json"):
        path = piped(data)
        printed = report(capsys, path, "-r", kind)
        assert printed.replace(str(path), str(files / name)) == report(capsys, files / name, "-r", kind)


@pytest.mark.parametrize("arguments", [["compare", "a", "b"], ["report", "b", "--against", "a"]], ids=" ".join)
def test_what_other_processes_write_into_pipes_is_compared(arguments: list[str], files: Path, tmp_path: Path) -> None:
    pipes = [tmp_path / "a", tmp_path / "b"]
    writers = []
    for pipe in pipes:
        os.mkfifo(pipe)
        copy = ["sh", "-c", 'exec cat "$0" > "$1"', str(files / f"{pipe.name}.bin"), str(pipe)]
        writers.append(subprocess.Popen(copy))
    try:
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (3, "")
        assert "Slower than the baseline (nodes: 1 slower)" in done.stdout
        assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()


def test_faults_of_what_a_pipe_gives_name_the_pipe(
    piped: Callable[[bytes], Path], files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = piped(b'{"request_id": "x", "stages": {"a": 3}}')
    assert failure(capsys, path) == f"{path}: $.stages.a: must be an object, got 3 (int)"
    assert failure(capsys, piped(b"{")).startswith(f"{path}: ")
    assert "checksum" in failure(capsys, piped((files / "rank.bin").read_bytes()[:-1]))
    begun = b'{"traceEvents": [{"ph": "B", "name": "a", "pid": 1, "tid": 1, "ts": 1}, {"ph": "b", "ts": 1}]}'
    with pytest.warns(RuntimeWarning, match=f"^{path}: "):
        report(capsys, piped(begun))

    monkeypatch.setattr("tempfile.TemporaryFile", lambda: Path("/dev/full").open("w+b"))  # noqa: SIM115
    assert failure(capsys, piped(b"{")) == f"cannot read {path}: No space left on device"


def test_a_device_is_no_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(capsys, "/dev/zero").startswith("/dev/zero: ")


def test_a_live_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "live"
    profilers = [cp.Profiler(), cp.Profiler()]
    for number, profiler in enumerate(profilers):
        profiler.set_profiling(True, live=path)
        profiler.record("train", f"node|{number}", 1.0)
    live_writer.commit()
    text = report(capsys, path)
    assert "node|0" in text
    assert "node|1" in text
    assert f"state: running\nprocess: pid {os.getpid()}\ncommand: " in text
    assert "note" not in text
    monkeypatch.setattr("cprofiling.nodes.live_file.Head.is_alive", lambda _: False)
    assert "state: killed\n" in report(capsys, path)
    assert "note: the process was killed" in report(capsys, path)
    for profiler in profilers:
        profiler.set_profiling(False)
    assert json.loads(report(capsys, path, "-r", "json"))["nodes"][0]["node_name"] == "node|0"
    nobody = live_writer._opened(str(tmp_path / "nobody"), print)
    assert failure(capsys, tmp_path / "nobody") == f"{tmp_path / 'nobody'}: no Profiler has written to it yet"
    nobody.close()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OverflowError("too large"), "too large"),
        (RecursionError("too deep"), "too deep"),
        (MemoryError(), "there is not enough memory"),
    ],
)
def test_figures_that_cannot_be_shown(
    error: Exception, told: str, files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("cprofiling.report.view.View.render", fail)
        assert failure(capsys, files / "a.bin", "-r", "md") == f"cannot show {files / 'a.bin'}: {told}"
    monkeypatch.setattr("cprofiling.commands.report.load", fail)
    assert failure(capsys, files / "a.bin") == f"cannot read {files / 'a.bin'}: {told}"


def test_integers_have_all_their_digits(tmp_path: Path, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = cp.Snapshot.from_bytes((files / "a.bin").read_bytes())
    (tmp_path / "ranked").write_bytes(RankedSnapshot(snapshot, 3, 8, "box", 1234567).to_bytes())
    assert "\npid: 1234567\n" in report(capsys, tmp_path / "ranked")
    event = {"ph": "X", "name": "a", "cat": "user_annotation", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    known = {"rank": 10**399, "world_size": 4194304}
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [event], "distributedInfo": known}))
    printed = report(capsys, tmp_path / "trace.json", "-r", "md")
    assert "- rank: 1e+399\n" in printed
    assert "- world size: 4194304\n" in printed
    assert json.loads(report(capsys, tmp_path / "trace.json", "-r", "json"))["facts"] == known


def test_wrong_arguments_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["x", "-r", "xml"], ["x", "-o", ""], []):
        with pytest.raises(SystemExit) as ended:
            main.main(["report", *arguments])
        assert ended.value.code == 2
    assert "expected a text that is not empty" in capsys.readouterr().err


# ---- Text of traces

DEVICE_TRACE = """{"displayTimeUnit": "ms", "traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 40},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 15, "dur": 5,
 "args": {"correlation": 7}},
{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 30, "dur": 2000000,
 "args": {"correlation": 7, "device": 0, "stream": 7}}]}"""


@cp.profile_node("outer")
def outer() -> None:
    inner()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "tra\nce.json.gz"
    with cp.profile(file=path, capacity=4):
        outer()
        inner()
        inner()
        inner()
    return path


def rows(text: str) -> list[str]:
    """The names of the rows of the table of averages."""
    lines = text[text.index("Averages, by") :].split("\n\n", maxsplit=1)[0].splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("---")]
    return [line.split()[0] for line in lines[rules[1] + 1 : rules[2]]]


def test_the_report_says_what_the_file_is_and_what_it_shows(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = report(capsys, str(trace))
    first, blank, second = text.splitlines()[:3]
    assert first.startswith(str(trace).replace("\n", "\\n") + ": ")
    assert first.endswith("; 1 more event was dropped")
    assert (blank, second) == ("", "Recording of 4 events on 1 thread")
    assert "Averages, by self_cpu_time_total\n" in text
    assert sorted(rows(text)) == ["inner", "outer"]
    places = [text.index(title) for title in ("Averages, by", "Inference Results Summary", "Findings")]
    assert places == sorted(places)
    assert "Device operators" not in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_options_of_the_report(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = report(capsys, str(trace), "--sort-by", "count", "--limit", "1")
    assert "Averages, by count\n" in text
    assert rows(text) == ["inner"]
    assert len(rows(report(capsys, str(trace), "--group-by-node"))) >= 2


def test_the_report_on_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kineto.json").write_text(DEVICE_TRACE)
    text = report(capsys, str(tmp_path / "kineto.json"))
    assert text.startswith(f"{tmp_path}/kineto.json: 2.000 s\n")
    assert "Averages, by self_device_time_total\n" in text
    assert "Device operators\n" in text
    (tmp_path / "empty.json").write_text('{"traceEvents": []}')
    assert report(capsys, str(tmp_path / "empty.json")).startswith(f"{tmp_path}/empty.json: 0.000 us\n")


def test_what_cannot_be_reported_on_is_one_line(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failure(capsys, "/nowhere/t.json") == "cannot read /nowhere/t.json: No such file or directory"
    assert failure(capsys, str(tmp_path)) == f"cannot read {tmp_path}: Is a directory"
    assert failure(capsys, "a\0b").startswith("cannot read a\\x00b: ")
    damaged = tmp_path / "dam\naged.json"
    damaged.write_text('{"traceEvents": [{"ph": "X", "ts": 1, oops}]}')
    assert failure(capsys, str(damaged)).startswith(f"{tmp_path}/dam\\naged.json: ")
    assert "38" in failure(capsys, str(damaged))  # where it is broken
    damaged.write_bytes(gzip.compress(b'{"traceEvents": []}')[:-9])
    assert "ends in the middle" in failure(capsys, str(damaged))
    assert failure(capsys, str(trace), "--sort-by", "beauty").startswith("--sort-by: ")


@pytest.mark.parametrize("browser", ["one", "none", "one that fails"])
def test_a_page_to_look_at_at_once(files: Path, tmp_path: Path, browser: str) -> None:
    pytest.importorskip("jinja2")
    shown = tmp_path / "shown"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > "{shown}"\nexit {int(browser != "one")}\n')
    script.chmod(0o755)
    variables = {"PATH": str(tmp_path), "PYTHONPATH": str(Path(cp.__file__).parents[1]), "TMPDIR": str(tmp_path)}
    if browser != "none":
        variables["BROWSER"] = f"{script} %s"
    pages: list[tuple[str, list[object], int]] = [
        ("a.bin", [], 0),
        ("trace.json.gz", ["-o", tmp_path / "page.html"], 0),
        ("b.bin", ["--against", files / "a.bin"], 3),
    ]
    for name, more, status in pages:
        command = [*COMMAND, "report", "--open", files / name, *more]
        done = subprocess.run([*map(str, command)], env=variables, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (status, "")
        page = Path(done.stdout.removesuffix("\n"))
        assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        assert page.parent.parent == tmp_path or page == tmp_path / "page.html"
        if browser != "none":
            assert shown.read_text() == f"{page.as_uri()}\n"


def test_a_page_that_cannot_be_made_leaves_nothing(
    files: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    html_page._template.cache_clear()
    assert 'pip install "cprofiling[report]"' in failure(capsys, files / "a.bin", "--open")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["-r", "csv", "-o", "a.csv"], ["-o", "a.csv"], ["-r", "md"]], ids=" ".join)
def test_only_html_is_shown_in_a_browser(
    files: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert failure(capsys, files / "a.bin", "--open", *arguments).startswith("--open shows html, not ")
    assert list(tmp_path.iterdir()) == []


def test_the_report_where_output_takes_ascii_only(tmp_path: Path) -> None:
    (tmp_path / "kineto.json").write_text(DEVICE_TRACE)
    variables = {**os.environ, "PYTHONPATH": str(Path(cp.__file__).parents[1]), "PYTHONIOENCODING": "ascii"}
    command = [*COMMAND, "report", str(tmp_path / "kineto.json")]
    done = subprocess.run(command, env=variables, capture_output=True, check=True)
    assert done.stderr == b""
    assert b"gemm" in done.stdout
    assert done.stdout.isascii()
