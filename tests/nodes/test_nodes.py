"""profile_node as a decorator: names, arguments, exceptions, counts (failure scenarios A1, A2, B3, B5, F14, F16)."""

# Nodes are made of lambdas here, which have no types.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import abc
import asyncio
import concurrent.futures
import contextlib
import functools
import operator
import random
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import cprofiling as cp
from calls import SLEPT_MS, TICK, by_name, counts, outcomes, profiler_on, spin

pytestmark = pytest.mark.native


# ---- the decorator -------------------------------------------------------------------------------


def _step(x: int) -> int:
    return x + 1


@pytest.mark.parametrize("spelling", ["bare", "empty", "positional", "keyword"])
def test_every_spelling_of_the_decorator(p: cp.Profiler, spelling: str) -> None:
    decorator: Any = {
        "bare": p.profile_node,
        "empty": p.profile_node(),
        "positional": p.profile_node("given"),
        "keyword": p.profile_node(name="given"),
    }[spelling]

    step = decorator(_step)

    assert step(1) == 2
    assert counts(p) == {"given" if spelling in ("positional", "keyword") else "_step": 1}


class Outer:
    class Inner:
        def method(self) -> str:
            return "method"

        def __call__(self) -> str:
            return "called"


def module_function() -> None:
    pass


def _local_function() -> Any:
    def inside() -> None:
        pass

    return inside


def _local_method() -> Any:
    class Local:
        def method(self) -> None:
            pass

    return Local.method


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (module_function, "module_function"),
        (_local_function(), "inside"),
        (_local_method(), "Local.method"),
        (Outer.Inner.method, "Outer.Inner.method"),
        (Outer.Inner().method, "Outer.Inner.method"),
        (Outer.Inner(), "Outer.Inner"),
        (lambda: None, "<lambda>"),
        (functools.partial(module_function), "module_function"),
        (functools.partial(functools.partial(_local_function())), "inside"),
        (len, "len"),
        ([].append, "list.append"),
        (operator.itemgetter(0), "itemgetter"),
    ],
)
def test_default_name_is_the_qualname_after_the_last_locals(p: cp.Profiler, function: Any, name: str) -> None:
    node = p.profile_node(function)
    with contextlib.suppress(TypeError):
        node()
    assert [stats.node_name for stats in p.get_profiling_summary()] == [name]


@pytest.mark.parametrize(
    "decorate", [lambda p: p.profile_node, lambda p: p.profile_node("n"), lambda p: p.profile_node()]
)
@pytest.mark.parametrize("cls", [int, Outer, type, abc.ABC, dataclass(Outer), type("Dynamic", (), {})])
def test_decorating_a_class_is_a_type_error(p: cp.Profiler, decorate: Any, cls: type) -> None:
    with pytest.raises(TypeError, match="class"):
        decorate(p)(cls)


@pytest.mark.parametrize("thing", [1, 1.5, [], {}, object(), b"name", ..., True])
def test_decorating_what_cannot_be_called_is_a_type_error(p: cp.Profiler, thing: object) -> None:
    with pytest.raises(TypeError, match=type(thing).__name__):
        p.profile_node(thing)
    with pytest.raises(TypeError, match=type(thing).__name__):
        p.profile_node("n")(thing)


def test_two_names_are_a_type_error(p: cp.Profiler) -> None:
    with pytest.raises(TypeError, match="name"):
        p.profile_node("one", name="two")


# ---- names found per instance --------------------------------------------------------------------


class Named:
    """Asked for its name by the tests below."""

    def __init__(self, name: str) -> None:
        self.name = name


def named_node(p: cp.Profiler, asked: list[Any]) -> Any:
    """A node that is named by its first argument; `asked` receives each that was asked."""

    def find(self: Any) -> Any:
        asked.append(self)
        return self.name

    @p.profile_node(name=find)
    def run(self: Any, value: int = 0) -> int:
        return value

    return run


def test_name_is_asked_for_once_per_instance(p: cp.Profiler) -> None:
    asked: list[Any] = []
    run = named_node(p, asked)
    a, b = Named("a"), Named("b")
    for _ in range(3):
        run(a)
        assert run(b, 5) == 5
    p.reset_profiling()
    p.set_profiling(False)
    p.set_profiling(True)
    run(a)
    assert asked == [a, b]
    assert counts(p) == {"a": 1}


@dataclass(eq=False)
class Slotted:
    """Takes no weak reference."""

    __slots__ = ("name",)
    name: str


