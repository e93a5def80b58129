"""Packages that are extras, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def imported(library: str, *, install: str | None = None) -> Any:
    """Import an optional package.

    install: the extra to name in the ImportError; by default the package's name.
    """
    try:
        return import_module(library)
    except ImportError as error:
        wanted = f'pip install "{install or f"cprofiling[{library}]"}"'
        message = f"{library} is needed for this and cannot be imported ({error}): {wanted}"
        raise ImportError(message, name=library) from error


def own_version() -> str:
    """Return this package's version, "unknown" if not installed."""
    from importlib import metadata

    try:
        return metadata.version("cprofiling")
    except metadata.PackageNotFoundError:
        return "unknown"
