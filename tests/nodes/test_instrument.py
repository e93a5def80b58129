"""instrument(): the methods of objects that somebody else wrote (failure scenarios F9, F11, F13, F14)."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import functools
import gc
import importlib.util
import inspect
import pickle
import shutil
import subprocess
import sys
import sysconfig
import time
import types
import weakref
from array import array
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import cprofiling as cp
from calls import (
    SLEPT_MS,
    TICK,
    by_name,
    counts,
    outcomes,
    profiler_on,
    run_python,
    run_threads,
    stages,
    switching_often,
)

pytestmark = pytest.mark.native

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


class Model:
    """Somebody else's class."""

    def __init__(self, name: str = "model") -> None:
        self.name = name

    def forward(self, x: int, *, y: int = 0) -> tuple[str, int, int]:
        """Document forward."""
        return self.name, x, y

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__

    @staticmethod
    def static(x: int) -> int:
        return x

    @property
    def prop(self) -> Any:
        return self.forward

    async def coroutine(self) -> str:
        await asyncio.sleep(0)
        return self.name

    def generator(self) -> Iterator[str]:
        yield self.name

    async def async_generator(self) -> AsyncIterator[str]:
        yield self.name

    def fail(self) -> None:
        raise KeyError(self.name)


# ---- one instance --------------------------------------------------------------------------------


def test_one_instance_is_instrumented_and_no_other(p: cp.Profiler) -> None:
    one, two = Model("one"), Model("two")
    unchanged: Any = two.forward
    function = Model.forward
    handle = p.instrument(one, "forward", name="node")
    assert (one.forward(1, y=2), two.forward(3)) == (("one", 1, 2), ("two", 3, 0))
    assert Model("three").forward(4) == ("three", 4, 0)
    assert Model.forward(one, 5) == ("one", 5, 0)
    assert counts(p) == {"node": 1}
    assert Model.forward is function
    assert unchanged.__func__ is function
    assert vars(two) == {"name": "two"}
    handle.remove()
    assert one.forward(6) == ("one", 6, 0)
    assert vars(one) == {"name": "one"}
    assert counts(p) == {"node": 1}


@pytest.mark.parametrize(
    ("name", "expected"), [(None, "Model.forward"), ("given", "given"), (lambda model: f"of {model.name}", "of model")]
)
def test_the_name_is_a_str_or_asked_of_the_object(p: cp.Profiler, name: Any, expected: str) -> None:
    model = Model()
    p.instrument(model, "forward", name=name)
    model.forward(1)
    model.forward(2)
    assert counts(p) == {expected: 2}


def test_the_stage(p: cp.Profiler) -> None:
    model = Model()
    p.instrument(model, "forward", name="explicit", stage="val")
    p.instrument(model, "fail", name="of the call")
    with cp.stage("train"):
        model.forward(1)
        with pytest.raises(KeyError):
            model.fail()
    assert list(stages(p)) == [("explicit", "val"), ("of the call", "train")]
    assert outcomes(p, "of the call") == (0, 1, 0, 0, 0)


@pytest.mark.parametrize("attribute", ["forward", "of_class", "static", "coroutine", "generator", "async_generator"])
def test_methods_of_every_kind_look_as_before(p: cp.Profiler, attribute: str) -> None:
    model = Model()
    original = getattr(model, attribute)
    with p.instrument(model, attribute):
        wrapped = getattr(model, attribute)
        assert wrapped is not original
        for question in (
            inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.signature,
            inspect.getdoc,
        ):  # fmt: skip
            assert question(wrapped) == question(original), question
        assert inspect.unwrap(wrapped) in (original, getattr(original, "__func__", None))
        assert (wrapped.__name__, wrapped.__qualname__) == (original.__name__, original.__qualname__)


