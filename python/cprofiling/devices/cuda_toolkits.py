"""Folders of CUDA toolkits, for libraries and tools."""

from __future__ import annotations

from collections.abc import Iterable

from cprofiling._internal.environment import given

USUAL = ("/usr/local/cuda*",)
_VARIABLES = ("CUDA_HOME", "CUDA_PATH")


def toolkit_folders() -> list[str]:
    """Return toolkit folders, from a trusted environment first."""
    return list(dict.fromkeys(folder for folder in [*map(given, _VARIABLES), *newest_first(USUAL)] if folder))


def newest_first(patterns: Iterable[str]) -> list[str]:
    """Return existing paths by pattern, with the largest numbers first."""
    import glob
    import re

    found: list[str] = []
    for pattern in patterns:
        by_numbers = {path: [int(number) for number in re.findall("[0-9]{1,9}", path)] for path in glob.glob(pattern)}
        found += sorted(by_numbers, key=by_numbers.__getitem__, reverse=True)
    return found
