"""cp.stage and the stage that a call is counted in (failure scenario F2)."""

# Nodes are made of lambdas here, which have no types.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import enum
import functools
import gc
import inspect
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import cprofiling as cp
from calls import in_new_thread, profiler_on, stages

pytestmark = pytest.mark.native


@pytest.fixture
def p() -> Iterator[cp.Profiler]:
    """A Profiler of the test's own, on; no stage may stay in force."""
    profiler = profiler_on()
    yield profiler
    profiler.reset_profiling()
    profiler.profile_node("after all")(int.__add__)(1, 2)
    in_new_thread(lambda: profiler.profile_node("after all")(int.__add__)(1, 2))
    assert stages(profiler) == {("after all", "inference"): 2}
    assert profiler.get_profiling_summary().internal_errors == 0


def mark(p: cp.Profiler, name: str = "n") -> None:
    """Leave one sample in the stage of now."""
    with p.profile_node(name):
        pass


def seen(p: cp.Profiler) -> list[tuple[str, int]]:
    """Stages and samples, in the summary's order."""
    return [(str(stats.stage), stats.count) for stats in p.get_profiling_summary()]


class Phase(enum.Enum):
    TRAIN = "train"
    OWN = "own phase"
    NUMBER = 5


class TextPhase(str, enum.Enum):
    TRAIN = "train"
    OWN = "own phase"

    def __str__(self) -> str:
        return "misleading"


