"""Nodes that call back into the profiler, from their bodies and from where nobody expects it (scenarios B2 to B9).

The model is plain Python: what a sequence of calls, resets, switches and reads must leave behind, call by call.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import enum
import functools
import gc
import inspect
import logging
import sys
import threading
import types
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import cprofiling as cp
from calls import HAS_NO_GIL, in_new_thread, profiler_on, run_python

pytestmark = pytest.mark.native

NAMES = ("a", "b", "c")
STAGES = ("train", "val")


class PlannedError(Exception):
    """What a node raises on purpose."""


# --- the model ---


@dataclass
class Figures:
    """What is counted under one key."""

    count: int = 0
    skipped: int = 0
    errors: int = 0
    cancelled: int = 0
    dropped: int = 0


@dataclass
class Model:
    """The contract of one Profiler for calls that begin and end one inside the other."""

    enabled: bool = False
    skip_first_n: int = 0
    generation: int = 0
    keys: dict[tuple[str, str], Figures] = field(default_factory=dict)

    def set_profiling(self, enabled: bool, reset: bool, skip_first_n: int) -> None:
        if reset or (enabled and skip_first_n != self.skip_first_n):
            self.reset()
            self.skip_first_n = skip_first_n
        self.enabled = enabled

    def reset(self) -> None:
        self.generation += 1
        self.keys = {}

    def begin(self) -> int | None:
        """Return what a call must remember of its beginning."""
        return self.generation if self.enabled else None

    def end(self, begun: int | None, stage: str, name: str, error: type[BaseException] | None = None) -> None:
        if begun is None:
            return
        figures = self.keys.setdefault((stage, name), Figures())
        if begun != self.generation:
            figures.dropped += 1
        elif error is asyncio.CancelledError:
            figures.cancelled += 1
        elif error is not None:
            figures.errors += 1
        elif figures.skipped < self.skip_first_n:
            figures.skipped += 1
        else:
            figures.count += 1

    def record(self, stage: str, name: str) -> None:
        if self.enabled:
            self.end(self.generation, stage, name)


@dataclass(frozen=True)
class Step:
    """One thing that a node, or the program, does. ``inside``: what a call's body does."""

    action: str
    name: str = "a"
    stage: str = "train"
    number: int = 0
    inside: tuple[Step, ...] = ()


CALLS = ("function", "block", "generator", "fresh function")
ENDINGS: dict[str, type[BaseException]] = {"failing": PlannedError, "cancelled": asyncio.CancelledError}


