"""Where CUDA's toolkits are, for all that looks into them: libraries that are loaded, tools that are run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling._internal.environment import given

if TYPE_CHECKING:
    from collections.abc import Iterable

USUAL = ("/usr/local/cuda*",)
_VARIABLES = ("CUDA_HOME", "CUDA_PATH")


def toolkit_folders() -> list[str]:
    """Return the folders of toolkits: those that the environment names, where it is trusted, then the usual ones."""
    return list(dict.fromkeys(folder for folder in [*map(given, _VARIABLES), *newest_first(USUAL)] if folder))


def newest_first(patterns: Iterable[str]) -> list[str]:
    """Return the paths that there are; of those of one pattern, the ones with the largest numbers first."""
    import glob

    return [path for pattern in patterns for path in sorted(glob.glob(pattern), key=_numbers, reverse=True)]


def _numbers(path: str) -> list[int]:
    import re

    return [int(number) for number in re.findall("[0-9]{1,9}", path)]
