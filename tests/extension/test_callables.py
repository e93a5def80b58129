"""What a wrapped callable looks like, and every kind of callable and descriptor (failure scenarios F9 to F11, F13)."""

# Nodes are made of lambdas here, which have no types.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import abc
import asyncio
import copy
import doctest
import functools
import gc
import inspect
import pickle
import sys
import time
import types
import typing
import weakref
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import Any
from unittest import mock

import pytest

import cprofiling as cp
from calls import counts, outcomes, profiler_on, stages

pytestmark = pytest.mark.native


class Outer:
    """Has a class inside, with methods."""

    class Inner:
        def method(self) -> str:
            return "method"


def module_function() -> None:
    """Do nothing."""


def local_function() -> Any:
    def inside() -> None:
        pass

    return inside


# ---- what the wrapper looks like -----------------------------------------------------------------


def plain(a: int, b: str = "x", *args: float, c: bool, **kwargs: bytes) -> list[int]:
    """Document plain."""
    return [a]


async def coroutine(a: int) -> int:
    """Document coroutine."""
    return a


def generator(a: int) -> Generator[int, str, bool]:
    """Document generator."""
    yield a
    return True


async def async_generator(a: int) -> AsyncGenerator[int, None]:
    """Document async_generator."""
    yield a


FUNCTIONS: list[Any] = [
    plain, coroutine, generator, async_generator, module_function, Outer.Inner.method, lambda x: x, time.sleep, len,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_introspection_is_as_undecorated(p: cp.Profiler, function: Any) -> None:
    """F10: also for what a third party's functools.wraps copies."""
    node = p.profile_node("named otherwise")(function)
    for question in (
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
        inspect.unwrap,
        inspect.getdoc,
        inspect.getmodule,
        inspect.isroutine,
        callable,
    ):
        assert question(node) == question(function), question
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        assert getattr(node, attribute) == getattr(function, attribute), attribute
    assert node.__wrapped__ is function
    for attribute in ("__defaults__", "__kwdefaults__", "__code__", "__annotations__", "__globals__"):
        assert getattr(node, attribute, None) == getattr(function, attribute, None), attribute
    wrapper = functools.wraps(node)(lambda: None)
    assert (wrapper.__name__, wrapper.__doc__) == (function.__name__, function.__doc__)
    assert inspect.unwrap(wrapper) is inspect.unwrap(function)
    try:
        signature: Any = inspect.signature(function)
    except ValueError:
        return
    assert inspect.signature(node) == signature


@pytest.mark.parametrize("kind", ["coroutine", "generator", "async_generator", "plain"])
@pytest.mark.parametrize(
    "form", ["function", "method", "bound method", "static", "class", "partial", "callable object"]
)
def test_kind_of_every_form_is_as_undecorated(p: cp.Profiler, kind: str, form: str) -> None:
    kinds: Any = {"coroutine": coroutine, "generator": generator, "async_generator": async_generator, "plain": plain}
    function = kinds[kind]

    def make(decorate: Any) -> Any:
        if form == "function":
            return decorate(function)
        if form == "partial":
            return decorate(functools.partial(function, 1))
        wrap = {"static": staticmethod, "class": classmethod}.get(form, lambda f: f)
        name = "__call__" if form == "callable object" else "method"
        cls: Any = type("Cls", (), {name: decorate(wrap(function))})
        return cls.method if form == "method" else cls().__call__ if name == "__call__" else cls().method

    node, original = make(p.profile_node), make(lambda f: f)
    for question in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        assert question(node) == question(original), question
    assert inspect.signature(node) == inspect.signature(original)


def test_type_hints_source_and_doctest_are_as_undecorated(p: cp.Profiler) -> None:
    node = p.profile_node(plain)
    assert typing.get_type_hints(node) == typing.get_type_hints(plain)
    assert inspect.getsource(node) == inspect.getsource(plain)
    tests = [test for test in doctest.DocTestFinder().find(sys.modules[__name__]) if test.examples]
    assert [(test.name.rpartition(".")[2], len(test.examples)) for test in tests] == [("by_reference", 1)]


def test_attributes_are_those_of_the_function(p: cp.Profiler) -> None:
    def f(a: int, b: int = 2, *, c: int = 3) -> tuple[int, int, int]:
        """Document f."""
        return a, b, c

    f.mark = "before"  # type: ignore[attr-defined]
    node: Any = p.profile_node(p.profile_node("inner")(f))
    assert (node.mark, node(1)) == ("before", (1, 2, 3))
    f.mark = "after"  # type: ignore[attr-defined]
    node.own = 1
    assert (node.mark, f.own, vars(node)) == ("after", 1, vars(f))  # type: ignore[attr-defined]
    del node.own
    with pytest.raises(AttributeError, match="own"):
        _ = node.own
    node.__defaults__ = (20,)
    node.__kwdefaults__ = {"c": 30}
    assert (node(1), f(1)) == ((1, 20, 30),) * 2
    del node.__defaults__
    with pytest.raises(TypeError, match="'b'"):
        node(1)
    for name, value in [
        ("__name__", "g"),
        ("__qualname__", "h.g"),
        ("__doc__", "Document g."),
        ("__module__", "elsewhere"),
        ("__annotations__", {"a": str}),
        ("__dict__", {"mark": "new"}),
    ]:
        setattr(node, name, value)
        assert (getattr(node, name), getattr(f, name)) == (value, value)
    assert node.mark == "new"
    with pytest.raises(AttributeError, match="readonly"):
        node.__globals__ = {}
    with pytest.raises(TypeError, match="__class__"):
        node.__class__ = int
    assert outcomes(p, "f")[:2] == (2, 1)


def test_another_wrapped_is_followed_until_it_is_deleted(p: cp.Profiler) -> None:
    """What decorators do to a function of their own: inspect shows what they put there."""
    node: Any = functools.wraps(plain)(p.profile_node(lambda *args, **kwargs: args))
    assert inspect.signature(node) == inspect.signature(plain)
    assert inspect.unwrap(node) is plain
    del node.__wrapped__
    assert list(inspect.signature(node).parameters) == ["args", "kwargs"]
    assert not hasattr(node, "__wrapped__")
    assert node(1) == (1,)


@pytest.mark.filterwarnings("ignore:Assigning a code object:DeprecationWarning")  # of Python 3.13, as the next
def test_another_code_makes_another_kind_of_it(p: cp.Profiler) -> None:
    """As tools do that load a module again."""
    node: Any = p.profile_node(name=lambda first: f"for {first}")(lambda x: x)
    codes: list[Any] = [generator, coroutine, async_generator, lambda y: y]
    assert node(x=1) == 1
    for function in codes:
        node.__code__ = function.__code__
        assert inspect.iscoroutinefunction(node) == inspect.iscoroutinefunction(function)
    assert node(y=2) == 2
    node.__code__ = generator.__code__
    assert len(list(node(a=3))) == 1
    assert counts(p) == {"for 1": 1, "for 2": 1, "for 3": 1}
    with pytest.raises(TypeError, match="code"):
        node.__code__ = None


def test_types_coroutine_marks_the_function(p: cp.Profiler) -> None:
    @types.coroutine
    @p.profile_node("node")
    def node() -> Generator[None, None, int]:
        yield
        return 5

    async def main() -> int:
        return await node()

    assert asyncio.run(main()) == 5
    assert outcomes(p, "node") == (1, 0, 0, 0, 0)


def test_a_cached_property_that_has_its_name_already(p: cp.Profiler) -> None:
    class Frame:
        @functools.cached_property
        def size(self) -> int:
            return 3

    Frame.size = p.profile_node(name="size")(Frame.__dict__["size"])  # type: ignore[method-assign]
    frame = Frame()
    assert (frame.size, frame.size) == (3, 3)
    assert counts(p) == {"size": 1}


def test_a_cache_below_or_above(p: cp.Profiler) -> None:
    below: Any = p.profile_node("below")(functools.lru_cache(lambda x: x * 2))
    above = functools.lru_cache(p.profile_node("above")(lambda x: x * 2))
    assert [below(2), below(2), above(2), above(2)] == [4, 4, 4, 4]
    assert (below.cache_info().hits, above.cache_info().hits) == (1, 1)
    below.cache_clear()
    assert counts(p) == {"below": 2, "above": 1}


def test_repr_names_the_function(p: cp.Profiler) -> None:
    assert "module_function" in repr(p.profile_node(module_function))
    assert "n\\x1b" in repr(p.profile_node("n\x1b"))


# ---- pickles, copies, weak references ------------------------------------------------------------

pickled = cp.profile_node("pickled")(lambda x: x + 1)
pickled.__qualname__ = pickled.__name__ = "pickled"


@cp.profile_node
def by_reference(x: int) -> int:
    """Add one.

    >>> by_reference(1)
    2
    """
    return x + 1


@cp.profile_node
async def coroutine_by_reference(x: int) -> int:
    return x + 1


class WithNodes:
    """Its methods are pickled by reference."""

    @cp.profile_node("a method's node")
    def method(self) -> str:
        return "method"

    @staticmethod
    @cp.profile_node
    def static() -> str:
        return "static"

    @cp.profile_node
    @classmethod
    def of_class(cls) -> str:
        return cls.__name__

    def __eq__(self, other: object) -> bool:
        return type(other) is WithNodes

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_by_reference(protocol: int) -> None:
    """F9."""
    for thing in (by_reference, coroutine_by_reference, pickled, WithNodes.method, WithNodes.static):
        assert pickle.loads(pickle.dumps(thing, protocol)) is thing
    assert pickle.loads(pickle.dumps(WithNodes().method, protocol))() == "method"
    assert pickle.loads(pickle.dumps(WithNodes.of_class, protocol))() == "WithNodes"
    assert pickle.loads(pickle.dumps(functools.partial(by_reference, 4), protocol))() == 5


def test_a_local_node_is_pickled_as_little_as_alocal_function(p: cp.Profiler) -> None:
    for local in (local_function(), p.profile_node(local_function())):
        with pytest.raises((AttributeError, pickle.PicklingError)):
            pickle.dumps(local)


def test_copies_are_the_node_itself(p: cp.Profiler) -> None:
    node = p.profile_node(local_function())
    assert copy.copy(node) is node
    assert copy.deepcopy(node) is node
    assert copy.deepcopy({"key": [node]}) == {"key": [node]}
    assert copy.deepcopy(WithNodes().method)() == "method"


def test_equality_and_hash_are_identity(p: cp.Profiler) -> None:
    one, two = p.profile_node(module_function), p.profile_node(module_function)
    assert one != two
    assert one != module_function
    assert len({one, two, module_function}) == 3
    instance = WithNodes()
    assert instance.method == instance.method
    assert hash(instance.method) == hash(instance.method)


def test_weak_references_to_nodes_and_blocks(p: cp.Profiler) -> None:
    """F13: nothing of ours keeps a node or its function alive; the figures stay."""

    def make() -> tuple[Any, Any]:
        def f() -> None:
            pass

        return f, p.profile_node("gone")(f)

    f, node = make()
    block = p.profile_node("block")
    node()
    with block:
        pass
    references = [weakref.ref(thing) for thing in (f, node, block)]
    assert [reference() for reference in references] == [f, node, block]
    del f, node, block
    assert [reference() for reference in references] == [None, None, None]
    assert counts(p) == {"gone": 1, "block": 1}


def test_a_cycle_through_a_node_is_collected(p: cp.Profiler) -> None:
    def make() -> weakref.ref[Any]:
        node: Any = p.profile_node(lambda: node)
        node()
        node.myself = node
        return weakref.ref(node)

    reference = make()
    gc.collect()
    assert reference() is None


def test_a_node_keeps_its_profiler_alive() -> None:
    p = profiler_on()
    node = p.profile_node("n")(str.upper)
    reference = weakref.ref(p)
    del p
    gc.collect()
    assert node("x") == "X"
    kept = reference()
    assert kept is not None
    assert counts(kept) == {"n": 1}


def test_calls_change_no_reference_count(p: cp.Profiler) -> None:
    argument = object()
    node = p.profile_node("n")(lambda x: x)
    block = p.profile_node("b")
    node(argument)
    before = [sys.getrefcount(thing) for thing in (argument, node, block, p)]
    for _ in range(1000):
        node(argument)
        with block:
            pass
    assert [sys.getrefcount(thing) for thing in (argument, node, block, p)] == before


# ---- descriptors and other callables (F11) -------------------------------------------------------


def test_methods_of_every_kind_in_either_order(p: cp.Profiler) -> None:
    class Things:
        @p.profile_node
        def method(self, x: int) -> tuple[Any, int]:
            return self, x

        @p.profile_node
        @classmethod
        def class_outside(cls, x: int) -> tuple[Any, int]:
            return cls, x

        @classmethod
        @p.profile_node
        def class_inside(cls, x: int) -> tuple[Any, int]:
            return cls, x

        @p.profile_node
        @staticmethod
        def static_outside(x: int) -> int:
            return x

        @staticmethod
        @p.profile_node
        def static_inside(x: int) -> int:
            return x

    things = Things()
    for _ in range(2):
        assert things.method(1) == (things, 1) == Things.method(things, x=1)
        assert things.class_outside(2) == (Things, 2) == Things.class_outside(2)
        assert things.class_inside(3) == (Things, 3) == Things.class_inside(3)
        assert things.static_outside(4) == 4 == Things.static_outside(4)
        assert things.static_inside(5) == 5 == Things.static_inside(5)
    names = ("method", "class_outside", "class_inside", "static_outside", "static_inside")
    assert counts(p) == {f"Things.{name}": 4 for name in names}


def test_properties_in_either_order(p: cp.Profiler) -> None:
    class Things:
        """A class with properties."""

        def __init__(self) -> None:
            self._value = 3

        @p.profile_node("outside")  # type: ignore[prop-decorator]
        @property
        def outside(self) -> int:
            """Document outside."""
            return self._value

        @outside.setter
        def outside(self, value: int) -> None:
            self._value = value

        @outside.deleter
        def outside(self) -> None:
            self._value = 0

        def _set(self, value: int) -> None:
            self._value = value

        whole = p.profile_node("whole")(property(lambda self: self._value, _set, None, "Document whole."))

        @property
        @p.profile_node("inside")
        def inside(self) -> int:
            """Document inside."""
            return self._value

        @p.profile_node("late")  # type: ignore[prop-decorator]
        @functools.cached_property
        def late(self) -> int:
            """Document late."""
            return self._value

        @functools.cached_property
        @p.profile_node("cached inside")
        def cached_inside(self) -> int:
            return self._value

    things: Any = Things()
    things.outside = 7
    things.whole = 8
    assert things.whole == 8
    assert (things.outside, things.inside, things.late, things.late, things.cached_inside) == (8, 8, 8, 8, 8)
    assert things.cached_inside == 8
    del things.outside
    assert (things.outside, things.late) == (0, 8)
    assert [getattr(Things, name).__doc__ for name in ("outside", "inside", "late", "whole")] == [
        "Document outside.", "Document inside.", "Document late.", "Document whole.",
    ]  # fmt: skip
    assert counts(p) == {"whole": 1, "outside": 2, "inside": 1, "late": 1, "cached inside": 1}


def test_a_property_without_a_getter_is_a_type_error(p: cp.Profiler) -> None:
    with pytest.raises(TypeError):
        p.profile_node(property(None, lambda self, value: None))


def test_partial_methods_and_single_dispatch(p: cp.Profiler) -> None:
    class Things:
        def scale(self, factor: int, x: int) -> int:
            return factor * x

        double = p.profile_node("double")(functools.partialmethod(scale, 2))
        triple = functools.partialmethod(p.profile_node("triple")(scale), 3)

        @functools.singledispatchmethod
        @p.profile_node("any")
        def show(self, x: object) -> str:
            return "any"

        @show.register
        @p.profile_node("int")
        def _(self, x: int) -> str:
            return "int"

    things = Things()
    assert (things.double(4), things.triple(x=4), things.show("s"), things.show(1)) == (8, 12, "any", "int")
    dispatch = functools.singledispatch(p.profile_node("default")(lambda x: "default"))
    dispatch.register(int, p.profile_node("for int")(lambda x: "for int"))
    assert (dispatch("s"), dispatch(1)) == ("default", "for int")
    assert counts(p) == dict.fromkeys(["double", "triple", "any", "int", "default", "for int"], 1)


def test_all_implementations_of_a_single_dispatch_method_are_one_node(p: cp.Profiler) -> None:
    class Things:
        @p.profile_node
        @functools.singledispatchmethod
        def show(self, x: object) -> str:
            return "any"

        @show.register
        def _(self, x: int) -> str:
            return "int"

        @show.register(str)
        @classmethod
        def _(cls, x: str) -> str:
            return f"str {cls.__name__}"

        @p.profile_node(name="waits")
        @functools.singledispatchmethod
        async def wait(self, x: object) -> object:
            await asyncio.sleep(0)
            return x

    Things.__dict__["show"].register(list, lambda self, x: "list")
    things = Things()
    arguments: list[Any] = [None, 1, "s", [], 2]
    assert [things.show(x) for x in arguments] == ["any", "int", "str Things", "list", "int"]
    assert asyncio.run(things.wait(5)) == 5
    assert counts(p) == {"Things.show": 5, "waits": 1}


class Meta(type):
    @cp.profile_node
    def __call__(cls, *args: Any) -> Any:
        return super().__call__(*args)


class Special(metaclass=Meta):
    __slots__ = ("items",)

    @cp.profile_node
    def __new__(cls, *items: int) -> Special:
        return super().__new__(cls)

    @cp.profile_node
    def __init__(self, *items: int) -> None:
        self.items = list(items)

    @cp.profile_node
    def __call__(self, x: int) -> int:
        return x

    @cp.profile_node
    def __getitem__(self, index: int) -> int:
        return self.items[index]

    @cp.profile_node
    def __iter__(self) -> Iterator[int]:
        yield from self.items

    @cp.profile_node
    def __enter__(self) -> Special:
        return self

    @cp.profile_node
    def __exit__(self, *exception: object) -> None:
        pass

    @cp.profile_node
    def __getattr__(self, name: str) -> str:
        return name


def test_special_methods(p: cp.Profiler) -> None:
    with p, Special(1, 2) as things:
        assert (things(3), things[1], list(things)) == (3, 2, [1, 2])
        assert things.absent == "absent"
    names = ["new", "init", "call", "getitem", "iter", "enter", "exit", "getattr"]
    assert set(counts(p)) == {"Meta.__call__", *(f"Special.__{name}__" for name in names)}


def test_implicit_class_methods(p: cp.Profiler) -> None:
    """Python makes class methods of these two, but only of plain functions."""
    seen = []

    class Base:
        @p.profile_node
        def __init_subclass__(cls, **kwargs: Any) -> None:
            seen.append((cls.__name__, kwargs))

        @p.profile_node
        def __class_getitem__(cls, item: Any) -> Any:
            return cls, item

    class Sub(Base, tag=1):
        pass

    assert seen == [("Sub", {"tag": 1})]
    assert Base[int] == (Base, int)  # type: ignore[misc]
    assert counts(p) == {"Base.__init_subclass__": 1, "Base.__class_getitem__": 1}


def test_abstract_methods_stay_abstract(p: cp.Profiler) -> None:
    class Base(abc.ABC):
        @p.profile_node
        @abc.abstractmethod
        def outside(self) -> None: ...

        @abc.abstractmethod
        @p.profile_node
        def inside(self) -> None: ...

        @p.profile_node
        def concrete(self) -> int:
            return 1

    assert Base.__abstractmethods__ == {"outside", "inside"}
    with pytest.raises(TypeError, match="abstract"):
        Base()  # type: ignore[abstract]


def test_builtins_bound_methods_and_callable_objects(p: cp.Profiler) -> None:
    class Callable_:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, *args: Any) -> Any:
            self.calls += 1
            return self, args

    thing = Callable_()
    target: list[int] = []
    assert p.profile_node(sorted)([2, 1], reverse=True) == [2, 1]
    p.profile_node("append")(target.append)(5)
    assert p.profile_node("object")(thing)(1) == (thing, (1,))
    assert p.profile_node("bound")(thing.__call__)(2) == (thing, (2,))
    assert p.profile_node("unbound")(str.upper)("x") == "X"
    assert p.profile_node("of type")(int.from_bytes)(b"\1", "big") == 1
    assert target == [5]
    assert thing.calls == 2
    assert counts(p) == dict.fromkeys(["sorted", "append", "object", "bound", "unbound", "of type"], 1)