def call_steps(inside: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
    actions = [*CALLS, *(f"{ending} {form}" for ending in ENDINGS for form in CALLS[:2])]
    return st.builds(
        Step,
        action=st.sampled_from(actions),
        name=st.sampled_from(NAMES),
        stage=st.sampled_from(STAGES),
        number=st.integers(0, 2),
        inside=st.lists(inside, max_size=4).map(tuple),
    )


simple_steps = st.builds(
    Step,
    action=st.sampled_from(
        ["reset", "on", "off", "on and reset", "off and reset", "read", "format", "record", "collect"]
    ),
    name=st.sampled_from(NAMES),
    stage=st.sampled_from(STAGES),
    number=st.sampled_from([0, 0, 0, 1, 2]),
)
steps = st.recursive(simple_steps | call_steps(simple_steps), call_steps, max_leaves=12)


class Program:
    """Runs steps on a Profiler and on the model at once."""

    def __init__(self) -> None:
        self.profiler = cp.Profiler()
        self.model = Model()
        self.functions = {name: self.profiler.profile_node(name=name)(self.body) for name in NAMES}
        self.generators = {name: self.profiler.profile_node(name=name)(self.generator_body) for name in NAMES}
        self.sites = {name: self.profiler.profile_node(name) for name in NAMES}

    def body(self, step: Step) -> int:
        self.run_all(step.inside)
        error = ENDINGS.get(step.action.split()[0])
        if error is not None:
            raise error
        return step.number

    def run_all(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.run(step)

    def generator_body(self, step: Step) -> Iterator[int]:
        for inner in step.inside:
            self.run(inner)
            yield 0
        yield step.number

    def block(self, step: Step) -> int:
        with self.sites[step.name]:
            return self.body(step)

    def generate(self, step: Step) -> int:
        return list(self.generators[step.name](step))[-1]

    def fresh(self, step: Step) -> int:
        result: int = self.profiler.profile_node(name=step.name)(self.body)(step)
        return result

    def call(self, step: Step, target: Callable[[Step], int]) -> None:
        error = ENDINGS.get(step.action.split()[0])
        begun = self.model.begin()
        with cp.stage(step.stage), contextlib.suppress(*ENDINGS.values()):
            assert target(step) == step.number
            assert error is None
        self.model.end(begun, step.stage, step.name, error)

    def target(self, step: Step) -> Callable[[Step], int] | None:
        """Return what is called for a step; None for a step that is no call."""
        targets: dict[str, Callable[[Step], int]] = {
            "function": self.functions[step.name],
            "block": self.block,
            "generator": self.generate,
            "fresh function": self.fresh,
        }
        return targets.get(step.action.removeprefix("failing ").removeprefix("cancelled "))

    def run(self, step: Step) -> None:
        target = self.target(step)
        if target is not None:
            self.call(step, target)
        else:
            self.act(step)
        self.compare()

    def act(self, step: Step) -> None:
        words = step.action.split()
        if words[0] in ("on", "off"):
            enabled, reset = words[0] == "on", "reset" in words
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "skip_first_n changes")
                self.profiler.set_profiling(enabled, reset=reset, skip_first_n=step.number)
            self.model.set_profiling(enabled, reset, step.number)
        elif step.action == "reset":
            self.profiler.reset_profiling()
            self.model.reset()
        elif step.action == "record":
            self.profiler.record(step.stage, step.name, step.number + 0.5)
            self.model.record(step.stage, step.name)
        elif step.action == "collect":
            gc.collect(0)
        else:
            assert isinstance(self.profiler.format_profiling_summary(), str)

    def compare(self) -> None:
        assert self.profiler.profiling_enabled is self.model.enabled
        summary = self.profiler.get_profiling_summary()
        assert [(str(stats.stage), stats.node_name) for stats in summary] == list(self.model.keys)
        assert summary.internal_errors == 0
        assert summary.skip_first_n == self.model.skip_first_n
        for stats, expected in zip(summary, self.model.keys.values(), strict=True):
            actual = stats.count, stats.skipped_count, stats.error_count, stats.cancelled_count, stats.dropped_count
            assert actual == dataclasses.astuple(expected)


class Reentrancy(RuleBasedStateMachine):
    """Any nesting of calls, in whose bodies anything is switched, reset, read, recorded and decorated (B3)."""

    @initialize(enabled=st.booleans())
    def begin(self, enabled: bool) -> None:
        self.program = Program()
        self.program.run(Step("on" if enabled else "off"))

    @rule(step=steps)
    def run(self, step: Step) -> None:
        self.program.run(step)

    @rule(step=simple_steps)
    def act(self, step: Step) -> None:
        self.program.run(step)

    @invariant()
    def stages_are_filtered(self) -> None:
        for stage in STAGES:
            summary = self.program.profiler.get_profiling_summary(stage)
            assert [stats.node_name for stats in summary] == [
                name for key_stage, name in self.program.model.keys if key_stage == stage
            ]


Reentrancy.TestCase.settings = settings(
    max_examples=100, stateful_step_count=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestReentrancy = Reentrancy.TestCase


def nothing() -> None:
    """Be a node."""


def call_with(instance: object) -> None:
    """Be a method that is a node."""


# --- user code in places where nobody expects it ---


@pytest.fixture
def profiler() -> cp.Profiler:
    return profiler_on()


def counts(profiler: cp.Profiler) -> dict[str, int]:
    """Return the number of samples under each name, of all stages."""
    total: Counter[str] = Counter()
    for stats in profiler.get_profiling_summary():
        total[stats.node_name] += stats.count
    return dict(total)


class Trap:
    """Garbage that runs something when it is collected, and leaves new garbage behind, for as long as it is set."""

    def __init__(self, springs: Callable[[], object]) -> None:
        self.springs = springs
        self.sprung = 0
        self.is_set = True
        Bait(self)


class Bait:
    """One piece of a trap's garbage: only the collector can free it."""

    def __init__(self, trap: Trap) -> None:
        self.trap = trap
        self.itself = self

    def __del__(self) -> None:
        if self.trap.is_set:
            Bait(self.trap)
            self.trap.sprung += 1
            self.trap.springs()


@pytest.fixture(scope="module", autouse=True)
def old_objects_apart() -> Iterator[None]:
    """Keep the collector to what the tests make: with the packages that are loaded each collection would take long."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def repeat_amid_collections(operate: Callable[[], object], springs: Callable[[], object], times: int) -> int:
    """Repeat an operation while the collector runs as often as it can; return how often it ran ``springs``."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    trap = Trap(springs)
    held: list[object] = []
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(times):
            held.append([])  # a collection is due
            operate()
    finally:
        trap.is_set = False
        gc.set_threshold(*thresholds)
    gc.collect()
    return trap.sprung


class Instance:
    """Its methods are nodes under a name that each instance is asked for."""

    def name(self) -> str:
        held = [self]  # an allocation that may set off the collector
        return f"instance of {type(held[0]).__name__}"


def public_operations(profiler: cp.Profiler) -> dict[str, Callable[[], object]]:
    """Everything that a program does with a Profiler, once."""
    function = profiler.profile_node(name="function")(nothing)
    method = profiler.profile_node(name=Instance.name)(call_with)

    @profiler.profile_node(name="generator")
    def generator() -> Iterator[int]:
        yield 1

    @profiler.profile_node(name="coroutine")
    async def coroutine() -> int:
        return 1

    def drive() -> None:
        with contextlib.suppress(StopIteration):
            coroutine().send(None)

    def block() -> None:
        with cp.stage("train"), profiler, profiler.profile_node("block"):
            pass

    def instrumented() -> None:
        instance = Instance()
        with profiler.instrument(instance, "name", name="instrumented"):
            instance.name()

    class Pipeline(cp.PipelineProfiling):
        def forward(self) -> None:
            function()

    def pipeline() -> None:
        made = Pipeline()
        made.set_profiling(True)
        made.forward()

    return {
        "function": function,
        "method": lambda: method(Instance()),
        "generator": lambda: list(generator()),
        "coroutine": drive,
        "block": block,
        "instrument": instrumented,
        "pipeline": pipeline,
        "new key": lambda: profiler.record("train", f"key {id(object())}", 1.0),
        "record": lambda: profiler.record("train", "recorded", 1.0),
        "summary": profiler.get_profiling_summary,
        "one stage": lambda: profiler.get_profiling_summary("train"),
        "table": profiler.format_profiling_summary,
        "html": profiler._repr_html_,
        "on": lambda: profiler.set_profiling(True),
        "decorate": lambda: profiler.profile_node(name="decorated")(nothing)(),
        "thread": lambda: in_new_thread(function),
        "profiler": cp.Profiler,
    }


def live_contexts() -> int:
    gc.collect()
    return sum(type(each) is contextvars.Context for each in gc.get_objects())  # isinstance() would wake lazy modules


amid_collections = pytest.mark.skipif(HAS_NO_GIL, reason="where there is no GIL, no allocation sets off the collector")
OPERATIONS = list(public_operations(cp.Profiler()))


@amid_collections
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_collector_runs_nodes_in_the_middle_of_every_operation(profiler: cp.Profiler, operation: str) -> None:
    inner = profiler.profile_node(name="sprung")(nothing)

    def spring() -> None:
        inner()
        profiler.record("val", "sprung record", 1.0)

    sprung = repeat_amid_collections(public_operations(profiler)[operation], spring, 200)
    assert sprung >= 100
    now = counts(profiler)
    assert (now["sprung"], now["sprung record"]) == (sprung, sprung)
    assert profiler.get_profiling_summary().internal_errors == 0


@amid_collections
@pytest.mark.parametrize("springs", ["reset", "off and on", "another skip", "nested pipeline", "drop", "context"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_collector_turns_everything_over_in_the_middle_of_every_operation(
    profiler: cp.Profiler, operation: str, springs: str
) -> None:
    dropped: list[object] = []

    def switch() -> None:
        profiler.set_profiling(False)
        profiler.set_profiling(True)

    def drop() -> None:
        dropped.clear()
        dropped.append(profiler.profile_node(name="dropped")(Instance().name))

    class Pipeline(cp.PipelineProfiling):
        def forward(self) -> None:
            self.set_profiling(True)

    springs_by_name: dict[str, Callable[[], object]] = {
        "reset": profiler.reset_profiling,
        "off and on": switch,
        "another skip": lambda: profiler.set_profiling(True, skip_first_n=len(dropped) + 1, reset=True),
        "nested pipeline": lambda: Pipeline().forward(),
        "drop": drop,
        "context": lambda: contextvars.copy_context().run(profiler.profile_node(nothing, name="elsewhere")),
    }
    contexts = live_contexts()
    times = repeat_amid_collections(public_operations(profiler)[operation], springs_by_name[springs], 40)
    assert times > 5
    assert live_contexts() - contexts < times  # each thread keeps the last one that it met, those of packages, too
    profiler.set_profiling(True, reset=True)
    assert profiler.get_profiling_summary() == []
    profiler.record("train", "node", 1.0)
    assert counts(profiler) == {"node": 1}


def test_resets_inside_resets_are_idempotent(profiler: cp.Profiler) -> None:
    """A weak reference's callback and a finaliser that reset, while a reset's caller drops the last references (B7)."""

    class Resets:
        def __del__(self) -> None:
            profiler.reset_profiling()
            profiler.record("train", "in finaliser", 1.0)

    held = [Resets(), Resets()]
    watched = Instance()
    reference = weakref.ref(watched, lambda _: profiler.reset_profiling())

    @profiler.profile_node(name="node")
    def node() -> None:
        nonlocal watched
        profiler.reset_profiling()
        held.clear()
        del watched
        profiler.set_profiling(True, reset=True)

    node()
    assert reference() is None
    (stats,) = profiler.get_profiling_summary()
    assert (stats.node_name, stats.count, stats.dropped_count) == ("node", 0, 1)


# --- user code that raises (B8) ---


class LoudEnum(enum.Enum):
    """An enum that raises wherever it is shown."""

    TRAIN = "train"

    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __format__ = __str__  # type: ignore[assignment]


class LoudStr(str):
    """A str that raises wherever it is shown, compared or hashed."""

    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __hash__ = __eq__ = __str__  # type: ignore[assignment]


class LoudValue(enum.Enum):
    """An enum that raises when it is asked for its value."""

    TRAIN = "train"

    @property
    def value(self) -> str:
        raise ZeroDivisionError


def test_no_method_of_a_stage_or_name_is_run(profiler: cp.Profiler) -> None:
    for stage in (LoudEnum.TRAIN, LoudStr("train")):
        with cp.stage(stage):
            profiler.profile_node(LoudStr("node"), stage=stage)(nothing)()
        profiler.record(stage, LoudStr("node"), 1.0)
        assert len(profiler.get_profiling_summary(stage)) == 1
    assert counts(profiler) == {"node": 4}
    assert "train" in profiler.format_profiling_summary()


def assert_usable(profiler: cp.Profiler) -> None:
    """Assert that no lock was left behind, neither for this thread nor for another."""
    before = counts(profiler).get("usable", 0)
    node = profiler.profile_node(name="usable")(nothing)
    thread = threading.Thread(target=node, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    node()
    assert counts(profiler)["usable"] == before + 2


def test_an_enum_whose_value_raises_surfaces_and_leaves_no_trace(profiler: cp.Profiler) -> None:
    for refused in (
        lambda: profiler.record(LoudValue.TRAIN, "node", 1.0),
        lambda: profiler.get_profiling_summary(LoudValue.TRAIN),
        lambda: cp.stage(LoudValue.TRAIN),
        lambda: profiler.profile_node("node", stage=LoudValue.TRAIN),
    ):
        with pytest.raises(ZeroDivisionError):
            refused()
        assert_usable(profiler)
    assert list(counts(profiler)) == ["usable"]


def fail() -> bool:
    raise ZeroDivisionError


def test_an_argument_that_calls_back_comes_first(profiler: cp.Profiler) -> None:
    class CountsDown:
        def __index__(self) -> int:
            profiler.set_profiling(False, reset=True)
            return 3

    profiler.record("train", "node", 1.0)
    profiler.set_profiling(True, skip_first_n=CountsDown())
    assert profiler.profiling_enabled
    assert profiler.get_profiling_summary().skip_first_n == 3
    for _ in range(5):
        profiler.record("train", "node", 1.0)
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, stats.skipped_count) == (2, 3)


# --- the callable that names an instance ---


def named_by(profiler: cp.Profiler | None, name: Callable[[Any], object]) -> Callable[[Any], int]:
    @cp.profile_node(name=name, profiler=profiler)  # type: ignore[arg-type]
    def node(self: object) -> int:
        return 42

    return node


class Slotted:
    """An instance that takes no weak reference: its name is asked for at each call."""

    __slots__ = ()


class Interrupting:
    """An object of which everything that may be asked raises KeyboardInterrupt, once."""

    def __init__(self) -> None:
        self.left = 1

    def interrupt(self, *_: object) -> Any:
        if self.left:
            self.left -= 1
            raise KeyboardInterrupt
        raise AttributeError

    __repr__ = interrupt
    value = property(interrupt)


def interrupted_message(profiler: cp.Profiler, interrupting: Interrupting) -> None:
    with pytest.raises(TypeError):
        profiler.record("train", interrupting, 1.0)  # type: ignore[arg-type]


def interrupted_outcome(profiler: cp.Profiler, interrupting: Interrupting) -> None:
    module = types.ModuleType("trio")
    module.__getattr__ = interrupting.interrupt  # type: ignore[method-assign]
    with mock.patch.dict(sys.modules, trio=module), pytest.raises(PlannedError), profiler.profile_node("block"):
        raise PlannedError


def interrupted_thread(profiler: cp.Profiler, interrupting: Interrupting) -> None:
    module = types.SimpleNamespace(getcurrent=interrupting.interrupt)

    def work() -> None:
        profiler.profile_node("node")(len)(())
        for _ in range(1000):
            sum(range(100))

    with mock.patch.dict(sys.modules, greenlet=module):
        in_new_thread(work)


@pytest.mark.parametrize("act", [interrupted_message, interrupted_outcome])
def test_an_interrupt_where_nothing_may_raise_comes_later(
    profiler: cp.Profiler, act: Callable[[cp.Profiler, Interrupting], None]
) -> None:
    interrupting = Interrupting()

    def run() -> None:
        act(profiler, interrupting)
        for _ in range(1000):
            sum(range(100))

    with pytest.raises(KeyboardInterrupt):
        run()
    assert interrupting.left == 0


def test_an_interrupt_at_the_first_call_of_a_thread_comes_later() -> None:
    """In a process of its own, as it is counted as a fault of all Profilers."""
    test = "test_an_interrupt_where_nothing_may_raise_comes_later"
    script = f"import calls, test_reentrancy as t; t.{test}(calls.profiler_on(), t.interrupted_thread)"
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]
    done = run_python(f"import sys; sys.path[:0] = {folders!r}; {script}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("instance", [Instance, Slotted])
@pytest.mark.parametrize("answer", [None, 3, b"name", "with\0NUL", "x" * 4097, fail])
def test_a_name_that_is_none_is_a_counted_fault_and_the_node_runs(
    profiler: cp.Profiler, instance: type, answer: object
) -> None:
    node = named_by(profiler, lambda self: answer() if callable(answer) else answer)
    assert node(instance()) == 42
    summary = profiler.get_profiling_summary()
    assert summary.internal_errors == 1
    assert [(stats.node_name, stats.count) for stats in summary] == [("node", 1)]
    assert_usable(profiler)


@pytest.mark.parametrize("instance", [Instance, Slotted])
def test_a_naming_callable_may_call_the_node_itself(profiler: cp.Profiler, instance: type) -> None:
    depth = [0]

    def name(self: object) -> str:
        depth[0] += 1
        if depth[0] < 5:
            assert node(self) == 42
        return "named"

    node = named_by(profiler, name)
    assert node(instance()) == 42
    assert counts(profiler) == {"named": 5}


def test_a_naming_callable_may_drop_the_last_reference_to_the_profiler_that_is_bound() -> None:
    bound: list[cp.Profiler] = []

    def name(self: object) -> str:
        bound.pop().__exit__(None, None, None)
        return "named"

    node = named_by(None, name)
    for _ in range(50):
        bound.append(profiler_on())
        bound[0].__enter__()
        assert node(Slotted()) == 42


def test_a_naming_callable_may_leave_the_stage(profiler: cp.Profiler) -> None:
    entered: list[Any] = []

    def name(self: object) -> str:
        entered.pop().__exit__(None, None, None)
        return "named"

    node = named_by(profiler, name)
    for i in range(50):
        stage = f"stage {i} {id(entered)}"
        entered.append(cp.stage(stage))
        entered[0].__enter__()
        assert node(Slotted()) == 42
    assert len(profiler.get_profiling_summary()) == 50
    assert {stats.count for stats in profiler.get_profiling_summary()} == {1}


def test_a_naming_callable_may_run_nodes_in_another_context(profiler: cp.Profiler) -> None:
    inside = profiler.profile_node(name="inside")(nothing)

    def name(self: object) -> str:
        contextvars.copy_context().run(inside)
        return "named"

    node = named_by(profiler, name)

    @profiler.profile_node(name="outer")
    def outer() -> None:
        for _ in range(100):
            node(Slotted())

    contexts = live_contexts()
    outer()
    assert live_contexts() - contexts <= 1
    by_name = {stats.node_name: stats for stats in profiler.get_profiling_summary()}
    assert {name: stats.count for name, stats in by_name.items()} == {"inside": 100, "named": 100, "outer": 1}
    assert by_name["named"].self_total_ms == by_name["named"].total_ms


class OnDeath:
    """Runs a callable when it dies."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __del__(self) -> None:
        self.act()


def test_a_context_whose_values_run_nodes_when_they_die(profiler: cp.Profiler) -> None:
    """A finished task's context goes when the next one is taken up, and what it held may call nodes."""
    held: contextvars.ContextVar[OnDeath] = contextvars.ContextVar("held")
    node = profiler.profile_node(name="node")(nothing)
    block = profiler.profile_node("block")

    async def request() -> None:
        held.set(OnDeath(node))
        node()

    async def main() -> None:
        with block:
            await asyncio.create_task(request())
            await asyncio.sleep(0)
            node()

    @profiler.profile_node(name="generator")
    def generate() -> Iterator[int]:
        context = contextvars.copy_context()
        context.run(held.set, OnDeath(node))
        context.run(node)
        del context
        node()
        yield 1
        with block:
            yield 2

    asyncio.run(main())
    assert counts(profiler) == {"node": 3, "block": 1}
    running = generate()
    assert next(running) == 1
    with block:
        pass
    assert list(running) == [2]
    assert counts(profiler) == {"node": 6, "block": 3, "generator": 1}


def test_a_bound_profiler_that_dies_as_the_next_is_bound(profiler: cp.Profiler) -> None:
    node = cp.profile_node(nothing, name="node")
    with profiler:
        inner = profiler_on()
        reference = weakref.ref(inner, lambda _: node())
        inner.__enter__()
        node()
        del inner
    assert reference() is None
    assert counts(profiler) in ({}, {"node": 1})


def test_an_instance_that_takes_its_node_along(profiler: cp.Profiler) -> None:
    """The instance's death first frees the node, which wanted to be told of it."""
    cache: weakref.WeakKeyDictionary[Instance, object] = weakref.WeakKeyDictionary()
    for _ in range(500):
        instance = Instance()
        node: Any = profiler.profile_node(name=Instance.name)(lambda self: self)
        node(instance)
        cache[instance] = node
        del node, instance
    gc.collect()
    assert len(cache) == 0
    assert sum(counts(profiler).values()) == 500


def test_a_block_left_in_another_context_keeps_no_context_alive(profiler: cp.Profiler) -> None:
    site = profiler.profile_node("block")

    def opens() -> Iterator[None]:
        with site:
            yield

    contexts = live_contexts()
    for _ in range(100):
        context = contextvars.copy_context()
        context.run(site.__enter__)
        site.__exit__(None, None, None)
        dropped = opens()
        context.run(next, dropped)
        del dropped, context
    assert live_contexts() - contexts <= 1
    (stats,) = profiler.get_profiling_summary()
    assert (stats.count, stats.error_count) == (100, 100)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="coroutine functions can be marked from Python 3.12 on")
def test_a_marked_coroutine_function_may_drop_the_last_reference_to_the_profiler() -> None:
    bound: list[cp.Profiler] = []

    async def result() -> int:
        return 42

    def makes() -> Coroutine[Any, Any, int]:
        bound.pop().__exit__(None, None, None)
        return result()

    mark: Callable[..., Any] = vars(inspect)["markcoroutinefunction"]
    node = cp.profile_node(mark(makes))
    for _ in range(20):
        bound.append(profiler_on())
        bound[0].__enter__()
        assert asyncio.run(node()) == 42


# --- logging (B9) ---


class NodeHandler(logging.Handler):
    """A handler whose work is a node, that logs, too."""

    def __init__(self, profiler: cp.Profiler, logger: logging.Logger) -> None:
        super().__init__()
        self.node = profiler.profile_node(name="handler")(self.handle_profiled)
        self.logger = logger
        self.profiler = profiler
        self.depth = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.node(record)

    def handle_profiled(self, record: logging.LogRecord) -> None:
        self.profiler.get_profiling_summary()
        self.depth += 1
        if self.depth < 3:
            self.logger.callHandlers(record)  # CPython 3.13.5 drops what is logged meanwhile
        self.depth -= 1


@pytest.mark.slow
def test_a_logging_handler_may_be_a_node(profiler: cp.Profiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only warning of a Profiler comes when its keys are used up; what shows it runs nodes under yet more keys."""
    logger = logging.getLogger("cprofiling.test_reentrancy")
    monkeypatch.setattr(logger, "handlers", [NodeHandler(profiler, logger)])
    monkeypatch.setattr(logger, "propagate", False)
    node = profiler.profile_node(name="node")(functools.partial(logger.warning, "once"))
    for _ in range(10):
        node()
    assert counts(profiler) == {"handler": 30, "node": 10}
    shown = []

    def show(message: Warning | str, *rest: object) -> None:
        shown.append(str(message))
        logger.warning("a warning")
        profiler.profile_node(name=f"shown {len(shown)}")(nothing)()

    for i in range(65_536 - 2):
        profiler.record("train", str(i), 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        for i in range(5):
            profiler.profile_node(name=f"late {i}")(nothing)()
    assert len(shown) == 1
    overflow = [stats for stats in profiler.get_profiling_summary() if stats.node_name == "__overflow__"]
    assert [(str(stats.stage), stats.count) for stats in overflow] == [("inference", 5 + 1)]


AMID_US = """
import contextvars
import cprofiling as cp

profiler = cp.Profiler()
profiler.set_profiling(True)

@profiler.profile_node
def node():
    return 1

class WhenItGoes:
    def __init__(self, act):
        self.act = act

    def __del__(self):
        self.act()

def leave_a_context(act):
    context = contextvars.copy_context()
    context.run(lambda: (contextvars.ContextVar("v").set(WhenItGoes(act)), node()))

"""


def test_a_node_that_is_called_while_it_remembers_an_instance() -> None:
    """The collector runs code amid that, up to CPython 3.11: the instance is remembered once."""
    script = """
import gc
import weakref
import cprofiling as cp

profiler = cp.Profiler()
profiler.set_profiling(True)
kept = {}

class Instance:
    pass

def begin_to_collect(_):
    gc.set_threshold(1, 1000, 1000)
    return "node"

def collected(phase, _):
    if phase == "stop" and kept.keys() == {"instance", "node"}:
        kept["is_called"] = True
        kept["node"](kept["instance"])
        kept["reference"] = weakref.ref(kept["instance"], lambda _: kept.pop("node"))

gc.callbacks.append(collected)
for turn in range(400):
    kept.clear()
    kept["instance"] = Instance()
    kept["node"] = profiler.profile_node(name=begin_to_collect)(lambda _: None)
    new = [[] for _ in range(turn % 7)]  # the collector runs at another time
    kept["node"](kept["instance"])
    gc.set_threshold(700, 10, 10)
    kept.pop("instance")
"""
    done = run_python(script, PYTHONMALLOC="debug")
    assert (done.returncode, done.stderr) == (0, "")


ACTS_AMID_US = {
    "closed before it is resumed": """
@profiler.profile_node
def generator():
    yield 1
    yield 2

running = generator()
next(running)
leave_a_context(running.close)
print(next(running, "closed"))
""",
    "a block left open by a generator that is freed": """
import sys
block = profiler.profile_node("block")

def generator():
    try:
        yield
    except GeneratorExit:
        if sys.version_info >= (3, 11):  # before that, nothing tells of such a generator
            block.__enter__()

running = generator()
next(running)
del running
junk = [bytearray(range(200)) for _ in range(2000)]
node()
if sys.version_info >= (3, 11):
    block.__exit__(None, None, None)
print("closed")
""",
    "a stage left by garbage": """
import gc
gc.disable()
for threshold in range(1, 60):
    stage, below = cp.stage("above"), cp.stage("below")
    below.__enter__()

    def leave(phase, info):
        gc.callbacks.remove(leave)
        below.__exit__(None, None, None)

    gc.callbacks.append(leave)
    gc.set_threshold(gc.get_count()[0] + threshold)
    gc.enable()
    stage.__enter__()
    gc.disable()
    stage.__exit__(None, None, None)
    if leave in gc.callbacks:
        leave("", {})
print("closed")
""",
}


@pytest.mark.parametrize("act", ACTS_AMID_US)
def test_code_that_runs_amid_us_frees_nothing_that_is_in_use(act: str) -> None:
    done = run_python(AMID_US + ACTS_AMID_US[act], PYTHONMALLOC="debug")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("closed\n")
