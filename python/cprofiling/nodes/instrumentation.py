"""Count or surround the methods of single objects, and of pipelines.

A method of a class is found through a ``MethodSwitch`` that stands in the class while any instance has a wrapper, and
gives all other instances what they had. An attribute of the object itself is replaced in its ``__dict__``.
"""

from __future__ import annotations

import functools
import inspect
from _thread import RLock
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, SupportsIndex

from cprofiling import _core
from cprofiling._internal.process import hold_at_fork
from cprofiling._internal.text import shown_value
from cprofiling.nodes.decorators import (
    NodeName,
    StageName,
    default_name,
    find_wrapped,
    itself,
    make_function,
    manager_maker,
    wrap,
)

_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # of type.__flags__: Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_IMMUTABLETYPE

_instrumenting = RLock()  # guards the switches in classes; held while nothing of the user's runs but attribute access
hold_at_fork(_instrumenting)


class OwnMethod(_core.Function):
    """Wrapper of a callable in an object's ``__dict__``, copied along with it."""

    __slots__ = ("was_own",)

    was_own: bool  # whether the callable was in the ``__dict__`` before

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        """Copy or pickle the original callable."""
        return itself, (self.__wrapped__,)


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
        with _instrumenting:
            while isinstance(below, _core.Function) and below.detached:
                below = below.__wrapped__
            if not isinstance(wrapper, OwnMethod):
                _restore_inherited(owner, self._attribute, wrapper, below)
                return
            own = _own(owner, self._attribute)
            current: Any = own.get(self._attribute)
            if current is wrapper:
                if wrapper.was_own or isinstance(below, OwnMethod):
                    own[self._attribute] = below
                else:
                    del own[self._attribute]

    def __enter__(self) -> Instrumentation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        state = "removed" if self._owner is None else f"of {type(self._owner).__qualname__}"
        return f"<instrumentation {self._attribute} {state}>"


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
    if manager_maker(getattr(original, "__func__", original)) is not None:
        return surround(obj, attr, functools.partial(wrap, name=name, stage=stage, profiler=profiler))
    return _replace(obj, attr, original, name=name, stage=stage, profiler=profiler)


def surround(obj: object, attr: str, make: Callable[[Any], Any]) -> Instrumentation:
    """Replace one object's method by ``make(method)``, without making a node.

    Unlike with ``instrument``, the method may be a special one of a class that can be changed. ``make`` gets the
    original callable and returns one with the same arguments, usually the object first. The result must not refer to
    the object, or it would live for ever.
    """
    return _replace(obj, attr, getattr(obj, attr), make, binds=True)


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
        _change_class(cls, attribute, make_function(_core.Function, method, binds=True))
        has_changed = True
    return has_changed


def bind_pipeline(pipeline: object) -> bool:
    """Apply ``bind_class`` to a pipeline's class, and to its own forward."""
    has_changed = bind_class(type(pipeline))
    own = _own(pipeline, "forward")
    method: Any = own.get("forward")
    if isinstance(method, OwnMethod) and _binds(method) and method.profiler is not _core.profiler_of(pipeline):
        own["forward"] = method = method.__wrapped__  # a shallow copy has that of its original
    if not callable(method) or isinstance(method, type) or _binds(method):
        return has_changed
    surround(pipeline, "forward", itself)
    return True


def _binds(method: Any) -> bool:
    while isinstance(method, _core.Function) and not method._binds:  # noqa: SLF001 the package's own
        method = getattr(method, "__wrapped__", None)
    return isinstance(method, _core.Function)


