"""Functions in loaded modules by patterns such as ``mypkg.native:*``."""

from __future__ import annotations

import importlib
import sys
from fnmatch import fnmatchcase
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, NamedTuple

from cprofiling._internal.text import checked_text, shown_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

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


def functions_of(patterns: tuple[str, ...], original_of: Callable[[Any], Any]) -> list[Found]:
    """Return the functions of patterns, each once.

    original_of: tells what a value stands in the place of, which is the function that is meant.
    """
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
    """Give the functions whose names match, part by part."""
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

    An object whose class makes it callable by a method in Python is none: it is there for more than to be called.
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
