"""Stand-ins for functions while their calls are counted."""

from __future__ import annotations

import functools
import os
import sys
from contextlib import contextmanager
from threading import RLock, get_ident
from types import BuiltinFunctionType, ClassMethodDescriptorType, FunctionType, ModuleType
from typing import TYPE_CHECKING

from cprofiling.testing.counting.patterns import namespace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from cprofiling.testing.counting.patterns import Found
    from cprofiling.testing.counting.tally import Tally

_PACKAGE = __name__.partition(".")[0]


class _Patch:
    """Function with its stand-ins and the tallies of its calls."""

    def __init__(self, function: Any) -> None:
        self.original = function
        self.owners: list[type] = []
        self.tallies: tuple[tuple[Tally, str], ...] = ()  # replaced, never changed: calls go through it meanwhile
        self._call = function.__func__ if isinstance(function, (staticmethod, classmethod)) else function
        self._counted = self._counting(self._call)
        self.in_modules, self.in_classes = self._made(function)

    def _counting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if not _own or get_ident() not in _own:
                for tally, name in self.tallies:
                    tally.add(name)
            return call(*args, **kwargs)

        return counted

    def _made(self, function: Any) -> tuple[Any, Any]:
        """Return stand-ins for modules and for classes."""
        counted = self._counted
        if isinstance(function, (staticmethod, classmethod)):
            return function, type(function)(counted)
        if isinstance(function, ClassMethodDescriptorType):
            return function, classmethod(counted)
        if isinstance(function, (FunctionType, BuiltinFunctionType)):
            return counted, counted if hasattr(function, "__get__") else staticmethod(counted)
        in_modules = _Object(counted, function)
        return in_modules, counted if hasattr(function, "__get__") else staticmethod(in_modules)

    def put_into_classes(self, old: Any, new: Any) -> None:
        """Replace a value in classes. Raises TypeError for immutable ones."""
        for owner in self.owners:
            for attribute, value in list(vars(owner).items()):
                if value is old:
                    setattr(owner, attribute, new)

    def take_attributes_over(self) -> None:
        """Have the function keep what was set on what stood in its place."""
        if isinstance(self._call, FunctionType):
            vars(self._call).update({key: value for key, value in vars(self._counted).items() if key != "__wrapped__"})


class _Object:
    """Stand-in for a callable object that is more than a function."""

    def __init__(self, counted: Callable[..., Any], original: Any) -> None:
        told = {"__module__": counted.__module__, "__doc__": counted.__doc__}
        self.__dict__.update(told, _cprofiling_counted=counted, _cprofiling_original=original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._cprofiling_counted(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cprofiling_original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._cprofiling_original, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._cprofiling_original[key]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._cprofiling_original.__reduce_ex__(protocol)


_own: dict[int, int] = {}  # the threads in which this package itself works, and how deep


@contextmanager
def own_calls() -> Iterator[None]:
    """Ignore calls of this thread while a block runs."""
    thread = get_ident()
    _own[thread] = _own.get(thread, 0) + 1
    try:
        yield
    finally:
        _own[thread] -= 1
        if not _own[thread]:
            del _own[thread]


_lock = RLock()
_patches: dict[int, _Patch] = {}  # by the identity of what is patched


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603 a thread that held it is not there to release it
    _lock = RLock()
    for thread in _own.keys() - {get_ident()}:  # which are not there, and whose numbers others may get
        del _own[thread]


os.register_at_fork(after_in_child=_after_fork_in_child)


def count_into(tally: Tally, found: Iterable[Found]) -> None:
    """Count calls of functions until ``stop_counting``, even if this raises.

    TypeError where a class cannot be changed.
    """
    with _lock:
        made = []
        for each in found:
            patch = _patches.setdefault(id(each.function), _Patch(each.function))
            patch.owners += [owner for owner in each.owners if owner not in patch.owners]
            patch.tallies = (*patch.tallies, (tally, each.names[0]))
            made.append(patch)
        _replace_in_modules({id(patch.original): patch.in_modules for patch in made})
        for patch in made:
            patch.put_into_classes(patch.original, patch.in_classes)


def stop_counting(tally: Tally) -> None:
    """Stop counting into a tally, and restore functions nobody counts."""
    with _lock:
        for patch in _patches.values():
            patch.tallies = tuple(each for each in patch.tallies if each[0] is not tally)
        over = [_patches.pop(key) for key, patch in list(_patches.items()) if not patch.tallies]
        if over:
            # Also where the program has taken a counting one from a module meanwhile.
            _replace_in_modules({id(patch.in_modules): patch.original for patch in over})
            for patch in over:
                patch.put_into_classes(patch.in_classes, patch.original)
                patch.take_attributes_over()


def original_of(value: Any) -> Any:
    """Return the function behind a stand-in, else the value."""
    for patch in tuple(_patches.values()):
        if value is patch.in_modules or value is patch.in_classes:
            return patch.original
    return value


def _replace_in_modules(replacements: dict[int, Any]) -> None:
    """Replace values, by identity, in all modules but our own."""
    for module_name, module in list(sys.modules.items()):
        if not issubclass(type(module), ModuleType) or module_name.partition(".")[0] == _PACKAGE:
            continue
        names = namespace_of(module)
        for name, value in list(names.items()):
            replacement = replacements.get(id(value))
            if replacement is not None:
                names[name] = replacement
