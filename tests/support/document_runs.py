"""Run the Python and the commands of documents."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cprofiling
from command import SCRIPT

HOME = "/home/me"  # what documents show in place of the folder in which they run
PACKAGE_FOLDER = str(Path(cprofiling.__file__).parents[1])


def environment() -> dict[str, str]:
    """Return an environment that finds the tested package."""
    mine = {"PYTHONPATH": PACKAGE_FOLDER, "COLUMNS": "80", "PYTEST_ADDOPTS": "-p cprofiling_pytest"}
    return {**os.environ, **mine, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # those of other packages take time


def run_python(code: str, folder: Path, *, file: str = "") -> str:
    """Run code, as ``file`` if given, and return its output."""
    if file:
        (folder / file).write_text(code, encoding="utf-8")
    return _output([sys.executable, "-W", "error", *([file] if file else ["-c", code])], folder)


def run_shell(commands: str, folder: Path) -> str:
    """Run shell commands with the tested package, and return their output."""
    tools = folder.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name, start in (("python", ""), ("cprofiling", f'"{SCRIPT}"')):
        tool = tools / name
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" {start} "$@"\n')
        tool.chmod(0o755)
    path = f'PATH="{tools}:$PATH"'
    return _output(["bash", "-e", "-o", "pipefail", "-c", f"exec 2>&1\n{path}\n{commands}"], folder)


def _output(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, env=environment(), cwd=folder, capture_output=True, text=True, check=False, timeout=150
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.replace(str(folder), HOME)
