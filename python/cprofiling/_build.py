"""Refuse an extension that was built from other sources than the package is for."""

from __future__ import annotations

import os

ID: str | None = None  # of an installed package: setup.py sets it; in a checkout it is computed
_COMMAND = "python setup.py build_ext --inplace --force"


def of_sources(root: str) -> str | None:
    """Return a hash of a checkout's C sources and the extension's interface, None where there are none."""
    if not os.path.isdir(os.path.join(root, "csrc")):
        return None
    from binascii import crc32  # which loads a library

    paths = [os.path.join(root, "python", "cprofiling", "_core.pyi")]
    for folder in ("cprofiling", "csrc"):
        for place, _, names in os.walk(os.path.join(root, folder)):
            paths += [os.path.join(place, name) for name in names if name.endswith((".c", ".h"))]
    value = 0
    for path in sorted(paths):
        with open(path, "rb") as file:
            value = crc32(os.path.relpath(path, root).encode() + file.read(), value)
    return f"{value:08x}"


def check() -> None:
    """Compare the builds of the package and its extension.

    Raises:
        ImportError: They differ.
    """
    from cprofiling import _core

    wanted = ID or of_sources(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    found = getattr(_core, "BUILD", "an older one")
    if wanted not in (None, found):
        remedy = "reinstall cprofiling" if ID else f"build it anew: {_COMMAND}"
        raise ImportError(f"{_core.__file__} is of build {found}, the package is for {wanted}: {remedy}")


if __name__ == "cprofiling._build":  # setup.py runs this file, too
    check()
