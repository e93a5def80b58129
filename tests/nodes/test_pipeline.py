"""PipelineProfiling, and which Profiler records a call (failure scenarios F9, F11, F13)."""

# Nodes are made of lambdas here, which have no types.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import abc
import asyncio
import contextlib
import contextvars
import copy
import dataclasses
import dis
import functools
import gc
import inspect
import pickle
import sys
import time
import types
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import cprofiling as cp
from calls import TICK, counts, in_new_thread, profiler_on

pytestmark = pytest.mark.native

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.fixture
def default() -> cp.Profiler:
    """The default Profiler, on and empty."""
    cp.set_profiling(True)
    return cp.default_profiler


@cp.profile_node
def helper() -> None:
    """A node of whoever calls it."""


class Pipe(cp.PipelineProfiling):
    """A pipeline with a node of its own and one of somebody else's."""

    def __init__(self, name: str = "pipe") -> None:
        self.name = name

    @cp.profile_node
    def step(self) -> str:
        return self.name

    def forward(self, *inside: Any) -> str:
        """Run the pipeline."""
        helper()
        for call in inside:
            call()
        helper()
        return self.step()


def piped(pipeline: cp.PipelineProfiling) -> dict[str, int]:
    return counts(pipeline.profiler)


def on(pipeline: Any) -> Any:
    pipeline.set_profiling(True)
    return pipeline


# ---- the names of the mixin ----------------------------------------------------------------------


def test_the_mixin_gives_a_pipeline_all_names() -> None:
    pipe = Pipe()
    assert pipe.profiling_enabled is False
    pipe.set_profiling(True, skip_first_n=1)
    assert pipe.profiling_enabled is True
    assert pipe.profiler.profiling_enabled
    assert [pipe.forward(), pipe.forward()] == ["pipe", "pipe"]
    summary = pipe.get_profiling_summary()
    assert isinstance(summary, cp.ProfilingSummary)
    assert summary.skip_first_n == 1
    assert [(stats.node_name, stats.count, stats.skipped_count) for stats in summary] == [
        ("helper", 3, 1), ("Pipe.step", 1, 1),
    ]  # fmt: skip
    assert pipe.get_profiling_summary("train") == []
    assert "Pipe.step" in pipe.format_profiling_summary()
    assert "(7 frames, skip_first_n=1)" in pipe.format_profiling_summary("inference", total_frames=7)
    pipe.reset_profiling()
    assert pipe.get_profiling_summary() == []
    assert pipe.profiling_enabled
    pipe.set_profiling(False, reset=True, synchronize_cuda=True)
    with pytest.raises(AttributeError):
        pipe.profiling_enabled = True
    with pytest.raises(AttributeError):
        pipe.profiler = cp.Profiler()


def test_profile_node_and_instrument_of_a_pipeline_are_bound_to_it() -> None:
    pipe = on(Pipe())
    with pipe.profile_node("block"):
        helper()
    pipe.profile_node(lambda: None, name="given", stage="val")()
    foreign = types.SimpleNamespace(run=lambda: 5)
    with pipe.instrument(foreign, "run", name="foreign"):
        assert foreign.run() == 5
    assert piped(pipe) == {"helper": 1, "block": 1, "given": 1, "foreign": 1}


def test_the_mixin_leaves_no_trace_in_classes_and_instances() -> None:
    assert cp.PipelineProfiling.__slots__ == ()
    assert "__dict__" not in cp.PipelineProfiling.__dict__
    assert "__init__" not in cp.PipelineProfiling.__dict__
    assert "__new__" not in cp.PipelineProfiling.__dict__
    pipe = on(Pipe())
    pipe.forward()
    assert vars(pipe) == {"name": "pipe"}


def _run_often(owner: Any) -> None:
    for _ in range(2000):
        owner.run()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="specialized instructions came with Python 3.11")
