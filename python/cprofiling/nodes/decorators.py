"""Make nodes of functions, methods and blocks.

The hot path is in ``csrc/calls/``: ``function_type.c`` (calls) and ``block_type.c`` (blocks). This module decides, once
per decoration, the kind of callable and its node name.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable
from enum import Enum
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any, TypeAlias, TypeVar, overload

from cprofiling import _core
from cprofiling._internal.text import shown_value

F = TypeVar("F")
NodeName: TypeAlias = str | Callable[[Any], str] | None
StageName: TypeAlias = str | Enum | None

CALL, GENERATOR, COROUTINE, ASYNC_GENERATOR = range(4)  # as in csrc/calls/function.h
SOURCES: dict[str, str | None] = {}  # "file:line" of the function of each node's name, None of several functions
_MOST_SOURCES = 20_000


class NodeSite(_core.Block):
    """Reusable decorator and context manager (sync or async) for one node."""

    __slots__ = ()

    def __call__(self, function: F) -> F:
        """Wrap a callable. Raises TypeError for a class or a non-callable."""
        wrapped: F = wrap(function, name=self.name, stage=self.stage, profiler=self.profiler)
        return wrapped

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.stage, self.profiler)


NodeSite.own_methods()


@overload
def profile_node(
    function: str | None = None,
    /,
    *,
    name: NodeName = None,
    stage: StageName = None,
    profiler: _core.Profiler | None = None,
) -> NodeSite: ...


@overload
def profile_node(
    function: F,
    /,
    *,
    name: NodeName = None,
    stage: StageName = None,
    profiler: _core.Profiler | None = None,
) -> F: ...


def profile_node(
    function: Any = None,
    /,
    *,
    name: NodeName = None,
    stage: StageName = None,
    profiler: _core.Profiler | None = None,
) -> Any:
    """Count the calls of a callable, or the runs of a block, as a node.

    Used as ``@profile_node``, ``@profile_node("name")``, ``@profile_node(name=lambda self: self.name)``,
    ``with profile_node("name"):`` or ``async with profile_node("name"):``; for functions, methods, class and static
    methods, properties, objects with ``__call__``, coroutine functions, generator functions, asynchronous generator
    functions, functions made by ``contextlib.contextmanager``, and single-dispatch methods.

    name: the node's name, a str of at most 4,096 bytes of UTF-8 without NUL; or a callable of the call's first
        argument, by position or keyword, asked once per instance. Default: the callable's ``__qualname__`` after the
        last ``<locals>.``; a block needs a name.
    stage: the execution stage to count under; default: the one in force when the call starts (see ``stage()``).
    profiler: the Profiler that counts; default: decided at each call. If the first argument is a ``PipelineProfiling``,
        its own; else that of the innermost running profiled call or pipeline of this thread or task; else the one bound
        by ``with profiler:``; else the default Profiler.

    Generators count one sample for a whole iteration, without the consumer's time; coroutines from the first resumption
    to the end, awaiting included; context managers one for a whole ``with``, body included. A call that raises counts
    as an error, and the exception passes through untouched. A callable decorated twice counts once for a Profiler,
    under the outer name.

    Raises TypeError for a class, an object that is not callable, and a wrong name, stage or profiler; ValueError
    for a name or stage that is too long or contains NUL.
    """
    if function is None or isinstance(function, str):
        if function is not None and name is not None:
            raise TypeError(f"profile_node got two names: {function!r} and {name!r}")
        return NodeSite(function if name is None else name, stage, profiler)
    return wrap(function, name=name, stage=stage, profiler=profiler)


def wrap(function: Any, *, name: NodeName, stage: StageName, profiler: _core.Profiler | None) -> Any:
    """Wrap a callable, or the callable inside a descriptor, as a node."""
    make = functools.partial(_make_node, name, stage, profiler)
    return wrap_inside(function, make, "profile_node", "a callable or a name (a str)")


def _make_node(
    name: NodeName,
    stage: StageName,
    profiler: _core.Profiler | None,
    function: Any,
    default: str | None = None,
    kind: int | None = None,
) -> Any:
    chosen = default if name is None else name
    return make_function(_core.Function, function, chosen, stage, profiler, kind, inner=find_wrapped(function))


def wrap_as_record(function: Any, name: str, warm_up: bool) -> Any:
    """Wrap a callable, also inside a descriptor, as a ``record()`` label."""
    return wrap_inside(function, functools.partial(_make_record, name, warm_up), "record", "a callable")


def _make_record(name: str, warm_up: bool, function: Any, _: str | None = None, kind: int | None = None) -> Any:
    return make_function(_core.Function, function, name, kind=kind, records=True, mutes=warm_up)


def wrap_inside(
    function: Any, make: Callable[..., Any], decorator: str, expected: str, default: str | None = None
) -> Any:
    """Wrap a callable, also inside a descriptor, with a name by default."""
    if isinstance(function, type):
        raise TypeError(f"{decorator} cannot decorate a class, got {function!r}: decorate its methods")
    if isinstance(function, _core.Function):
        return make(function, default)
    for kind, rewrapped in _DESCRIPTORS:
        if isinstance(function, kind):
            keywords: Any = {"make": make, "decorator": decorator, "expected": expected, "default": default}
            return rewrapped(function, functools.partial(wrap_inside, **keywords))
    if not callable(function):
        raise TypeError(f"{decorator} expects {expected}, got {shown_value(function)}")
    maker = manager_maker(function)
    if maker is not None:
        node = make(function.__closure__[0].cell_contents, default or default_name(function), COROUTINE)
        return functools.update_wrapper(maker(node), function)
    if isinstance(function, FunctionType) and function.__name__ in ("__init_subclass__", "__class_getitem__"):
        return classmethod(make(function, default))  # as Python itself does, for plain functions only
    return make(function, default)


def make_function(
    type_: Callable[..., Any],
    function: Any,
    name: NodeName = None,
    stage: StageName = None,
    profiler: _core.Profiler | None = None,
    kind: int | None = None,
    **more: Any,
) -> Any:
    """Make a wrapper of a C type, with the kind and name that fit the callable."""
    kind = kind_of(function) if kind is None else kind
    default = default_name(function)
    made = type_(function, kind, name, default, stage, profiler, **more)
    code = getattr(_innermost(function), "__code__", None)
    key = default if name is None else name
    if not {"records", "binds"} & more.keys() and isinstance(key, str) and isinstance(code, CodeType):
        file = code.co_filename if code.co_filename.startswith(("<", os.sep)) else os.path.abspath(code.co_filename)
        source = f"{file}:{code.co_firstlineno}"
        if len(SOURCES) < _MOST_SOURCES or key in SOURCES:
            SOURCES[key] = source if SOURCES.get(key, source) == source else None
    return made


def _innermost(function: Any) -> Any:
    """Return the function that a callable ends up calling."""
    inner: Any = function
    for _ in range(100):  # as in find_wrapped
        if inner is None:
            break
        function = inner
        if isinstance(function, functools.partial):
            inner = function.func
        elif isinstance(function, MethodType):
            inner = function.__func__
        else:
            inner = getattr(function, "__wrapped__", None)
    method = getattr(type(function), "__call__", None)  # noqa: B004 the method itself is asked for
    return method if type(method) is FunctionType else function


def _rewrapped_cached_property(descriptor: Any, rewrap: Callable[..., Any]) -> Any:
    made = functools.cached_property(rewrap(descriptor.func))
    if descriptor.attrname is not None:
        made.__set_name__(object, descriptor.attrname)
    return made


def _rewrapped_dispatch(descriptor: Any, rewrap: Callable[..., Any]) -> Any:
    """Wrap each implementation at its first call, as more may be registered."""
    made, original = type(descriptor)(descriptor.func), descriptor.dispatcher
    name = default_name(descriptor.func)
    nodes: dict[int, tuple[Any, Any]] = {}  # by the identity of the implementation, which is kept

    def dispatch(cls: type) -> Any:
        method = original.dispatch(cls)
        if id(method) not in nodes:
            nodes[id(method)] = method, rewrap(method, default=name)
        return nodes[id(method)][1]

    made.dispatcher = SimpleNamespace(dispatch=dispatch, register=original.register, registry=original.registry)
    return made


_DESCRIPTORS: tuple[tuple[Any, Callable[..., Any]], ...] = (
    ((staticmethod, classmethod), lambda of, rewrap: type(of)(rewrap(of.__func__))),
    (property, lambda of, rewrap: of.getter(rewrap(of.fget))),
    (functools.cached_property, _rewrapped_cached_property),
    (functools.partialmethod, lambda of, rewrap: functools.partialmethod(rewrap(of.func), *of.args, **of.keywords)),
    (functools.singledispatchmethod, _rewrapped_dispatch),
)


def manager_maker(function: Any) -> Any:
    """Return contextlib's decorator that made the function, or None."""
    return _MANAGER_MAKERS.get(function.__code__) if type(function) is FunctionType else None