class SubStr(str):
    """A str that lies about itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return "misleading"

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 1


# ---- which stage ---------------------------------------------------------------------------------


def test_the_innermost_stage_and_then_the_explicit_one_win(p: cp.Profiler) -> None:
    explicit = p.profile_node("n", stage="explicit")(lambda: mark(p))
    with cp.stage("train"):
        mark(p)
        with cp.stage("val"):
            mark(p)
            explicit()
            with p.profile_node("n", stage=cp.ExecutionStage.TEST):
                mark(p)
        mark(p)
    mark(p)
    assert seen(p) == [("train", 2), ("val", 3), ("explicit", 1), ("test", 1), ("inference", 1)]
    assert p.get_profiling_summary()[-1].stage is cp.ExecutionStage.INFERENCE
    assert [stats.count for stats in p.get_profiling_summary("val")] == [3]
    assert p.get_profiling_summary("c") == []


def test_the_stage_is_that_of_the_start(p: cp.Profiler) -> None:
    change = contextlib.ExitStack()
    p.profile_node("call")(lambda: change.enter_context(cp.stage("val")))()
    with p.profile_node("block"):
        change.close()
    assert stages(p) == {("call", "inference"): 1, ("block", "val"): 1}


@pytest.mark.parametrize("number", [1, 4, 5, 100])
def test_one_node_in_many_stages_in_turn(p: cp.Profiler, number: int) -> None:
    node = p.profile_node("n")(int.__add__)
    for _ in range(3):
        for i in range(number):
            with cp.stage(f"stage {i}"):
                node(1, 1)
                mark(p, "block")
    assert seen(p) == [entry for i in range(number) for entry in ((f"stage {i}", 3),) * 2]


# ---- what a stage may be (F2) --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "value"),
    [
        ("train", "train"),
        (cp.ExecutionStage.TRAIN, "train"),
        (Phase.TRAIN, "train"),
        (TextPhase.TRAIN, "train"),
        (SubStr("train"), "train"),
        (Phase.OWN, "own phase"),
        (TextPhase.OWN, "own phase"),
        ("", ""),
        (" ", " "),
        ("a\nb\t\x1b", "a\nb\t\x1b"),
        ("\ud800", "\ud800"),
        ("é\u0301\u202e👩‍🔬", "é\u0301\u202e👩‍🔬"),
        ("x" * 4096, "x" * 4096),
        ("é" * 2048, "é" * 2048),
    ],
)
def test_a_stage_is_a_str_or_an_enum_whose_value_is_one(p: cp.Profiler, stage: Any, value: str) -> None:
    with cp.stage(stage):
        mark(p)
    with cp.stage(value), p.profile_node("n", stage=stage):
        pass
    with cp.stage(stage, default=True):
        in_new_thread(lambda: mark(p))
    p.record(stage, "n", 1.0)
    (stats,) = p.get_profiling_summary()
    assert (stats.stage, stats.count) == (value, 4)
    assert str.__str__(stats.stage) == value
    assert p.get_profiling_summary(stage) == p.get_profiling_summary(value) == [stats]
    assert p.format_profiling_summary(stage) == p.format_profiling_summary(value) == p.format_profiling_summary()


def test_the_form_of_the_call() -> None:
    stage: Any = cp.stage
    for wrong in (lambda: stage(), lambda: stage("a", True), lambda: stage("a", "b"), lambda: stage("a", x=1)):
        with pytest.raises(TypeError):
            wrong()
    assert (cp.stage(Phase.OWN).stage, cp.stage("a").default, cp.stage("a", default=True).default) == (
        "own phase", False, True,
    )  # fmt: skip
    assert "a\\x1b" in repr(cp.stage("a\x1b"))
    assert "default" in repr(cp.stage("a", default=True))


@pytest.mark.parametrize("value", [None, "no", object(), []])
def test_a_default_that_is_no_bool_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^default must be a bool, got "):
        cp.stage("train", default=value)


# ---- entering and leaving ------------------------------------------------------------------------


@pytest.mark.parametrize("default", [False, True])
def test_a_stage_is_a_reusable_and_reentrant_context_manager(p: cp.Profiler, default: bool) -> None:
    stage, other = cp.stage("one", default=default), cp.stage("two", default=default)
    for _ in range(2):
        with stage as entered:
            assert entered is stage
            with other:
                with stage:
                    mark(p)
                mark(p)
            mark(p)
        mark(p)
    assert seen(p) == [("one", 4), ("two", 2), ("inference", 2)]


@pytest.mark.parametrize("default", [False, True])
def test_leaving_what_was_not_entered_is_a_runtime_error_and_changes_nothing(p: cp.Profiler, default: bool) -> None:
    stage = cp.stage("strange \x1b", default=default)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"strange \\x1b"):
            stage.__exit__(None, None, None)
    with cp.stage("outer"):
        with pytest.raises(RuntimeError, match="strange"):
            stage.__exit__(None, None, None)
        mark(p)
    with stage:
        pass
    with pytest.raises(RuntimeError, match="strange"):
        stage.__exit__(None, None, None)
    assert seen(p) == [("outer", 1)]


@pytest.mark.parametrize("default", [False, True])
def test_a_stage_may_be_left_in_another_thread(p: cp.Profiler, default: bool) -> None:
    """It ends where it was entered, too, and what was entered around it and inside it stays."""
    stage = cp.stage("own", default=default)
    with cp.stage("around", default=default):
        stage.__enter__()
        mark(p)
        in_new_thread(lambda: stage.__exit__(None, None, None))
        mark(p)
        stage.__enter__()
        with cp.stage("inside", default=default):
            in_new_thread(lambda: stage.__exit__(None, None, None))
            mark(p)
        mark(p)
        with pytest.raises(RuntimeError, match="own"):
            stage.__exit__(None, None, None)
        mark(p)
    assert seen(p) == [("own", 1), ("around", 3), ("inside", 1)]


def test_a_stage_entered_where_nobody_is_any_more_may_be_left(p: cp.Profiler) -> None:
    stage = cp.stage("own")
    in_new_thread(stage.__enter__)
    contextvars.copy_context().run(stage.__enter__)
    mark(p)
    for _ in range(2):
        stage.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="own"):
        stage.__exit__(None, None, None)
    assert seen(p) == [("inference", 1)]


def test_a_task_keeps_the_stage_that_its_creator_has_left(p: cp.Profiler) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        mark(p)

    async def main() -> None:
        with cp.stage("own"):
            task = asyncio.create_task(work())
        await task

    asyncio.run(main())
    assert seen(p) == [("own", 1)]


@pytest.mark.parametrize("order", ["first", "last"])
def test_defaults_that_overlap_without_nesting(p: cp.Profiler, order: str) -> None:
    """The last one entered that is still entered counts, and none stays in the end."""
    stages_ = [cp.stage(name, default=True) for name in "abc"]
    for stage in stages_:
        stage.__enter__()
    for stage in stages_ if order == "first" else reversed(stages_):
        mark(p)
        stage.__exit__(None, None, None)
    mark(p)
    names = "ccc" if order == "first" else "cba"
    expected = dict.fromkeys([*names, "inference"], 0)
    for name in [*names, "inference"]:
        expected[name] += 1
    assert seen(p) == list(expected.items())


@pytest.mark.parametrize("default", [False, True])
def test_an_exception_passes_through_and_ends_the_stage(p: cp.Profiler, default: bool) -> None:
    error = KeyError("text")
    with pytest.raises(KeyError) as caught, cp.stage("own", default=default):
        raise error
    assert caught.value is error
    assert error.__context__ is None
    mark(p)
    assert seen(p) == [("inference", 1)]


def test_a_stage_keeps_nothing_alive() -> None:
    class Name(str):
        pass

    name = Name("own")
    stage, reference = cp.stage(name), weakref.ref(name)
    del name
    with stage:
        gc.collect()
        assert reference() is None
    assert weakref.ref(stage)() is stage
    before = sys.getrefcount(stage)
    for _ in range(100):
        with stage, stage:
            pass
    assert sys.getrefcount(stage) == before


# ---- as a decorator, and in async with -----------------------------------------------------------


@pytest.mark.parametrize("default", [False, True])
def test_async_with(p: cp.Profiler, default: bool) -> None:
    async def main() -> None:
        stage = cp.stage("own", default=default)
        async with stage as entered:
            assert entered is stage
            mark(p)
            await asyncio.sleep(0)
            mark(p)
        mark(p)
        with pytest.raises(RuntimeError, match="own"):
            await stage.__aexit__(None, None, None)

    asyncio.run(main())
    assert seen(p) == [("own", 2), ("inference", 1)]


def test_a_decorated_function_runs_in_the_stage(p: cp.Profiler) -> None:
    class Trainer:
        @cp.stage("method")
        def method(self, a: int, *, b: int = 2) -> int:
            """Add."""
            mark(p)
            return a + b

        @cp.stage("static")
        @staticmethod
        def static() -> None:
            mark(p)

        @cp.stage("class")
        @classmethod
        def of_class(cls) -> type[Trainer]:
            mark(p)
            return cls

        @cp.stage("property")  # type: ignore[prop-decorator]
        @property
        def value(self) -> int:
            mark(p)
            return 5

    def fail() -> None:
        mark(p)
        raise ZeroDivisionError

    trainer = Trainer()
    assert trainer.method(1, b=4) == 5
    assert (trainer.method.__doc__, trainer.method.__name__) == ("Add.", "method")
    assert str(inspect.signature(trainer.method)) == "(a: 'int', *, b: 'int' = 2) -> 'int'"
    assert inspect.isfunction(Trainer.method)
    trainer.static()
    assert trainer.of_class() is Trainer
    assert trainer.value == 5
    with pytest.raises(ZeroDivisionError):
        cp.stage("raises")(fail)()
    cp.stage("node")(p.profile_node("n")(len))(())
    mark(p)
    assert seen(p) == [(name, 1) for name in ("method", "static", "class", "property", "raises", "node", "inference")]


class Called:
    """A callable that does not bind."""

    def __init__(self, p: cp.Profiler) -> None:
        self.p = p

    def __call__(self, *args: int) -> tuple[int, ...]:
        mark(self.p)
        return args


@pytest.mark.parametrize(
    "make",
    [
        lambda p: Called(p),
        lambda p: functools.partial(Called(p), 1),
        lambda p: Called(p).__call__,
        lambda p: p.profile_node("x")(Called(p)),
        lambda p: functools.lru_cache(lambda *args: Called(p)(*args)),
        lambda p: lambda *args: Called(p)(*args),
    ],
)
@pytest.mark.filterwarnings("ignore:functools.partial will be a method descriptor:FutureWarning")
def test_what_is_decorated_binds_as_before(p: cp.Profiler, make: Any) -> None:
    class Owner:
        plain = make(p)
        staged = cp.stage("own")(plain)

    owner = Owner()
    got = Owner.staged(2), owner.staged(3)
    assert stages(p)["n", "own"] == 2
    assert got == (Owner.plain(2), owner.plain(3))


def test_what_does_not_bind_at_all() -> None:
    class Owner:
        length: Any = cp.stage("own")(len)
        other: Any = cp.stage("own")(cp.stage("inner")(len))

    assert (Owner().length((1, 2)), Owner.length(()), Owner().other([1])) == (2, 0, 1)
    assert Owner.length is Owner().length
    assert (Owner.length.__name__, str(inspect.signature(Owner.length))) == ("len", "(obj, /)")
    for wrong in (staticmethod(int), int, 3, None):
        with pytest.raises(TypeError, match="stage"):
            cp.stage("own")(wrong)


def test_a_decorated_bound_method_is_still_a_coroutine_function(p: cp.Profiler) -> None:
    class Server:
        async def handle(self, request: int) -> int:
            mark(p)
            return request

    for handle in (Server().handle, functools.partial(Server().handle)):
        staged = cp.stage("own")(handle)
        assert inspect.iscoroutinefunction(staged)
        assert asyncio.run(staged(3)) == 3
    assert seen(p) == [("own", 2)]


def test_a_node_of_what_is_decorated_has_its_name_and_counts_once(p: cp.Profiler) -> None:
    p.profile_node(cp.stage("own")(Called(p)))()
    p.profile_node(cp.stage("own")(p.profile_node("inner")(functools.partial(int))))()
    assert stages(p) == {("Called", "inference"): 1, ("n", "own"): 1, ("int", "inference"): 1}


def test_the_decorated_descriptors_of_functools(p: cp.Profiler) -> None:
    class Trainer:
        def add(self, a: int, b: int) -> int:
            mark(p, "add")
            return a + b

        @cp.stage("own")  # type: ignore[prop-decorator]
        @functools.cached_property
        def cached(self) -> int:
            mark(p, "cached")
            return 5

        @cp.stage("own")
        @functools.singledispatchmethod
        def of(self, _: object) -> str:
            mark(p, "object")
            return "object"

        @of.register
        def _(self, _: int) -> str:
            mark(p, "int")
            return "int"

        increase = cp.stage("own")(functools.partialmethod(add, 1))

    trainer = Trainer()
    assert (trainer.cached, trainer.cached, trainer.of(""), trainer.of(1)) == (5, 5, "object", "int")
    assert trainer.increase(2) == 3
    assert stages(p) == dict.fromkeys([(name, "own") for name in ("cached", "object", "int", "add")], 1)


@pytest.mark.parametrize("node", [False, True])
def test_a_decorated_context_manager_is_in_the_stage_and_its_body_is_not(p: cp.Profiler, node: bool) -> None:
    def wrapped(manager: Any) -> Any:
        return cp.stage("own")(p.profile_node("node")(manager) if node else manager)

    @wrapped
    @contextlib.contextmanager
    def manager(value: int) -> Iterator[int]:
        mark(p)
        with contextlib.suppress(KeyError):
            yield value
        mark(p)

    @wrapped
    @contextlib.asynccontextmanager
    async def later(value: int) -> Any:
        await asyncio.sleep(0)
        with manager(value):
            yield value
        mark(p)

    async def main() -> None:
        async with later(2) as value:
            assert value == 2
            mark(p, "body")
            raise KeyError

    with manager(1) as value:
        assert value == 1
        mark(p, "body")
        raise KeyError
    asyncio.run(main())
    assert stages(p) == {("n", "own"): 5, ("body", "inference"): 2} | ({("node", "own"): 3} if node else {})
    with pytest.raises(StopIteration), manager(1):
        raise StopIteration


def test_a_decorated_generator_is_in_the_stage_in_its_resumptions_only(p: cp.Profiler) -> None:
    @cp.stage("own")
    def generate(first: Any) -> Any:
        mark(p)
        try:
            sent = yield first
            mark(p)
            try:
                yield sent
            except KeyError as error:
                mark(p)
                yield error
        finally:
            mark(p)
        return "result"

    assert inspect.isgeneratorfunction(generate)
    assert inspect.isgenerator(generate("first"))
    running: Any = generate("first")
    error = KeyError()
    assert next(running) == "first"
    mark(p)
    assert running.send("sent") == "sent"
    mark(p)
    assert running.throw(error) is error
    assert error.__context__ is None
    mark(p)
    with pytest.raises(StopIteration, match="result"):
        next(running)
    mark(p)
    assert seen(p) == [("own", 4), ("inference", 4)]
    running = generate(1)
    next(running)
    running.close()
    assert seen(p) == [("own", 6), ("inference", 4)]


def test_a_decorated_coroutine_is_in_the_stage_while_it_runs(p: cp.Profiler) -> None:
    @cp.stage("own")
    async def work(raises: bool) -> str:
        mark(p)
        try:
            await asyncio.sleep(0)
        finally:
            mark(p)
        if raises:
            raise KeyError
        return "result"

    async def main() -> None:
        task = asyncio.create_task(work(False))
        await asyncio.sleep(0)
        mark(p)
        assert await task == "result"
        with pytest.raises(KeyError):
            await work(True)
        task = asyncio.create_task(work(False))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        mark(p)

    assert inspect.iscoroutinefunction(work)
    asyncio.run(main())
    coroutine = work(False)
    coroutine.send(None)
    mark(p)
    coroutine.close()
    assert seen(p) == [("own", 8), ("inference", 3)]


def test_a_decorated_generator_of_types_coroutine(p: cp.Profiler) -> None:
    @cp.stage("own")
    @types.coroutine
    def work() -> Any:
        mark(p)
        yield from asyncio.sleep(0).__await__()
        mark(p)

    async def main() -> None:
        await work()

    asyncio.run(main())
    assert seen(p) == [("own", 2)]


def test_a_decorated_asynchronous_generator_is_in_the_stage_in_its_steps_only(p: cp.Profiler) -> None:
    @cp.stage("own")
    async def generate() -> Any:
        mark(p)
        try:
            sent = yield "first"
            await asyncio.sleep(0)
            mark(p)
            try:
                yield sent
            except KeyError as error:
                yield error
        finally:
            await asyncio.sleep(0)
            mark(p)

    async def main() -> None:
        running: Any = generate()
        error = KeyError()
        assert await running.__anext__() == "first"
        mark(p)
        assert await running.asend("sent") == "sent"
        mark(p)
        assert await running.athrow(error) is error
        mark(p)
        with pytest.raises(StopAsyncIteration):
            await running.__anext__()
        running = generate()
        await running.__anext__()
        await running.aclose()
        mark(p)

    assert inspect.isasyncgenfunction(generate)
    asyncio.run(main())
    assert seen(p) == [("own", 5), ("inference", 4)]


@pytest.mark.parametrize("order", ["stage", "stage in node", "node in stage"])
@pytest.mark.filterwarnings("error")
def test_an_abandoned_asynchronous_generator_is_closed_once(
    p: cp.Profiler, order: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the event loop at its end, which would log what went wrong."""
    kept, events = [], []

    async def generate() -> Any:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            events.append("closed")

    stage, node = cp.stage("own"), p.profile_node("node")
    made: Any = {
        "stage": lambda: stage(generate),
        "stage in node": lambda: node(stage(generate)),
        "node in stage": lambda: stage(node(generate)),
    }[order]()

    async def main() -> None:
        kept.append(made())
        assert await kept[0].__anext__() == 1
        assert sys.get_asyncgen_hooks().firstiter is not None

    asyncio.run(main())
    gc.collect()
    assert (events, caplog.text, capfd.readouterr().err) == (["closed"], "", "")
    expected = {"stage": {}, "stage in node": {("node", "inference"): 1}, "node in stage": {("node", "own"): 1}}
    assert stages(p) == expected[order]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="inspect.markcoroutinefunction came with Python 3.12")
