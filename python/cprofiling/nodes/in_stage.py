"""Functions that run in a stage, which is ``stage`` as a decorator."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from cprofiling.nodes.decorators import (
    ASYNC_GENERATOR,
    CALL,
    COROUTINE,
    GENERATOR,
    awaiting,
    default_name,
    kind_of,
    wrap_inside,
)

if TYPE_CHECKING:
    from cprofiling import _core

_METHOD_DESCRIPTOR = 1 << 17  # of type.__flags__, Py_TPFLAGS_METHOD_DESCRIPTOR: binds as functions do


def wrap_in_stage(function: Any, stage: _core.stage) -> Any:
    """Wrap a callable, also inside a descriptor, to run in the stage."""

    def make(function: Any, default: str | None = None, kind: int | None = None) -> Any:  # noqa: ARG001 nodes need it
        call = _MAKERS[kind_of(function)](function, stage)
        call.__qualname__ = default or default_name(function)
        functools.update_wrapper(call, function)
        if type(function).__flags__ & _METHOD_DESCRIPTOR:
            return call
        wrapper: Any = functools.update_wrapper(_BindingAlike(call), call)
        wrapper._rewrap = make  # noqa: SLF001 its own
        return wrapper

    return wrap_inside(function, make, "stage", "a callable")


class _BindingAlike(functools.partial):  # type: ignore[type-arg]
    """Wrapper that binds as its callable does, also not at all."""

    _rewrap: Any

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        function = self.func.__wrapped__  # type: ignore[attr-defined]
        get = getattr(type(function), "__get__", None)
        bound = function if get is None else get(function, instance, owner)
        return self if bound is function else self._rewrap(bound) if callable(bound) else bound


def _function(function: Any, stage: _core.stage) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        with stage:
            return function(*args, **kwargs)

    return call


def _generator(function: Any, stage: _core.stage) -> Any:
    def generate(*args: Any, **kwargs: Any) -> Any:
        return (yield from _resumed(stage, function(*args, **kwargs)))

    return generate


def _coroutine(function: Any, stage: _core.stage) -> Any:
    async def wait(*args: Any, **kwargs: Any) -> Any:
        with stage:
            made = function(*args, **kwargs)
        return await _resumed(stage, made if hasattr(made, "send") else awaiting(made))

    return wait


def _async_generator(function: Any, stage: _core.stage) -> Any:
    async def iterate(*args: Any, **kwargs: Any) -> Any:
        inner = function(*args, **kwargs)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)  # the outer one has them
        try:
            step = inner.__anext__()
        finally:
            sys.set_asyncgen_hooks(*hooks)
        while True:
            try:
                value = await _resumed(stage, step)
            except StopAsyncIteration:
                return
            try:
                step = inner.asend((yield value))
            except GeneratorExit:
                await _resumed(stage, inner.aclose())
                raise
            except BaseException as error:  # noqa: BLE001 it is the inner one's to handle
                step = inner.athrow(error)

    return iterate


_MAKERS = {CALL: _function, GENERATOR: _generator, COROUTINE: _coroutine, ASYNC_GENERATOR: _async_generator}


@types.coroutine
def _resumed(stage: _core.stage, inner: Any) -> Generator[Any, Any, Any]:
    """Run a generator or coroutine in the stage, left while suspended."""
    resume, argument = inner.send, None
    while True:
        try:
            with stage:
                value = resume(argument)
        except StopIteration as stop:
            return stop.value
        try:
            argument = yield value
            resume = inner.send
        except GeneratorExit:
            with stage:
                inner.close()
            raise
        except BaseException as error:  # noqa: BLE001 as above
            resume, argument = inner.throw, error
