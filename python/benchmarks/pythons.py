"""Finds the other interpreters, gives each an environment for a while, and runs the benchmarks in child processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .harness import explain
from .results import Run, from_json

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
PEERS = FOLDER / "peers.txt"
MINORS = (10, 11, 12, 13, 14, 15)
IDENTIFY = "import sys; print(sys.implementation.name, *sys.version_info[:2])"


@dataclass
class Children:
    """What child processes brought back: their runs, and by interpreter what went wrong."""

    runs: list[Run]
    failures: dict[str, str]


def say(message: str) -> None:
    """Tell whoever waits how far it is."""
    print(message, file=sys.stderr, flush=True)


def identify(python: Path) -> str:
    """Return an interpreter's implementation and version, such as "cpython 3 11", or "" when it does not run."""
    try:
        done = subprocess.run([str(python), "-c", IDENTIFY], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _numbers(folder: Path) -> tuple[int, ...]:
    """Return the numbers in a version folder's name, so that 3.11.10 sorts after 3.11.9."""
    return tuple(int(part) for part in folder.name.split(".") if part.isdecimal())


def locations(minor: int) -> list[Path]:
    """Return where an interpreter 3.``minor`` may lie: on PATH, then in pyenv's folder, newest first."""
    name = f"python3.{minor}"
    found = shutil.which(name)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    folders = sorted(pyenv.glob(f"3.{minor}.*"), key=_numbers, reverse=True)
    return [*([Path(found)] if found else []), *(folder / "bin" / name for folder in folders)]


def find_pythons() -> dict[int, Path | None]:
    """Return for each supported minor version an interpreter that runs, or None."""
    return {
        minor: next((path for path in locations(minor) if identify(path) == f"cpython 3 {minor}"), None)
        for minor in MINORS
    }


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would lead a child to other packages than its own."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def checked(command: Sequence[str]) -> None:
    """Run a command. Raises RuntimeError with the end of its output when it fails."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=clean_environment()
    )
    if done.returncode != 0:
        tail = " ".join(done.stdout.split())[-300:]
        raise RuntimeError(f"{' '.join(command[:4])} ... exited with {done.returncode}: {tail}")


def make_environment(python: Path, folder: Path, *, with_peers: bool) -> Path:
    """Make a virtual environment in ``folder``, install this project into it, and return its interpreter.

    Raises RuntimeError when a step fails.
    """
    checked([str(python), "-m", "venv", str(folder)])
    inside = folder / "bin" / "python"
    if with_peers:
        checked([str(inside), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(PEERS)])
    checked([str(inside), "-m", "pip", "install", "--quiet", str(ROOT)])
    return inside


def run_child(python: Path, arguments: Sequence[str]) -> list[Run]:
    """Run the benchmarks once in a process of their own and return what it measured.

    Raises RuntimeError with the end of its errors when it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        command = [str(python), str(FOLDER), *arguments, "--silent", "--json", str(path)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if not path.exists():
            raise RuntimeError(f"exited with {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
        return from_json(path.read_text())


def run_children(python: Path, arguments: Sequence[str], times: int) -> list[Run]:
    """Run the benchmarks ``times`` times, each in a process of its own."""
    runs: list[Run] = []
    for number in range(times):
        say(f"run {number + 1} of {times}")
        runs += run_child(python, arguments)
    return runs


def run_everywhere(arguments: Sequence[str], times: int, *, with_peers: bool) -> Children:
    """Run the benchmarks on every supported CPython that is found, in environments that are removed afterwards."""
    children = Children([], {})
    for minor, python in find_pythons().items():
        if python is None:
            children.failures[f"CPython 3.{minor}"] = "not found"
            continue
        say(f"CPython 3.{minor}: {python}")
        with tempfile.TemporaryDirectory(prefix="cprofiling-bench-") as folder:
            try:
                inside = make_environment(python, Path(folder), with_peers=with_peers)
                children.runs += run_children(inside, arguments, times)
            except Exception as error:
                children.failures[f"CPython 3.{minor}"] = explain(error)
    return children