def first_parameter(function: Any) -> str | None:
    """Return the name of the first parameter, None if positional-only."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except (TypeError, ValueError):
        return None
    return first.name if first is not None and first.kind in (first.POSITIONAL_OR_KEYWORD, first.KEYWORD_ONLY) else None


def _may_break_the_graph() -> bool | None:
    """Return whether ``torch.compile`` may break a graph, None if not tracing."""
    compiler = sys.modules.get("torch._dynamo.symbolic_convert")
    try:
        tracer = compiler.InstructionTranslator.current_tx()  # type: ignore[union-attr]
    except AttributeError:
        return None
    return not (tracer.one_graph or getattr(tracer, "error_on_graph_break", False))


def marks_of(function: Any) -> dict[str, Any]:
    """Return attributes that steer ``torch.compile`` around a wrapper."""
    if _may_break_the_graph() is False:
        return {"_torchdynamo_inline": stand_in(function)}
    return {"_torchdynamo_disable": True, "_torchdynamo_disable_msg": "cprofiling counts its calls"}


def stand_in(function: Any) -> FunctionType:
    """Make the Python function that ``torch.compile`` traces."""
    if _may_break_the_graph():
        raise AttributeError("_torchdynamo_inline")

    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821 a global of the function made below

    return FunctionType(call.__code__, {"__builtins__": builtins, "wrapped": function}, call.__name__)


def default_name(function: Any) -> str:
    """Return ``__qualname__`` after the last ``<locals>.``, or the type's."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        name = type(function).__qualname__
    return name.rpartition("<locals>.")[2]


