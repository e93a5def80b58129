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
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import Any

import pytest

import cprofiling as cp
from calls import counts


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


def with_code(arguments: int) -> Callable[..., Any]:
    """A function that nobody else has, with some parameters."""
    names = ", ".join(f"a{i}: int = {i}" for i in range(arguments))
    scope: dict[str, Any] = {}
    exec(f"def made_{arguments}({names}) -> int:\n    'Document made.'\n    return {arguments}\n", scope)
    function: Callable[..., Any] = scope[f"made_{arguments}"]
    return function


FUNCTIONS: list[Any] = [
    plain, coroutine, generator, async_generator, module_function, Outer.Inner.method, lambda x: x, time.sleep, len,
    *map(with_code, range(41)),
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_introspection_is_as_undecorated(p: cp.Profiler, function: Any) -> None:
    """F10, for 50 functions."""
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


def test_attributes_of_the_function_are_seen_and_new_ones_kept(p: cp.Profiler) -> None:
    def f() -> None:
        pass

    f.mark = "before"  # type: ignore[attr-defined]
    node: Any = p.profile_node(f)
    assert node.mark == "before"
    node.own = 1
    assert node.own == 1
    assert not hasattr(f, "own")
    assert "own" in node.__dict__
    del node.own
    with pytest.raises(AttributeError, match="own"):
        _ = node.own


def test_a_third_partys_decorator_finds_all_that_it_copies(p: cp.Profiler) -> None:
    """F10: what functools.wraps takes from the original, it takes from the node."""

    def original() -> None:
        """Document original."""

    original.mark = "mark"  # type: ignore[attr-defined]
    wrapper: Any = functools.wraps(p.profile_node(original))(lambda: None)
    assert wrapper.mark == "mark"
    assert (wrapper.__name__, wrapper.__doc__) == ("original", "Document original.")
    assert inspect.unwrap(wrapper) is original


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
    p = cp.Profiler()
    p.set_profiling(True)
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
    things.outside = 8
    assert (things.outside, things.inside, things.late, things.late, things.cached_inside) == (8, 8, 8, 8, 8)
    assert things.cached_inside == 8
    del things.outside
    assert (things.outside, things.late) == (0, 8)
    assert [getattr(Things, name).__doc__ for name in ("outside", "inside", "late")] == [
        "Document outside.", "Document inside.", "Document late.",
    ]  # fmt: skip
    assert counts(p) == {"outside": 2, "inside": 1, "late": 1, "cached inside": 1}


def test_a_property_that_was_complete_keeps_setter_and_deleter(p: cp.Profiler) -> None:
    class Things:
        log: list[str] = []  # noqa: RUF012 one for all is enough

        def _get(self) -> str:
            return "got"

        def _set(self, value: str) -> None:
            self.log.append(value)

        def _delete(self) -> None:
            self.log.append("deleted")

        whole = p.profile_node("whole")(property(_get, _set, _delete, "Document whole."))

    things: Any = Things()
    things.whole = "set"
    assert things.whole == "got"
    del things.whole
    assert things.log == ["set", "deleted"]
    assert Things.whole.__doc__ == "Document whole."
    assert counts(p) == {"whole": 1}


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
    def __len__(self) -> int:
        return len(self.items)

    @cp.profile_node
    def __getitem__(self, index: int) -> int:
        return self.items[index]

    @cp.profile_node
    def __iter__(self) -> Iterator[int]:
        yield from self.items

    @cp.profile_node
    def __add__(self, other: int) -> int:
        return other

    @cp.profile_node
    def __hash__(self) -> int:
        return 5

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
        assert (things(3), len(things), things[1], list(things), things + 4, hash(things)) == (3, 2, 2, [1, 2], 4, 5)
        assert things.absent == "absent"
    names = ["new", "init", "call", "len", "getitem", "iter", "add", "hash", "enter", "exit", "getattr"]
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


def test_super_and_overriding(p: cp.Profiler) -> None:
    class Base:
        @p.profile_node
        def run(self) -> str:
            return "base"

    class Derived(Base):
        @p.profile_node
        def run(self) -> str:
            return "derived " + super().run()

    assert Derived().run() == "derived base"
    assert counts(p) == {"Base.run": 1, "Derived.run": 1}


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


def test_a_callable_object_shows_its_state_of_now(p: cp.Profiler) -> None:
    class Counter:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self) -> None:
            self.calls += 1

    counter = Counter()
    node: Any = p.profile_node("n")(counter)
    node()
    node()
    assert (node.calls, counter.calls) == (2, 2)


class Strange:
    """Answers every question with an exception, or with itself."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __getattr__(self, name: str) -> Any:
        if name == "answer" or self.answer is None:
            raise AttributeError(name)
        return self

    def __call__(self) -> str:
        return "called"


@pytest.mark.parametrize("answer", [None, "itself"])
def test_objects_with_strange_attributes(p: cp.Profiler, answer: Any) -> None:
    assert p.profile_node("n")(Strange(answer))() == "called"
    assert counts(p) == {"n": 1}


# ---- what calling gives --------------------------------------------------------------------------


def test_a_wrapped_coroutine_function_returns_the_original_object_while_off() -> None:
    p = cp.Profiler()
    made = p.profile_node(coroutine)(1)
    assert type(made) is types.CoroutineType
    made.close()
    assert type(p.profile_node(generator)(1)) is types.GeneratorType
    assert type(p.profile_node(async_generator)(1)) is types.AsyncGeneratorType


def test_what_wrapped_functions_return_is_of_the_abstract_kind(p: cp.Profiler) -> None:
    made = p.profile_node(coroutine)(1)
    assert isinstance(made, Coroutine)
    assert asyncio.iscoroutine(made)
    assert inspect.isawaitable(made)
    made.close()
    assert isinstance(p.profile_node(generator)(1), Generator)
    assert isinstance(p.profile_node(async_generator)(1), AsyncGenerator | AsyncIterator)