@pytest.mark.parametrize("base", [Pipe, cp.PipelineProfiling])
@pytest.mark.parametrize(
    "prepare",
    [
        on,
        lambda pipe: on(pipe).set_profiling(False),
        lambda pipe: cp.instrument(pipe, "snapshot"),
        lambda pipe: [cp.instrument(each, "snapshot") for each in (type(pipe)(), pipe)],
        lambda pipe: cp.instrument(pipe, "snapshot").remove(),
    ],
    ids=["on", "off", "instrumented", "second of its class", "removed"],
)
def test_other_methods_stay_as_fast_as_python_makes_them(prepare: Callable[[Any], object], base: Any) -> None:
    def instructions(pipe: Any) -> list[str]:
        run_often = types.FunctionType(_run_often.__code__.replace(co_name="run_often"), {"range": range})
        run_often(pipe)
        return [each.opname for each in dis.get_instructions(run_often, adaptive=True)]  # type: ignore[call-arg, unused-ignore]

    class Unprofiled(base):  # type: ignore[misc]
        def run(self) -> None: ...

    class Profiled(base):  # type: ignore[misc]
        def run(self) -> None: ...

    pipe = Profiled()
    prepare(pipe)
    assert instructions(pipe) == instructions(Unprofiled())


def test_switching_asks_no_descriptor_of_the_users() -> None:
    class NotReady:
        def __call__(self) -> None: ...

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            if instance is None:
                return self
            raise RuntimeError("not ready")

    class Base:
        forward = NotReady()

    class Own(cp.PipelineProfiling):
        forward = NotReady()

    class Inheriting(cp.PipelineProfiling, Base):
        pass

    for pipe in (Own(), Inheriting()):
        assert on(pipe).profiling_enabled
        with pytest.raises(RuntimeError, match="not ready"):
            _ = pipe.forward


def test_the_profiler_needs_no_init_and_stays_the_same() -> None:
    class NoInit(cp.PipelineProfiling):
        def __init__(self) -> None:
            pass

    one, two = NoInit(), NoInit.__new__(NoInit)
    assert one.profiler is one.profiler
    assert two.profiler is two.profiler
    assert one.profiler is not two.profiler
    assert isinstance(one.profiler, cp.Profiler)


# ---- instances of every shape --------------------------------------------------------------------


class Slotted(cp.PipelineProfiling):
    __slots__ = ("name",)

    def __init__(self, name: str = "slotted") -> None:
        self.name = name

    @cp.profile_node
    def step(self) -> str:
        return self.name

    def forward(self) -> str:
        helper()
        return self.step()


class SlottedWithWeakReferences(Slotted):
    __slots__ = ("__weakref__",)


class OfTuple(cp.PipelineProfiling, tuple):  # type: ignore[type-arg]
    __slots__ = ()

    def forward(self) -> None:
        helper()


class OfInt(cp.PipelineProfiling, int):
    def __call__(self) -> None:
        helper()


@dataclasses.dataclass
class Unhashable(cp.PipelineProfiling):
    name: str = "x"

    def forward(self) -> None:
        helper()


@dataclasses.dataclass(frozen=True)
class Frozen(cp.PipelineProfiling):
    name: str = "x"

    def forward(self) -> None:
        helper()


@dataclasses.dataclass(slots=True)
class MadeTwice(cp.PipelineProfiling):
    """The decorator makes a second class of the first one's body."""

    name: str = "x"

    def forward(self) -> None:
        helper()


