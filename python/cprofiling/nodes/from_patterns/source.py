"""Compile module source so that its functions are nodes from the start."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from itertools import chain
from types import CodeType
from typing import TYPE_CHECKING, Any

from cprofiling.nodes.decorators import wrap
from cprofiling.nodes.profiler import Profiler

if TYPE_CHECKING:
    from cprofiling.nodes.from_patterns.patterns import Selection

    Definition = ast.FunctionDef | ast.AsyncFunctionDef
    Compiler = Callable[[Any, str], CodeType]

# Of its own, so that the program's statistics stay as they are; of the commands, only serve switches it on.
PROFILER = Profiler()
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # the fields of statements that hold statements
# What type.__new__() makes of plain functions in a class's body, and not of nodes.
_IMPLICIT: dict[str, Callable[..., Any]] = {
    "__new__": staticmethod,
    "__init_subclass__": classmethod,
    "__class_getitem__": classmethod,
}

# Decorators that need the function itself, as their functions call compiled others, or make a node of it: hands off.
_LEFT_ALONE = {"cfunc", "guvectorize", "jit", "njit", "profile_node", "script", "vectorize"}
_MARKING = "coroutine"  # types.coroutine marks the function itself; the node goes on top of it


def as_node(function: Any, name: str | None = None) -> Any:
    """Make a node of a function, or leave it as it is if that fails."""
    try:
        node = wrap(function, name=function.__qualname__ if name is None else name, stage=None, profiler=PROFILER)
    except Exception:  # noqa: BLE001 the program goes on as without us
        return function
    return node.__func__ if isinstance(node, classmethod) and not isinstance(function, classmethod) else node


def as_full_node(function: Any) -> Any:
    """Make a node of a function, as ``as_node``, with its module's name."""
    return as_node(function, full_name(function.__module__, function.__qualname__))


def full_name(module: str, qualname: str) -> str:
    """Return a function's name with its module's, if that is not the program."""
    return qualname if module in ("__main__", "__mp_main__") else f"{module}.{qualname}"


# Decorators have no names in the compiled program, so that none can clash: they are constants, put where marks are.
_TOKEN = os.urandom(16).hex()
MARKED: dict[str, Callable[..., Any]] = {
    f"{_TOKEN} {decorator.__name__}": decorator for decorator in (as_node, as_full_node, staticmethod, classmethod)
}
_MARKS = {decorator: text for text, decorator in MARKED.items()}


def compiled(source: bytes | str, path: str, is_wanted: Callable[[str], bool], compiler: Compiler) -> CodeType | None:
    """Compile a module with the wanted functions as nodes, None without any.

    Nodes go below all decorators, but for some that need the plain function. Lines and columns match the source.
    ``is_wanted`` is asked for the qualified name of each function defined by ``def``. Raises what Python does.
    """
    tree = ast.parse(source, path)
    return _with_decorators(compiler(tree, path)) if mark(tree, is_wanted) else None


def mark(tree: ast.Module, is_wanted: Callable[[str], bool]) -> bool:
    """Decorate the wanted functions of a module (see ``MARKED``)."""
    wanted = [(definition, in_class) for definition, name, in_class in _definitions(tree) if is_wanted(name)]
    for definition, in_class in wanted:
        called = [each.func if isinstance(each, ast.Call) else each for each in definition.decorator_list]
        names = [getattr(each, "attr", getattr(each, "id", "")) for each in called]  # "jit" of @numba.jit(cache=True)
        if not _LEFT_ALONE.isdisjoint(names):
            continue
        decorators: list[Callable[..., Any]] = [as_node if getattr(is_wanted, "users", None) is None else as_full_node]
        if in_class and not names and definition.name in _IMPLICIT:
            decorators.insert(0, _IMPLICIT[definition.name])
        place = names.index(_MARKING) if _MARKING in names else len(names)
        below = [*definition.decorator_list, definition][place]  # where a line begins that tracebacks may show
        marks = [ast.copy_location(ast.Constant(_MARKS[decorator]), below) for decorator in decorators]
        definition.decorator_list[place:place] = marks
    return bool(wanted)


def compiled_script(path: str, selection: Selection) -> CodeType | None:
    """Compile a script like ``compiled``."""
    if not os.path.isfile(path):  # a pipe, which can be read once
        return None
    loader = SourceFileLoader("__main__", path)
    try:
        source = loader.get_data(path)
        return None if selection.spares(source) else compiled(source, path, selection, loader.source_to_code)
    except Exception:  # noqa: BLE001 of whatever kind
        return None


def _definitions(tree: ast.Module) -> Iterator[tuple[Definition, str, bool]]:
    """Yield each function, its qualified name, and whether a class has it."""
    todo: list[tuple[ast.AST, str, bool]] = [(tree, "", False)]
    while todo:
        parent, prefix, in_class = todo.pop()
        for child in chain.from_iterable(getattr(parent, block, ()) for block in _BLOCKS):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield child, prefix + child.name, in_class
                todo.append((child, f"{prefix}{child.name}.<locals>.", False))
            elif isinstance(child, ast.ClassDef):
                todo.append((child, f"{prefix}{child.name}.", True))
            else:
                todo.append((child, prefix, in_class))


def _with_decorators(code: CodeType) -> CodeType:
    constants = list(code.co_consts)
    for place, value in enumerate(constants):
        if isinstance(value, str):
            constants[place] = MARKED.get(value, value)
        elif hasattr(value, "co_consts"):
            constants[place] = _with_decorators(value)
    return code.replace(co_consts=tuple(constants))
