"""Checks of arguments: what passes, and what the refusals say."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Any

import pytest

from cprofiling._internal import arguments as checks


class Number:
    """An integer of another type."""

    def __index__(self) -> int:
        return 7


class Color(enum.Enum):
    RED = 1


def refusal(error: type[Exception], check: Any, *arguments: Any) -> str:
    with pytest.raises(error) as caught:
        check(*arguments)
    return str(caught.value)


def test_integers() -> None:
    assert checks.index("x", -5) == -5
    assert checks.index("x", Number()) == 7
    assert type(checks.index("x", Number())) is int
    for wrong in (True, 1.0, "1", None):
        assert refusal(TypeError, checks.index, "x", wrong).startswith(f"x must be an integer, got {wrong!r} (")


def test_integers_with_limits() -> None:
    assert [checks.index_between("x", value, 1, 3) for value in (1, 2, 3)] == [1, 2, 3]
    assert checks.index_between("x", 1 << 70, 0) == 1 << 70
    assert checks.index_between("x", Number(), 7, 7) == 7
    assert refusal(ValueError, checks.index_between, "x", 0, 1) == "x must be >= 1, got 0"
    assert refusal(ValueError, checks.index_between, "x", 4, 1, 3) == "x must be from 1 to 3, got 4"
    assert refusal(ValueError, checks.index_between, "x", 0, 1, 3, "events") == "x must be from 1 to 3 events, got 0"
    assert refusal(ValueError, checks.index_between, "x", -(10**5000), 1) == (
        "x must be >= 1, got an integer of 16610 bits"
    )
    assert refusal(TypeError, checks.index_between, "x", False, 0) == "x must be an integer, got False (bool)"


def test_integers_that_may_be_missing() -> None:
    assert checks.index_or_none("x", None) is None
    assert checks.index_or_none("x", None, 1) is None
    assert checks.index_or_none("x", -1) == -1
    assert checks.index_or_none("x", Number(), 1) == 7
    assert refusal(ValueError, checks.index_or_none, "x", 0, 1) == "x must be >= 1, got 0"
    assert refusal(TypeError, checks.index_or_none, "x", 1.5) == "x must be an integer or None, got 1.5 (float)"
    assert refusal(TypeError, checks.index_or_none, "x", True, 1) == "x must be an integer or None, got True (bool)"


class OfBytes:
    def __fspath__(self) -> bytes:
        return b"a/b"


def test_paths() -> None:
    for given in ("a/b", b"a/b", Path("a/b"), OfBytes()):
        assert checks.path("x", given) == "a/b"
    assert os.fsencode(checks.path("x", b"\xff")) == b"\xff"
    assert refusal(ValueError, checks.path, "x", "") == "x must not be empty, got '' (str)"
    assert refusal(ValueError, checks.path, "x", b"a\0b") == "x must not have a NUL, got b'a\\x00b' (bytes)"
    for wrong in (None, 0, True, bytearray(b"a"), ["a"]):
        assert refusal(TypeError, checks.path, "x", wrong).startswith(f"x must be a path, got {wrong!r} (")


def test_members() -> None:
    assert checks.member("x", Color.RED, Color) is Color.RED
    assert refusal(TypeError, checks.member, "x", 1, Color) == "x must be a Color, got 1 (int)"


def test_choices() -> None:
    class Word(str):
        pass

    assert type(checks.choice("x", Word("b"), ("a", "b"))) is str
    assert refusal(ValueError, checks.choice, "x", "c", ("a", "b")) == "x must be one of 'a', 'b', got 'c' (str)"
    assert refusal(ValueError, checks.choice, "x", [], ("a",)) == "x must be one of 'a', got [] (list)"


def test_callables() -> None:
    assert checks.callable_or_none("x", None) is None
    assert checks.callable_or_none("x", print) is print
    assert refusal(TypeError, checks.callable_or_none, "x", 3) == "x must be callable or None, got 3 (int)"