class Hostile(cp.PipelineProfiling):
    """Answers no question about itself."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise ZeroDivisionError(name)

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    def __hash__(self) -> int:
        raise ZeroDivisionError

    def __bool__(self) -> bool:
        raise ZeroDivisionError

    def __len__(self) -> int:
        raise ZeroDivisionError

    def forward(self) -> None:
        helper()


SHAPES: list[Any] = [
    Slotted, SlottedWithWeakReferences, OfTuple, OfInt, Unhashable, Frozen,
    MadeTwice, Hostile,
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_instances_of_every_shape(shape: Any) -> None:
    pipelines = [shape() for _ in range(3)]
    for i, pipeline in enumerate(pipelines):
        on(pipeline)
        for _ in range(i + 1):
            (pipeline.forward if hasattr(shape, "forward") else pipeline)()
    assert [piped(pipeline)["helper"] for pipeline in pipelines] == [1, 2, 3]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_new_instance_at_an_old_address_has_a_new_profiler(shape: Any) -> None:
    references = []
    for _ in range(100):
        pipeline = shape()
        assert not pipeline.profiling_enabled
        on(pipeline)
        references.append(weakref.ref(pipeline.profiler))
        del pipeline
    gc.collect()
    assert not any(reference() for reference in references)


def test_finalizers_of_instances_without_weak_references_still_run() -> None:
    log: list[str] = []

    class Base(cp.PipelineProfiling):
        __slots__ = ()

        def __del__(self) -> None:
            log.append("base")

    class Silent(Base):
        __slots__ = ()

    class Own(Base):
        __slots__ = ()

        def __del__(self) -> None:
            log.append("own")
            super().__del__()

    for cls, expected in ((Base, ["base"]), (Silent, ["base"]), (Own, ["own", "base"])):
        on(cls())
        assert log == expected
        log.clear()


def test_pipelines_do_not_live_longer_for_being_profiled() -> None:
    """F13."""
    pipe = on(Pipe())
    pipe.forward()
    cyclic = on(Pipe())
    cyclic.name = cyclic
    cyclic.forward()
    references = [weakref.ref(thing) for thing in (pipe, pipe.profiler, cyclic, cyclic.profiler)]
    del pipe, cyclic
    gc.collect()
    assert [reference() for reference in references] == [None] * 4
    pipe = on(Pipe())
    pipe.forward()
    profiler = pipe.profiler
    del pipe
    assert counts(profiler) == {"helper": 2, "Pipe.step": 1}


# ---- copies --------------------------------------------------------------------------------------


def cloned(pipeline: Any) -> Any:
    """What scikit-learn's and others' clone functions do."""
    clone = object.__new__(type(pipeline))
    clone.__dict__.update(pipeline.__dict__)
    return clone


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.copy,
        copy.deepcopy,
        cloned,
        *(functools.partial(lambda n, x: pickle.loads(pickle.dumps(x, n)), n) for n in PROTOCOLS),
    ],
)
def test_copies_pickles_and_clones_start_with_a_new_profiler_that_is_off(duplicate: Any) -> None:
    pipe = on(Pipe("original"))
    pipe.forward()
    other = duplicate(pipe)
    assert type(other) is Pipe
    assert other.name == "original"
    assert not other.profiling_enabled
    assert other.get_profiling_summary() == []
    assert other.profiler is not pipe.profiler
    other.forward()
    on(other).forward()
    assert piped(other) == piped(pipe) == {"helper": 2, "Pipe.step": 1}
    assert pipe.profiling_enabled


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_slotted_and_frozen_pipelines(duplicate: Any) -> None:
    for pipe in (Slotted("original"), Frozen("original"), MadeTwice("original"), SlottedWithWeakReferences("original")):
        other = duplicate(on(pipe))
        assert other.name == "original"
        assert not other.profiling_enabled
    assert not dataclasses.replace(on(Frozen("x")), name="y").profiling_enabled


# ---- forward and __call__ ------------------------------------------------------------------------


def test_forward_looks_as_it_did() -> None:
    def forward(self: Any, x: int, *, y: str = "z") -> bool:
        """Document forward."""
        return True

    cls: Any = type("Made", (cp.PipelineProfiling,), {"forward": forward, "other": forward})
    assert inspect.signature(cls.forward) == inspect.signature(cls.other)
    assert inspect.unwrap(cls.forward) is forward
    assert (cls.forward.__doc__, cls.forward.__name__) == ("Document forward.", "forward")
    assert cls.other is forward
    assert cls().forward(1, y="y") is True


class AsyncPipe(cp.PipelineProfiling):
    async def forward(self, *values: int) -> list[int]:
        for _ in values:
            helper()
            await asyncio.sleep(TICK / 10)
        return list(values)


class GeneratorPipe(cp.PipelineProfiling):
    def forward(self, *values: int) -> Iterator[int]:
        for value in values:
            helper()
            yield value


class AsyncGeneratorPipe(cp.PipelineProfiling):
    async def forward(self, *values: int) -> AsyncIterator[int]:
        for value in values:
            helper()
            await asyncio.sleep(TICK / 10)
            yield value


@pytest.mark.parametrize(
    ("cls", "question"),
    [
        (AsyncPipe, inspect.iscoroutinefunction),
        (GeneratorPipe, inspect.isgeneratorfunction),
        (AsyncGeneratorPipe, inspect.isasyncgenfunction),
    ],
)
def test_a_forward_of_another_kind_keeps_it_and_binds_while_it_runs(
    cls: Any, question: Any, default: cp.Profiler
) -> None:
    async def use(pipe: Any) -> list[int]:
        running = pipe.forward(1, 2, 3)
        values = []
        if cls is AsyncPipe:
            values = await running
        elif cls is GeneratorPipe:
            for value in running:
                helper()
                values.append(value)
        else:
            async for value in running:
                helper()
                await asyncio.sleep(0)
                values.append(value)
        return values

    async def main() -> None:
        assert await asyncio.gather(*map(use, pipelines)) == [[1, 2, 3]] * 2
        helper()

    pipelines = [on(cls()) for _ in range(2)]
    assert question(cls.forward)
    assert question(pipelines[0].forward)
    asyncio.run(main())
    assert [piped(pipe) for pipe in pipelines] == [{"helper": 3}] * 2
    assert counts(default) == {"helper": 1 if cls is AsyncPipe else 7}


def test_call_binds_too_and_so_do_aliases(default: cp.Profiler) -> None:
    class Called(cp.PipelineProfiling):
        def __call__(self) -> str:
            helper()
            return "called"

        forward = __call__

        def other(self) -> None:
            helper()

    pipe = on(Called())
    assert (pipe(), pipe.forward()) == ("called", "called")
    pipe.other()
    assert piped(pipe) == {"helper": 2}
    assert counts(default) == {"helper": 1}


def test_inherited_and_overridden_forwards(default: cp.Profiler) -> None:
    class Inherits(Pipe):
        pass

    class Overrides(Inherits):
        def forward(self, *inside: Any) -> str:
            helper()
            return "over " + super().forward(*inside)

    class Foreign:
        def forward(self, *inside: Any) -> str:
            helper()
            return "foreign"

    class FromForeign(Foreign, cp.PipelineProfiling):
        """The first base knows nothing of pipelines."""

    class Extends(cp.PipelineProfiling, Foreign):
        def forward(self, *inside: Any) -> str:
            return super().forward(*inside)

    for cls, result, expected in (
        (Inherits, "pipe", {"helper": 2, "Pipe.step": 1}),
        (Overrides, "over pipe", {"helper": 3, "Pipe.step": 1}),
        (FromForeign, "foreign", {"helper": 1}),
        (Extends, "foreign", {"helper": 1}),
    ):
        pipe = on(cls())
        assert pipe.forward() == result
        assert piped(pipe) == expected
    assert counts(default) == {}


class Foreign:
    """Somebody else's class, of whose methods a pipeline makes its own."""

    def forward(self) -> str:
        helper()
        return "foreign"

    async def __call__(self) -> str:
        helper()
        return "called"


