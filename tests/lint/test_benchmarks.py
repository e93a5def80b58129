"""The benchmarks are whole: their C builds with today's core, and each script says its options."""

from __future__ import annotations

import subprocess
import sys

import pytest

from repository import ROOT

pytestmark = pytest.mark.lint

FOLDER = ROOT / "python" / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("[a-z]*.py") if "ArgumentParser" in path.read_text())


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "build",
    ["counters.readings()", "floor.load()", "floor.compiled('cold.o', ['-c', f'-I{floor.ROOT}'], [cold.SOURCE])"],
)
def test_their_c_builds(build: str) -> None:
    run("-c", f"from python.benchmarks import cold, counters, floor; {build}")


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_says_its_options(script: str) -> None:
    run("-m", f"python.benchmarks.{script}", "--help")
