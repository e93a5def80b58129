"""Prepare docstrings for the reference.

Docstrings of the extension are read from the extension itself. A paragraph of ours that begins with `name: ...`
describes parameters; the next one begins on a line of its own, or after the end of a sentence.
"""

from __future__ import annotations

import inspect
import re
from functools import reduce
from typing import TYPE_CHECKING

import griffe

import cprofiling._core

if TYPE_CHECKING:
    from typing import Any

_PARAMETER = re.compile(r"(?:^|(?<=\n)|(?<=\. ))(\w+(?:, \w+)*): ")
_CODE = re.compile(r"(``.*?``|`.*?`)", re.DOTALL)
# One line may name several parameters.
_OPTIONS: griffe.GoogleOptions = {
    "warn_missing_types": False,
    "warn_unknown_params": False,
}


class Docstrings(griffe.Extension):
    """Turn docstrings into the form that griffe and Markdown expect."""

    def on_object(self, *, obj: griffe.Object, **_ignored: Any) -> None:
        """Replace the docstring of an object."""
        value = _of_extension(obj.path) if obj.path.startswith("cprofiling._core.") else None
        if obj.docstring is None and value is None:
            return
        text = value or (obj.docstring.value if obj.docstring is not None else "")
        if "\nArgs:" not in text:
            text = _with_parameters(text, obj)
        obj.docstring = griffe.Docstring(_escaped(text), parent=obj, parser="google", parser_options=_OPTIONS)


def _of_extension(path: str) -> str | None:
    try:
        return inspect.getdoc(reduce(getattr, path.split(".")[1:], cprofiling))
    except AttributeError:
        return None


def _are_parameters(names: str, obj: griffe.Object) -> bool:
    """Return whether names are parameters of an object, or may be."""
    known = {parameter.name for parameter in obj.parameters} if isinstance(obj, griffe.Function) else None
    return obj.is_class if known is None else set(names.split(", ")) <= known


def _with_parameters(text: str, obj: griffe.Object) -> str:
    """Return a docstring with its parameters in a last section, Args."""
    others: list[str] = []
    told: list[str] = []
    for paragraph in text.split("\n\n"):
        starts = [match for match in _PARAMETER.finditer(paragraph) if _are_parameters(match[1], obj)]
        if not starts or starts[0].start() != 0:
            others.append(paragraph)
            continue
        about, newline, rest = paragraph.partition("\nRaises ")
        others += [f"Raises {rest}"] if newline else []
        ends = [*(match.start() for match in starts[1:]), len(about)]
        told += (f"    {' '.join(about[match.start() : end].split())}" for match, end in zip(starts, ends, strict=True))
    return "\n\n".join([*others, "\n".join(["Args:", *told])]) if told else text


def _escaped(text: str) -> str:
    """Escape stars and underscores outside of code."""
    parts = _CODE.split(text)
    return "".join(
        part if _CODE.fullmatch(part) else re.sub(r"(\*\*|(?<!\w)__|__(?!\w))", _backslashed, part) for part in parts
    )


def _backslashed(match: re.Match[str]) -> str:
    return "".join(f"\\{character}" for character in match[0])
