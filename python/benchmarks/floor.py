"""Builds, loads and reads ``_floor``: the C forwarder, the empty C context manager and the processor's counter."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shlex
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).with_name("_floor.c")
CACHE = Path(__file__).resolve().parents[2] / "build" / "benchmarks"
PAIRS = 1_000


def _setting(name: str) -> list[str]:
    return shlex.split(str(sysconfig.get_config_var(name) or ""))


def _compile_command(target: Path) -> list[str]:
    """Return the command that setuptools would use for an extension without options of its own, plus C11."""
    compiler = shlex.split(os.environ.get("CC", "")) or _setting("CC") or ["cc"]
    flags = [*_setting("CFLAGS"), *shlex.split(os.environ.get("CFLAGS", "")), *_setting("CCSHARED")]
    ours = ["-std=c11", "-ffp-contract=off", "-shared", "-I" + sysconfig.get_path("include")]
    return [*compiler, *flags, *ours, str(SOURCE), "-o", str(target)]


def _build() -> Path:
    """Compile ``_floor.c`` unless it was built before for this interpreter, and return the path of the module."""
    recipe = " ".join([sys.version, *_compile_command(Path("_floor"))]).encode() + SOURCE.read_bytes()
    folder = CACHE / hashlib.sha256(recipe).hexdigest()[:16]
    module = folder / f"_floor{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not module.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fresh = module.with_suffix(f".{os.getpid()}")
        done = subprocess.run(_compile_command(fresh), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{SOURCE.name} does not compile: {done.stderr.strip()}")
        fresh.replace(module)
    return module


@functools.cache
def load() -> ModuleType:
    """Return the extension module, built on demand into ``build/benchmarks``.

    Raises RuntimeError when it does not compile, OSError when there is no compiler.
    """
    spec = importlib.util.spec_from_file_location("_floor", _build())
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{SOURCE.name} was built under a name that cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def _ns_per_tick() -> float:
    """Return the length of a tick, from the counter and CLOCK_MONOTONIC read twice, 50 ms apart."""
    first_ticks, first_ns = load().counter_and_clock()
    time.sleep(0.05)
    last_ticks, last_ns = load().counter_and_clock()
    return float(last_ns - first_ns) / float(last_ticks - first_ticks)


def floor_ns(samples: int = 21) -> float:
    """Return what two back-to-back unfenced reads of the counter cost, in ns: the median over many batches of pairs."""
    ticks = statistics.median(load().pairs_ticks(PAIRS) for _ in range(samples))
    return float(ticks) / PAIRS * _ns_per_tick()
