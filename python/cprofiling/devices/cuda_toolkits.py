"""Folders of CUDA toolkits, for libraries and tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling._internal.environment import given

if TYPE_CHECKING:
    from collections.abc import Iterable

USUAL = ("/usr/local/cuda*",)
_VARIABLES = ("CUDA_HOME", "CUDA_PATH")


def toolkit_folders() -> list[str]:
    """Return toolkit folders, from a trusted environment first."""
    return list(dict.fromkeys(folder for folder in [*map(given, _VARIABLES), *newest_first(USUAL)] if folder))


def newest_first(patterns: Iterable[str]) -> list[str]:
    """Return existing paths by pattern, with the largest numbers first."""
    import glob

    return [path for pattern in patterns for path in sorted(glob.glob(pattern), key=_numbers, reverse=True)]


def _numbers(path: str) -> list[int]:
    import re

    return [int(number) for number in re.findall("[0-9]{1,9}", path)]