def test_methods_of_every_kind_count(p: cp.Profiler) -> None:
    async def use(model: Model) -> list[str]:
        return [await model.coroutine(), *[name async for name in model.async_generator()], *model.generator()]

    model = Model()
    for attribute in ("coroutine", "async_generator", "generator", "of_class", "static"):
        p.instrument(model, attribute)
    assert asyncio.run(use(model)) == ["model"] * 3
    assert (model.of_class(), model.static(5)) == ("Model", 5)
    assert counts(p) == dict.fromkeys(
        ["Model.coroutine", "Model.async_generator", "Model.generator", "Model.of_class", "Model.static"], 1
    )


def test_functions_of_a_module_and_of_a_namespace(p: cp.Profiler) -> None:
    module = types.ModuleType("foreign")
    exec("def scale(x): return 2 * x\ndef twice(x): return scale(scale(x))", module.__dict__)
    with p.instrument(module, "scale"):
        assert module.twice(3) == 12
    assert module.twice(3) == 12
    namespace = types.SimpleNamespace(run=len)
    with p.instrument(namespace, "run", name="run"):
        assert namespace.run("abc") == 3
    assert namespace.run is len
    assert counts(p) == {"scale": 2, "run": 1}


def test_objects_that_answer_by_getattr_or_refuse_to_be_set(p: cp.Profiler) -> None:
    class Proxy:
        def __init__(self) -> None:
            self.__dict__["target"] = Model("target")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["target"], name)

        def __setattr__(self, name: str, value: Any) -> None:
            raise ZeroDivisionError

        def __delattr__(self, name: str) -> None:
            raise ZeroDivisionError

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        name: str = "frozen"

        def forward(self, x: int) -> str:
            return self.name

    proxy, frozen = Proxy(), Frozen()
    with p.instrument(proxy, "forward", name="proxy"), p.instrument(frozen, "forward", name="frozen"):
        assert (proxy.forward(1), frozen.forward(1)) == (("target", 1, 0), "frozen")
    assert set(vars(proxy)) == {"target"}
    assert vars(frozen) == {"name": "frozen"}
    assert counts(p) == {"proxy": 1, "frozen": 1}


def related_classes() -> list[type[Any]]:
    """A base, one that inherits all, and one that overrides, of the test's own."""

    class Base:
        def __init__(self, name: str) -> None:
            self.name = name

        def forward(self, x: int) -> tuple[str, int]:
            return self.name, x

        @classmethod
        def of_class(cls, x: int) -> tuple[str, int]:
            return cls.__name__, x

        @staticmethod
        def static(x: int) -> int:
            return x

    class Derived(Base):
        pass

    class Overriding(Base):
        def forward(self, x: int) -> tuple[str, int]:
            return super().forward(-x)

    return [Base, Derived, Overriding]


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("attribute", ["forward", "of_class", "static"])
def test_instances_of_related_classes(p: cp.Profiler, order: tuple[int, ...], attribute: str) -> None:
    """Each instance by itself; in the end every class is as it was, in whatever order the wrappers are removed."""
    classes = related_classes()
    before = [dict(vars(cls)) for cls in classes]
    plain = [cls("plain") for cls in classes]
    models = [cls(cls.__name__) for cls in classes]
    handles = [p.instrument(model, attribute, name=model.name) for model in models]
    expected = dict.fromkeys([model.name for model in models], 0)
    for index in (*order, None):
        for model, handle in zip(models, handles, strict=False):
            expected[model.name] += "removed" not in repr(handle)
            assert getattr(model, attribute)(5) is not None
        for model in plain:
            assert getattr(model, attribute)(5) is not None
        assert counts(p) == expected
        if index is not None:
            handles[index].remove()
    assert [dict(vars(cls)) for cls in classes] == before


def test_a_call_through_super_is_the_classs_own(p: cp.Profiler) -> None:
    """The base's method, called by the overriding one, is not the instrumented attribute."""
    base, _, overriding = related_classes()
    model, other = overriding("own"), base("base")
    p.instrument(model, "forward", name="overriding")
    p.instrument(other, "forward", name="base")
    assert model.forward(5) == ("own", -5)
    assert counts(p) == {"overriding": 1}


