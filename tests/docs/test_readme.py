"""The README is short, its Quick start works, and its map is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import documents
from documents import ROOT, SHELL_TAGS, fenced_blocks

README = documents.text_of(documents.README)
GENERATED = re.compile(r"build|dist|.*\.egg-info|__pycache__|\..*")


def section(title: str) -> str:
    """Return a section of the README."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands() -> list[str]:
    """Return the shell blocks of the Quick start."""
    return [content for tag, content in fenced_blocks(section("Quick start")) if tag in SHELL_TAGS]


def test_it_is_short() -> None:
    assert README.count("\n") <= 200


def test_the_first_table_is_short_and_right() -> None:
    table = re.findall(r"^```text\n(Profiling Summary.*?)^```", README, re.MULTILINE | re.DOTALL)[0]
    _, rows, rest = table.split("-" * 125 + "\n")
    totals = [float(row.split()[-1]) for row in rows.splitlines()]
    assert 2 <= len(totals) <= 6
    assert totals == sorted(totals, reverse=True)
    assert sum(totals) == pytest.approx(float(rest.split()[1]), abs=0.0011)


def test_quick_start_has_two_commands_that_do_what_is_said() -> None:
    tags = [tag for tag, _ in fenced_blocks(section("Quick start"))]
    assert [tag for tag in tags if tag in SHELL_TAGS] == ["sh", "sh"]
    assert set(tags) <= {"sh", "text"}
    demo, test = commands()
    assert demo.endswith("/bin/cprofiling demo\n")
    assert test.endswith("/bin/python -m pytest tests -n 2\n")
    assert test.splitlines()[-1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]\n")[2]
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    folders = set()
    for command in (demo, test):
        assert command.count("\n") == 1
        [folder] = re.findall(r"^python3 -m venv (\S+) && ", command)
        folders.add(folder)
        assert set(re.findall(r"(\S+)/bin/", command)) == {folder}
        assert any(re.fullmatch(pattern.strip("/").replace("*", ".*"), folder) for pattern in ignored)
        [extra] = re.findall(r'pip install --quiet "\.\[(\w+)\]"', command)
        assert re.search(rf"^{extra} = \[", extras, re.MULTILINE)
    assert len(folders) == 2


def rows_of_the_map() -> dict[str, set[str]]:
    """Return the rooms that the row of each folder names."""
    rows = re.findall(r"^\| `([^`]+/)` \| (.*) \|$", section("Where is what"), re.MULTILINE)
    return {folder: {f"{folder}{room}/" for room in re.findall(r"`(\w+)/`", text)} for folder, text in rows}


@pytest.mark.lint
@pytest.mark.parametrize("folder", ["cprofiling/", "csrc/", "python/cprofiling/", "python/"])
def test_the_map_names_the_rooms_that_are_there(folder: str) -> None:
    rows = rows_of_the_map()
    rooms = {f"{folder}{path.name}/" for path in (ROOT / folder).iterdir() if path.is_dir()}
    rooms = {room for room in rooms if not GENERATED.fullmatch(Path(room).name)}
    assert rows[folder] | {row for row in rows if str(Path(row).parent) == folder.rstrip("/")} == rooms
