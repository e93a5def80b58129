"""Make nodes of functions, methods and blocks.

The hot path is in ``csrc/calls/``: ``function_type.c`` (calls) and ``block_type.c`` (blocks). This module decides, once
per decoration, the kind of callable and its node name.
"""

from __future__ import annotations

import builtins
import contextlib
import copyreg
import functools
import inspect
import sys
from _thread import RLock
from types import FunctionType, MethodType, SimpleNamespace
from typing import TYPE_CHECKING, overload

from cprofiling import _core
from cprofiling._internal.text import shown_value

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum
    from typing import Any, TypeVar

    F = TypeVar("F")
    NodeName = str | Callable[[Any], str] | None
    StageName = str | Enum | None

_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # of type.__flags__: Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_IMMUTABLETYPE

_instrumenting = RLock()  # guards the switches in classes; held while nothing of the user's runs but attribute access

CALL, GENERATOR, COROUTINE, ASYNC_GENERATOR = range(4)  # as in csrc/calls/function.h


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
    as an error, and the exception passes through untouched.

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
    return _make(_core.Function, function, chosen, stage, profiler, kind, inner=_find_wrapped(function))


def wrap_as_record(function: Any, name: str, warm_up: bool) -> Any:
    """Wrap a callable, also inside a descriptor, as a ``record()`` label."""
    return wrap_inside(function, functools.partial(_make_record, name, warm_up), "record", "a callable")


def _make_record(name: str, warm_up: bool, function: Any, _: str | None = None, kind: int | None = None) -> Any:
    return _make(_core.Function, function, name, kind=kind, records=True, mutes=warm_up)


def bind_class(cls: type) -> bool:
    """Wrap forward and __call__ to own the calls inside, if there are any."""
    has_changed = has_forward = False
    for attribute in ("forward", "__call__"):
        for owner in cls.__mro__:
            if attribute in vars(owner):
                break
        method = vars(owner).get(attribute)
        if has_forward and owner is not cls:
            break
        has_forward = method is not None
        if not callable(method) or isinstance(method, type) or _binds(method):
            continue
        if owner is not cls:
            method = _core.Inherited(cls, attribute, method)
        _set_in_class(cls, attribute, _make(_core.Function, method, binds=True))
        has_changed = True
    return has_changed


def bind_pipeline(pipeline: object) -> bool:
    """Apply ``bind_class`` to a pipeline's class, and to its own forward."""
    has_changed = bind_class(type(pipeline))
    own = _own(pipeline)
    method: Any = own.get("forward")
    if isinstance(method, OwnMethod) and _binds(method) and method.profiler is not _core.profiler_of(pipeline):
        own["forward"] = method = method.__wrapped__  # a shallow copy has that of its original
    if not callable(method) or isinstance(method, type) or _binds(method):
        return has_changed
    surround(pipeline, "forward", _itself)
    return True


def _binds(method: Any) -> bool:
    while isinstance(method, _core.Function) and not method._binds:  # noqa: SLF001 the package's own
        method = getattr(method, "__wrapped__", None)
    return isinstance(method, _core.Function)


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
    maker = _manager_maker(function)
    if maker is not None:
        node = make(function.__closure__[0].cell_contents, default or default_name(function), COROUTINE)
        return functools.update_wrapper(maker(node), function)
    if isinstance(function, FunctionType) and function.__name__ in ("__init_subclass__", "__class_getitem__"):
        return classmethod(make(function, default))  # as Python itself does, for plain functions only
    return make(function, default)


def _make(
    type_: Callable[..., Any],
    function: Any,
    name: NodeName = None,
    stage: StageName = None,
    profiler: _core.Profiler | None = None,
    kind: int | None = None,
    **more: Any,
) -> Any:
    kind = kind_of(function) if kind is None else kind
    return type_(function, kind, name, default_name(function), stage, profiler, **more)


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


def _manager_maker(function: Any) -> Any:
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


def _find_wrapped(function: Any) -> _core.Function | None:
    """Return the node that the callable ends up calling, to count it once."""
    for _ in range(100):  # a chain of wrappers may be circular by mistake
        if isinstance(function, _core.Function):
            return function
        if isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        else:
            function = getattr(function, "__wrapped__", None)
        if function is None:
            break
    return None


def cloudpickle_rule() -> Callable[[Any], bool] | None:
    """Return cloudpickle's by-name test if it is reducing the caller, or None."""
    frame = sys._getframe(2)  # noqa: SLF001 no other way
    rule: Callable[[Any], bool] | None = frame.f_globals.get("_should_pickle_by_reference")
    return rule if frame.f_code.co_name == "dump" else None


def _reduced(node: _core.Function) -> Any:
    """Reduce a node to its name, or to its parts for cloudpickle."""
    goes_by_name = cloudpickle_rule()
    name = getattr(node, "__qualname__", None)
    if name is not None and (goes_by_name is None or (isinstance(node, FunctionType) and goes_by_name(node))):
        return name
    return _core.Function, node._parts(), getattr(node, "__wrapped__", None)  # noqa: SLF001 the package's own


