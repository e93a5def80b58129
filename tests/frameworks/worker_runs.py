"""Programs whose workers count: run as people run them, with live files and traces, which are added up by command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cprofiling as cp
from command import COMMAND

CALLS = 1000
PACKAGE_FOLDER = str(Path(cp.__file__).parents[1])


def run(program: str, folder: Path, *arguments: str, **environment: str) -> str:
    """Run a program to its end, with live files and traces in a folder; return what it printed."""
    script = folder / "program.py"
    script.write_text(program)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("CPROFILING_")}
    files = {"CPROFILING_LIVE": str(folder / "live.cprof"), "CPROFILING_OUTPUT_PATH": str(folder / "trace.json")}
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**plain, "PYTHONPATH": PACKAGE_FOLDER, **files, **environment},
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def counted(folder: Path) -> dict[str, int]:
    """Merge the live files of all processes by command, and return the counts by node."""
    merged = folder / "merged.bin"
    files = [str(path) for path in sorted(folder.glob("live*.cprof"))]
    done = subprocess.run(
        [*COMMAND, "merge", "-o", str(merged), *files], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return {row.node_name: row.count for row in cp.Snapshot.from_bytes(merged.read_bytes()).stats()}


def traced(folder: Path, *names: str) -> dict[str, int]:
    """Merge the traces of all processes by command, and return how many events there are of each name."""
    merged = folder / "merged.json"
    files = [str(path) for path in sorted(folder.glob("trace*.json"))]
    subprocess.run([*COMMAND, "merge", "-o", str(merged), *files], capture_output=True, timeout=120, check=True)
    events = [event.name for event in cp.load_trace(merged).events()]
    return {name: events.count(name) for name in names}
