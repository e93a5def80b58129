"""Check arguments and name parameter, value and limit in errors."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any, TypeVar

from cprofiling._internal.text import shown_value

T = TypeVar("T")


def index(parameter: str, value: Any) -> int:
    """Return an integer of any type with ``__index__`` but bool, or TypeError."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{parameter} must be an integer, got {shown_value(value)}")
    return operator.index(value)


def index_between(parameter: str, value: Any, least: int, most: int | None = None, unit: str = "") -> int:
    """Return an integer within limits, which belong to them.

    ValueError for one that is not; without ``most`` there is no upper limit.
    """
    number = index(parameter, value)
    if most is None:
        if number < least:
            raise ValueError(f"{parameter} must be >= {least}, got {_shown(number)}")
    elif not least <= number <= most:
        limits = f"from {least} to {most} {unit}".rstrip()
        raise ValueError(f"{parameter} must be {limits}, got {_shown(number)}")
    return number


def index_or_none(parameter: str, value: Any, least: int | None = None) -> int | None:
    """Return None, or an integer that is not below ``least``."""
    if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__")):
        raise TypeError(f"{parameter} must be an integer or None, got {shown_value(value)}")
    return (
        value if value is None else index(parameter, value) if least is None else index_between(parameter, value, least)
    )


def number_between(parameter: str, value: Any, least: float, most: float) -> float:
    """Return an int or float within limits, or TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{parameter} must be a number, got {shown_value(value)}")
    if not least <= value <= most:
        raise ValueError(f"{parameter} must be from {least:g} to {most:.10g}, got {shown_value(value)}")
    return float(value)


def path(parameter: str, value: Any) -> str:
    """Return a path, given as str, bytes or PathLike, as a str.

    TypeError for other types, ValueError for a path that is empty, has a NUL, or cannot be encoded.
    """
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{parameter} must be a path, got {shown_value(value)}")
    text = os.fsdecode(value)
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ValueError(f"{parameter} must be a name that files can have, got {shown_value(value)}: {error}") from None
    if not text or "\0" in text:
        raise ValueError(f"{parameter} must {'not have a NUL' if text else 'not be empty'}, got {shown_value(value)}")
    return text


def member(parameter: str, value: Any, kind: type[T]) -> T:
    """Return a member of a type, such as an enum. TypeError for others."""
    if not isinstance(value, kind):
        raise TypeError(f"{parameter} must be a {kind.__name__}, got {shown_value(value)}")
    return value


def choice(parameter: str, value: Any, choices: Sequence[str]) -> str:
    """Return the text that a value equals. ValueError lists the choices."""
    for each in choices:
        if value == each:
            return each
    raise ValueError(f"{parameter} must be one of {', '.join(map(repr, choices))}, got {shown_value(value)}")


def callable_or_none(parameter: str, value: Any) -> Any:
    """Return a callable, or None. TypeError for others."""
    if value is not None and not callable(value):
        raise TypeError(f"{parameter} must be callable or None, got {shown_value(value)}")
    return value


def _shown(number: int) -> str:
    """Return an integer as text, a huge one by its size."""
    return str(number) if number.bit_length() <= 128 else f"an integer of {number.bit_length()} bits"


def checked_count(parameter: str, value: object) -> int:
    """Return an integer from 0 to 2^63-1. ValueError for another one."""
    count = index_between(parameter, value, 0)
    if count >= 2**63:
        raise ValueError(f"{parameter} must be <= {2**63 - 1}, got {_shown(count)}")
    return count
