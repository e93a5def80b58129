"""The rules of the two C rooms that their object files show: each unit is compiled by itself, without optimisation."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from cprofiling import _core
from nvtx_headers import nvtx_include
from repository import BINDING, CORE, ROOT, c_files, code_of, relative

pytestmark = pytest.mark.lint

# The state of the process, by the unit that owns it.
STATE = {
    "process": {"start_once", "watch_lock", "watches"},
    "lock": {"cprof_lock_epoch"},
    "checksum": {"tables", "once"},  # made at its first use, then never changed
    "alloc": {"cprof_alloc_hooks_in_use"},
    "clock": {"cprof_clock"},
    "random": {"last"},
    "registry": {"list_lock", "first_registry", "recording", "capture"},
    "thread": {"cprof_thread_spare", "cprof_thread_self"},
    "span": {"spare"},
    "recording": {"cprof_recording"},
    "memory": {"inherited_peak"},
    "probe": {"cprof_probes"},
    "capture": {"cprof_capture"},
    "environment": {"is_ignored"},
    "wait": {"gpu"},
    "driver": {"driver"},
    "event": {"first_reason"},
    "event_pool": {"pool"},
    "nvtx": {"nvtx", "nvtxGlobals_v3", "InitializeInjectionNvtx2_fnptr"},  # the last two come with its headers
    "counters": {"hardware", "self"},  # what the kernel refuses, and what a thread has open
    "live": {"open_files", "open_lock", "was_asked"},
    "cupti": {"cupti"},  # the one subscriber
    "cupti_events": {"cprof_cupti_events", "own", "threads"},  # what its callbacks, which are given nothing, fill
}
# What CPython's interface wants as non-const tables, which nobody changes.
TABLES = {
    "PyMethodDef", "PyMemberDef", "PyGetSetDef", "PyStructSequence_Field", "PyType_Slot", "PyType_Spec", "PyModuleDef",
    "PyModuleDef_Slot",
}  # fmt: skip
CONSTANT_SECTIONS = (".rodata", ".data.rel.ro")
WORKERS = 2
NVTX = nvtx_include()


class Symbol(NamedTuple):
    name: str  # without the number that a static variable of a function gets
    section: str
    is_global: bool
    is_function: bool

    @property
    def is_mutable(self) -> bool:
        return not self.is_function and not self.section.startswith(CONSTANT_SECTIONS)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def compiled(source: Path, folder: Path) -> list[Symbol]:
    """The functions and variables that a C file defines."""
    target = str(folder / f"{source.parent.name}_{source.stem}.o")
    includes = [f"-I{ROOT}", f"-I{sysconfig.get_paths()['include']}", f"-I{NVTX}"]
    run("gcc", "-std=c11", "-O0", "-fPIC", "-c", *includes, str(source), "-o", target)
    symbols = []
    for line in run("objdump", "--syms", target).splitlines():
        parts = re.match(r"[0-9a-f]+ (.{7}) (\S+)\t[0-9a-f]+ (?:\.hidden )?(\S+)$", line)
        if parts and parts[2] != "*UND*" and (parts[1][6] in "FO" or parts[2] in (".tbss", ".tdata")):
            flags, section, name = parts.groups()
            symbols.append(Symbol(re.sub(r"\.\d+$", "", name), section, flags[0] in "gu", flags[6] == "F"))
    return symbols


@pytest.fixture(scope="module")
def symbols(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[Symbol]]:
    folder = tmp_path_factory.mktemp("objects")
    sources = [path for room in (CORE, BINDING) for path in c_files(room, ".c")]
    with ThreadPoolExecutor(WORKERS) as pool:
        made = pool.map(lambda source: compiled(source, folder), sources)
    return dict(zip(sources, made, strict=True))


def test_state_of_the_process_is_where_it_is_known_to_be(symbols: dict[Path, list[Symbol]]) -> None:
    found = {
        path.stem: {symbol.name for symbol in defined if symbol.is_mutable}
        for path, defined in symbols.items()
        if CORE in path.parents
    }
    expected = {unit: names for unit, names in STATE.items() if NVTX or unit != "nvtx"}
    assert {unit: names for unit, names in found.items() if names} == expected


def test_the_binding_has_no_mutable_global(symbols: dict[Path, list[Symbol]]) -> None:
    wrong = []
    for path, defined in symbols.items():
        if BINDING in path.parents:
            code = code_of(path)
            names = {symbol.name for symbol in defined if symbol.is_mutable}
            wrong += [f"{relative(path)}: {name}" for name in names if not is_table(name, code)]
    assert wrong == [], "state belongs into ext_state, constants are const"


def is_table(name: str, code: str) -> bool:
    """Whether a variable is a table for CPython, or the keywords of its argument parser, by its declaration."""
    declared = re.search(rf"(\w+ \*?){name}(\[\]|) =", code)
    assert declared, f"no declaration of {name} found"
    return declared[1].rstrip() in TABLES or (declared[1] + name + declared[2] == "char *keywords[]")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("static PyMethodDef methods[] = {", True),
        ("static char *keywords[] = {", True),
        ("static int methods = 0;", False),
        ("static char *keywords = 0;", False),
        ("static uint64_t methods[] = {", False),
    ],
)
def test_a_table_is_told_by_its_type(code: str, expected: bool) -> None:
    assert is_table("keywords" if "keywords" in code else "methods", code) is expected


def test_names_say_where_they_are_from(symbols: dict[Path, list[Symbol]]) -> None:
    wrong = [
        f"{relative(path)}: {symbol.name}"
        for path, defined in symbols.items()
        for symbol in defined
        if symbol.is_global and symbol.name != "PyInit__core" and not is_well_named(path, symbol)
    ]
    assert wrong == [], "the prefix of what a unit exports is the unit's, or that of a type in the unit's header"


def is_well_named(path: Path, symbol: Symbol) -> bool:
    """Whether an exported name begins as the unit's names do, and is declared in a header where it may be."""
    prefix = "cprof_" if CORE in path.parents else "ext_"
    if symbol.name.endswith("_spec"):
        return path.stem.endswith(("_type", "view"))
    own = f"{prefix}{path.stem.removesuffix('_type')}"
    return any(
        re.search(rf"\b{symbol.name}\b", code_of(header))
        and symbol.name.startswith((own, *prefixes_of(header, prefix)))
        for header in headers_of(path, symbol)
    )