def test_a_method_that_is_replaced_in_the_class_meanwhile_stays_replaced(p: cp.Profiler) -> None:
    class Patched:
        def run(self) -> str:
            return "old"

    patched = Patched()
    handle = p.instrument(patched, "run", name="n")
    Patched.run = lambda self: "new"  # type: ignore[method-assign]
    handle.remove()
    assert patched.run() == Patched().run() == "new"


def test_a_method_of_a_base_can_be_replaced_there_meanwhile(p: cp.Profiler) -> None:
    class Base:
        def method(self) -> int:
            return 1

        @staticmethod
        def static(x: int) -> int:
            return x

    class Sub(Base):
        pass

    counted, other = Sub(), Sub()
    handles = [p.instrument(counted, "method"), p.instrument(counted, "static")]
    assert (counted.method(), counted.static(3), other.static(4), Sub.static(5)) == (1, 3, 4, 5)
    Base.method = lambda self: 2  # type: ignore[method-assign]
    Base.static = staticmethod(lambda x: -x)  # type: ignore[method-assign]
    assert (counted.method(), other.method(), Base().method()) == (2, 2, 2)
    assert (counted.static(3), other.static(4), Sub.static(5)) == (-3, -4, -5)
    assert counts(p) == {"Base.method": 2, "Base.static": 2}
    del Base.method
    for each in (counted, other):
        with pytest.raises(AttributeError, match="no attribute 'method'"):
            each.method()
    for handle in handles:
        handle.remove()
    assert not vars(Sub).keys() & {"method", "static"}


def test_an_attribute_set_on_the_instance_goes_first(p: cp.Profiler) -> None:
    model: Any = Model()
    handle = p.instrument(model, "forward", name="n")
    model.forward = lambda x: x
    assert model.forward(3) == 3
    del model.forward
    assert model.forward(3) == ("model", 3, 0)
    handle.remove()
    assert counts(p) == {"n": 1}


class SlottedWithWeakReferences:
    __slots__ = ("__weakref__", "name")

    name: str

    def run(self) -> str:
        return self.name


def test_slots_are_no_hindrance(p: cp.Profiler) -> None:
    thing = SlottedWithWeakReferences()
    thing.name = "slotted"
    with p.instrument(thing, "run", name="n"):
        assert thing.run() == "slotted"
        assert copy.copy(thing).run() == "slotted"
    thing.run()
    assert counts(p) == {"n": 1}


def test_a_method_of_the_class_pickles_as_ever_meanwhile(p: cp.Profiler) -> None:
    model = Model("pickled")
    function = Model.forward
    with p.instrument(model, "forward"):
        assert pickle.loads(pickle.dumps(Model.forward)) is function
        assert pickle.loads(pickle.dumps(model.forward))(1) == ("pickled", 1, 0)
        assert inspect.signature(Model.forward) == inspect.signature(function)
    assert counts(p) == {}


def test_a_new_object_at_an_old_address_is_not_instrumented(p: cp.Profiler) -> None:
    for _ in range(200):
        model = Model()
        model.forward(1)
        assert counts(p) == {}
        p.instrument(model, "forward")
        del model
        gc.collect(0)


def test_methods_that_are_made_by_a_descriptor(p: cp.Profiler) -> None:
    class Scale:
        def scale(self, factor: int, value: int) -> int:
            return factor * value

        double = functools.partialmethod(scale, 2)

        @functools.singledispatchmethod
        def show(self, value: object) -> str:
            return "object"

        @show.register
        def _(self, value: int) -> str:
            return "int"

    one, other = Scale(), Scale()
    handles = [p.instrument(one, "double", name="double"), p.instrument(one, "show", name="show")]
    assert (one.double(4), one.show(1), one.show("1")) == (8, "int", "object")
    assert (other.double(4), other.show(1)) == (8, "int")
    assert counts(p) == {"double": 1, "show": 2}
    for handle in handles:
        handle.remove()
    assert (one.double(4), one.show(1)) == (8, "int")
    assert counts(p) == {"double": 1, "show": 2}