def test_a_function_marked_as_a_coroutine_function_may_return_any_awaitable(p: cp.Profiler) -> None:
    class Later:
        def __await__(self) -> Any:
            mark(p)
            yield from asyncio.sleep(0).__await__()
            return "result"

    async def main() -> None:
        assert await cp.stage("own")(inspect.markcoroutinefunction(lambda: Later()))() == "result"  # type: ignore[attr-defined]

    asyncio.run(main())
    assert seen(p) == [("own", 1)]


# ---- threads, tasks, the default -----------------------------------------------------------------


def test_new_threads_do_not_inherit_the_stage(p: cp.Profiler) -> None:
    with cp.stage("train"):
        in_new_thread(lambda: mark(p))
        in_new_thread(lambda: contextvars.copy_context().run(mark, p))
        context = contextvars.copy_context()
        in_new_thread(lambda: context.run(mark, p))
    assert seen(p) == [("inference", 2), ("train", 1)]


def test_a_pool_takes_the_default_stage(p: cp.Profiler) -> None:
    """As the README shows it with a ThreadPoolExecutor."""
    with concurrent.futures.ThreadPoolExecutor(3) as executor:
        with cp.stage("train", default=True):
            list(executor.map(lambda _: mark(p), range(10)))
            mark(p)
        list(executor.map(lambda _: mark(p), range(5)))
        mark(p)
    assert seen(p) == [("train", 11), ("inference", 6)]