def headers_of(path: Path, symbol: Symbol) -> list[Path]:
    """The headers in which a unit may declare a name.

    A unit without a header of its own (block_type) uses that of the part before the underscore, or, for the module,
    types.h. The process's state is declared by the units that use it.
    """
    if not symbol.is_function and path.stem == "process":
        return c_files(CORE, ".h")
    headers = [path.with_name(f"{unit}.h") for unit in (path.stem, path.stem.rpartition("_")[0]) if unit]
    return [header for header in (*headers, BINDING / "types.h") if header.exists()]


def prefixes_of(header: Path, prefix: str) -> tuple[str, ...]:
    """How names begin that a header declares: with the unit's name, or with that of a type that it defines."""
    defined = re.findall(rf"\}} {prefix}(\w+);|struct {prefix}(\w+) \{{", code_of(header))
    return tuple(f"{prefix}{name}" for name in {header.stem, *(name for pair in defined for name in pair if name)})


def test_nothing_is_exported_twice(symbols: dict[Path, list[Symbol]]) -> None:
    names = Counter(
        symbol.name
        for path, defined in symbols.items()
        for symbol in defined
        if symbol.is_global and not path.stem.endswith("_none")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_extension_exports_its_entry_point_only() -> None:
    assert _core.__file__ is not None
    lines = run("nm", "--dynamic", "--defined-only", _core.__file__).splitlines()
    exported = {line.split()[-1] for line in lines}
    foreign = re.compile(r"__gcov_|mangle_path$|__(a|ub|t)san_|__odr_asan|_init$|_fini$").match
    assert {name for name in exported if not foreign(name)} == {"PyInit__core"}
