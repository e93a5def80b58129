"""The README is true: its code runs, its Quick start is what it promises, and its index names what is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cprofiling

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL_TAGS = {"sh", "bash", "console", "shell", "shell-session", "zsh"}
SOURCES = {".c", ".h", ".py", ".pyi"}
GENERATED = re.compile(r"build|dist|.*\.egg-info|__pycache__|\..*")


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a text: what each is tagged with, and its content."""
    return re.findall(r"^```(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    """Return what stands between a heading of the second level and the next one."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands() -> list[str]:
    """Return the shell blocks of the Quick start."""
    return [content for tag, content in fenced_blocks(section("Quick start")) if tag in SHELL_TAGS]


PYTHON_BLOCKS = [content for tag, content in fenced_blocks(README) if tag == "python"]


def test_all_fences_are_closed() -> None:
    assert len(re.findall(r"^```", README, re.MULTILINE)) == 2 * len(fenced_blocks(README))


def test_there_is_code_to_run() -> None:
    assert len(PYTHON_BLOCKS) >= 2


@pytest.mark.parametrize("code", PYTHON_BLOCKS, ids=[f"block {number}" for number in range(1, len(PYTHON_BLOCKS) + 1)])
def test_code_runs(code: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(cprofiling.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = README.partition(code)[2].partition("```text\n")[2].partition("```")[0]
    assert without_figures(done.stdout) == without_figures(shown)


def without_figures(output: str) -> list[str]:
    """Return what is the same in each run: the words of all lines, in an order that does not depend on times."""
    lines = [line for line in output.splitlines() if not line.startswith(("  outliers: ", "  warning: "))]
    return sorted(" ".join(re.sub(r"\d[\d.]*(%| ?[nµmu]?s\b)?", "", line).split()) for line in lines)


def test_the_table_of_the_demo_is_whole() -> None:
    [demo] = [content for _, content in fenced_blocks(README.partition("\n## ")[0])]
    assert re.search(r"^Profiling Summary \(600 frames, skip_first_n=3\)$", demo, re.MULTILINE)
    rows = demo.split("\n" + "-" * 125 + "\n")[1].splitlines()
    assert {row[41:53].rstrip() for row in rows} == {"train", "val", "inference"}
    assert len(rows) == 10 + 8 + 8


def test_quick_start_has_two_commands() -> None:
    tags = [tag for tag, _ in fenced_blocks(section("Quick start"))]
    assert [tag for tag in tags if tag in SHELL_TAGS] == ["sh", "sh"]
    assert set(tags) <= {"sh", "text"}
    for command in commands():
        assert command.count("\n") == 1
        assert not command.startswith(("$", "#", ">"))


def test_each_command_makes_its_own_environment() -> None:
    made = [re.match(r"python3 -m venv (\S+) && ", command) for command in commands()]
    folders = [match[1] for match in made if match is not None]
    assert len(set(folders)) == 2
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    for folder, command in zip(folders, commands(), strict=True):
        used = re.findall(r"(\S+)/bin/", command)
        assert set(used) == {folder}
        assert any(re.fullmatch(pattern.strip("/").replace("*", ".*"), folder) for pattern in ignored)


def test_the_commands_do_what_is_said() -> None:
    demo, test = commands()
    assert demo.endswith("/bin/cprofiling demo\n")
    assert test.endswith("/bin/python -m pytest tests\n")
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]\n")[2]
    for command in (demo, test):
        [extra] = re.findall(r'pip install --quiet "\.\[(\w+)\]"', command)
        assert re.search(rf"^{extra} = \[", extras, re.MULTILINE)


def test_ci_runs_the_test_command() -> None:
    assert commands()[1].splitlines()[-1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def index_entries() -> list[str]:
    """Return the files and folders in the tables of "Where is what"."""
    rows = re.findall(r"^\| .* \|$", section("Where is what"), re.MULTILINE)
    quoted = [entry for row in rows for entry in re.findall(r"`([^`]+)`", row)]
    return [entry for entry in quoted if "/" in entry or entry.endswith((".py", ".toml"))]


@pytest.mark.parametrize("entry", sorted(set(index_entries())))
def test_what_the_index_names_is_there(entry: str) -> None:
    found = list((ROOT / "tests").glob(entry)) if "*" in entry else [ROOT / entry]
    assert found
    assert all(path.is_dir() if entry.endswith("/") else path.is_file() for path in found)


def rooms() -> list[str]:
    """Return the folders with sources in them: those of the top level, and those in python/ and tests/."""
    folders = [*ROOT.iterdir(), *(ROOT / "python").iterdir(), *(ROOT / "tests").iterdir()]
    return [
        f"{folder.relative_to(ROOT)}/"
        for folder in folders
        if folder.is_dir()
        and not GENERATED.fullmatch(folder.name)
        and any(path.suffix in SOURCES for path in folder.iterdir())
    ]


def test_the_index_names_every_room() -> None:
    found = rooms()
    assert {"cprofiling/", "csrc/", "python/cprofiling/", "tests/"} <= set(found)
    assert set(found) <= set(index_entries())
