"""What stands in the places of functions while their calls are counted: one for each, for all that count it."""

from __future__ import annotations

import functools
import sys
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING

from cprofiling.counting.functions import namespace_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cprofiling.counting.functions import Found
    from cprofiling.counting.tally import Tally

_PACKAGE = __name__.partition(".")[0]
_ORIGINAL = "_cprofiling_original"


class _Patch:
    """A function, what stands in its place, and who counts its calls."""

    def __init__(self, found: Found) -> None:
        self.original = found.function
        self.tallies: tuple[tuple[Tally, str], ...] = ()  # replaced, never changed: calls go through it meanwhile
        self.wrapper = self._made(found)
        self.owner = found.owner
        self.attribute = found.attribute

    def _made(self, found: Found) -> Any:
        function = found.function
        call = function.__func__ if isinstance(function, (staticmethod, classmethod)) else function

        @functools.wraps(call, updated=())
        def counted(*args: Any, **kwargs: Any) -> Any:
            for tally, name in self.tallies:
                tally.add(name)
            return call(*args, **kwargs)

        wrapper: Any = counted
        if call is not function:
            wrapper = type(function)(counted)
        elif found.owner is not None and not hasattr(type(function), "__get__"):
            wrapper = staticmethod(counted)  # as it is not given the instance
        counted.__dict__[_ORIGINAL] = function
        return wrapper

    def put_into_class(self, old: Any, new: Any) -> None:
        """Put one in the place of the other, unless a third is there. TypeError if the class cannot be changed."""
        if self.owner is not None and vars(self.owner).get(self.attribute) is old:
            setattr(self.owner, self.attribute, new)


_lock = RLock()
_patches: dict[int, _Patch] = {}  # by the identity of what is patched


def count_into(tally: Tally, found: Iterable[Found]) -> None:
    """Have calls of functions be counted from now on. TypeError where a class cannot be changed: then none is."""
    with _lock:
        try:
            made = [_joined(tally, each) for each in found]
            _replace_in_modules({id(patch.original): patch.wrapper for patch in made})
            for patch in made:
                patch.put_into_class(patch.original, patch.wrapper)
        except BaseException:
            stop_counting(tally)
            raise


def stop_counting(tally: Tally) -> None:
    """Have nothing be counted there any more, and put functions back that nobody else counts."""
    with _lock:
        over = []
        for key, patch in list(_patches.items()):
            patch.tallies = tuple(each for each in patch.tallies if each[0] is not tally)
            if not patch.tallies:
                over.append(_patches.pop(key))
        if over:
            # Also where the program has taken a counting one from a module meanwhile.
            _replace_in_modules({id(patch.wrapper): patch.original for patch in over})
            for patch in over:
                patch.put_into_class(patch.wrapper, patch.original)


def _joined(tally: Tally, found: Found) -> _Patch:
    """Return the patch of a function, to which the tally is added."""
    call = getattr(found.function, "__func__", found.function)
    original = getattr(call, "__dict__", {}).get(_ORIGINAL, found.function)
    patch = _patches.get(id(original))
    if patch is None:
        patch = _patches[id(original)] = _Patch(found._replace(function=original))
    patch.tallies = (*patch.tallies, (tally, found.names[0]))
    return patch


def _replace_in_modules(replacements: dict[int, Any]) -> None:
    """Put other values in the places of some, which are told by their identities, in all modules but our own."""
    for module_name, module in list(sys.modules.items()):
        if not issubclass(type(module), ModuleType) or module_name.partition(".")[0] == _PACKAGE:
            continue
        names = namespace_of(module)
        for name, value in list(names.items()):
            replacement = replacements.get(id(value))
            if replacement is not None:
                names[name] = replacement
