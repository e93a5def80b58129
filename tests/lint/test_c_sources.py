"""The rules of the two C rooms that their text shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from repository import (
    BINDING,
    CORE,
    ROOT,
    all_c_files,
    c_files,
    code_of,
    includes_of,
    including,
    places,
    relative,
    tokens_of,
)

pytestmark = pytest.mark.lint

WIDTH = 128
CORE_FILES = c_files(CORE, ".c", ".h")
BINDING_FILES = c_files(BINDING, ".c", ".h")
OWN_FILES = [*CORE_FILES, *BINDING_FILES]
HEADERS = [path for path in OWN_FILES if path.suffix == ".h"]

# Where csrc/ may compute with times, and why.
COMPUTES = {
    "csrc/statistics/cost.c": "measures the profiler's own cost, by readings of its own",
}
# Where csrc/ may name a floating type, and why.
FLOATS = {
    "csrc/convert.c": "checks what record() is given",
    "csrc/convert.h": "checks what record() is given",
    "csrc/statistics/cost.c": "the profiler's own cost",
    "csrc/probes/probe.c": "hands a framework's times on to the core",
    "csrc/statistics/profiler_type.c": "hands record()'s value on to the core",
    "csrc/state.h": "the profiler's own cost",
    "csrc/statistics/summary.c": "hands the core's figures on to Python",
}
FLOATING = r"\b(float|double)\b"
FUNCTION = re.compile(r"^(?!typedef\b|extern\b|struct\b|enum\b|union\b)[A-Za-z_][\w *]*?\b(\w+)\(", re.MULTILINE)
OPERATORS = {"+", "-", "*", "/", "%", "+=", "-=", "*=", "/=", "%=", "++", "--"}
IS_TIME = re.compile(r"\w*(_ns|_ms|_ticks)$|ticks$|elapsed$").match
IS_TYPE = re.compile(
    r"(const|unsigned|signed|char|short|int|long|float|double|void|bool|return|case|\w+_t|(Py|cprof_|ext_)\w+)$"
).match


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
        before = tokens[place - 1][1] if place > 0 else ";"
        if token not in OPERATORS or not (token in ("++", "--") or is_binary(before)):
            continue
        operands = (operand_before(tokens, place), operand_after(tokens, place + 1))
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


def test_the_core_knows_nothing_of_python() -> None:
    assert including(("Python", "structmember", "frameobject", "csrc/"), CORE_FILES) == []
    assert places(r"\bPy(_[A-Za-z]|[A-Z])\w*", CORE_FILES) == []


def test_the_binding_does_not_compute_with_samples() -> None:
    found = [f"{relative(path)}:{line}" for path in BINDING_FILES for line in arithmetic_on_times(code_of(path))]
    assert [place for place in found if place.rpartition(":")[0] not in COMPUTES] == [], "that is the core's work"


def test_the_binding_has_floating_values_only_at_its_borders() -> None:
    assert places(FLOATING, BINDING_FILES, FLOATS) == []


def test_the_binding_reads_no_clock() -> None:
    reading = r"\b(cprof_clock_(now|read\w*|monotonic_ns|ticks\w*)|clock_gettime|__rdtscp?|time)\s*\("
    assert places(reading, BINDING_FILES, COMPUTES) == [], "spans read the clock"


def test_variables_are_read_in_one_file() -> None:
    assert places(r"\b(secure_)?getenv\s*\(|\benviron\b", OWN_FILES, ["cprofiling/base/environment.c"]) == []


def test_files_are_made_where_there_is_none() -> None:
    """Else it may be a link that somebody else has put there."""
    files = c_files(CORE, ".c") + c_files(BINDING, ".c")
    assert places(r"\b(creat|mktemp|freopen)\(", files) == []
    assert [path for path in files if re.search(r'fopen\([^;"]*"[^"]*[wa+]', path.read_text(encoding="utf-8"))] == []
    made = places(r"\bO_(CREAT|WRONLY|RDWR|TRUNC)\b", files)
    assert made
    assert [each for each in made if "O_CREAT | O_EXCL" not in each] == []


def test_no_permission_outlives_its_use() -> None:
    assert [name for name in FLOATS if not places(FLOATING, [ROOT / name])] == []
    assert [name for name in COMPUTES if not arithmetic_on_times(code_of(ROOT / name))] == []


def test_only_public_names_of_cpython_are_used() -> None:
    assert including(("internal/", "cpython/", "pycore_"), BINDING_FILES) == []
    assert places(r"\b_Py_?[A-Z]\w*|\bPy_BUILD_CORE\w*", BINDING_FILES) == []


def test_versions_of_cpython_are_told_apart_in_one_file() -> None:
    told_apart = r"\bPY_(VERSION_HEX|M[AI]\w+_VERSION)\b|^\s*#\s*(el)?if(n?def)?\b.*\bPy\w*"
    assert places(told_apart, OWN_FILES, ["csrc/compat.h"]) == []


def test_each_function_in_a_header_has_a_comment() -> None:
    bare = [f"{relative(path)}: {name}" for path in HEADERS for name in uncommented_functions(path)]
    assert bare == [], "a header is the contract: say what the function does, its ranges, owners and errors"


def uncommented_functions(path: Path) -> list[str]:
    """The functions of a header in paragraphs (parts between empty lines) in which no comment comes before them."""
    bare = []
    for paragraph in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
        function = FUNCTION.search(paragraph)
        if function and "/*" not in paragraph[: function.start()]:
            bare.append(function[1])
    return bare


def test_each_header_begins_by_saying_what_it_is_for() -> None:
    wrong = []
    for path in HEADERS:
        guard = f"{'CPROF' if CORE in path.parents else 'EXT'}_{path.stem.upper()}_H"
        text = path.read_text(encoding="utf-8")
        if not text.startswith("/* ") or f"*/\n#ifndef {guard}\n#define {guard}\n" not in text:
            wrong.append(relative(path))
    assert wrong == []


def test_lines_of_c_fit() -> None:
    wrong = []
    for path in all_c_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > WIDTH or "\t" in line or line != line.rstrip():
                wrong.append(f"{relative(path)}:{number}")
    assert wrong == [], f"longer than {WIDTH} columns, with a tab, or with blanks at the end"


def test_the_folder_of_the_core_is_no_package() -> None:
    assert [relative(path) for path in CORE.rglob("*.py*")] == []


# A room includes those before it only, and its own.
ROOMS = ("base", "stats", "nodes", "trace", "devices", "calls", "files", "")


def test_rooms_of_the_core_include_rooms_above() -> None:
    wrong = [
        f"{relative(path)}: {included}"
        for path in CORE_FILES
        for included in includes_of(path)
        if included.startswith("cprofiling/") and ROOMS.index(room_of(included)) > ROOMS.index(room_of(relative(path)))
    ]
    assert wrong == [], f"the rooms, each of which may use those before it: {', '.join(ROOMS)}process"


def room_of(path: str) -> str:
    """The room of a file of the core; none for what lies at the top."""
    return path.split("/")[1] if path.count("/") > 1 else ""


def test_units_of_the_core_have_no_cycle() -> None:
    uses: dict[str, set[str]] = {}
    for path in CORE_FILES:
        own = relative(path.with_suffix(""))
        included = {name.removesuffix(".h") for name in includes_of(path) if name.startswith("cprofiling/")}
        uses.setdefault(own, set()).update(included - {own})
    while free := {unit for unit, used in uses.items() if not used & uses.keys()}:
        uses = {unit: used for unit, used in uses.items() if unit not in free}
    assert uses == {}, "units that use one another"