@dataclass
class Equal:
    name: str

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [Slotted, Equal])
def test_instances_without_weak_references_and_equal_ones_have_their_own_names(p: cp.Profiler, kind: Any) -> None:
    run = named_node(p, [])
    instances = [kind("a"), kind("b")]
    for instance in instances * 3:
        run(instance)
    assert counts(p) == {"a": 3, "b": 3}


def test_a_new_instance_at_an_old_address_is_asked_again(p: cp.Profiler) -> None:
    run = named_node(p, [])
    expected = {}
    for i in range(200):
        run(Named(f"n{i}"))
        expected[f"n{i}"] = 1
    assert counts(p) == expected


def test_name_of_a_class_method_and_of_plain_arguments(p: cp.Profiler) -> None:
    class Stage:
        label = "of the class"

        @classmethod
        @p.profile_node(name=lambda cls: cls.label)
        def run(cls) -> str:
            return cls.__name__

    class Sub(Stage):
        label = "of the subclass"

    by_value = p.profile_node(name=str)(abs)
    assert (Stage.run(), Sub.run(), by_value(-3), by_value(-3), by_value(4)) == ("Stage", "Sub", 3, 3, 4)
    assert counts(p) == {"of the class": 1, "of the subclass": 1, "-3": 2, "4": 1}


@pytest.mark.parametrize(
    "form", ["function", "method", "bound", "partial", "object", "wrapped", "keyword only", "generator"]
)
def test_the_first_argument_may_come_by_keyword(p: cp.Profiler, form: str) -> None:
    class Things:
        def method(self, x: Any) -> Any:
            return x

        def __call__(self, x: Any) -> Any:
            return x

    def function(x: Any, *, y: Any = 1) -> Any:
        return x, y

    def generate(x: Any) -> Iterator[Any]:
        yield x

    callables: dict[str, Any] = {
        "function": function,
        "method": lambda *, x: Things.method(self=Things(), x=x),
        "bound": Things().method,
        "partial": functools.partial(function, y=2),
        "object": Things(),
        "wrapped": functools.wraps(function)(lambda *args, **kwargs: function(*args, **kwargs)),
        "keyword only": lambda *, x, y=0: x,
        "generator": generate,
    }
    node = p.profile_node(name=lambda first: f"for {first}")(callables[form])
    if form == "method":
        node = p.profile_node(name=lambda self: f"for {type(self).__name__}")(Things.method)
        node(x=5, self=Things())
    elif form == "generator":
        list(node(x=5))
    else:
        node(x=5)
        node(x=5)
    assert counts(p) == {"for Things" if form == "method" else "for 5": 1 if form in ("method", "generator") else 2}


@pytest.mark.parametrize("function", [lambda *args, **kwargs: kwargs, lambda x=0, /, **kwargs: kwargs, dict])
def test_what_has_no_first_parameter_is_not_asked(p: cp.Profiler, function: Any) -> None:
    node = p.profile_node(name=lambda first: "asked")(functools.partial(function))
    assert (node(x=1), node()) == ({"x": 1}, {})
    assert "asked" not in counts(p)


def test_a_node_does_not_keep_its_instances_alive(p: cp.Profiler) -> None:
    asked: list[Any] = []
    run = named_node(p, asked)
    instance = Named("n")
    run(instance)
    asked.clear()
    reference = weakref.ref(instance)
    del instance
    assert reference() is None
    assert counts(p) == {"n": 1}


def test_name_is_not_asked_for_while_off() -> None:
    p = cp.Profiler()
    asked: list[Any] = []
    named_node(p, asked)(Named("n"))
    assert asked == []


# ---- arguments, results, exceptions pass through -------------------------------------------------