class Coroutines:
    async def forward(self) -> str:
        helper()
        return "coroutine"


def test_an_inherited_forward_follows_its_class_and_the_order_of_bases(default: cp.Profiler) -> None:
    class First(Foreign, cp.PipelineProfiling):
        pass

    class Second(Foreign):
        def forward(self) -> str:
            helper()
            return "second"

    class Both(First, Second):
        pass

    assert on(Both()).forward() == "second"
    pipe = on(First())
    plain, Foreign.forward = Foreign.forward, lambda self: f"replaced, {helper()}"  # type: ignore[method-assign]
    try:
        assert pipe.forward() == "replaced, None"
    finally:
        Foreign.forward = plain  # type: ignore[method-assign]
    assert First.forward(Foreign()) == "foreign"
    assert inspect.signature(First.forward) == inspect.signature(plain)
    assert inspect.isfunction(First.forward)
    assert piped(pipe) == {"helper": 1}
    assert counts(default) == {"helper": 1}
    del Second.forward, plain
    with pytest.raises(TypeError, match="required positional argument: 'self'"):
        First.forward()


def test_the_kind_of_an_inherited_forward_is_as_before() -> None:
    class Later(Coroutines, cp.PipelineProfiling):
        pass

    class Called(Foreign, cp.PipelineProfiling):
        forward = None  # type: ignore[assignment]

    assert inspect.iscoroutinefunction(Later.forward)
    pipe = on(Later())
    assert asyncio.run(pipe.forward()) == "coroutine"
    assert piped(pipe) == {"helper": 1}
    called = on(Called())
    assert asyncio.run(called()) == "called"
    assert piped(called) == {"helper": 1}
    assert "__call__" not in vars(type("Forward", (Foreign, cp.PipelineProfiling), {}))


