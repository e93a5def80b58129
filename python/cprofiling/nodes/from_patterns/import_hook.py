"""Making nodes of a program's functions as its modules are imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property, partial
from importlib.machinery import SourceFileLoader
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

from cprofiling.nodes.from_patterns import source as node_source
from cprofiling.nodes.from_patterns.patterns import MAIN

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from cprofiling.nodes.from_patterns.patterns import Patterns, Selection

    Action = Callable[[ModuleType], object]
    Preparer = Callable[[ModuleSpec, Any, Selection], Any]
    Replaced = tuple[Any, str, Any, Any]  # owner, name, original, node

_PACKAGE = __name__.partition(".")[0]
_OF_MODULES = (FunctionType, BuiltinFunctionType)
_OF_CLASSES = (FunctionType, staticmethod, classmethod, property, cached_property)


class NodeFinder:
    """Module finder that turns matching functions into nodes on import.

    It goes first in ``sys.meta_path`` and lets the others find the module. Modules without a match load as ever, as do
    files that do not compile: Python reports the error.
    """

    def __init__(self, patterns: Patterns, main: str | None, prepared: Preparer | None = None) -> None:
        """Take patterns, the module run as ``__main__``, and a maker of loaders."""
        self._patterns = patterns
        self._prepared = _prepared if prepared is None else prepared
        self._main = main
        self._actions: dict[str, Action] = {}

    def install(self) -> None:
        """Begin, with the modules that are there already."""
        for name, module in list(sys.modules.items()):
            selection = None if name == MAIN or _is_own(name) else self._patterns.selection_of_loaded(name)
            if selection is not None:
                wrap_members(module, selection)
        sys.meta_path.insert(0, self)

    def call_after(self, name: str, action: Action) -> None:
        """Call something with a module when it is loaded, or now, if it is."""
        module = sys.modules.get(name)
        if module is not None:
            action(module)
        else:
            self._actions[name] = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module with matching functions."""
        may_be_main = self._main is not None and fullname in (self._main, f"{self._main}.{MAIN}")
        names = (fullname, MAIN) if may_be_main else (fullname,)
        is_meant = not _is_own(fullname) and (
            self._patterns.users is not None or self._patterns.selection(*names) is not None
        )
        action = self._actions.pop(fullname, None)
        if not is_meant and action is None:
            return None
        spec = self._found(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        is_package = spec.submodule_search_locations is not None  # with -m its __main__ runs
        path = spec.origin if spec.has_location else None
        selection = self._patterns.selection(*(names[:1] if is_package else names), path=path) if is_meant else None
        if selection is not None:
            spec.loader = self._prepared(spec, spec.loader, selection)
        if action is not None:
            spec.loader = LoaderThen(spec.loader, action)  # type: ignore[assignment]
        return spec

    def _found(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find_spec is None else find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None


def _is_own(name: str) -> bool:
    return name.partition(".")[0] == _PACKAGE


def _prepared(spec: ModuleSpec, loader: Any, selection: Selection) -> Any:
    """Return a loader that makes nodes, or the given one without a match."""
    then = LoaderThen(loader, partial(wrap_members, selection=selection))
    if not _is_plain(loader):
        return then if hasattr(loader, "exec_module") else loader
    selection.note_module()
    try:
        path = loader.get_filename(spec.name)
        source = loader.get_data(path) if isinstance(loader, SourceFileLoader) else loader.get_source(spec.name)
        if source is None:  # an archive of compiled modules
            return then
        if selection.spares(source):
            return loader
        code = node_source.compiled(source, path, selection, SourceFileLoader(spec.name, path).source_to_code)
    except Exception:  # noqa: BLE001 the module's own faults show when it is loaded
        return loader
    if code is None:
        return loader
    made = copy(loader)  # that of a zip archive is the same for all of its modules
    made.get_code = lambda _fullname: code  # never of, and never into, a .pyc file
    return made


def _is_plain(loader: Any) -> bool:
    """Return whether a loader compiles and executes source as Python does."""
    kind = type(loader)
    if isinstance(loader, zipimporter):
        return kind is zipimporter
    return isinstance(loader, SourceFileLoader) and all(
        getattr(kind, method) is getattr(SourceFileLoader, method)
        for method in ("exec_module", "get_code", "get_data", "source_to_code")
    )


class LoaderThen:
    """Loader that calls another one, then acts on the loaded module."""

    def __init__(self, loader: Any, action: Action) -> None:
        self._loader = loader
        self._action = action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Have the other loader make the module, if it does."""
        create = getattr(self._loader, "create_module", None)
        module: ModuleType | None = None if create is None else create(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module by the wrapped loader, without a trace of this one."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        with suppress(Exception):  # the program goes on as without us
            self._action(sys.modules.get(module.__name__, module))


def wrap_members(module: ModuleType, selection: Selection) -> list[Replaced]:
    """Make nodes of matching functions in a loaded module and its classes."""
    selection.note_module()
    replaced = []
    for owner, name, member, qualname in list(_members(module, module, "")):
        if selection(qualname):
            full = qualname if selection.users is None else node_source.full_name(module.__name__, qualname)
            node = node_source.as_node(member, full)
            try:
                setattr(owner, name, node)
            except Exception:  # noqa: BLE001, S112 of a class that is not made in Python, or takes nothing
                continue
            if node is not member:
                replaced.append((owner, name, member, node))
    return replaced


def _members(module: ModuleType, owner: Any, prefix: str) -> Iterator[tuple[Any, str, Any, str]]:
    """Yield (owner, name, function, qualified name) of each function."""
    for name, member in list(getattr(owner, "__dict__", {}).items()):
        qualname = f"{prefix}{name}"
        if type(member) in (_OF_CLASSES if prefix else _OF_MODULES):
            if prefix or getattr(member, "__module__", None) == module.__name__:
                yield owner, name, member, qualname
        elif isinstance(member, type) and member.__module__ == module.__name__ and member.__qualname__ == qualname:
            yield from _members(module, member, f"{qualname}.")
