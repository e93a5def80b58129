"""Filter this package's own Python frames out of torch.profiler's traces."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING

from cprofiling.recording.columns import column, has, texts_of

if TYPE_CHECKING:
    from cprofiling.recording.result import Recording

_FOLDER = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))  # the package
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))
_INSTALLED = ("site-packages", "dist-packages")  # folders within the standard library's that are not part of it
_OWN_OBJECT = re.compile(r"<built-in .* of (type )?cprofiling\.")
_STACK = re.compile(r'"Call stack":\s*("(?:[^"\\]|\\.)*")')  # a frame, and those around it, each with a ";" behind it
_ID = re.compile(r'"Python id":\s*(\d+)')
_AROUND = re.compile(r'("Python parent id":\s*)(\d+)')
LOST = "\ufffd"  # what stands for bytes that are no text
_BROKEN = re.compile(f"[\x00-\x1f\x7f-\x9f{LOST}]")


class Frames:
    """Python frames of a torch.profiler trace, without this package's.

    What those called is left out, too: frames of the standard library or built in, up to the user's next frame.
    """

    def __init__(self, found: Recording) -> None:
        """Find the frames that are left out."""
        self._found = found
        places = [place.rstrip(os.sep) + os.sep for place in sys.path if place]
        within = [_FOLDER[len(place) :] for place in places if _FOLDER.startswith(place)]
        self._own = tuple(f"{path}{os.sep}" for path in {_FOLDER, *within})
        self._has_stacks = has(found, "stack")
        self._sides: dict[str, bool | None] = {}
        self._stacks: dict[str, str] = {}
        self._left_out: set[int] = set()
        self._around: dict[int, str] = {}  # those that are left out, and what is around them, by their ids
        functions = texts_of(found, "python_function")
        names, strings = column(found, "name"), found.strings
        for row, cat in enumerate(column(found, "cat") if functions else ()):
            if cat in functions:
                self._note(row, strings[names[row]])

    def has(self, row: int) -> bool:
        """Return whether a row is not a frame of this package."""
        return row not in self._left_out

    def args(self, row: int) -> str:
        """Return a row's arguments, in which such frames are not mentioned."""
        text = self._found.args(row) or "{}"
        stack = _STACK.search(text) if self._has_stacks else None
        if stack:
            text = f"{text[: stack.start(1)]}{self._shown(stack[1])}{text[stack.end(1) :]}"
        around = _AROUND.search(text) if self._around else None
        if around and int(around[2]) in self._around:
            text = f"{text[: around.start(2)]}{self._next_around(around[2])}{text[around.end(2) :]}"
        return text

    def _note(self, row: int, name: str) -> None:
        text = self._found.args(row) or ""
        stack = _STACK.search(text)
        frames = _frames(stack[1]) if stack else []
        if name in self._kept([name, *frames])[:1]:
            return
        self._left_out.add(row)
        number, around = _ID.search(text), _AROUND.search(text)
        if number:
            self._around[int(number[1])] = around[2] if around else "null"

    def _next_around(self, number: str) -> str:
        """Return the id of the first frame that stays, of one and those around it."""
        while number != "null" and int(number) in self._around:
            number = self._around[int(number)]
        return number

    def _shown(self, stack: str) -> str:
        if stack not in self._stacks:
            self._stacks[stack] = json.dumps(";".join(self._kept(_frames(stack))))
        return self._stacks[stack]

    def _kept(self, frames: list[str]) -> list[str]:
        """Return the frames of a stack, innermost first, that stay."""
        kept = []
        is_own = False
        for frame in reversed(frames):
            side = self._side(frame)
            is_own = is_own if side is None else side
            if not is_own:
                kept.append(frame)
        return kept[::-1]

    def _side(self, frame: str) -> bool | None:
        """Return whether a frame is this package's, None if its caller's."""
        if frame not in self._sides:
            if frame.startswith(self._own) or _OWN_OBJECT.match(frame):
                self._sides[frame] = True
            else:
                self._sides[frame] = None if frame.startswith("<") or _is_of_library(frame) else False
        return self._sides[frame]


def _frames(stack: str) -> list[str]:
    return [_readable(frame) for frame in json.loads(stack).split(";") if frame]


def _readable(frame: str) -> str:
    """Return a frame without unreadable bytes.

    PyTorch keeps addresses of names, and those of modules being imported or code being compiled may be freed before it
    reads them.
    """
    if not _BROKEN.search(frame):
        return frame
    place, is_known, _ = frame.partition("): ")
    return f"{place}): unknown" if is_known and not _BROKEN.search(place) else "unknown"


def _is_of_library(frame: str) -> bool:
    path = os.path.join(_LIBRARY, frame.partition("(")[0])  # of weakref.py(46): __new__
    within = path[len(_LIBRARY) + 1 :]
    return path.startswith(_LIBRARY + os.sep) and not within.startswith(_INSTALLED) and os.path.isfile(path)
