"""Which functions are to be nodes: patterns like ``mypkg.stages:*.forward``, and what they have matched so far."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAIN = "__main__"
_PACKAGE = __name__.partition(".")[0]
_SHOWN_NAMES = 3


class Pattern:
    """A glob on the names of modules, and one on the qualified names of the functions in them."""

    __slots__ = ("function", "is_exact", "is_met", "is_there", "module", "passed", "seen", "text")

    def __init__(self, text: str) -> None:
        """Take it apart at its colon; without one it takes all functions of the modules.

        Raises ValueError if one of its parts is empty.
        """
        module, colon, function = text.partition(":")
        if not module or (colon and not function):
            raise ValueError(f"expected MODULE:FUNCTION or MODULE, both globs, got {text!r}")
        self.text = text
        self.module = module
        self.function = function or "*"
        self.is_exact = not any(sign in module for sign in "*?[")
        self.is_met = False
        self.is_there = False  # whether a module that it takes was there
        self.passed: list[str] = []  # the modules that it takes, and may not
        self.seen: dict[str, None] = {}  # in the modules that it takes, the functions that it does not

    def takes_module(self, name: str) -> bool:
        """Whether functions of this module may be meant."""
        return fnmatchcase(name, self.module)

    def takes(self, qualname: str) -> bool:
        """Whether this function of such a module is meant; it is noted."""
        if fnmatchcase(qualname, self.function):
            self.is_met = True
            return True
        self.seen[qualname] = None
        return False


class Selection:
    """What is meant in one module."""

    __slots__ = ("_is_default", "_patterns")

    def __init__(self, patterns: list[Pattern], *, is_default: bool = False) -> None:
        self._patterns = patterns
        self._is_default = is_default

    def spares(self, source: bytes | str) -> bool:
        """Return whether a module with this source is left alone, as it uses this package and nobody named it."""
        return self._is_default and _PACKAGE in (source if isinstance(source, str) else source.decode("latin-1"))

    def note_module(self) -> None:
        """Note that the module is there, whether or not it has functions."""
        for pattern in self._patterns:
            pattern.is_there = True

    def __call__(self, qualname: str) -> bool:
        """Whether the function of this name is to be a node."""
        return True in [pattern.takes(qualname) for pattern in self._patterns]  # each of them notes it


class Patterns:
    """All patterns of a run."""

    __slots__ = ("_patterns", "texts")

    def __init__(self, texts: Iterable[str], *, default: Iterable[str] = ()) -> None:
        """Take all apart; see ``Pattern``.

        default: Where there are none, those in force in modules that do not use this package.
        """
        self.texts = tuple(texts)
        self._patterns = [Pattern(text) for text in self.texts or default]

    @property
    def has_met(self) -> bool:
        """Whether there is a function that one of them takes."""
        return any(pattern.is_met for pattern in self._patterns)

    def selection(self, *names: str) -> Selection | None:
        """What is meant in a module that has these names; None: nothing."""
        return self._selection([pattern for pattern in self._patterns if any(map(pattern.takes_module, names))])

    def selection_of_loaded(self, name: str) -> Selection | None:
        """What is meant in a module that is loaded before the program begins: only what names it without a wildcard.

        Python's start and this package run on such modules, which nobody means who wants all of a program.
        """
        found = [pattern for pattern in self._patterns if pattern.takes_module(name)]
        for pattern in found:
            if not pattern.is_exact:
                pattern.passed.append(name)
        return self._selection([pattern for pattern in found if pattern.is_exact])

    def _selection(self, found: list[Pattern]) -> Selection | None:
        return Selection(found, is_default=not self.texts) if found else None

    def complaints(self, modules: Iterable[str]) -> Iterator[str]:
        """Say of each pattern that has met no function what it may have been meant for.

        modules: The names of the modules that were imported.
        """
        there = list(dict.fromkeys([MAIN, *modules]))
        for pattern in self._patterns if self.texts else ():
            if not pattern.is_met:
                yield f"-n {pattern.text!r} matched nothing: {'; '.join(_hints(pattern, there))}"


def _hints(pattern: Pattern, modules: list[str]) -> Iterator[str]:
    """Give what a pattern lacks, what there is that looks like it, and the rule that it fell under."""
    if pattern.is_there:
        yield f"no function {pattern.function!r} in {pattern.module}"
        yield from _similar(pattern.function, list(pattern.seen))
    elif not pattern.passed:
        yield f"no module {pattern.module!r}"
        named = _with_colon(pattern, modules)
        if named is None:
            yield from _similar(pattern.module, modules)
        else:
            yield f"a function is named by MODULE:FUNCTION, here {named!r}"
    if pattern.passed:
        rule = "a wildcard takes no module that is loaded before the program begins"
        more = ", ..." if len(pattern.passed) > _SHOWN_NAMES else ""
        yield f"{rule}: give the exact name ({', '.join(sorted(pattern.passed)[:_SHOWN_NAMES])}{more})"


def _with_colon(pattern: Pattern, modules: list[str]) -> str | None:
    """Return what was meant if a point is in the place of the colon; None: there is no such module."""
    for module in sorted(modules, key=len, reverse=True):
        if pattern.text == pattern.module and pattern.module.startswith(f"{module}."):
            return f"{module}:{pattern.module[len(module) + 1 :]}"
    return None


def _similar(wanted: str, there: list[str]) -> Iterator[str]:
    from difflib import get_close_matches

    names = get_close_matches(wanted, there, _SHOWN_NAMES)
    if names:
        yield f"similar: {', '.join(names)}"