def kind_of(function: Any) -> int:
    """Return the kind of result that calling the callable gives."""
    if not inspect.isroutine(function) and not isinstance(function, (functools.partial, _core.Function)):
        function = getattr(type(function), "__call__", function)  # noqa: B004 the method itself is asked for
    if inspect.isasyncgenfunction(function):
        return ASYNC_GENERATOR
    if inspect.iscoroutinefunction(function):
        return COROUTINE
    if inspect.isgeneratorfunction(function):
        while isinstance(function, (functools.partial, MethodType)):
            function = function.func if isinstance(function, functools.partial) else function.__func__
        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        return COROUTINE if flags & inspect.CO_ITERABLE_COROUTINE else GENERATOR
    return CALL


async def awaiting(awaitable: Any) -> Any:
    """Await a result of a function marked as a coroutine function."""
    return await awaitable


def find_wrapped(function: Any) -> _core.Function | None:
    """Return the node that the callable ends up calling, to count it once."""
    for _ in range(100):  # a chain of wrappers may be circular by mistake
        if isinstance(function, _core.Function):
            return function
        if isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        else:
            wrapped = getattr(function, "__wrapped__", None)
            of_class = getattr(type(function), "__call__", None)  # noqa: B004 the method itself is asked for
            function = of_class if wrapped is None and isinstance(of_class, _core.Function) else wrapped
        if function is None:
            break
    return None


def cloudpickle_rule() -> Callable[[Any], bool] | None:
    """Return cloudpickle's by-name test if it is reducing the caller, or None."""
    frame = sys._getframe(2)  # noqa: SLF001 no other way
    rule: Callable[[Any], bool] | None = frame.f_globals.get("_should_pickle_by_reference")
    return rule if frame.f_code.co_name == "dump" else None


def reduced(node: _core.Function) -> Any:
    """Reduce a node to its name, or to its parts for cloudpickle."""
    goes_by_name = cloudpickle_rule()
    name = getattr(node, "__qualname__", None)
    if name is not None and (goes_by_name is None or (isinstance(node, FunctionType) and goes_by_name(node))):
        return name
    return _core.Function, node._parts(), getattr(node, "__wrapped__", None)  # noqa: SLF001 the package's own


def itself(value: Any) -> Any:
    """Return the value; pickles of wrappers name this function."""
    return value


# By the code of what each of them makes.
_MANAGER_MAKERS: dict[Any, Any] = {
    maker(itself).__code__: maker for maker in (contextlib.contextmanager, contextlib.asynccontextmanager)
}
