"""Where NVTX's headers are, for what is compiled by tests and linters; setup.py looks in the same places.

As a program it prints the folder to include from.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def nvtx_include() -> str | None:
    """The folder in which there is nvtx3/nvToolsExt.h; None where they are not installed."""
    wheels = find_spec("nvidia")
    homes = [home for place in (wheels and wheels.submodule_search_locations) or () for home in Path(place).glob("*")]
    homes = [*sorted(homes, reverse=True), Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")]
    return next((str(home / "include") for home in homes if (home / "include/nvtx3/nvToolsExt.h").is_file()), None)


if __name__ == "__main__":
    found = nvtx_include()
    print(found or sys.exit("there are no headers of NVTX: pip install nvidia-nvtx"))
