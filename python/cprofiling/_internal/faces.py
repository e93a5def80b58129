"""Public names that live in private rooms."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def adopt(face: dict[str, Any]) -> None:
    """Set ``__module__`` of what a face exports, so that pickles and messages name no room.

    Args:
        face: The globals of the face.
    """
    for name in face["__all__"]:
        value = face[name]
        if isinstance(value, (type, FunctionType)) and not value.__module__.startswith("cprofiling._core"):
            value.__module__ = face["__name__"]
