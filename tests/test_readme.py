"""The README is true: its code runs, its Quick start is what it promises, and its index names what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import documents
from document_runs import run_python
from documents import ROOT, SHELL_TAGS, fenced_blocks, without_figures

README = documents.text_of(documents.README)
SOURCES = {".c", ".h", ".py", ".pyi"}
GENERATED = re.compile(r"build|dist|.*\.egg-info|__pycache__|\..*")


def section(title: str) -> str:
    """Return what stands between a heading of the second level and the next one."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands() -> list[str]:
    """Return the shell blocks of the Quick start."""
    return [content for tag, content in fenced_blocks(section("Quick start")) if tag in SHELL_TAGS]


PYTHON_BLOCKS = [block for block in documents.blocks_of(documents.README) if block.tag == "python"]


def test_all_fences_are_closed() -> None:
    assert len(re.findall(r"^```", README, re.MULTILINE)) == 2 * len(fenced_blocks(README))


def test_there_is_code_to_run() -> None:
    assert len(PYTHON_BLOCKS) >= 2


@pytest.mark.parametrize("block", PYTHON_BLOCKS, ids=str)
def test_code_runs(block: documents.Block, tmp_path: Path) -> None:
    assert without_figures(run_python(block.content, tmp_path)) == without_figures(block.shown)


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