class Holder:
    """A callable object with state."""

    def __init__(self) -> None:
        self.state = 1

    def __call__(self, x: int, y: int = 2) -> tuple[int, int]:
        return x, y

    def method(self, x: int) -> int:
        return x


def test_attributes_of_a_callable_object_are_its_own(p: cp.Profiler) -> None:
    holder = Holder()
    node: Any = p.profile_node("n")(holder)
    node.state = 2
    node.new = 3
    assert vars(holder) == vars(node) == {"state": 2, "new": 3}
    del node.new
    holder.state = 4
    assert (node.state, hasattr(node, "new"), isinstance(node, Holder)) == (4, False, True)
    assert inspect.signature(node.__call__) == inspect.signature(holder.__call__)
    assert node.__call__(1) == (1, 2)
    assert counts(p) == {"n": 1}
    builtins: list[Any] = [len, [1].append]
    for builtin in builtins:
        with pytest.raises(AttributeError):
            p.profile_node("builtin")(builtin).new = 1


@pytest.mark.parametrize("owner", ["module", "class", "instance"])
@pytest.mark.parametrize("what", ["function", "object", "builtin"])
def test_mock_patches_nodes_with_autospec(p: cp.Profiler, owner: str, what: str) -> None:
    original: Any = {"function": lambda x, y=2: (x, y), "object": Holder(), "builtin": divmod}[what]

    def patch(decorate: Any) -> list[Any]:
        value = staticmethod(original) if what == "function" and owner != "module" else original
        cls: Any = type("Cls", (), {"node": decorate(value)})
        holder: Any = {"module": types.SimpleNamespace(node=cls.__dict__["node"]), "class": cls, "instance": cls()}[
            owner
        ]
        before = vars(holder).copy()
        with mock.patch.object(holder, "node", autospec=True) as patched:
            holder.node(7, 2)
            patched.assert_called_once_with(7, 2)
            try:
                holder.node(1, 2, 3)
                refused = ""
            except TypeError as error:
                refused = str(error)
        assert vars(holder) == before
        return [holder.node(7, 2), refused, sorted(set(dir(patched)))]

    assert patch(p.profile_node("n")) == patch(lambda value: value)
    assert counts(p) == {"n": 1}


