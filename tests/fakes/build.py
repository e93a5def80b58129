"""Builds the fakes that are written in C."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

FAKES = Path(__file__).parent


def library(target: Path, source: Path, *flags: str) -> Path:
    """A library of one source, at the target."""
    command = [os.environ.get("CC", "cc"), "-std=c11", "-O1", f"-I{FAKES.parents[1]}", "-shared", "-fPIC", "-pthread"]
    done = subprocess.run(
        [*command, *flags, "-o", str(target), str(source), "-ldl"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


def fake_driver(folder: Path) -> Path:
    """The fake libcuda."""
    return library(folder / "libcuda.so.1", FAKES / "fake_cuda.c", "-Wl,-soname,libcuda.so.1")


def fake_cupti(folder: Path) -> Path:
    """The fake libcupti."""
    return library(folder / "libcupti.so.13", FAKES / "fake_cupti.c", "-Wl,-soname,libcupti.so.13")


def fake_cuda_and_cupti(folder: Path) -> dict[str, str]:
    """The environment of a process that finds both fakes, built in a folder."""
    return {"CPROFILING_LIBCUDA": str(fake_driver(folder)), "CPROFILING_LIBCUPTI": str(fake_cupti(folder))}


def fake_nvtx(folder: Path, include: str) -> Path:
    """A tool that listens to NVTX, whose headers are in a folder."""
    return library(folder / "fake_nvtx.so", FAKES / "fake_nvtx.c", "-isystem", include)
