"""What the leak scripts share: each runs its scenarios many times, and compares what is held before and after.

    python -m isolated.leaks_X [--plant object|reference|memory|file|pages] [--rounds N]     (in tests/)

Counted are the interpreter's memory blocks, the bytes that malloc has given out, the pages of the process, its files,
and the references to types and to objects that are shared by all. With ``--plant``, a scenario that leaks on purpose
runs beside some others. The names of the scenarios that leak are printed, one a line, with what they leave behind.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cprofiling as cp
from cprofiling import _core

Scenario = Callable[[], Any]

ROUNDS = 1000
TRIES = 6
OPEN_FILES = Path("/proc/self/fd")
M_ARENA_MAX = -8  # of mallopt()
WARM_UP = 300  # caches, free lists and spare records fill


class Holdings(NamedTuple):
    """What the process holds at one moment."""

    blocks: int
    malloc_bytes: int
    pages: int
    files: int
    references: tuple[int, ...]


class MallInfo(ctypes.Structure):
    """The figures that glibc's ``mallinfo2()`` returns, in its order."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


libc: Any = ctypes.CDLL(None)
if hasattr(libc, "mallinfo2"):
    libc.mallinfo2.restype = MallInfo

SHARED = (
    *(value for value in vars(_core).values() if isinstance(value, type)),
    *(getattr(cp, name) for name in cp.__all__),
    *(None, True, False, (), 0, 1, "train", "inference", "node"),
)


def malloc_bytes() -> int:
    if not hasattr(libc, "mallinfo2"):  # glibc before 2.33
        return 0
    figures = libc.mallinfo2()
    return int(figures.uordblks + figures.hblkhd)


def mapped_pages() -> int:
    """Count the program's pages: statm has those of an emulator, too, which keeps some of each thread that was."""
    with open("/proc/self/maps") as maps:
        ends = [line.split(" ", 1)[0].split("-") for line in maps]
    return sum(int(end, 16) - int(start, 16) for start, end in ends) // resource.getpagesize()


def holdings() -> Holdings:
    for _ in range(3):  # without a GIL, what one frees goes at the next
        gc.collect()
    (getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache)()  # they hold on to names of attributes
    return Holdings(
        sys.getallocatedblocks(),
        malloc_bytes(),
        mapped_pages(),
        len(list(OPEN_FILES.iterdir())),
        tuple(sys.getrefcount(each) for each in SHARED),
    )


def left_behind(before: Holdings, after: Holdings, rounds: int) -> list[str]:
    """Return what grew by something in every tenth round, or more."""
    few = rounds // 10
    grown = {
        "blocks": (after.blocks - before.blocks, few),
        "malloc bytes": (after.malloc_bytes - before.malloc_bytes, 16 * rounds),  # the least that it gives out is 32
        "pages": (after.pages - before.pages, 4096),
        "files": (after.files - before.files, 0),
    }
    for shared, was, now in zip(SHARED, before.references, after.references, strict=True):
        grown[f"references to {shared!r:.60}"] = (now - was, few)
    return [f"{growth} {what}" for what, (growth, allowed) in grown.items() if growth > allowed]


def run(scenario: Scenario, rounds: int) -> list[str]:
    """Return what a scenario leaves behind; a table that grows once is forgiven, a leak comes again."""
    for _ in range(WARM_UP):
        scenario()
    grown: list[str] = []
    for _ in range(TRIES):
        before = holdings()
        for _ in range(rounds):
            scenario()
        grown = left_behind(before, holdings(), rounds)
        if not grown:
            break
    return grown


class Planted:
    """A type of which a reference is leaked on purpose."""


def refused(call: Callable[[], object], *errors: type[BaseException]) -> Scenario:
    """A call that raises one of these errors."""

    def scenario() -> None:
        try:
            call()
        except errors:
            return
        raise AssertionError(call)

    return scenario


def by_name(*scenarios: Scenario) -> dict[str, Scenario]:
    """Functions by their names, in words."""
    return {scenario.__name__.replace("_", " "): scenario for scenario in scenarios}


def planted(kind: str) -> Scenario:
    """Return a scenario that leaves one thing behind each time."""
    kept: list[object] = []
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    file = os.open(os.devnull, os.O_RDONLY)
    leak: dict[str, Scenario] = {
        "object": lambda: kept.append(object()),
        "reference": lambda: ctypes.pythonapi.Py_IncRef(ctypes.py_object(cp.Profiler)),
        "memory": lambda: libc.malloc(ctypes.c_size_t(32)),
        "file": lambda: os.dup(file),
        "pages": lambda: libc.mmap(None, ctypes.c_size_t(65536), 1, 34, -1, 0),
    }
    libc.malloc.restype = libc.mmap.restype = ctypes.c_void_p
    return leak[kind]


def main(scenarios: dict[str, Scenario]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plant", choices=["object", "reference", "memory", "file", "pages"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    if arguments.plant is not None:
        scenarios = {"planted": planted(arguments.plant), **dict(list(scenarios.items())[:3])}
    libc.mallopt(M_ARENA_MAX, 1)  # an arena of its own for each thread would hide what is held
    cp.set_profiling(True)
    for name, scenario in scenarios.items():
        leaked = run(scenario, arguments.rounds)
        if leaked:
            print(f"{name}: {', '.join(leaked)}")
