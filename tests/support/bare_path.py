"""A machine on which NVIDIA's tools are nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from cprofiling.devices import cuda_toolkits
from cprofiling.devices.nsight import tools


def bare_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder of PATH, which has nothing else; the tools are nowhere."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(tools, "USUAL_PLACES", {"ncu": (), "nsys": ()})
    monkeypatch.setattr(cuda_toolkits, "USUAL", ())
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    return folder