def _what_was_found(switch: _core.MethodSwitch) -> tuple[Any, ...]:
    return _itself, (switch.found,)


copyreg.pickle(_core.Function, _reduced)
copyreg.pickle(_core.ObjectFunction, _reduced)
copyreg.pickle(_core.MethodSwitch, _what_was_found)  # copies of a class have no instrumented instances


class Instrumentation:
    """Handle of ``instrument`` that restores the method by ``remove()``."""

    __slots__ = ("__weakref__", "_attribute", "_owner", "wrapper")

    def __init__(self, owner: object, attribute: str) -> None:
        self._owner: object | None = owner
        self._attribute = attribute
        self.wrapper: _core.Function | None = None

    def remove(self) -> None:
        """Restore the original, once, unless the attribute was assigned anew."""
        owner, self._owner = self._owner, None
        wrapper, self.wrapper = self.wrapper, None
        if owner is None or wrapper is None:
            return
        wrapper.detach()
        below: Any = wrapper
        lowest: Any = wrapper
        with _instrumenting:
            while isinstance(below, _core.Function) and below.detached:
                below = below.__wrapped__
            own = _own(owner)
            if own.get(self._attribute) is not wrapper:
                _restore_inherited(owner, self._attribute, wrapper, below)
                return
            while isinstance(lowest.__wrapped__, OwnMethod):
                lowest = lowest.__wrapped__
            if below is lowest.__wrapped__ and not lowest.was_own:
                del own[self._attribute]
            else:
                own[self._attribute] = below

    def __enter__(self) -> Instrumentation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        state = "removed" if self._owner is None else f"of {type(self._owner).__qualname__}"
        return f"<instrumentation {self._attribute} {state}>"


class OwnMethod(_core.Function):
    """Wrapper of a callable in an object's ``__dict__``, copied along with it."""

    __slots__ = ("was_own",)

    was_own: bool  # whether the callable was in the ``__dict__`` before

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy or pickle the original callable."""
        return _itself, (self.__wrapped__,)


def _itself(value: Any) -> Any:
    return value


# By the code of what each of them makes.
_MANAGER_MAKERS: dict[Any, Any] = {
    maker(_itself).__code__: maker for maker in (contextlib.contextmanager, contextlib.asynccontextmanager)
}


def _own(obj: object) -> dict[str, Any]:
    own = getattr(obj, "__dict__", None)
    return own if isinstance(own, dict) else {}


def _restore_inherited(owner: object, attribute: str, wrapper: _core.Function, below: Any) -> None:
    cls = type(owner)
    switch = cls.__dict__.get(attribute)
    if not isinstance(switch, _core.MethodSwitch) or switch.of(owner) is not wrapper:
        return
    if isinstance(below, _core.Function) and below is not switch.found:
        switch.put(owner, below, _gets_the_object(switch.found))
        return
    switch.drop(owner)
    if len(switch):
        return
    if switch.own:
        _set_in_class(cls, attribute, switch.found)
    else:
        _change_class(type.__delattr__, delattr, cls, attribute)


def _set_in_class(cls: type, attribute: str, value: object) -> None:
    _change_class(type.__setattr__, setattr, cls, attribute, value)


def _change_class(change: Callable[..., None], change_as_told: Callable[..., None], *arguments: Any) -> None:
    """Change a class past its metaclass, or through it for classes in C."""
    try:
        change(*arguments)
    except TypeError:
        change_as_told(*arguments)


def instrument(
    obj: object,
    attr: str,
    *,
    name: NodeName = None,
    stage: StageName = None,
    profiler: _core.Profiler | None = None,
) -> Instrumentation:
    """Count calls of one object's method, leaving other instances alone.

    obj: any object that takes weak references, for instance a model or filter that somebody else wrote.
    attr: the name of the method; no special method, as Python looks these up on the class (wrap the object by
        ``profile_node("name")(obj)`` to count its ``__call__``).
    name: the node's name, or a callable of the object; default: the method's ``__qualname__``.
    stage, profiler: as for ``profile_node``.

    Copies and pickles of the object are not instrumented. Returns a handle; its ``remove()`` puts the method back.

    A method of the class is found through a descriptor that stands in the class until the last handle is removed, and
    that gives all other instances what they had; a callable that the object holds itself is replaced in its
    ``__dict__``, as are methods of classes that cannot be changed.

    Raises TypeError when the attribute is not callable, special, or cannot be replaced on this object; AttributeError
    when there is none; and for name, stage and profiler as ``profile_node`` does.
    """
    if not isinstance(attr, str):
        raise TypeError(f"attr must be a str, got {shown_value(attr)}")
    if attr.startswith("__") and attr.endswith("__"):
        raise TypeError(f"attr must not be a special method, got {attr!r}: Python looks it up on the class")
    if isinstance(obj, type):
        raise TypeError(
            f"obj must be an instance, got the class {obj.__qualname__}: give one of its instances, or decorate its "
            "method with profile_node"
        )
    original = getattr(obj, attr)
    if not callable(original) or isinstance(original, type):
        raise TypeError(f"attr must name a method, got {attr!r}, which is {type(original).__name__}")
    if name is not None and not isinstance(name, str) and callable(name):
        name = name(obj)
    if name is None and default_name(original).startswith("pybind11_"):  # it says what pybind11 keeps functions in
        name = f"{type(obj).__qualname__}.{attr}"
    if _manager_maker(getattr(original, "__func__", original)) is not None:
        return surround(obj, attr, functools.partial(wrap, name=name, stage=stage, profiler=profiler))
    return _replace(obj, attr, original, {"name": name, "stage": stage, "profiler": profiler})


def surround(obj: object, attr: str, make: Callable[[Any], Any]) -> Instrumentation:
    """Replace one object's method by ``make(method)``, without making a node.

    Unlike with ``instrument``, the method may be a special one of a class that can be changed. ``make`` gets the
    original callable and returns one with the same arguments, usually the object first. The result must not refer to
    the object, or it would live for ever.
    """
    return _replace(obj, attr, getattr(obj, attr), {"profiler": None, "binds": True}, make)


def _replace(
    obj: object, attr: str, original: Any, settings: dict[str, Any], make: Callable[[Any], Any] = _itself
) -> Instrumentation:
    cls = type(obj)
    found = inspect.getattr_static(cls, attr, None)
    if inspect.isdatadescriptor(found):
        raise TypeError(f"attr must name a method, got {attr!r}, which is a {type(found).__name__}")
    # Classes in C cannot be changed, nor can instances be told apart without weak references.
    can_change = cls.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE and cls.__weakrefoffset__ != 0
    with _instrumenting:
        handle = Instrumentation(obj, attr)  # first: without memory for it nothing may be changed
        if attr in _own(obj) or found is None or not can_change:
            handle.wrapper = _wrap_own(obj, attr, original, settings, make)
        else:
            handle.wrapper = _wrap_inherited(obj, attr, original, settings, make)
    return handle


def _wrap_own(
    obj: object, attr: str, original: Any, settings: dict[str, Any], make: Callable[[Any], Any]
) -> _core.Function:
    """Put a wrapper into the object's ``__dict__``, called without the object."""
    own = getattr(obj, "__dict__", None)
    if not isinstance(own, dict):
        raise TypeError(f"obj must allow {attr!r} to be replaced, got {shown_value(obj)}")
    settings["profiler"] = settings["profiler"] or _core.profiler_of(obj)
    made = make(original)
    wrapper: OwnMethod = _make(OwnMethod, made, inner=_find_wrapped(made), **settings)
    wrapper.__wrapped__ = original
    wrapper.was_own = attr in own
    own[attr] = wrapper
    return wrapper


