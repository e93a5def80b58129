"""Entry point: works both as ``python python/benchmarks`` and as ``python -m python.benchmarks``."""

import importlib
import sys
from pathlib import Path


def package_name() -> str:
    """Return the name of this package, importing it first when the folder was run as a script.

    The folder's parent is on ``sys.path`` only for that import: it also holds the sources of ``cprofiling``, which
    must not hide the installed package.
    """
    if __package__:
        return __package__
    folder = Path(__file__).resolve().parent
    sys.path.insert(0, str(folder.parent))
    try:
        importlib.import_module(folder.name)
    finally:
        sys.path.remove(str(folder.parent))
    return folder.name


if __name__ == "__main__":
    sys.exit(importlib.import_module(".cli", package_name()).main())
