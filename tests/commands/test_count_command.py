"""The command ``count``: rows for depth after depth, fused and unfused."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cprofiling.commands import main

PIPELINES = """
import math

def make_pipeline(depth, fused):
    print("what a pipeline prints is no result")
    calls = []
    def run():
        calls.append(1)
        for _ in range(1 if fused else depth):
            math.sin(1.0)
        if len(calls) == 1:
            math.sin(2.0)
    return run

def broken(depth, fused):
    raise ValueError("first line\\nsecond")

def ends(depth, fused):
    raise SystemExit(0)

def gives_none(depth, fused):
    pass
"""


@pytest.fixture(autouse=True)
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cprofiling.testing.counting import dispatches

    (tmp_path / "count_pipelines.py").write_text(PIPELINES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    monkeypatch.setattr(dispatches, "find_spec", lambda name: None)


def count(*arguments: str) -> int:
    return main.main(["count", "--factory", "count_pipelines:make_pipeline", *arguments])


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert count("--depths", "2,5", "--native", "math:sin", "--warmup", "1") == 0
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines()] == [
        ["depth", "fused", "native_calls", "operators", "cuda_launches"],
        ["2", "yes", "1", "0", "-"],
        ["2", "no", "2", "0", "-"],
        ["5", "yes", "1", "0", "-"],
        ["5", "no", "5", "0", "-"],
        ["cuda_launches:", "no", "CUDA", "in", "the", "process"],
    ]
    assert "is no result" in printed.err


def test_rows_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert count("--json", "--native", "math:sin", "--native", "math:c*") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["depth"], row["fused"], row["native_calls"]) for row in rows] == [
        (depth, fused, 2 if fused else depth + 1) for depth in (2, 5, 10, 20) for fused in (True, False)
    ]
    assert {tuple(row) for row in rows} == {("depth", "fused", "native_calls", "operators", "cuda_launches")}
    assert {row["cuda_launches"] for row in rows} == {None}


def test_nothing_native_is_no_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert count("--json", "--depths", "3") == 0
    assert [row["native_calls"] for row in json.loads(capsys.readouterr().out)] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--depths", "2,x"], "got 'x'"),
        (["--depths", ""], "got ''"),
        (["--depths", ",".join("1" * 1001)], "expected at most 1000 depths, got 1001"),
        (["--native", "math"], "MODULE:FUNCTION"),
        (["--warmup", "-1"], "from 0 to"),
    ],
)
def test_wrong_arguments(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        count(*arguments)
    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--factory", "count_pipelines:broken"], "the pipeline: ValueError: first line (count_pipelines.py:16)"),
        (["--factory", "count_pipelines:ends"], "the pipeline: SystemExit: 0 (count_pipelines.py:19)"),
        (
            ["--factory", "count_pipelines:gives_none"],
            "--factory must return what can be called, got None (NoneType)",
        ),
        (["--factory", "count_pipelines:missing"], "factory must name a function in its module"),
        (
            ["--native", "math:nothing"],
            "--native: ValueError: patterns must take a function each, 'math:nothing' (str) takes none",
        ),
    ],
)
def test_faults_of_the_users_code_are_told_in_a_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert count(*arguments) == 1
    assert told in capsys.readouterr().err.splitlines()[-1]


def test_it_works_where_the_folder_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert main.main(["count", "--factory", "no_such_module:f"]) == 1
    assert "can be imported" in capsys.readouterr().err


JOINING = """
import posixpath
import sys

def make_pipeline(depth, fused):
    return lambda: posixpath.join("a", "b")

if __name__ == "__main__":
    from cprofiling.counting import count_calls, count_dispatches

    with count_calls("posixpath:join") as calls:
        with count_dispatches():
            make_pipeline(1, True)()
        make_pipeline(1, True)()
    assert "torch" in sys.modules
    print(calls.native_calls)
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_what_the_import_of_pytorch_calls_is_not_counted(tmp_path: Path) -> None:
    """In processes of their own, in which PyTorch is not loaded yet."""
    (tmp_path / "joining.py").write_text(JOINING)
    installed = str(Path(sys.executable).with_name("cprofiling"))
    arguments = ["--factory", "joining:make_pipeline", "--native", "posixpath:join", "--depths", "1", "--json"]
    done = subprocess.run([installed, "count", *arguments], capture_output=True, text=True, check=True)
    assert [row["native_calls"] for row in json.loads(done.stdout)] == [1, 1]
    done = subprocess.run([sys.executable, "joining.py"], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"
