"""Texts that are printed: names, values, times, numbers of things."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum

_LONGEST_NAME = 200  # bytes of a worker's name; a file's name has at most 255
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

_UNITS = (("ns", 1e6), ("µs", 1e3), ("ms", 1.0), ("s", 1e-3))
# What separates lines, or turns the direction of writing, beside control characters: ranges for a regular expression.
SEPARATING_OR_TURNING = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_NOT_SHOWN = f"[\x00-\x1f\x7f-\x9f\ud800-\udfff{SEPARATING_OR_TURNING}]"  # compiled by the first text that has one
NAMED = 4  # of names in a sentence


def shown_value(value: object) -> str:
    """Return a refused value for an error message, with its type.

    The representation is cut to 80 characters.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 a broken __repr__ must not hide the error that is being reported
        text = "a value without repr"
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"


def checked_text(parameter: str, value: object) -> str:
    """Return a name or stage as a plain str, an enum's value for an enum.

    Raises TypeError, naming ``parameter``, for anything but a str.
    """
    text = value.value if isinstance(value, Enum) else value
    if not isinstance(text, str):
        raise TypeError(f"{parameter} must be a str, got {shown_value(value)}")
    # The characters themselves: a subclass may have other ideas of how it is shown.
    return str.__str__(text)


def shown_text(parameter: str, value: object) -> str:
    r"""Return a name or stage as one printable line.

    Control characters, surrogates, separators of lines and marks of writing direction become backslash escapes such as
    ``\n``, ``\x1b``, ``\ud800`` and ``\u202e``; a backslash stays as it is. Raises as ``checked_text``.
    """
    text = checked_text(parameter, value)
    # Most names end here: none of these characters is printable.
    return text if text.isprintable() else re.sub(_NOT_SHOWN, _escape, text)


def shown_names(names: Iterable[str]) -> str:
    """Return the first ten names in quotes, sorted, and the number of others."""
    ordered = sorted(set(names))
    more = f" and {len(ordered) - 10} more" if len(ordered) > 10 else ""
    return ", ".join([f"'{shown_text('name', name)}'" for name in ordered[:10]]) + more


def listed(names: Sequence[str]) -> str:
    """Return the first names as printable text, and the number of others."""
    named = ", ".join([shown_text("name", name) for name in names[:NAMED]])
    return named if len(names) <= NAMED else f"{named} and {len(names) - NAMED:,} more"


def shown_lines(text: str) -> str:
    """Return a text as ``shown_text`` does, with its line breaks."""
    return "\n".join(shown_text("text", line) for line in text.split("\n"))


def format_time(time_ms: float) -> str:
    """Return a time in ms as 1 to 999.9 with its unit, ns to s."""
    for unit, per_ms in _UNITS:
        value = float(time_ms) * per_ms
        number = f"{value:.2f}"
        if float(number) >= 100:
            number = f"{value:.1f}"
        text = f"{number} {unit}"
        # Decided on the rounded number, so that 999.96 ns is 1.00 µs and never 1000.0 ns.
        if float(number) < 1000:
            break
    return text


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def plain_table(rows: Sequence[Sequence[str]], is_text: Sequence[bool]) -> str:
    """Return rows, headings first, in columns without frames, uncut."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *lines = [
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(row, widths, is_text, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([head, "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines])


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in singular or plural."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def file_name_of(name: str) -> str:
    """Return a name as a safe file name part, escaped and cut.

    It is never empty, ``.`` or ``..``; long names end in a hash of the whole.
    """
    data = name.encode("utf-8", "surrogatepass")
    escaped = "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in data)
    if not escaped.strip("."):
        escaped = escaped.replace(".", "%2E") or "%"
    if len(escaped) > _LONGEST_NAME:
        import hashlib

        escaped = f"{escaped[: _LONGEST_NAME - 17]}-{hashlib.sha256(data).hexdigest()[:16]}"
    return escaped
