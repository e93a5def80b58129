"""Builds, loads and reads ``_floor``: the C forwarder, the empty C context manager and the processor's counter."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shlex
import statistics
import subprocess
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).with_name("_floor.c")
ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "benchmarks"
PAIRS = 1_000


def _setting(name: str) -> list[str]:
    return shlex.split(str(sysconfig.get_config_var(name) or ""))


def compiled(name: str, options: Iterable[str], sources: Iterable[Path], headers: Iterable[Path] = ()) -> Path:
    """Compile C sources into ``build/benchmarks``, unless that was done before, and return the file's path.

    Raises RuntimeError when they do not compile, OSError when there is no compiler.
    """
    compiler = shlex.split(os.environ.get("CC", "")) or _setting("CC") or ["cc"]
    command = [*compiler, "-std=c11", "-ffp-contract=off", *options, *map(str, sources), "-lm", "-ldl"]
    recipe = " ".join(command).encode() + b"".join(path.read_bytes() for path in [*sources, *headers])
    target = CACHE / hashlib.sha256(recipe).hexdigest()[:16] / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(f".{os.getpid()}")
        done = subprocess.run([*command, "-o", str(fresh)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name} does not compile: {done.stderr.strip()}")
        fresh.replace(target)
    return target


@functools.cache
def load() -> ModuleType:
    """Return the extension module, compiled with the flags that setuptools would use. Raises as ``compiled``."""
    flags = [*_setting("CFLAGS"), *shlex.split(os.environ.get("CFLAGS", "")), *_setting("CCSHARED")]
    options = [*flags, "-shared", "-I" + sysconfig.get_path("include")]
    path = compiled(f"_floor{sysconfig.get_config_var('EXT_SUFFIX')}", options, [SOURCE])
    spec = importlib.util.spec_from_file_location("_floor", path)
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
