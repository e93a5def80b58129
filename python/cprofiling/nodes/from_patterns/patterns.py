"""Patterns that choose functions as nodes.

``mypkg.stages:*.forward`` names modules before the colon, functions after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

MAIN = "__main__"
MOST_FUNCTIONS = 10_000  # that become nodes without being named
_PACKAGE = __name__.partition(".")[0]
_SHOWN_NAMES = 3
_LIBRARY = os.path.join(os.path.dirname(os.__file__), "")
_INSTALLED = {"site-packages", "dist-packages"}


class Pattern:
    """Glob of module names, and one of qualified function names."""

    __slots__ = ("function", "is_exact", "is_met", "is_there", "module", "passed", "seen", "text")

    def __init__(self, text: str) -> None:
        """Split at the colon.

        Without one, all functions of the modules match. Raises ValueError for an empty part.
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
        """Return whether functions of this module may match."""
        return fnmatchcase(name, self.module)

    def takes(self, qualname: str) -> bool:
        """Return whether the function matches, and remember that it did."""
        if fnmatchcase(qualname, self.function):
            self.is_met = True
            return True
        self.seen[qualname] = None
        return False


class UsersFunctions:
    """Count of the functions that are nodes as their files are the user's."""

    __slots__ = ("left_out", "made")

    def __init__(self) -> None:
        """Begin with none."""
        self.made = 0
        self.left_out = 0

    def takes_one_more(self) -> bool:
        """Return whether one more function becomes a node, and count it."""
        if self.made < MOST_FUNCTIONS:
            self.made += 1
            return True
        self.left_out += 1
        return False


class Selection:
    """Patterns that apply to one module."""

    __slots__ = ("_is_default", "_patterns", "users")

    def __init__(
        self, patterns: list[Pattern], *, is_default: bool = False, users: UsersFunctions | None = None
    ) -> None:
        self._patterns = patterns
        self._is_default = is_default
        self.users = users

    def spares(self, source: bytes | str) -> bool:
        """Return whether to skip a module that uses this package and is not named."""
        return self._is_default and _PACKAGE in (source if isinstance(source, str) else source.decode("latin-1"))

    def note_module(self) -> None:
        """Note that the module is there, whether or not it has functions."""
        for pattern in self._patterns:
            pattern.is_there = True

    def __call__(self, qualname: str) -> bool:
        """Return whether the function of this name becomes a node."""
        is_named = True in [pattern.takes(qualname) for pattern in self._patterns]  # each of them notes it
        return is_named or (self.users is not None and self.users.takes_one_more())


class Patterns:
    """All patterns of a run."""

    __slots__ = ("_patterns", "texts", "users")

    def __init__(self, texts: Iterable[str], *, default: Iterable[str] = (), takes_users: bool = False) -> None:
        """Parse all patterns.

        default: used if there are none, in modules that do not use this package.
        takes_users: whether the functions of the user's files are taken as well, without being named.
        """
        self.texts = tuple(texts)
        self.users = UsersFunctions() if takes_users else None
        self._patterns = [Pattern(text) for text in self.texts or (() if takes_users else default)]

    @property
    def has_met(self) -> bool:
        """Return whether any pattern has matched a function."""
        return any(pattern.is_met for pattern in self._patterns)

    def selection(self, *names: str, path: str | None = None) -> Selection | None:
        """Return the patterns for a module with these names, or None.

        path: its file, where that is known.
        """
        found = [pattern for pattern in self._patterns if any(map(pattern.takes_module, names))]
        users = self.users if self.users is not None and path is not None and is_users_file(path) else None
        return self._selection(found, users)

    def selection_of_loaded(self, name: str) -> Selection | None:
        """Return the patterns for a module loaded before the program, or None.

        Only patterns that name it without a wildcard count: Python's startup modules and this package are not meant by
        ``*``.
        """
        found = [pattern for pattern in self._patterns if pattern.takes_module(name)]
        for pattern in found:
            if not pattern.is_exact:
                pattern.passed.append(name)
        return self._selection([pattern for pattern in found if pattern.is_exact])

    def _selection(self, found: list[Pattern], users: UsersFunctions | None = None) -> Selection | None:
        is_default = not self.texts and self.users is None
        return Selection(found, is_default=is_default, users=users) if found or users else None

    def complaints(self, modules: Iterable[str]) -> Iterator[str]:
        """Yield a hint for each pattern without a match."""
        there = list(dict.fromkeys([MAIN, *modules]))
        for pattern in self._patterns if self.texts else ():
            if not pattern.is_met:
                yield f"-n {pattern.text!r} matched nothing: {'; '.join(_hints(pattern, there))}"


def is_users_file(path: str) -> bool:
    """Return whether a Python file is neither of Python's library nor installed."""
    places = (path, os.path.realpath(path))
    return not any(place.startswith(_LIBRARY) or not _INSTALLED.isdisjoint(place.split(os.sep)) for place in places)


def _hints(pattern: Pattern, modules: list[str]) -> Iterator[str]:
    """Yield the missing part, similar names, and the rule that excluded them."""
    if pattern.is_there:
        yield f"no function {pattern.function!r} in {pattern.module}"
        yield from _similar(pattern.function, list(pattern.seen))
    elif not pattern.passed:
        yield f"no module {pattern.module!r}"
        within = [module for module in modules if pattern.module.startswith(f"{module}.")]
        if within and pattern.text == pattern.module:
            module = max(within, key=len)
            named = f"{module}:{pattern.module[len(module) + 1 :]}"
            yield f"a function is named by MODULE:FUNCTION, here {named!r}"
        else:
            yield from _similar(pattern.module, modules)
    if pattern.passed:
        rule = "a wildcard takes no module that is loaded before the program begins"
        more = ", ..." if len(pattern.passed) > _SHOWN_NAMES else ""
        yield f"{rule}: give the exact name ({', '.join(sorted(pattern.passed)[:_SHOWN_NAMES])}{more})"


def _similar(wanted: str, there: list[str]) -> Iterator[str]:
    from difflib import get_close_matches

    names = get_close_matches(wanted, there, _SHOWN_NAMES)
    if names:
        yield f"similar: {', '.join(names)}"