def echo(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


@pytest.mark.parametrize("is_on", [True, False])
def test_arguments_pass_untouched(p: cp.Profiler, is_on: bool) -> None:
    """F16."""
    p.set_profiling(is_on)
    node = p.profile_node(echo)
    rng = random.Random(16)
    names = ["self", "args", "kwargs", "function", "name", "x", "\u00e9", "not an identifier", ""]
    for _ in range(200):
        args = tuple(object() for _ in range(rng.randrange(6)))
        kwargs = {name: object() for name in rng.sample(names, rng.randrange(len(names)))}
        assert node(*args, **kwargs) == (args, kwargs)
    many = tuple(range(100_000))
    assert node(*many) == (many, {})
    assert len(node(**{f"k{i}": i for i in range(10_000)})[1]) == 10_000


@pytest.mark.parametrize(
    "error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, RecursionError, MemoryError]
)
def test_the_exception_is_the_very_same(p: cp.Profiler, error: type[BaseException]) -> None:
    """A1, A2: same object, no frame of ours in its traceback, its context as without us."""
    raised = error("text")

    def node() -> None:
        raise raised

    with pytest.raises(error) as caught:
        p.profile_node(node)()
    assert caught.value is raised
    assert raised.__context__ is None
    assert raised.__cause__ is None
    frames = [frame.name for frame in traceback.extract_tb(raised.__traceback__)]
    assert frames[-2:] == ["test_the_exception_is_the_very_same", "node"]
    assert len(frames) == 2
    assert outcomes(p, "node") == (0, 1, 0, 0, 0)


def test_the_context_of_an_exception_is_kept(p: cp.Profiler) -> None:
    first, second = KeyError("first"), IndexError("second")

    @p.profile_node
    def node() -> None:
        assert sys.exc_info()[1] is first
        raise second

    def handle() -> None:
        try:
            raise first
        except KeyError:
            node()

    with pytest.raises(IndexError) as caught:
        handle()
    assert caught.value is second
    assert second.__context__ is first
    assert sys.exc_info() == (None, None, None)


class Cancelled(asyncio.CancelledError):
    """A subclass is a cancellation, too."""


@pytest.mark.parametrize(
    ("error", "column"),
    [
        (asyncio.CancelledError, 2),
        (Cancelled, 2),
        (concurrent.futures.CancelledError, 1),
        (asyncio.TimeoutError, 1),
        (asyncio.InvalidStateError, 1),
    ],
)
@pytest.mark.parametrize("form", ["call", "block"])
def test_cancellations_are_not_errors(p: cp.Profiler, error: type[BaseException], column: int, form: str) -> None:
    p.set_profiling(True, skip_first_n=1)
    if form == "call":
        with pytest.raises(error):
            p.profile_node("n")(operator.itemgetter(0))(_Raising(error))
    else:
        with pytest.raises(error), p.profile_node("n"):
            raise error
    expected = [0, 0, 0, 0, 0]
    expected[column] = 1
    assert outcomes(p, "n") == tuple(expected)


class _Raising:
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __getitem__(self, index: int) -> None:
        raise self.error


def test_errors_use_up_no_skip(p: cp.Profiler) -> None:
    p.set_profiling(True, skip_first_n=2)
    calls: list[Any] = [ValueError, 1, ValueError, asyncio.CancelledError, 2, 3, ValueError, 4]
    for index, call in enumerate(calls):
        with contextlib.suppress(ValueError, asyncio.CancelledError):
            p.profile_node("n")(operator.itemgetter(0))(_Raising(call) if isinstance(call, type) else [call])
        stats = by_name(p)["n"]
        assert sum(outcomes(p, "n")) == index + 1, stats
    assert outcomes(p, "n") == (2, 3, 1, 2, 0)


def test_a_key_with_errors_only_is_in_the_summary_but_not_in_the_table(p: cp.Profiler) -> None:
    with pytest.raises(IndexError):
        p.profile_node("failing")(operator.itemgetter(0))([])
    assert p.format_profiling_summary() == "No profiling data collected."
    stats = by_name(p)["failing"]
    ten = [stats.mean_ms, stats.median_ms, stats.std_ms, stats.min_ms, stats.max_ms, stats.total_ms, stats.last_ms]
    assert (stats.count, ten) == (0, [0.0] * 7)
    assert (stats.p50_ms, stats.p999_ms, stats.first_ms) == (None, None, None)
    p.profile_node("fine")(module_function)()
    table = p.format_profiling_summary()
    assert "fine" in table
    assert "failing" not in table


def test_first_ms_is_the_first_successful_call_skipped_or_not(p: cp.Profiler) -> None:
    p.set_profiling(True, skip_first_n=1)
    node = p.profile_node("n")(lambda action: action())
    with pytest.raises(ZeroDivisionError):
        node(lambda: 1 / 0)
    assert by_name(p)["n"].first_ms is None
    node(functools.partial(time.sleep, TICK))
    stats = by_name(p)["n"]
    assert (stats.count, stats.skipped_count) == (0, 1)
    assert stats.first_ms is not None
    assert stats.first_ms >= 0.75e3 * TICK
    node(int)
    after = by_name(p)["n"]
    assert after.first_ms == stats.first_ms
    assert after.last_ms == after.max_ms < stats.first_ms


# ---- decorated twice (F14) -----------------------------------------------------------------------


def to_int(text: str) -> int:
    return int(text)


def passed_on(function: Any) -> Any:
    """A third party's decorator, as functools.wraps makes them."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    "between", [lambda f: f, passed_on, functools.partial, lambda f: passed_on(functools.partial(f))]
)
@pytest.mark.parametrize("layers", [2, 3, 4])
def test_decorated_twice_a_call_counts_once_under_the_outer_name(p: cp.Profiler, between: Any, layers: int) -> None:
    node: Any = (1).__add__
    nodes = []
    for layer in range(layers):
        node = p.profile_node(f"layer {layer}")(between(node))
        nodes.append(node)
    assert [node(i) for i in range(5)] == [1, 2, 3, 4, 5]
    assert counts(p) == {f"layer {layers - 1}": 5}
    assert nodes[0](1) == 2
    assert counts(p) == {f"layer {layers - 1}": 5, "layer 0": 1}


def test_an_object_whose_call_is_a_node_counts_once(p: cp.Profiler) -> None:
    class Callable:
        @p.profile_node("inner")
        def __call__(self, text: str) -> int:
            return int(text)

    for node in (p.profile_node("outer")(Callable()), p.profile_node("outer")(passed_on(Callable()))):
        assert node("3") == 3
    assert Callable()("4") == 4
    assert counts(p) == {"outer": 2, "inner": 1}


def test_nodes_of_one_name_inside_each_other_count_each(p: cp.Profiler) -> None:
    """The total has the inner call twice, the self time has all once; so does a method with that of its base class."""

    class Base:
        @p.profile_node("forward")
        def forward(self) -> None:
            time.sleep(TICK)

    class Derived(Base):
        @p.profile_node("forward")
        def forward(self) -> None:
            super().forward()

    Derived().forward()
    with p.profile_node("forward"):
        Base().forward()
    row = by_name(p)["forward"]
    assert row.count == 4
    assert row.self_total_ms is not None
    assert 2 * SLEPT_MS <= row.self_total_ms <= row.total_ms - 2 * SLEPT_MS


def test_decorated_for_two_profilers_a_call_counts_in_each(p: cp.Profiler) -> None:
    q = profiler_on()
    node = p.profile_node("of p")(q.profile_node("of q")(to_int))
    mixed = p.profile_node("outer")(q.profile_node("middle")(p.profile_node("inner")(to_int)))
    assert node("3") == mixed("3") == 3
    assert counts(q) == {"of q": 1, "middle": 1}
    assert counts(p) == {"of p": 1, "outer": 1}


def test_the_inner_node_counts_while_the_outer_is_off(p: cp.Profiler) -> None:
    q = cp.Profiler()
    node = q.profile_node("of q")(p.profile_node("of p")(to_int))
    node("3")
    assert counts(p) == {"of p": 1}
    assert q.get_profiling_summary() == []


def test_an_inner_node_that_the_outer_never_reaches(p: cp.Profiler) -> None:
    """A cache between them answers; the next call of the inner is its own."""
    inner = p.profile_node("inner")(lambda x: x)
    outer = p.profile_node("outer")(functools.lru_cache(inner))
    outer(1)
    outer(1)
    inner(1)
    assert counts(p) == {"outer": 2, "inner": 1}


@pytest.mark.parametrize("order", ["outside", "inside"])
def test_methods_decorated_twice(p: cp.Profiler, order: str) -> None:
    class Things:
        if order == "outside":
            of_class = p.profile_node("outer")(p.profile_node("inner")(classmethod(lambda cls: cls)))
        else:
            of_class = classmethod(p.profile_node("outer")(p.profile_node("inner")(lambda cls: cls)))

        value = p.profile_node("outer value")(property(p.profile_node("inner value")(lambda self: 1)))

    assert Things.of_class() is Things
    assert Things().value == 1
    assert counts(p) == {"outer": 1, "outer value": 1}


@pytest.mark.parametrize("kind", ["coroutine", "generator"])
@pytest.mark.parametrize("has_function_between", [False, True])
def test_coroutines_and_generators_decorated_twice(p: cp.Profiler, kind: str, has_function_between: bool) -> None:
    @p.profile_node("inner")
    async def coroutine(x: int) -> list[int]:
        await asyncio.sleep(0)
        return [x, x + 1]

    @functools.wraps(coroutine)
    async def await_it(x: int) -> list[int]:
        return await coroutine(x)

    @p.profile_node("inner")
    def generator(x: int) -> Iterator[int]:
        yield x
        yield x + 1

    @functools.wraps(generator)
    def yield_from_it(x: int) -> Iterator[int]:
        yield from generator(x)

    inner: Any = coroutine if kind == "coroutine" else generator
    between: Any = await_it if kind == "coroutine" else yield_from_it
    outer = p.profile_node("outer")(between if has_function_between else inner)
    run: Any = asyncio.run if kind == "coroutine" else list
    assert [run(outer(1)), run(outer(3)), run(inner(5))] == [[1, 2], [3, 4], [5, 6]]
    assert counts(p) == {"outer": 2, "inner": 1}


# ---- order, nesting, self time -------------------------------------------------------------------


def test_a_key_appears_when_its_first_call_finishes(p: cp.Profiler) -> None:
    @p.profile_node
    def inner() -> None:
        assert p.get_profiling_summary() == []

    @p.profile_node
    def outer() -> None:
        inner()
        assert counts(p) == {"inner": 1}

    outer()
    inner_stats, outer_stats = p.get_profiling_summary()
    assert (inner_stats.node_name, outer_stats.node_name) == ("inner", "outer")


def test_self_time_is_the_time_without_direct_children(p: cp.Profiler) -> None:
    """Of calls, blocks, generators and coroutines; each stretch of a generator is rounded to 1 ns as it ends."""

    def leaf(name: str) -> None:
        with p.profile_node(name):
            spin(1e-5)

    @p.profile_node("generator")
    def generator() -> Iterator[int]:
        leaf("first")
        yield 1
        leaf("second")

    @p.profile_node("coroutine")
    async def coroutine() -> None:
        leaf("awaited")

    @p.profile_node("root")
    def root() -> None:
        with p.profile_node("block"):
            leaf("inside")
        list(generator())
        with contextlib.suppress(StopIteration):
            coroutine().send(None)

    for _ in range(5):
        root()
    stats = by_name(p)
    children = {
        "root": ["block", "generator", "coroutine"],
        "block": ["inside"],
        "generator": ["first", "second"],
        "coroutine": ["awaited"],
    }
    for name, row in stats.items():
        nested_ms = sum(stats[child].total_ms for child in children.get(name, ()))
        assert row.self_total_ms == pytest.approx(row.total_ms - nested_ms, abs=5 * 4e-6), name


def test_a_failing_child_is_not_part_of_the_self_time(p: cp.Profiler) -> None:
    @p.profile_node
    def child() -> None:
        time.sleep(TICK)
        raise KeyError

    @p.profile_node
    def parent() -> None:
        with pytest.raises(KeyError):
            child()

    parent()
    stats = by_name(p)["parent"]
    assert stats.self_total_ms is not None
    assert stats.self_total_ms <= stats.total_ms - 0.95e3 * TICK


class Interrupts:
    """SIGINT raises KeyboardInterrupt once for each time that it is expected."""

    def __init__(self) -> None:
        self.expected = False
        self.count = 0

    def __call__(self, signum: int, frame: object) -> None:
        if self.expected:
            self.expected = False
            self.count += 1
            raise KeyboardInterrupt


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    handler = Interrupts()
    before = signal.signal(signal.SIGINT, handler)
    yield handler
    signal.signal(signal.SIGINT, before)


def test_interrupts_at_random_moments_leave_nothing_open(p: cp.Profiler, interrupts: Interrupts) -> None:
    """A2: whatever was begun is finished; afterwards nesting is as before."""
    import _thread

    begun = [0]

    @p.profile_node
    def node() -> None:
        begun[0] += 1
        for _ in range(20):
            pass

    deadline = time.monotonic() + 2
    stop = threading.Event()

    def interrupt() -> None:
        while not stop.wait(0.0005):
            _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    while interrupts.count < 300 and time.monotonic() < deadline:
        with contextlib.suppress(KeyboardInterrupt):
            interrupts.expected = True
            while True:
                node()
    stop.set()
    thread.join()
    finished = sum(outcomes(p, "node"))
    assert interrupts.count
    assert begun[0] <= finished <= begun[0] + interrupts.count
    p.profile_node("after")(module_function)()
    stats = by_name(p)["after"]
    assert stats.self_total_ms == stats.total_ms
