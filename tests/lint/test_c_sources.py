"""The rules of the two C rooms that their text shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repository import BINDING, CORE, all_c_files, c_files, code_of, includes_of, lines_with, relative, tokens_of

WIDTH = 128
CORE_FILES = c_files(CORE, ".c", ".h")
BINDING_FILES = c_files(BINDING, ".c", ".h")
OWN_FILES = [*CORE_FILES, *BINDING_FILES]

# Where csrc/ may compute with times, and why.
COMPUTES = {
    "csrc/cost.c": "measures the profiler's own cost, by readings of its own",
}
# Where csrc/ may name a floating type, and why.
FLOATS = {
    "csrc/convert.c": "checks what record() is given",
    "csrc/convert.h": "checks what record() is given",
    "csrc/cost.c": "the profiler's own cost",
    "csrc/profiler_type.c": "hands record()'s value on to the core",
    "csrc/state.h": "the profiler's own cost",
    "csrc/summary.c": "hands the core's figures on to Python",
}
OPERATORS = {"+", "-", "*", "/", "%", "+=", "-=", "*=", "/=", "%=", "++", "--"}
IS_TIME = re.compile(r"\w*(_ns|_ms|_ticks)$|ticks$|elapsed$").match
IS_TYPE = re.compile(r"(const|unsigned|signed|char|short|int|long|float|double|void|bool|return|case|\w+_t|cprof_(ns|ticks))$").match


def name_of(path: Path) -> str:
    return relative(path)


def is_binary(before: str) -> bool:
    """Whether an operator after this token joins two values: it follows a name, a number or a closing bracket."""
    return before in (")", "]") or (re.match(r"[\w.]", before) is not None and not IS_TYPE(before))


def operand_after(tokens: list[tuple[int, str]], place: int) -> str:
    """The last name of the operand that begins at ``place``: ``c_ns`` of ``(a->b.c_ns``."""
    while place < len(tokens) and tokens[place][1] in ("(", "&", "*"):
        place += 1
    while place + 2 < len(tokens) and tokens[place + 1][1] in ("->", "."):
        place += 2
    return tokens[place][1] if place < len(tokens) else ""


def operand_before(tokens: list[tuple[int, str]], place: int) -> str:
    """The last name of the operand that ends just before ``place``, an index in brackets left out."""
    place -= 1
    if place >= 0 and tokens[place][1] == "]":
        while place > 0 and tokens[place][1] != "[":
            place -= 1
        place -= 1
    return tokens[place][1] if place >= 0 else ""


def arithmetic_on_times(code: str) -> list[int]:
    """The lines with an arithmetic operator one of whose operands is a time by its name."""
    tokens = list(tokens_of(code))
    found = []
    for place, (line, token) in enumerate(tokens):
        if token not in OPERATORS or place == 0:
            continue
        steps = token in ("++", "--")
        operands = [operand_before(tokens, place)] if steps or is_binary(tokens[place - 1][1]) else []
        if steps or operands:
            operands.append(operand_after(tokens, place + 1))
        if any(IS_TIME(operand) for operand in operands):
            found.append(line)
    return found


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("a_ns - b;", [1]),
        ("x = 1 +\n row->total_ms;", [1]),
        ("sum += s.elapsed_ns;", [1]),
        ("times_ns[i] / 2;", [1]),
        ("count_ns++;", [1]),
        ("--call->step_ticks;", [1]),
        ("cprof_ns *elapsed_ns = f(&a_ns, -b_ms, *c_ns);", []),
        ("double *elapsed_ms; self->open++; a + b; p->x - 1; const double *a_ms;", []),
        ("a_ms < b_ms && a_ms == 0.0 ? a_ms : b_ms;", []),
    ],
)
def test_the_search_for_arithmetic_finds_it(code: str, lines: list[int]) -> None:
    assert arithmetic_on_times(code) == lines


@pytest.mark.parametrize("path", CORE_FILES, ids=name_of)
def test_the_core_knows_nothing_of_python(path: Path) -> None:
    foreign = [name for name in includes_of(path) if name.startswith(("Python", "structmember", "csrc/", "frameobject"))]
    assert foreign == []
    assert lines_with(r"\bPy(_[A-Za-z]|[A-Z])\w*", path) == []


@pytest.mark.parametrize("path", BINDING_FILES, ids=name_of)
def test_the_binding_does_not_compute_with_samples(path: Path) -> None:
    found = arithmetic_on_times(code_of(path))
    assert found == [] or relative(path) in COMPUTES, f"lines {found}: the core computes, csrc/ only hands on"


@pytest.mark.parametrize("path", BINDING_FILES, ids=name_of)
def test_the_binding_has_floating_values_only_at_its_borders(path: Path) -> None:
    found = lines_with(r"\b(float|double)\b", path)
    assert found == [] or relative(path) in FLOATS


@pytest.mark.parametrize("name", sorted(FLOATS.keys() | COMPUTES.keys()))
def test_no_permission_outlives_its_use(name: str) -> None:
    code = code_of(BINDING.parent / name)
    assert name not in FLOATS or re.search(r"\b(float|double)\b", code)
    assert name not in COMPUTES or arithmetic_on_times(code)


@pytest.mark.parametrize("path", BINDING_FILES, ids=name_of)
def test_the_binding_reads_no_clock(path: Path) -> None:
    found = lines_with(r"\b(cprof_clock_(now|read\w*|monotonic_ns|ticks\w*)|clock_gettime|__rdtscp?|time)\s*\(", path)
    assert found == [] or relative(path) in COMPUTES, "spans read the clock"


@pytest.mark.parametrize("path", BINDING_FILES, ids=name_of)
def test_only_public_names_of_cpython_are_used(path: Path) -> None:
    assert [name for name in includes_of(path) if name.startswith(("internal/", "cpython/", "pycore_"))] == []
    assert lines_with(r"\b_Py_?[A-Z]\w*|\bPy_BUILD_CORE\w*|\b_Py[A-Z]\w*", path) == []


@pytest.mark.parametrize("path", OWN_FILES, ids=name_of)
def test_versions_of_cpython_are_told_apart_in_one_file(path: Path) -> None:
    found = lines_with(r"\bPY_(VERSION_HEX|M[AI][A-Z]+_VERSION)\b|^\s*#\s*(if|ifdef|ifndef|elif)\b.*\bPy\w*", path)
    assert found == [] or relative(path) == "csrc/compat.h"


@pytest.mark.parametrize("path", [path for path in OWN_FILES if path.suffix == ".h"], ids=name_of)
def test_each_function_in_a_header_has_a_comment(path: Path) -> None:
    bare = []
    for paragraph in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
        function = re.search(r"^(?!#|\s|typedef\b|extern\b|struct\b|enum\b|union\b|/|\*|})[\w *]+?(\w+)\(", paragraph, re.MULTILINE)
        if function and "/*" not in paragraph[: function.start()]:
            bare.append(function[1])
    assert bare == [], "a header is the contract: say what the function does, its ranges, owners and errors"


@pytest.mark.parametrize("path", [path for path in OWN_FILES if path.suffix == ".h"], ids=name_of)
def test_each_header_begins_by_saying_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    prefix = "CPROF" if path.parent == CORE else "EXT"
    assert text.startswith("/* ")
    assert f"#ifndef {prefix}_{path.stem.upper()}_H\n#define {prefix}_{path.stem.upper()}_H\n" in text


@pytest.mark.parametrize("path", all_c_files(), ids=name_of)
def test_lines_of_c_fit(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [f"{name_of(path)}:{number}" for number, line in enumerate(lines, 1) if len(line) > WIDTH] == []
    assert [f"{name_of(path)}:{number}" for number, line in enumerate(lines, 1) if "\t" in line or line != line.rstrip()] == []


def test_the_folder_of_the_core_is_no_package() -> None:
    assert [relative(path) for path in CORE.rglob("*.py*")] == []
