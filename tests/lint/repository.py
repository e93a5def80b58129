"""What the house rules are checked on: the source files of a checkout, and C text without its comments and strings."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "cprofiling"
BINDING = ROOT / "csrc"
PACKAGE = ROOT / "python" / "cprofiling"

_COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_TOKEN = re.compile(r"[A-Za-z_]\w*|\.?\d(?:[\w.]|[eEpP][+-])*|->|\+\+|--|[-+*/%&|^<>=!]=?|\S")


def c_files(folder: Path, *suffixes: str) -> list[Path]:
    """The C files in a folder and below, sorted; at least one."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in suffixes)
    assert found, f"no {' or '.join(suffixes)} file in {folder}"
    return found


def all_c_files() -> list[Path]:
    """Every C source and header of the project."""
    folders = [
        CORE,
        BINDING,
        ROOT / "tests" / "core",
        ROOT / "tests" / "fakes",
        ROOT / "tests" / "fuzz",
        ROOT / "python" / "benchmarks",
    ]
    return [path for folder in folders for path in c_files(folder, ".c", ".h")]


def relative(path: Path) -> str:
    """A path as messages show it."""
    return str(path.relative_to(ROOT))


def code_of(path: Path) -> str:
    """A C file's text with comments blanked and strings emptied; the lines keep their numbers."""

    def blank(match: re.Match[str]) -> str:
        text = match[0]
        return text[0] + text[-1] if text[0] in "\"'" else "\n" * text.count("\n") or " "

    return _COMMENT_OR_STRING.sub(blank, path.read_text(encoding="utf-8"))


def includes_of(path: Path) -> list[str]:
    """The files that a C file includes, as written."""
    return re.findall(r'^\s*#\s*include\s*[<"]([^">]+)[">]', path.read_text(encoding="utf-8"), re.MULTILINE)


def places(pattern: str, paths: Iterable[Path], allowed: Container[str] = ()) -> list[str]:
    """The lines of C code (no comment, no string) that have the pattern, as ``file:line: text``."""
    return [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in paths
        if relative(path) not in allowed
        for number, line in enumerate(code_of(path).splitlines(), 1)
        if re.search(pattern, line)
    ]


def including(prefixes: tuple[str, ...], paths: Iterable[Path]) -> list[str]:
    """The includes that begin with one of the prefixes, as ``file: what it includes``."""
    return [f"{relative(path)}: {name}" for path in paths for name in includes_of(path) if name.startswith(prefixes)]


def tokens_of(code: str) -> Iterator[tuple[int, str]]:
    """The tokens of C text without preprocessor lines, each with its line number."""
    for number, line in enumerate(code.splitlines(), 1):
        if not line.lstrip().startswith("#"):
            for match in _TOKEN.finditer(line):
                yield number, match[0]
