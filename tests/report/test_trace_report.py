"""``cprofiling report``: what it prints of a trace, and what it says of a file that is none."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import pytest

import cprofiling as cp
from command import COMMAND
from cprofiling.commands import main
from recorded import inner

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


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main.main(["report", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


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
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failure(*arguments: str) -> str:
        assert main.main(["report", *arguments]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("cprofiling: ")
        assert printed.err.count("\n") == 1
        return printed.err.removeprefix("cprofiling: ").rstrip()

    assert failure("/nowhere/t.json") == "cannot read /nowhere/t.json: No such file or directory"
    assert failure(str(tmp_path)) == f"cannot read {tmp_path}: Is a directory"
    assert failure("a\0b").startswith("cannot read a\\x00b: ")
    damaged = tmp_path / "dam\naged.json"
    damaged.write_text('{"traceEvents": [{"ph": "X", "ts": 1, oops}]}')
    assert failure(str(damaged)).startswith(f"{tmp_path}/dam\\naged.json: ")
    assert "38" in failure(str(damaged))  # where it is broken
    damaged.write_bytes(gzip.compress(b'{"traceEvents": []}')[:-9])
    assert "ends in the middle" in failure(str(damaged))
    assert failure(str(trace), "--sort-by", "beauty").startswith("--sort-by: ")

    def load(path: str) -> None:
        raise MemoryError

    monkeypatch.setattr("cprofiling.commands.report.load", load)
    assert failure("t.json") == "cannot read t.json: there is not enough memory"


def test_the_report_on_other_outputs(tmp_path: Path) -> None:
    """One that takes ASCII only, and one that nobody reads to the end."""
    (tmp_path / "kineto.json").write_text(DEVICE_TRACE)
    variables = {**os.environ, "PYTHONPATH": str(Path(cp.__file__).parents[1]), "PYTHONIOENCODING": "ascii"}
    command = [*COMMAND, "report", str(tmp_path / "kineto.json")]
    done = subprocess.run(command, env=variables, capture_output=True, check=True)
    assert done.stderr == b""
    assert b"gemm" in done.stdout
    assert done.stdout.isascii()
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        late = subprocess.run(command, env=variables, stdout=nobody, stderr=subprocess.PIPE, check=False)
    assert (late.returncode, late.stderr) == (1, b"")
