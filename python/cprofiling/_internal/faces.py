"""Public names that live in private rooms."""

from __future__ import annotations

from functools import partial
from types import FunctionType
from typing import Any


def adopt(face: dict[str, Any]) -> None:
    """Make exported names look like those of the face.

    Pickles and messages then name no room, and ``dir()`` shows the exported names only.

    Args:
        face: The globals of the face.
    """
    face["__dir__"] = partial(sorted, face["__all__"])
    for name in face["__all__"]:
        value = face.get(name)
        if isinstance(value, (type, FunctionType)) and not value.__module__.startswith("cprofiling._core"):
            value.__module__ = face["__name__"]