@pytest.mark.parametrize("owner", ["class", "instance", "base"])
def test_a_forward_that_is_assigned_later(owner: str, default: cp.Profiler) -> None:
    class Base:
        pass

    class Later(Base, cp.PipelineProfiling):
        pass

    pipe = Later()
    target: Any = {"class": Later, "instance": pipe, "base": Base}[owner]
    target.forward = (lambda: helper()) if owner == "instance" else (lambda self: helper())
    on(pipe)
    pipe.forward()  # type: ignore[attr-defined]
    assert piped(pipe) == {"helper": 1}
    copied = on(copy.copy(pipe))
    copied.forward()
    assert piped(copied) == piped(pipe) == {"helper": 1}
    assert counts(default) == {}


@pytest.mark.parametrize("owner", ["class", "instance"])
def test_a_forward_that_is_replaced_while_profiling_is_on_is_said(
    owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Replaced(Pipe):
        pass

    pipe = on(Replaced())
    target: Any = Replaced if owner == "class" else pipe
    target.forward = lambda *_: helper()
    pipe.forward()
    with pytest.warns(RuntimeWarning, match="forward or __call__ of .*Replaced was replaced: what ran inside counted"):
        assert piped(pipe) == {}
    pipe.forward()
    target.forward = lambda *_: helper()
    assert piped(pipe) == {"helper": 1}  # where the warning is an error, it is no exception
    assert capsys.readouterr().err.startswith("cprofiling: forward or __call__ of ")


def test_a_decorated_forward_is_a_node_and_binds() -> None:
    class Decorated(cp.PipelineProfiling):
        @cp.profile_node("whole")
        def forward(self) -> None:
            helper()

        @cp.profile_node("called")
        async def __call__(self) -> None:
            await asyncio.sleep(0)
            helper()

    pipe = on(Decorated())
    pipe.forward()
    asyncio.run(_await(pipe))
    assert piped(pipe) == {"helper": 2, "whole": 1, "called": 1}


async def _await(pipe: Any) -> Any:
    return await pipe()


def test_what_is_no_method_is_left_alone() -> None:
    class Odd(cp.PipelineProfiling):
        forward = 5
        __call__ = None

    class Static(cp.PipelineProfiling):
        @staticmethod
        def forward(x: int) -> int:
            return x

        @classmethod
        def __call__(cls, x: int) -> int:
            return x

    class Holds(cp.PipelineProfiling):
        forward = dict

    assert Odd.forward == 5
    assert Odd.__call__ is None
    assert Static.forward(3) == Static().forward(3) == Static.__call__(3) == 3
    assert Holds.forward is dict


def test_abstract_forwards_stay_abstract() -> None:
    class Base(cp.PipelineProfiling, abc.ABC):
        @abc.abstractmethod
        def forward(self) -> None: ...

    class Concrete(Base):
        def forward(self) -> None:
            super().forward()  # type: ignore[safe-super]
            helper()

    assert Base.__abstractmethods__ == {"forward"}
    with pytest.raises(TypeError, match="abstract"):
        Base()  # type: ignore[abstract]
    pipe = on(Concrete())
    pipe.forward()
    assert piped(pipe) == {"helper": 1}


def test_init_subclass_cooperates() -> None:
    seen: dict[str, Any] = {}

    class Tagged:
        def __init_subclass__(cls, tag: str = "", **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            seen[cls.__name__] = tag

    class Both(cp.PipelineProfiling, Tagged, tag="both"):
        def forward(self) -> None:
            helper()

    class Sub(Both, tag="sub"):
        pass

    assert seen == {"Both": "both", "Sub": "sub"}
    with pytest.raises(TypeError):
        type("Wrong", (cp.PipelineProfiling,), {}, unknown=1)
    pipe = on(Sub())
    pipe.forward()
    assert piped(pipe) == {"helper": 1}


def test_an_exception_of_forward_is_the_very_same_and_ends_the_binding(default: cp.Profiler) -> None:
    error = KeyError("text")

    def fail() -> None:
        raise error

    pipe = on(Pipe())
    with pytest.raises(KeyError) as caught:
        pipe.forward(fail)
    assert caught.value is error
    assert error.__context__ is None
    helper()
    assert counts(default) == {"helper": 1}
    assert piped(pipe) == {"helper": 1}


def test_forward_called_in_strange_ways() -> None:
    pipe = on(Pipe())
    assert Pipe.forward(pipe) == Pipe.forward(self=pipe) == Pipe.step(self=pipe) == "pipe"
    with pytest.raises(TypeError):
        Pipe.forward()  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Pipe.forward(5)  # type: ignore[arg-type]
    assert piped(pipe)["Pipe.step"] == 3


# ---- which Profiler records a call ---------------------------------------------------------------


def test_rule_1_the_profiler_given(default: cp.Profiler) -> None:
    p, other, pipe = profiler_on(), profiler_on(), on(Pipe())
    given = cp.profile_node("given", profiler=p)(lambda *args: None)
    with other:
        given(pipe)
        pipe.forward(given, functools.partial(given, pipe))
        with other.profile_node("block"):
            given()
    assert counts(p) == {"given": 4}
    assert counts(other) == {"block": 1}
    assert counts(default) == {}
    assert piped(pipe) == {"helper": 2, "Pipe.step": 1}


def test_rule_2_the_first_argument(default: cp.Profiler) -> None:
    outer, inner, other = on(Pipe("outer")), on(Pipe("inner")), profiler_on()
    run = cp.profile_node("run")(lambda pipeline, *args: None)
    run(5, outer)
    assert counts(default) == {"run": 1}
    cp.reset_profiling()
    with other:
        outer.forward(inner.step, functools.partial(run, inner, outer))
        run(inner)
        with other.profile_node("block"):
            run(outer)
    assert piped(outer) == {"helper": 2, "Pipe.step": 1, "run": 1}
    assert piped(inner) == {"Pipe.step": 1, "run": 2}
    assert counts(other) == {"block": 1}
    assert counts(default) == {}


def test_rule_2_where_a_class_or_its_bases_are_assigned(default: cp.Profiler) -> None:
    class Base:
        text = ""

    class Plain(Base):
        pass

    class Piped(Base, cp.PipelineProfiling):
        pass

    changed = on(Piped())
    plain: Any = Plain()
    profiler = changed.profiler
    changed.__class__ = Plain
    assert plain.text == ""  # the class has a version
    run = cp.profile_node("run")(lambda pipeline: None)
    for _ in range(2):
        run(plain)
        run(changed)
    assert (counts(default), counts(profiler)) == ({"run": 2}, {"run": 2})
    Plain.__bases__ = (Base, cp.PipelineProfiling)
    run(plain)  # a pipeline now, and off
    on(plain)
    run(plain)
    assert (counts(default), piped(plain)) == ({"run": 2}, {"run": 1})


def test_rule_3_the_innermost_running_pipeline(default: cp.Profiler) -> None:
    outer, inner = on(Pipe("outer")), on(Pipe("inner"))
    outer.forward(inner.forward, helper)
    assert piped(outer) == {"helper": 3, "Pipe.step": 1}
    assert piped(inner) == {"helper": 2, "Pipe.step": 1}
    helper()
    assert counts(default) == {"helper": 1}


def test_rule_3_the_innermost_running_call_or_block(default: cp.Profiler) -> None:
    p, q, bound = profiler_on(), profiler_on(), profiler_on()
    with bound, p.profile_node("block of p"):
        helper()
        with bound:
            q.profile_node("call of q")(lambda: helper())()
            helper()
        cp.profile_node("unbound")(lambda: helper())()
    assert counts(p) == {"helper": 3, "unbound": 1, "block of p": 1}
    assert counts(q) == {"helper": 1, "call of q": 1}
    assert counts(bound) == counts(default) == {}


def test_rule_3_a_pipeline_that_is_off_keeps_its_calls_to_itself(default: cp.Profiler) -> None:
    outer, inner = on(Pipe("outer")), Pipe("inner")
    outer.forward(inner.forward)
    inner.forward()
    inner.step()
    assert piped(outer) == {"helper": 2, "Pipe.step": 1}
    assert piped(inner) == counts(default) == {}


def test_rule_3_a_call_that_is_not_profiled_is_none() -> None:
    p, off, bound = profiler_on(), cp.Profiler(), profiler_on()
    with bound, off.profile_node("off"):
        helper()
    with p.profile_node("on"), off.profile_node("off"):
        helper()
    assert counts(bound) == {"helper": 1}
    assert counts(p) == {"helper": 1, "on": 1}


def test_rule_3_a_running_call_stays_the_owner_when_its_profiler_is_switched_off(default: cp.Profiler) -> None:
    p = profiler_on()
    with p.profile_node("block"):
        p.set_profiling(False)
        helper()
        p.set_profiling(True)
        helper()
    assert counts(p) == {"helper": 1, "block": 1}
    assert counts(default) == {}


def test_rule_3_stops_at_the_thread(default: cp.Profiler) -> None:
    bound, pipe = profiler_on(), on(Pipe())
    with bound:
        pipe.forward(lambda: in_new_thread(helper))
        in_new_thread(helper)
        in_new_thread(functools.partial(contextvars.copy_context().run, helper))
    assert piped(pipe) == {"helper": 2, "Pipe.step": 1}
    assert counts(bound) == {"helper": 1}
    assert counts(default) == {"helper": 2}


def test_rule_3_stops_at_the_task(default: cp.Profiler) -> None:
    class Spawns(cp.PipelineProfiling):
        async def forward(self) -> None:
            helper()
            await asyncio.create_task(_async_helper())
            await _async_helper()

    pipe = on(Spawns())
    asyncio.run(pipe.forward())
    assert piped(pipe) == {"helper": 2}
    assert counts(default) == {"helper": 1}


async def _async_helper() -> None:
    await asyncio.sleep(0)
    helper()


def test_rule_4_the_profiler_bound_by_with(default: cp.Profiler) -> None:
    pipe, p = on(Pipe()), profiler_on()
    with pipe.profiler as entered:
        assert entered is pipe.profiler
        helper()
        with p, p:
            helper()
            with pipe.profiler:
                helper()
            helper()
        helper()
    helper()
    assert piped(pipe) == {"helper": 3}
    assert counts(p) == {"helper": 2}
    assert counts(default) == {"helper": 1}


def test_rule_4_holds_for_tasks_and_not_for_threads(default: cp.Profiler) -> None:
    p, q = profiler_on(), profiler_on()

    async def in_task(profiler: cp.Profiler, delay: int) -> None:
        with profiler:
            for _ in range(delay):
                await asyncio.sleep(0)
            helper()

    async def main() -> None:
        with p:
            task = asyncio.create_task(_async_helper())
        with q:
            await task
        await asyncio.gather(in_task(p, 3), in_task(q, 2), in_task(p, 1), _async_helper())

    asyncio.run(main())
    assert counts(p) == {"helper": 3}
    assert counts(q) == {"helper": 1}
    assert counts(default) == {"helper": 1}


def test_rule_4_a_bound_profiler_that_is_off_keeps_its_calls_to_itself(default: cp.Profiler) -> None:
    with cp.Profiler():
        helper()
    assert counts(default) == {}


def test_bindings_that_end_out_of_order_or_were_never_begun(default: cp.Profiler) -> None:
    p = profiler_on()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Profiler"):
            p.__exit__(None, None, None)
    with p:
        helper()
    p.__enter__()
    in_new_thread(lambda: p.__exit__(None, None, None))
    with pytest.raises(RuntimeError, match="Profiler"):
        p.__exit__(None, None, None)
    helper()
    assert (counts(p), counts(default)) == ({"helper": 1}, {"helper": 1})


def test_a_binding_keeps_its_profiler_alive(default: cp.Profiler) -> None:
    stack = contextlib.ExitStack()
    reference = weakref.ref(stack.enter_context(profiler_on()))
    gc.collect()
    kept = reference()
    assert kept is not None
    helper()
    assert counts(kept) == {"helper": 1}
    stack.close()
    del kept
    gc.collect()
    assert reference() is None


def test_rule_5_the_default_profiler(default: cp.Profiler) -> None:
    helper()
    in_new_thread(helper)
    assert counts(default) == {"helper": 2}
    assert cp.profiling_enabled()
    assert "helper" in cp.format_profiling_summary()
    cp.reset_profiling()
    assert cp.get_profiling_summary() == []
    cp.set_profiling(False)
    helper()
    assert cp.get_profiling_summary() == []
    assert not cp.profiling_enabled()


def test_a_pipeline_that_dies_while_it_runs() -> None:
    class Mortal(cp.PipelineProfiling):
        def forward(self) -> cp.Profiler:
            profiler = self.profiler
            holder.clear()
            del self
            gc.collect()
            helper()
            time.sleep(0)
            return profiler

    holder = [on(Mortal())]
    profiler = holder[0].forward()
    assert counts(profiler) == {"helper": 1}