def test_instrumenting_and_removing_in_many_threads() -> None:
    class Shared:
        def run(self) -> None: ...

    before = dict(vars(Shared))

    def work() -> None:
        for _ in range(200):
            shared = Shared()
            own = profiler_on()
            handle = own.instrument(shared, "run", name="run")
            shared.run()
            handle.remove()
            shared.run()
            assert counts(own) == {"run": 1}

    with switching_often():
        run_threads(*[work] * 8)
    assert dict(vars(Shared)) == before


BOUND = """
#include <pybind11/pybind11.h>
struct Counter {
    int value = 0;
    int add(int by) { return value += by; }
    static int twice(int number) { return 2 * number; }
};
PYBIND11_MODULE(counter_of_cxx, module) {
    pybind11::class_<Counter>(module, "Counter")
        .def(pybind11::init<>()).def("add", &Counter::add).def_static("twice", &Counter::twice);
}
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A class of C++, whose metaclass is one of C code."""
    pybind11 = pytest.importorskip("pybind11")
    compiler = shutil.which("c++") or pytest.skip("there is no compiler of C++")
    folder = tmp_path_factory.mktemp("cxx")
    (folder / "counter.cpp").write_text(BOUND)
    includes = [f"-I{path}" for path in (pybind11.get_include(), sysconfig.get_path("include"))]
    target = folder / "counter_of_cxx.so"
    command = [compiler, "-shared", "-fPIC", "-O0", "-std=c++17", *includes, "-o", str(target)]
    subprocess.run([*command, str(folder / "counter.cpp")], check=True, timeout=240)
    spec = importlib.util.spec_from_file_location("counter_of_cxx", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Counter


@pytest.mark.slow
def test_an_object_of_pybind11(p: cp.Profiler, counter: Any) -> None:
    before = dict(vars(counter))
    counted, other = counter(), counter()
    with p.instrument(counted, "add"), p.instrument(counted, "twice", name="double"):
        assert (counted.add(2), other.add(3), counted.add(2), counted.twice(4), other.twice(5)) == (2, 3, 4, 8, 10)
    assert counts(p) == {"Counter.add": 2, "double": 1}
    assert dict(vars(counter)) == before

    class Sub(counter):  # type: ignore[misc]
        pass

    sub = Sub()
    with p.instrument(sub, "add", name="sub"):
        assert sub.add(7) == 7
    assert counts(p)["sub"] == 1
    assert "add" not in vars(Sub)


class Stubborn(type):
    """A metaclass that refuses."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise TypeError("not in my class")


def test_a_metaclass_that_lets_nothing_be_set_is_passed_by(p: cp.Profiler) -> None:
    class Closed(metaclass=Stubborn):
        def method(self) -> None: ...

    thing = Closed()
    with p.instrument(thing, "method"):
        thing.method()
    assert counts(p) == {"Closed.method": 1}


# ---- what is refused -----------------------------------------------------------------------------


class Slotted:
    __slots__ = ("run",)

    def method(self) -> None: ...


@pytest.mark.parametrize(
    ("thing", "attribute", "error", "message"),
    [
        (Model(), "absent", AttributeError, "absent"),
        (Model(), "name", TypeError, "name"),
        (Model(), "prop", TypeError, "prop"),
        (Model(), "__init__", TypeError, "__init__"),
        (Model(), "__call__", TypeError, "__call__"),
        (Model(), 5, TypeError, "attr must be .*int"),
        (Model(), None, TypeError, "attr must be .*NoneType"),
        (Model(), b"forward", TypeError, "attr must be .*bytes"),
        (Slotted(), "method", TypeError, "method"),
        (
            Model,
            "forward",
            TypeError,
            "^obj must be an instance, got the class Model: give one of its instances, or decorate",
        ),
        (5, "bit_length", TypeError, "bit_length"),
        ([], "append", TypeError, "append"),
        (array("i"), "append", TypeError, "obj must allow 'append' to be replaced"),  # a class of the heap
        (types.SimpleNamespace(cls=Model), "cls", TypeError, "cls"),
    ],
)
def test_what_cannot_be_instrumented_is_refused(
    p: cp.Profiler, thing: Any, attribute: Any, error: type[Exception], message: str
) -> None:
    before = dict(vars(thing)) if hasattr(thing, "__dict__") else None
    with pytest.raises(error, match=message):
        p.instrument(thing, attribute)
    assert before is None or dict(vars(thing)) == before


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": 5},
        {"name": "a\0"},
        {"name": lambda model: 5},
        {"name": lambda model: 1 / 0},
        {"stage": 5},
        {"profiler": 5},
    ],
)
def test_wrong_arguments_leave_the_object_alone(arguments: dict[str, Any]) -> None:
    model = Model()
    with pytest.raises((TypeError, ValueError, ZeroDivisionError)):
        cp.instrument(model, "forward", **arguments)
    assert vars(model) == {"name": "model"}


# ---- removal -------------------------------------------------------------------------------------


def test_removing_twice_or_after_a_new_assignment_changes_nothing(p: cp.Profiler) -> None:
    model: Any = Model()
    first, second = p.instrument(model, "forward"), p.instrument(model, "fail")
    for _ in range(3):
        first.remove()
    model.fail = str
    second.remove()
    assert model.fail is str
    model.forward = len
    third = p.instrument(model, "forward")
    del model.forward
    third.remove()
    assert vars(model) == {"name": "model", "fail": str}


def test_an_attribute_of_the_instances_own_is_put_back(p: cp.Profiler) -> None:
    model: Any = Model()
    own = model.forward = lambda x: -x
    with p.instrument(model, "forward", name="own") as handle:
        assert model.forward(3) == -3
        assert "forward" in repr(handle)
    assert model.forward is own
    assert "removed" in repr(handle)
    assert counts(p) == {"own": 1}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_wrappers_can_be_removed_in_any_order(order: tuple[int, ...], own: bool) -> None:
    model: Any = Model()
    if own:
        model.forward = model.forward
    before = dict(vars(model))
    profilers = [profiler_on() for _ in range(3)]
    handles = [profiler.instrument(model, "forward", name="n") for profiler in profilers]
    expected = [0, 0, 0]
    for index in (*order, None):
        assert model.forward(1) == ("model", 1, 0)
        expected = [count + (handle is not None) for count, handle in zip(expected, handles, strict=False)]
        if index is not None:
            handle, handles[index] = handles[index], None  # type: ignore[call-overload]
            handle.remove()
    assert [counts(profiler)["n"] for profiler in profilers] == expected
    assert dict(vars(model)) == before


def test_a_reference_kept_from_before_goes_on_without_counting(p: cp.Profiler) -> None:
    model = Model()
    handle = p.instrument(model, "forward")
    kept = model.forward
    kept(1)
    handle.remove()
    assert kept(2) == ("model", 2, 0)
    assert counts(p) == {"Model.forward": 1}


def test_removed_in_the_middle_of_its_call(p: cp.Profiler) -> None:
    handles: list[Any] = []
    namespace = types.SimpleNamespace(run=lambda: handles[0].remove())
    handles.append(p.instrument(namespace, "run", name="n"))
    namespace.run()
    namespace.run()
    assert counts(p) == {"n": 1}


def test_an_exception_in_the_block_removes_the_wrapper_and_passes_on(p: cp.Profiler) -> None:
    model = Model()
    error = KeyError()
    with pytest.raises(KeyError) as caught, p.instrument(model, "forward"):
        raise error
    assert caught.value is error
    assert vars(model) == {"name": "model"}


# ---- which Profiler, and how often ---------------------------------------------------------------


def test_without_a_profiler_it_is_found_at_each_call(p: cp.Profiler) -> None:
    model, q = Model(), profiler_on()
    cp.instrument(model, "forward", name="n")
    with p.profile_node("block"):
        model.forward(1)
    with q:
        model.forward(2)
    assert counts(p) == {"n": 1, "block": 1}
    assert counts(q) == {"n": 1}


class Pipe(cp.PipelineProfiling):
    def forward(self, *inside: Any) -> str:
        for call in inside:
            call()
        return "pipe"

    @cp.profile_node
    def step(self) -> str:
        return "step"

    @staticmethod
    def static(value: int) -> int:
        return value


def test_a_pipeline_counts_its_own_methods() -> None:
    pipe, other = Pipe(), Pipe()
    for pipeline in (pipe, other):
        pipeline.set_profiling(True)
    cp.instrument(pipe, "forward", name="whole")
    unbound = cp.profile_node("inside")(lambda: None)
    assert pipe.forward(unbound) == other.forward(pipe.forward) == "pipe"
    assert counts(pipe.profiler) == {"inside": 1, "whole": 2}
    assert counts(other.profiler) == {}


def test_a_function_of_a_pipeline_that_does_not_bind_is_counted_there(p: cp.Profiler) -> None:
    pipe = Pipe()
    pipe.set_profiling(True)
    cp.instrument(pipe, "static", name="static")
    with p:
        assert pipe.static(1) == 1
    assert (counts(pipe.profiler), counts(p)) == ({"static": 1}, {})


def test_a_pipeline_among_the_arguments_is_not_the_first_argument(p: cp.Profiler) -> None:
    """The method's first argument is the object that it belongs to."""
    pipe, model = Pipe(), Model()
    pipe.set_profiling(True)
    cp.instrument(model, "static", name="static")
    cp.instrument(model, "forward", name="method")
    with p:
        model.forward(pipe)  # type: ignore[arg-type]
        model.static(pipe)  # type: ignore[arg-type]
    assert counts(p)["method"] == 1
    assert "method" not in counts(pipe.profiler)


def test_instrumented_twice_a_call_counts_once_under_the_outer_name(p: cp.Profiler) -> None:
    """F14."""
    model, pipe, q = Model(), Pipe(), profiler_on()
    p.instrument(model, "forward", name="inner")
    p.instrument(model, "forward", name="outer")
    q.instrument(model, "forward", name="of q")
    model.forward(1)
    pipe.set_profiling(True)
    cp.instrument(pipe, "step", name="outer")
    pipe.step()
    assert (counts(p), counts(q), counts(pipe.profiler)) == ({"outer": 1}, {"of q": 1}, {"outer": 1})


# ---- copies, pickles, lifetime -------------------------------------------------------------------


DUPLICATES: dict[str, Any] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {n}": functools.partial(lambda n, x: pickle.loads(pickle.dumps(x, n)), n) for n in PROTOCOLS},
}


