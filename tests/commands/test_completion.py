"""Completion in shells: what argcomplete's protocol is answered, what bash shows, and that nothing else is touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cprofiling
from command import SCRIPT
from cprofiling.commands import main

FOLDER = Path(cprofiling.__file__).parents[1]


def completed(line: str, folder: Path, *, path: str = str(FOLDER), protocol: str = "1") -> tuple[list[str], int]:
    """What a shell is told for a command line with the cursor at its end, and the exit status."""
    told = folder.parent / "told"
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "CPROFILING_OUTPUT_PATH": str(folder.parent / "not_this.json"),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE": protocol,
        "_ARGCOMPLETE_IFS": "\n",
    }
    with told.open("wb") as file:
        command = ["bash", "-c", f'exec "$@" 8>&{file.fileno()}', "bash", sys.executable]
        done = subprocess.run(
            [*command, SCRIPT], cwd=folder, env=environment, pass_fds=[file.fileno()], check=False,
            capture_output=True, timeout=60,
        )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"", b"")
    assert not (folder.parent / "not_this.json").exists()
    return [word.rstrip() for word in told.read_text().split("\n") if word], done.returncode


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of several kinds in it."""
    made = tmp_path / "work"
    made.mkdir()
    for name in ("trace.json", "train.py", "two words.json"):
        (made / name).write_text("{}")
    (made / "traces").mkdir()
    return made


@pytest.fixture
def argcomplete() -> None:
    pytest.importorskip("argcomplete")


@pytest.mark.usefixtures("argcomplete")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cprofiling r", {"run", "report"}),
        ("cprofiling --ver", {"--version"}),
        ("cprofiling report --group", {"--group-by-node"}),
        ("cprofiling compare --format ", {"text", "md", "json"}),
        ("cprofiling report tr", {"trace.json", "train.py", "traces/"}),
        ("cprofiling report two", {"two\\ words.json"}),
        ("cprofiling compare trace.json tra", {"trace.json", "train.py", "traces/"}),
        ("cprofiling merge -o tra", {"trace.json", "train.py", "traces/"}),
        ("cprofiling harness --output-dir tra", {"traces/"}),
        ("cprofiling report --limit tra", set()),
        ("cprofiling harness --entry tra", set()),
        ("cprofiling run tra", {"trace.json", "train.py", "traces/"}),
        ("cprofiling run -n 'mypkg:*' -- trai", {"train.py"}),
        ("cprofiling run -m json.tool trai", {"train.py"}),
        ("cprofiling run train.py trace", {"trace.json", "traces/"}),
        ("cprofiling run --no", {"--node"}),
        ("cprofiling ncu --node encoder -- python trai", {"train.py"}),
        ("cprofiling nothing tra", set()),
    ],
)
def test_an_argument_is_completed(line: str, words: set[str], folder: Path) -> None:
    found, status = completed(line, folder)
    assert (set(found), status) == (words, 0)


@pytest.mark.usefixtures("argcomplete")
def test_stages_are_those_of_the_file_of_signatures(folder: Path) -> None:
    signature: dict[str, object] = {"input_signatures": {}, "output_signature": None, "metadata": {}}
    stages = {name: {**signature, "stage_name": name} for name in ("decode", "denoise", "encode")}
    whole = {"schema_version": 1, "request_id": "", "timestamp": "2026-11-22T05:12:13+00:00", "stages": stages}
    (folder / "io.json").write_text(json.dumps(whole))
    assert set(completed("cprofiling harness --signature io.json --stage de", folder)[0]) == {"decode", "denoise"}
    assert completed("cprofiling harness --signature trace.json --stage de", folder)[0] == []
    assert completed("cprofiling harness --signature missing.json --stage de", folder)[0] == []
    assert completed("cprofiling harness --stage de", folder)[0] == []
    assert completed("cprofiling top 127.0.0.1:1 --stage de", folder)[0] == []


@pytest.mark.usefixtures("argcomplete")
def test_the_module_is_completed_as_the_command(folder: Path) -> None:
    assert completed("python -m cprofiling rep", folder, protocol="3") == (["report"], 0)


def test_without_argcomplete_nothing_is_proposed_and_nothing_is_run(folder: Path, tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "argcomplete.py").write_text("raise ModuleNotFoundError('as if it were not installed')")
    assert completed("cprofiling r", folder, path=f"{shadow}{os.pathsep}{FOLDER}") == ([], 1)


def test_arguments_given_in_a_program_are_no_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    with pytest.raises(SystemExit) as exit_:
        main.main(["--help"])
    assert exit_.value.code == 0


@pytest.mark.usefixtures("argcomplete")
def test_bash_completes_the_command(folder: Path, tmp_path: Path) -> None:
    register = shutil.which("register-python-argcomplete", path=str(Path(sys.executable).parent))
    assert register is not None
    command = tmp_path / "cprofiling"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SCRIPT}" "$@"\n')
    command.chmod(0o755)
    script = """
        eval "$(%s cprofiling)"
        complete -p cprofiling >&2
        COMP_WORDS=(cprofiling report trace.json --li) COMP_CWORD=3 COMP_LINE="cprofiling report trace.json --li"
        COMP_POINT=${#COMP_LINE} COMP_TYPE=9
        _python_argcomplete cprofiling --li trace.json
        printf '%%s\\n' "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "PYTHONPATH": str(FOLDER), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script % register], env=environment, cwd=folder, check=True, capture_output=True, text=True
    )
    assert "_python_argcomplete" in done.stderr
    assert done.stdout.split() == ["--limit"]


@pytest.mark.usefixtures("argcomplete")
@pytest.mark.parametrize("module", ["cprofiling.commands.main", "cprofiling"])
def test_what_completes_all_programs_finds_the_marker(module: str) -> None:
    from argcomplete._check_module import find

    path = find(module, return_package=False)  # type: ignore[no-untyped-call]
    assert "PYTHON_ARGCOMPLETE_OK" in Path(path).read_text()[:1024]
