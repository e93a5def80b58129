"""Nodes made of functions while a notebook's cell runs."""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cprofiling.nodes.from_patterns import source as node_source
from cprofiling.nodes.from_patterns.import_hook import LoaderThen, NodeFinder, wrap_members
from cprofiling.nodes.from_patterns.patterns import MAIN, Pattern, Patterns, Selection, is_users_file

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from cprofiling.nodes.from_patterns.import_hook import Replaced

_WILD = "*?["
_active: list[CellNodes] = []
_numbers = itertools.count()


class CellPatterns(Patterns):
    """Patterns of a cell, where ``:FUNCTION`` is of the notebook."""

    __slots__ = ("number",)

    def __init__(self, texts: Iterable[str]) -> None:
        """Parse the patterns. Raises ValueError for one without a function."""
        super().__init__(f"{MAIN}{text}" if text.startswith(":") else text for text in texts)
        self.number = next(_numbers)

    def selection_of_loaded(self, name: str) -> Selection | None:
        """Return the functions meant in a module that is loaded already.

        A wildcard in the first part of a module's name takes the notebook and the modules that lie beside it: neither
        Python's own nor installed ones, on which the notebook itself runs.
        """
        found = [pattern for pattern in self._patterns if pattern.takes_module(name)]
        for pattern in found:
            if not _may_take(pattern, name):
                pattern.passed.append(name)
        return self._selection([pattern for pattern in found if _may_take(pattern, name)])

    def complaints(self, modules: Iterable[str]) -> Iterator[str]:
        """Yield a hint for each unmatched pattern."""
        own = vars(sys.modules[MAIN])
        unmet = [pattern for pattern in self._patterns if not pattern.is_met]
        for pattern, complaint in zip(unmet, super().complaints(modules), strict=True):
            if ":" not in pattern.text and callable(own.get(pattern.text)):
                own_name = f":{pattern.text}"
                yield f"-n {pattern.text!r} matched nothing: a function of the notebook is named by {own_name!r}"
            else:
                yield complaint


def _may_take(pattern: Pattern, name: str) -> bool:
    is_open = any(sign in pattern.module.partition(".")[0] for sign in _WILD)
    if not is_open or name == MAIN:
        return True
    path = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(path, str) and is_users_file(path)


class CellNodes:
    """The nodes of a running cell, undone afterwards."""

    def __init__(self, patterns: CellPatterns) -> None:
        """Take over the patterns, which note what they match."""
        self.patterns = patterns
        self._replaced: list[Replaced] = []
        self._finder = NodeFinder(patterns, None, self._prepared)

    def begin(self) -> None:
        """Make nodes in the modules loaded now and in those imported later."""
        _active.append(self)
        if not self.patterns.texts:
            return
        for name, module in list(sys.modules.items()):
            is_own = name.partition(".")[0] == __name__.partition(".")[0]
            selection = None if is_own else self.patterns.selection_of_loaded(name)
            if selection is not None:
                self._wrap(module, selection)
        self._replace({id(member): node for _, _, member, node in self._replaced})
        sys.meta_path.insert(0, self._finder)

    def end(self) -> None:
        """Put everything back, so that nodes kept by somebody count no more."""
        _active.remove(self)
        if not self.patterns.texts:
            return
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        for owner, name, member, node in reversed(self._replaced):
            if getattr(owner, "__dict__", {}).get(name) is node:
                setattr(owner, name, member)
        self._replace({id(node): member for _, _, member, node in self._replaced})
        for *_, node in self._replaced:
            if hasattr(node, "detach"):
                node.detach()

    def made(self, function: Any) -> Any:
        """Make a node of a function that the cell defines."""
        node = node_source.as_node(function)
        if node is not function:
            self._replaced.append((None, "", function, node))
        return node

    def _wrap(self, module: ModuleType, selection: Selection) -> None:
        self._replaced += wrap_members(module, selection)

    def _prepared(self, _spec: ModuleSpec, loader: Any, selection: Selection) -> Any:
        return LoaderThen(loader, partial(self._wrap, selection=selection))

    def _replace(self, others: dict[int, Any]) -> None:
        """Replace functions wherever the notebook or their packages name them."""
        packages = {str(getattr(member, "__module__", MAIN)).partition(".")[0] for _, _, member, _ in self._replaced}
        owners: list[Any] = [
            module for name, module in list(sys.modules.items()) if name.partition(".")[0] in {MAIN, *packages}
        ]
        own = list(vars(sys.modules[MAIN]).values())
        owners += [each for each in own if isinstance(each, type) and each.__module__ == MAIN]
        for owner in owners:
            for name, value in list(vars(owner).items()):
                function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
                if id(function) in others:
                    other = others[id(function)]
                    setattr(owner, name, other if function is value else type(value)(other))


def decorator(mark: str, number: int) -> Callable[[Any], Any]:
    """Return the decorator behind a mark, for functions of this cell.

    A function inside another one may be defined when its cell has long ended; then it stays as it is.
    """
    found = node_source.MARKED[mark]
    if found is not node_source.as_node:
        return found
    return next((nodes.made for nodes in _active if nodes.patterns.number == number), lambda function: function)


def mark_definitions(tree: ast.Module, patterns: CellPatterns) -> None:
    """Have the functions that a cell defines decorated where they are meant."""
    selection = patterns.selection(MAIN)
    if selection is not None and node_source.mark(tree, selection):
        _Naming(patterns.number).visit(tree)


class _Naming(ast.NodeTransformer):
    """Replaces marks by calls of ``decorator``, which IPython compiles."""

    def __init__(self, number: int) -> None:
        self._number = number

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, str) or node.value not in node_source.MARKED:
            return node
        source = f"__import__({__name__!r}).report.notebook.cell_nodes.decorator({node.value!r}, {self._number})"
        call = ast.parse(source, mode="eval").body
        return ast.fix_missing_locations(ast.copy_location(call, node))