@pytest.mark.parametrize("duplicate", DUPLICATES.values(), ids=DUPLICATES.keys())
def test_copies_are_their_own_and_not_instrumented(p: cp.Profiler, duplicate: Any) -> None:
    """F9: also copies of copies, and after the original's wrapper is gone."""
    model = Model("original")
    handle = p.instrument(model, "forward", name="n")
    other = duplicate(model)
    assert duplicate is copy.copy or vars(other) == {"name": "original"}
    other.name = "copy"
    third = copy.copy(other)
    third.name = "copy of the copy"
    fourth = copy.deepcopy(other)
    fourth.name = "deep copy of the copy"
    expected = [(other, "copy"), (third, "copy of the copy"), (fourth, "deep copy of the copy")]
    for thing, name in expected:
        assert thing.forward(1) == (name, 1, 0)
    assert counts(p) == {}
    assert model.forward(1) == ("original", 1, 0)
    assert counts(p) == {"n": 1}
    handle.remove()
    for thing, name in expected:
        assert thing.forward(2) == (name, 2, 0)
    assert counts(p) == {"n": 1}


@pytest.mark.parametrize("duplicate", [value for key, value in DUPLICATES.items() if key != "copy"])
def test_an_attribute_of_the_instances_own_is_copied_along(p: cp.Profiler, duplicate: Any) -> None:
    model: Any = Model("original")
    model.forward = len
    p.instrument(model, "forward", name="n")
    other = duplicate(model)
    assert other.forward is len
    assert other.forward("abc") == 3
    assert counts(p) == {}


