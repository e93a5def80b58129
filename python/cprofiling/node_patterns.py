"""Which functions are to be nodes: patterns like ``mypkg.stages:*.forward``, and what they have matched so far."""

from __future__ import annotations

from fnmatch import fnmatchcase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAIN = "__main__"
_SHOWN_NAMES = 3


class Pattern:
    """A glob on the names of modules, and one on the qualified names of the functions in them."""

    __slots__ = ("function", "is_exact", "is_met", "module", "seen", "text")

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

    __slots__ = ("_patterns",)

    def __init__(self, patterns: list[Pattern]) -> None:
        self._patterns = patterns

    def __call__(self, qualname: str) -> bool:
        """Whether the function of this name is to be a node."""
        return True in [pattern.takes(qualname) for pattern in self._patterns]  # each of them notes it


class Patterns:
    """All patterns of a run."""

    __slots__ = ("_patterns", "texts")

    def __init__(self, texts: Iterable[str]) -> None:
        """Take all apart; see ``Pattern``."""
        self.texts = tuple(texts)
        self._patterns = [Pattern(text) for text in self.texts]

    def selection(self, *names: str, exactly: bool = False) -> Selection | None:
        """What is meant in a module that has these names; None: nothing.

        exactly: Only patterns count that name the module without a wildcard.
        """
        found = [pattern for pattern in self._patterns if any(map(pattern.takes_module, names))]
        if exactly:
            found = [pattern for pattern in found if pattern.is_exact]
        return Selection(found) if found else None

    def complaints(self, modules: Iterable[str]) -> Iterator[str]:
        """Say of each pattern that has met no function what it may have been meant for.

        modules: The names of the modules that were imported.
        """
        for pattern in self._patterns:
            if pattern.is_met:
                continue
            if pattern.seen:
                wanted, there, what = pattern.function, list(pattern.seen), "function"
            else:
                wanted, there, what = pattern.module, [MAIN, *modules], "module"
            similar = _similar(wanted, there)
            hint = f"; similar: {', '.join(similar)}" if similar else ""
            where = f" in {pattern.module}" if what == "function" else ""
            yield f"-n {pattern.text!r} matched nothing: no {what} {wanted!r}{where}{hint}"


def _similar(wanted: str, there: list[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(wanted, there, _SHOWN_NAMES)