def _wrap_inherited(
    obj: object, attr: str, original: Any, settings: dict[str, Any], make: Callable[[Any], Any]
) -> _core.Function:
    """Give the object a wrapper of its own for a method of its class."""
    cls = type(obj)
    switch = cls.__dict__.get(attr)
    if not isinstance(switch, _core.MethodSwitch):
        found = inspect.getattr_static(cls, attr)
        found = found.found if isinstance(found, _core.MethodSwitch) else found
        is_own = attr in cls.__dict__
        switch = _core.MethodSwitch(found if is_own else _core.Inherited(cls, attr, found), is_own)
    binds = _gets_the_object(switch.found)
    if not binds:
        settings["profiler"] = settings["profiler"] or _core.profiler_of(obj)
    below = switch.of(obj) or (_unbound(switch.found, original) if binds else original)
    made = make(below)
    wrapper: _core.Function = _make(_core.Function, made, inner=_find_wrapped(made), **settings)
    wrapper.__wrapped__ = below
    switch.put(obj, wrapper, binds)
    try:
        _set_in_class(cls, attr, switch)
    except Exception as error:
        switch.drop(obj)
        if isinstance(error, MemoryError):
            raise
        reason = f"attr must name a method that its class lets be replaced, got {attr!r} of {shown_value(obj)}: {error}"
        raise TypeError(f"{reason}; use profile_node where it is called") from None
    return wrapper


def _gets_the_object(found: Any) -> bool:
    """Return whether a class attribute is called with the object first."""
    return hasattr(type(found), "__get__") and not isinstance(found, (staticmethod, classmethod))


def _unbound(found: Any, original: Any) -> Any:
    """Return a callable that takes the object first."""
    if isinstance(found, (FunctionType, _core.Function, _core.Inherited)):
        return found

    def call(instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        return found.__get__(instance, type(instance))(*args, **kwargs)

    return functools.update_wrapper(call, getattr(original, "__func__", original))