def test_a_copy_can_be_instrumented_itself(p: cp.Profiler) -> None:
    model: Any = Model("original")
    model.itself = [model]
    p.instrument(model, "forward", name="original")
    (other,) = copy.deepcopy(model).itself
    with p.instrument(other, "forward", name="copy"):
        other.name = "copy"
        assert (other.forward(1)[0], model.forward(1)[0]) == ("copy", "original")
    assert counts(p) == {"copy": 1, "original": 1}


def test_a_pickle_is_read_where_the_extension_is_absent(p: cp.Profiler) -> None:
    model = Model("original")
    p.instrument(model, "forward")
    data = pickle.dumps(model, 0).replace(__name__.encode(), b"__main__")
    assert b"__main__" in data
    script = f"""
import pickle, sys
sys.modules["cprofiling"] = sys.modules["cprofiling._core"] = None
class Model:
    def forward(self, x): return self.name, x
data = {data!r}
print(pickle.loads(data).forward(5))
"""
    done = run_python(script)
    assert (done.stdout, done.stderr) == ("('original', 5)\n", "")


def test_an_instrumented_object_is_collected(p: cp.Profiler) -> None:
    """F13: neither the Profiler nor the handle's absence keeps it; the figures stay."""
    model = Model()
    p.instrument(model, "forward", name="n")
    model.forward(1)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
    assert counts(p) == {"n": 1}


