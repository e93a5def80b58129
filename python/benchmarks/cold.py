"""A call that finds its caches empty: opened and closed in C, by today's core and by an earlier one."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from .floor import CACHE, ROOT, compiled

SOURCE = Path(__file__).with_name("_cold.c")
BEFORE = "1b25453"

HOT = "a call opened and closed in C, in caches (ns)"
COLD = "a call opened and closed in C, second-level cache evicted (ns)"
HOT_BEFORE, COLD_BEFORE = (f"{name.removesuffix(' (ns)')}, at {BEFORE} (ns)" for name in (HOT, COLD))


def earlier_core() -> Path:
    """Return a folder with the core at BEFORE, out of the history. Raises RuntimeError where there is none."""
    folder = CACHE / BEFORE
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as name:
            file, fresh = Path(name, "core.zip"), Path(name, "core")
            command = ["git", "-C", str(ROOT), "archive", "-o", str(file), BEFORE, "cprofiling"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(
                    f"needs a clone with its history, as it builds commit {BEFORE}: {done.stderr.strip()}"
                )
            shutil.unpack_archive(file, fresh)
            fresh.rename(folder)
    return folder


def core_program(source: Path, *options: str, root: Path = ROOT) -> Path:
    """Return a program with the core in ``root``."""
    units = {path for path in (root / "cprofiling").rglob("*.c") if not path.stem.endswith("_none")}
    without_nvtx = root / "cprofiling" / "nvtx_none.c"
    if without_nvtx.exists():  # the earlier core, whose other unit needs the headers of NVTX
        units = units - {without_nvtx.with_name("nvtx.c")} | {without_nvtx}
    headers = sorted((root / "cprofiling").rglob("*.h"))
    usual = ["-O3", "-DNDEBUG", "-fno-semantic-interposition", "-pthread", f"-I{root}"]  # as setup.py has them
    return compiled(source.stem, [*usual, *options], [source, *sorted(units)], headers)


def cold_calls(rounds: int) -> dict[str, float]:
    """Run both programs in turns."""
    earlier = core_program(SOURCE, root=earlier_core())
    programs = {(HOT, COLD): core_program(SOURCE), (HOT_BEFORE, COLD_BEFORE): earlier}
    figures: dict[str, list[float]] = {name: [] for names in programs for name in names}
    for _ in range(rounds):
        for names, path in programs.items():
            done = subprocess.run([str(path)], capture_output=True, text=True, check=True)
            for name, value in zip(names, done.stdout.split(), strict=True):
                figures[name].append(float(value))
    return {name: statistics.median(values) for name, values in figures.items()}


MEASURES: dict[Callable[[int], dict[str, float]], tuple[str, ...]] = {cold_calls: (HOT, COLD, HOT_BEFORE, COLD_BEFORE)}
