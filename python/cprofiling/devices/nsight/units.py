"""Numbers and units as ncu prints them: in the words of several versions, with the separators of several locales."""

from __future__ import annotations

import math
import re

_NOTHING = frozenset(("", "-", "n/a", "nan", "-nan", "nan(ind)", "-nan(ind)", "inf", "+inf", "-inf", "none", "null"))
_FAILED = "(!)"  # before what takes the place of a value that could not be measured
_GROUP_MARK = re.compile("(?<=[0-9])[ \u00a0\u2009\u202f'\u2019](?=[0-9]{3})")
_INSTANCES = re.compile(r" \(.*\)\Z", re.DOTALL)  # the values of single instances, behind that of all
_NUMBER = re.compile(r"([+-]?)([0-9.,]*[0-9][0-9.,]*)([eE][+-]?[0-9]{1,4})?")
_GROUPED = {mark: re.compile(rf"[0-9]{{1,3}}(\{mark}[0-9]{{2,3}})*\{mark}[0-9]{{3}}") for mark in ".,"}
_DOMINANCE = 10  # so many times as much evidence settles what speaks against it

ENGLISH, GERMAN, EITHER = ".", ",", ""  # how a number, or a file, marks the beginning of the decimals

_SECONDS = {
    "s": 0, "sec": 0, "second": 0, "seconds": 0, "ms": -3, "msec": -3, "msecond": -3, "us": -6, "\u00b5s": -6,
    "\u03bcs": -6, "usec": -6, "usecond": -6, "ns": -9, "nsec": -9, "nsecond": -9, "ps": -12, "psecond": -12,
}  # fmt: skip
_PREFIXES = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_THING = re.compile("([kKMGTP]?)(bytes?|B|[hH][zZ]|inst|cycle|sector|request|warp|thread|block)")
_BASES = {"bytes": "byte", "B": "byte"}


def base_unit(unit: str) -> tuple[int, str]:
    """Return the power of ten that leads from a unit to its base, and the base.

    Bases are ``ns`` for times, ``byte``, ``Hz``, ``%``, and for rates the thing per ``s``, such as ``byte/s``. K, M and
    G are powers of 1000, as in ncu. A unit that is not known is its own base.
    """
    above, slash, below = unit.strip().partition("/")
    if not slash:
        return _plain_unit(above)
    power, base = _plain_unit(above)
    if below not in _SECONDS:
        return power, f"{base}/{below}"
    rate = "Hz" if base == "cycle" else f"{base}/s"
    return power - _SECONDS[below], rate


def _plain_unit(unit: str) -> tuple[int, str]:
    if unit in _SECONDS:
        return _SECONDS[unit] + 9, "ns"
    match = _THING.fullmatch(unit)
    if match is None:
        return 0, "%" if unit == "percent" else unit
    base = match[2]
    return _PREFIXES[match[1]], "Hz" if base.lower() == "hz" else _BASES.get(base, base)


class Number:
    """A number as it is written, before it is known how its file marks decimals.

    Attributes:
        mark: ENGLISH or GERMAN where the number itself shows how it marks them, EITHER where it has no marks.
        is_ambiguous: Whether its one mark may begin decimals or separate thousands, such as in ``1,234``.
    """

    __slots__ = ("_digits", "_power", "_sign", "is_ambiguous", "mark")

    def __init__(self, sign: str, digits: str, power: int) -> None:
        self._sign, self._digits, self._power = sign, digits, power
        self.mark, self.is_ambiguous = _mark_of(digits)

    def value(self, mark: str, power: int = 0) -> float:
        """Return the number, times a power of ten, where ``mark`` begins decimals; nan for one beyond all floats."""
        begins = mark if self.is_ambiguous else self.mark
        digits = self._digits.replace("," if begins == ENGLISH else ".", "").replace(",", ".")
        return _finite(float(f"{self._sign}{digits}e{self._power + power}"))


def parsed(text: str) -> Number | float | None:
    """Return what a cell says: a number, nan for a cell that says that there is none, or None for other texts.

    Whole numbers come as floats, which are the same everywhere.
    """
    if text.isdecimal() and text.isascii():
        return _finite(float(text))
    text = text.strip()
    if text.lower() in _NOTHING or text.startswith(_FAILED):
        return math.nan
    match = _NUMBER.fullmatch(_GROUP_MARK.sub("", _INSTANCES.sub("", text)))
    if match is None:
        return None
    sign, digits, power = match.groups()
    if power and digits.count(".") == 1 and "," not in digits:
        digits += "0"  # no longer like thousands, which nobody writes with an exponent
    return Number(sign, digits, int(power[1:]) if power else 0) if _is_number(digits) else None


def scaled(value: float, power: int) -> float:
    """Return a number times a power of ten, rounded once."""
    factor: int = 10 ** abs(power)
    return value * factor if power >= 0 else value / factor


def _finite(value: float) -> float:
    """Return a number; nan for one beyond all floats."""
    return value if math.isfinite(value) else math.nan


def _mark_of(digits: str) -> tuple[str, bool]:
    """Return which mark begins the decimals of a well-formed number, and whether that is open."""
    commas, dots = digits.count(","), digits.count(".")
    if commas and dots:
        return (ENGLISH if digits.rindex(".") > digits.rindex(",") else GERMAN), False
    if not commas and not dots:
        return EITHER, False
    mark, other = (GERMAN, ENGLISH) if commas else (ENGLISH, GERMAN)
    if commas + dots > 1:
        return other, False
    whole, _, decimals = digits.partition(mark)
    is_open = len(decimals) == 3 and 1 <= len(whole) <= 3 and whole[0] != "0"
    return (EITHER, True) if is_open else (mark, False)


def _is_number(digits: str) -> bool:
    """Whether the marks are at places where marks may be."""
    mark, is_ambiguous = _mark_of(digits)
    if is_ambiguous or mark == EITHER:
        return True
    whole, _, decimals = digits.partition(mark)
    other = GERMAN if mark == ENGLISH else ENGLISH
    is_grouped = other in whole
    return mark not in decimals and other not in decimals and (not is_grouped or bool(_GROUPED[other].fullmatch(whole)))


class Evidence:
    """What the numbers of a file tell of how it marks decimals."""

    def __init__(self) -> None:
        self._strong = {ENGLISH: 0, GERMAN: 0}
        self._weak = {ENGLISH: 0, GERMAN: 0}

    def add(self, number: Number, unit: str, text: str) -> None:
        """Take note of a number, whose unit has the base ``unit``.

        An ambiguous number of percent, which is hardly in the thousands, counts where no other number tells.
        """
        if number.is_ambiguous:
            if unit == "%":
                self._weak[GERMAN if "," in text else ENGLISH] += 1
        elif number.mark != EITHER:
            self._strong[number.mark] += 1

    def mark(self) -> str:
        """Return ENGLISH or GERMAN; ENGLISH where nothing tells; EITHER where the file contradicts itself."""
        counts = self._strong if any(self._strong.values()) else self._weak
        less, more = sorted(counts, key=lambda mark: (counts[mark], mark == ENGLISH))
        if counts[less] and counts[more] < counts[less] * _DOMINANCE:
            return EITHER
        return more