def _replace(
    obj: object,
    attr: str,
    original: Any,
    make: Callable[[Any], Any] = itself,
    profiler: _core.Profiler | None = None,
    **settings: Any,
) -> Instrumentation:
    """Give the object a wrapper of ``make(method)``, in its ``__dict__`` or by a switch in its class."""
    cls = type(obj)
    own: Any = _own(obj, attr)
    found = inspect.getattr_static(cls, attr, None)
    if inspect.isdatadescriptor(found):
        raise TypeError(f"attr must name a method, got {attr!r}, which is a {type(found).__name__}")
    # Classes in C cannot be changed, nor can instances be told apart without weak references.
    can_change = cls.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE and cls.__weakrefoffset__ != 0
    with _instrumenting:
        handle = Instrumentation(obj, attr)  # first: without memory for it nothing may be changed
        if attr in own or found is None or not can_change:
            own = getattr(obj, "__dict__", None)
            if not isinstance(own, dict):
                raise TypeError(f"obj must allow {attr!r} to be replaced, got {shown_value(obj)}")
            made = make(original)
            profiler = profiler or _core.profiler_of(obj)
            method: OwnMethod = make_function(OwnMethod, made, profiler=profiler, inner=find_wrapped(made), **settings)
            method.__wrapped__ = original
            before = own.get(attr)
            method.was_own = before.was_own if isinstance(before, OwnMethod) else attr in own
            own[attr] = handle.wrapper = method
            return handle
        switch = cls.__dict__.get(attr)
        if not isinstance(switch, _core.MethodSwitch):
            found = found.found if isinstance(found, _core.MethodSwitch) else found
            is_own = attr in cls.__dict__
            switch = _core.MethodSwitch(found if is_own else _core.Inherited(cls, attr, found), is_own)
        takes_object = _takes_object(switch.found)
        below = switch.of(obj) or (_unbound(switch.found, original) if takes_object else original)
        made = make(below)
        if not takes_object:
            profiler = profiler or _core.profiler_of(obj)
        wrapper = make_function(_core.Function, made, profiler=profiler, inner=find_wrapped(made), **settings)
        wrapper.__wrapped__ = below
        switch.put(obj, wrapper, takes_object)
        try:
            _change_class(cls, attr, switch)
        except Exception as error:
            switch.drop(obj)
            if isinstance(error, MemoryError):
                raise
            raise TypeError(
                f"attr must name a method that its class lets be replaced, got {attr!r} of {shown_value(obj)}: "
                f"{error}; use profile_node where it is called"
            ) from None
        handle.wrapper = wrapper
    return handle


def _restore_inherited(owner: object, attribute: str, wrapper: _core.Function, below: Any) -> None:
    cls = type(owner)
    switch = cls.__dict__.get(attribute)
    if not isinstance(switch, _core.MethodSwitch) or switch.of(owner) is not wrapper:
        return
    if isinstance(below, _core.Function) and below is not switch.found:
        switch.put(owner, below, _takes_object(switch.found))
        return
    switch.drop(owner)
    if not len(switch):
        _change_class(cls, attribute, *([switch.found] if switch.own else []))


def _change_class(cls: type, attribute: str, *value: object) -> None:
    """Set or delete an attribute past the metaclass, or through it in C."""
    try:
        (type.__setattr__ if value else type.__delattr__)(cls, attribute, *value)
    except TypeError:
        (setattr if value else delattr)(cls, attribute, *value)


def _own(obj: object, attr: str) -> dict[str, Any]:
    """Return the object's ``__dict__`` if it may hold the attribute, else an empty one.

    Once it was read, CPython 3.11 and 3.12 make method calls of the object less fast. A class makes a new method each
    time, while the object's own stays the same.
    """
    found = inspect.getattr_static(type(obj), attr, None)
    while isinstance(found, (_core.Function, _core.Inherited, _core.MethodSwitch)):
        found = found.found if isinstance(found, _core.MethodSwitch) else getattr(found, "__wrapped__", obj)
    if found is None or isinstance(found, FunctionType):  # other descriptors may run code of the user's
        try:
            method = object.__getattribute__(obj, attr)
        except Exception:  # noqa: BLE001 of the class, as an attribute of the object's own raises nothing
            return {}
        if isinstance(method, MethodType) and method is not object.__getattribute__(obj, attr):
            return {}
    own = getattr(obj, "__dict__", None)
    return own if isinstance(own, dict) else {}


def _takes_object(found: Any) -> bool:
    """Return whether a class attribute is called with the object first."""
    return hasattr(type(found), "__get__") and not isinstance(found, (staticmethod, classmethod))


def _unbound(found: Any, original: Any) -> Any:
    """Return a callable that takes the object first."""
    if isinstance(found, (FunctionType, _core.Function, _core.Inherited)):
        return found

    def call(instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        return found.__get__(instance, type(instance))(*args, **kwargs)

    return functools.update_wrapper(call, getattr(original, "__func__", original))
