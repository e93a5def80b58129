"""Functions by patterns such as ``mypkg.native:*``, and their stand-ins while calls are counted."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from threading import RLock, get_ident
from types import BuiltinFunctionType, ClassMethodDescriptorType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from cprofiling._internal.process import call_at_fork
from cprofiling._internal.text import checked_text, shown_value

if TYPE_CHECKING:
    from cprofiling.testing.counting.calls import Tally

_PACKAGE = __name__.partition(".")[0]
_WILDCARDS = frozenset("*?[")
_FORM = "MODULE:FUNCTION, both with wildcards if need be"
# They look at their caller's variables, and would see those of what stands in their place.
_LOOKING_AT_CALLERS = (__import__, breakpoint, dir, eval, exec, globals, locals, vars)


class Found(NamedTuple):
    """A function that is meant."""

    function: Any  # as it is in the namespace that has it
    owners: list[type]  # the classes that have it
    names: list[str]  # by which patterns take it


def checked_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns, checked as ``count_calls`` says."""
    if not patterns:
        raise ValueError("patterns must be at least one, such as 'mypkg.native:*', got none")
    for pattern in patterns:
        module, _, function = checked_text("patterns", pattern).partition(":")
        if not module or not all(function.split(".")):
            raise ValueError(f"patterns must be {_FORM}, got {shown_value(pattern)}")
    return tuple(map(str, patterns))


def functions_of(patterns: tuple[str, ...]) -> list[Found]:
    """Return the functions of patterns, each once."""
    found: dict[int, Found] = {}
    for pattern in patterns:
        is_met = False
        for each in _taken(pattern):
            is_met = True
            original = original_of(each.function)
            known = found.setdefault(id(original), each._replace(function=original))
            known.owners.extend(owner for owner in each.owners if owner not in known.owners)
            known.names.extend(name for name in each.names if name not in known.names)
        if not is_met:
            raise ValueError(f"patterns must take a function each, {shown_value(pattern)} takes none")
    return list(found.values())


def _taken(pattern: str) -> Iterator[Found]:
    module_name, _, function = pattern.partition(":")
    if _WILDCARDS.isdisjoint(module_name):
        modules = [importlib.import_module(module_name)]
    else:
        loaded = dict(sys.modules)
        modules = [loaded[name] for name in sorted(loaded) if fnmatchcase(name, module_name)]
    for module in modules:
        if isinstance(module, ModuleType):
            if _WILDCARDS.isdisjoint(function):
                yield from _named(module, function)
            else:
                yield from _matching(module, function.split("."))


def namespace_of(module: ModuleType) -> dict[str, Any]:
    """Return the names of a module without loading a lazy one."""
    names: dict[str, Any] = ModuleType.__getattribute__(module, "__dict__")
    return names


def _named(module: ModuleType, qualname: str) -> Iterator[Found]:
    """Yield the function of an exact name. Raises TypeError for another value."""
    *path, attribute = qualname.split(".")
    owner: Any = module
    for part in path:
        owner = getattr(owner, part, None)
    holders: Any = owner.__mro__ if isinstance(owner, type) else [owner] if isinstance(owner, ModuleType) else []
    holder = next((holder for holder in holders if attribute in vars(holder)), None)
    if holder is None:
        return
    function = vars(holder)[attribute]
    name = f"{module.__name__}:{qualname}"
    if not _is_method(function):
        raise TypeError(f"patterns must take functions, {name} is {shown_value(function)}")
    if _looks_at_callers(function):
        raise TypeError(f"patterns must take functions that do not look at their caller's variables, as {name} does")
    yield Found(function, [] if holder is module else [holder], [name])


def _matching(module: ModuleType, globs: list[str]) -> Iterator[Found]:
    """Give the functions with matching names, part by part."""
    for name, value in list(namespace_of(module).items()):
        if not _matches(name, globs[0]):
            continue
        if len(globs) == 1 and _is_function_of(module, value):
            yield Found(value, [], [f"{module.__name__}:{name}"])
        elif len(globs) == 2 and issubclass(type(value), type) and _is_near(module, value):
            for attribute, member in list(vars(value).items()):
                if _matches(attribute, globs[1]) and _is_method(member):
                    yield Found(member, [value], [f"{module.__name__}:{name}.{attribute}"])


def _matches(name: str, glob: str) -> bool:
    return fnmatchcase(name, glob) and (glob.startswith("_") or not name.startswith("_"))


def _is_function_of(module: ModuleType, value: Any) -> bool:
    """Tell whether a value is a module's own function, or a native one.

    An object that is callable by a Python method of its class is none: it is there for more than to be called.
    """
    kind = type(value)
    if not callable(value) or issubclass(kind, type) or isinstance(kind.__call__, FunctionType):
        return False
    if kind is BuiltinFunctionType:
        return not _looks_at_callers(value)
    return _home_of(value) == module.__name__ or (_is_near(module, value) and kind is not FunctionType)


def _looks_at_callers(value: Any) -> bool:
    return any(value is each for each in _LOOKING_AT_CALLERS)


def _is_near(module: ModuleType, value: Any) -> bool:
    """Tell whether a value is of the same package as a module."""
    return _home_of(value).partition(".")[0] == module.__name__.partition(".")[0]


def _home_of(value: Any) -> str:
    """Return the name of a value's module, empty if it does not tell."""
    try:
        home = value.__module__
    except Exception:  # noqa: BLE001 a proxy without its object may raise anything
        return ""
    return home if isinstance(home, str) else ""


def _is_method(value: Any) -> bool:
    return isinstance(value, (staticmethod, classmethod)) or (callable(value) and not isinstance(value, type))


# ---- stand-ins


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
        """Copy attributes set on the replacement to the function."""
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
_patches: dict[int, _Patch] = {}  # by the identity of the patched function


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603 a thread that held it is not there to release it
    _lock = RLock()
    for thread in _own.keys() - {get_ident()}:  # gone in a child; others may get their numbers
        del _own[thread]


call_at_fork(after_in_child=_after_fork_in_child)


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