def test_the_default_is_for_what_is_outside_any_stage(p: cp.Profiler) -> None:
    with cp.stage("own"), cp.stage("default", default=True):
        mark(p)
        in_new_thread(lambda: mark(p))
        with cp.stage("inner default", default=True):
            mark(p)
            in_new_thread(lambda: mark(p))
        in_new_thread(lambda: mark(p))
    assert seen(p) == [("own", 2), ("default", 2), ("inner default", 1)]


def test_a_default_set_by_another_thread_is_everybodys(p: cp.Profiler) -> None:
    stage = cp.stage("elsewhere", default=True)
    in_new_thread(stage.__enter__)
    mark(p)
    in_new_thread(lambda: stage.__exit__(None, None, None))
    mark(p)
    assert seen(p) == [("elsewhere", 1), ("inference", 1)]


def test_a_default_changes_calls_of_a_node_that_ran_before(p: cp.Profiler) -> None:
    node = p.profile_node("n")(int.__add__)
    for stage in (None, "train", None, "train"):
        with cp.stage(stage, default=True) if stage else contextlib.nullcontext():
            node(1, 1)
    assert seen(p) == [("inference", 2), ("train", 2)]


@pytest.mark.parametrize("value", [None, "a text", (1, 2, 3, 4)])
def test_whoever_sets_the_variable_of_stages_breaks_nothing(p: cp.Profiler, value: object) -> None:
    def run() -> None:
        with cp.stage("a stage of its own, that " + str(value)):
            mark(p)
            (variable,) = [found for found in contextvars.copy_context() if found.name == "cprofiling.stage"]
            variable.set(value)
            gc.collect()
            mark(p)

    contextvars.Context().run(run)
    assert sum(count for _, count in seen(p)) == 2
    p.reset_profiling()