class Attributes:
    """What lies in a class and is no method."""

    length = len
    partial = functools.partial(lambda *args: len(args), 3)
    bound = [1, 1].count
    static_: Any = staticmethod(lambda x: x)

    def __init__(self) -> None:
        self.log: list[str] = []

    @contextlib.contextmanager
    def section(self) -> Iterator[int]:
        """Document section."""
        time.sleep(TICK)
        yield 5

    @functools.singledispatchmethod
    def dispatched(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("attribute", "argument", "result"),
    [
        ("length", "ab", 2),
        ("partial", 4, 3 if sys.version_info >= (3, 14) else 2),  # where it binds
        ("bound", 1, 2),
        ("static_", 1, 1),
        ("dispatched", 1, 1),
    ],
)
@pytest.mark.filterwarnings("ignore:functools.partial will be:FutureWarning")
def test_what_does_not_bind_is_called_without_the_object(
    p: cp.Profiler, attribute: str, argument: Any, result: int
) -> None:
    things, other = Attributes(), Attributes()
    with p.instrument(things, attribute, name="first"), p.instrument(things, attribute, name="second") as second:
        assert getattr(things, attribute)(argument) == getattr(other, attribute)(argument) == result
        second.remove()
        assert getattr(things, attribute)(argument) == result
    assert getattr(things, attribute)(argument) == result
    assert counts(p) == {"second": 1, "first": 1}


def test_a_context_manager_that_is_a_method(p: cp.Profiler) -> None:
    things, other = Attributes(), Attributes()
    with p.instrument(things, "section"):
        with things.section() as value, other.section():
            assert value == 5
        assert things.section.__doc__ == "Document section."
    with things.section():
        pass
    assert counts(p) == {"Attributes.section": 1}
    assert by_name(p)["Attributes.section"].total_ms >= SLEPT_MS
