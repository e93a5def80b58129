"""Nothing is left behind: references, memory blocks, malloc's bytes, pages, files, on good paths and on bad ones.

The scripts in isolated/ do the measuring, each in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cprofiling as cp
from calls import unwatched

pytestmark = [pytest.mark.native, pytest.mark.alone, pytest.mark.unsanitized]

ISOLATED = Path(__file__).parents[1] / "isolated"
HANGS_AFTER_S = 300


def leaks(script: str, *arguments: str) -> str:
    """Run a leak script; return what it says about leaks: nothing, when there are none."""
    assert cp.__file__ is not None
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "ignore", "-m", f"isolated.leaks_{script}", *arguments],
        cwd=ISOLATED.parent,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
        env=unwatched(PYTHONPATH=str(Path(cp.__file__).parents[1])),
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


SCRIPTS = sorted(path.stem.removeprefix("leaks_") for path in ISOLATED.glob("leaks_*.py"))


@pytest.mark.parametrize(
    "script", ["calls", "blocks", *(pytest.param(name, marks=pytest.mark.slow) for name in ("control", "recordings"))]
)
def test_nothing_is_left_behind(script: str) -> None:
    assert leaks(script) == ""


@pytest.mark.slow
def test_nothing_is_left_behind_by_what_is_measured_beyond_the_clock() -> None:
    assert leaks("probes", "--rounds", "200") == ""


@pytest.mark.parametrize(
    ("kind", "sign"),
    [
        ("object", "blocks"),
        ("reference", "Profiler"),
        ("memory", "malloc bytes"),
        ("file", "files"),
        ("pages", "pages"),
    ],
)
def test_a_leak_that_is_planted_is_found(kind: str, sign: str) -> None:
    (found,) = leaks("calls", "--plant", kind).splitlines()
    assert found.startswith("planted: ")
    assert sign in found


def test_every_script_is_run() -> None:
    assert SCRIPTS == ["blocks", "calls", "control", "harness", "probes", "recordings"]