class Binds:
    """Binds in a way of its own."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, *args: Any) -> Any:
        return args

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        if self.how == "refuses":
            raise AttributeError("not of this one")
        return {
            "method": types.MethodType(self, instance),
            "partial": functools.partial(self, instance),
            "value": 5,
            "never": self,
        }[self.how]


BINDING: list[Any] = [
    lambda *args: args,
    functools.lru_cache(lambda *args: args),
    lambda self, *args: args,
    len,
    functools.partial(lambda *args: args, 3),  # binds as a function does from CPython 3.14 on
    [1, 2].count,
    Holder(),
    *map(Binds, ("method", "partial", "never")),
]


@pytest.mark.parametrize(
    "callable_", BINDING, ids=lambda callable_: getattr(callable_, "how", type(callable_).__name__)
)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.filterwarnings("ignore:functools.partial will be:FutureWarning")  # as of the partial itself
def test_a_wrapper_binds_as_what_it_wraps(p: cp.Profiler, callable_: Any, times: int) -> None:
    class Original:
        attribute = callable_

    class Profiled:
        attribute = callable_

    for i in range(times):
        Profiled.attribute = p.profile_node(f"node {i}")(Profiled.__dict__["attribute"])
    argument: Any = "ab" if callable_ is len else 4

    def outcome(call: Any, holder: Any) -> Any:
        result = call(argument)
        return ["itself" if part is holder else part for part in result] if isinstance(result, tuple) else result

    for profiled, original in ((Profiled(), Original()), (Profiled, Original)):
        bound: Any = profiled.attribute
        assert outcome(bound, profiled) == outcome(original.attribute, original)
        assert outcome(bound, profiled) == outcome(original.attribute, original)
    assert counts(p) == {f"node {times - 1}": 4}


def test_what_an_own_way_of_binding_gives_or_raises_passes_through(p: cp.Profiler) -> None:
    class Cls:
        refuses = p.profile_node("refuses")(Binds("refuses"))
        value = p.profile_node("value")(Binds("value"))
        unbound = p.profile_node("upper")(str.upper)

    with pytest.raises(AttributeError, match="not of this one"):
        _ = Cls().refuses
    assert vars(Cls)["value"].__get__(Cls()) == 5
    unbound: Any = Cls().unbound  # type: ignore[misc]
    with pytest.raises(TypeError, match="str"):
        unbound()


def test_a_bound_node_counts_where_and_as_its_instance_says(p: cp.Profiler) -> None:
    class Pipeline(cp.PipelineProfiling):
        name = "asked"
        own = cp.profile_node(name=lambda self: self.name)(Binds("partial"))
        of_another = p.profile_node("of another", stage="train")(Binds("partial"))
        recorded = cp.record("recorded")(Binds("partial"))
        broken = cp.profile_node(name=lambda self: str(1 / 0))(Binds("partial"))

    pipeline = Pipeline()
    own = pipeline.own
    pipeline.set_profiling(True)
    assert own(1) == pipeline.own(1) == pipeline.of_another(1) == pipeline.recorded(1) == (pipeline, 1)
    assert pipeline.broken() == (pipeline,)
    assert counts(pipeline.profiler) == {"asked": 2, "Binds": 1}
    assert stages(p) == {("of another", "train"): 1}


# ---- what calling gives --------------------------------------------------------------------------


def test_a_wrapped_coroutine_function_returns_the_original_object_while_off() -> None:
    p = cp.Profiler()
    made = p.profile_node(coroutine)(1)
    assert type(made) is types.CoroutineType
    made.close()
    assert type(p.profile_node(generator)(1)) is types.GeneratorType
    assert type(p.profile_node(async_generator)(1)) is types.AsyncGeneratorType
