"""Plain sums and plain timers, of which drop-ins for profilers written in Python are made, without such a profiler."""

from __future__ import annotations

import enum
import gc
import itertools
import math
import operator
import random
import statistics
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

import cprofiling as cp
from calls import Comparing, profiler_on
from cprofiling import _core


class Statistics(_core.PlainProfiler):
    """A profiler as drop-ins make them."""

    def __new__(cls, skips: int = 0) -> Statistics:
        return super().__new__(cls, profiler_on(skip_first_n=skips), skips, skips)

    def rows(self, stage: Any = None) -> list[Any]:
        return self._plain_rows(stage)


class Pipeline:
    """A pipeline as peers write them."""

    def __init__(self) -> None:
        self._synchronize_cuda: Any = False
        self._profiler: Any = Statistics()
        self.original_calls = 0

    def _start(self, node: Any, inputs: Any) -> int:
        """Begin."""
        self.original_calls += 1
        return time.perf_counter_ns()

    def _stop(self, begun: int, node: Any, inputs: Any, stage: str) -> None:
        """End."""
        self.original_calls += 1
        self._profiler.record(stage, node.name, (time.perf_counter_ns() - begun) / 1_000_000)


NODE = SimpleNamespace(name="node")


class Faster(Pipeline):
    """The same with our timers."""

    _start = _core.PlainTimer(Pipeline._start, False, Statistics)
    _stop = _core.PlainTimer(Pipeline._stop, True, Statistics)

    def call(self, name: str = "node", stage: str = "train") -> None:
        """Time a node that does nothing."""
        node = SimpleNamespace(name=name)
        self._stop(self._start(node, {}), node, {}, stage)


@pytest.fixture
def faster() -> Faster:
    return Faster()


# --- sums ---


def reference(samples: list[float]) -> tuple[float, ...]:
    """Mean, standard deviation, least, most, sum and last, in the sums of a plain loop."""
    mean = squares = total = 0.0
    for count, sample in enumerate(samples, 1):
        total += sample
        before = sample - mean
        mean += before / count
        squares += before * (sample - mean)
    return mean, math.sqrt(squares / len(samples)), min(samples), max(samples), total, samples[-1]


@pytest.mark.parametrize("seed", range(10))
def test_sums_are_those_of_a_plain_loop(seed: int) -> None:
    rng = random.Random(seed)
    samples = [round(rng.randrange(300) * 0.005, 3) for _ in range(rng.randrange(1, 300))]
    skips = seed % 3
    made = Statistics(skips)
    for sample in [7.0] * skips + samples:
        made.record("train", "node", sample)
    ((name, stage, count, mean, median, *others),) = made.rows()
    assert (name, stage, count) == ("node", "train", len(samples))
    assert (mean, *others) == reference(samples)
    if len(samples) <= 5:
        assert median == statistics.median(samples)
    (stats,) = made.profiler.get_profiling_summary()
    assert (stats.count, stats.median_ms, stats.max_ms, stats.skipped_count) == (count, median, max(samples), skips)


def test_a_key_whose_samples_were_all_skipped_has_zeros() -> None:
    made = Statistics(1)
    made.record("train", "node", 5.0)
    assert made.rows() == [("node", "train", 0, *[0.0] * 7)]


def test_rows_are_in_the_order_of_first_samples_and_of_one_stage_if_asked() -> None:
    made = Statistics()
    keys = [(stage, f"node {n}") for n in (3, 1, 40, 2) for stage in ("train", "val")]
    for stage, name in keys * 2:
        made.record(stage, name, 1)
    assert [(row[1], row[0], row[2]) for row in made.rows()] == [(*key, 2) for key in keys]
    assert [row[0] for row in made.rows("val")] == [name for stage, name in keys if stage == "val"]
    assert made.rows("test") == []


def test_equal_names_are_one_key_whichever_object_they_are() -> None:
    made = Statistics()
    for number in range(200):
        made.record(f"{'tr' * 1}ain", f"node {number % 100}", 1.0)
    assert len(made.rows()) == 100
    assert {row[2] for row in made.rows()} == {2}


def test_a_reset_forgets_all_and_skips_anew() -> None:
    made = Statistics(1)
    for _ in range(3):
        made.record("train", "node", 1.0)
    made.reset()
    assert made.rows() == []
    assert made.profiler.get_profiling_summary() == []
    for _ in range(3):
        made.record("train", "node", 1.0)
    assert [row[2] for row in made.rows()] == [2]
    assert [stats.count for stats in made.profiler.get_profiling_summary()] == [2]


@pytest.mark.parametrize("value", [-1.0, 2e12, math.inf, math.nan])
def test_what_a_profiler_takes_for_no_time_is_in_the_plain_sums_only(value: float) -> None:
    made = Statistics()
    made.record("train", "node", 1.0)
    made.record("train", "node", value)
    assert made.rows()[0][2] == 2
    assert [stats.count for stats in made.profiler.get_profiling_summary()] == [1]
    assert made.profiler.get_profiling_summary().internal_errors == 0


@pytest.mark.parametrize("key", [(1, "a"), ("a", None), ("a\0", "b"), ("a", "x" * 5000), ((), frozenset())])
def test_what_a_profiler_takes_for_no_name_is_in_the_plain_sums_only(key: tuple[Any, Any]) -> None:
    made = Statistics()
    for _ in range(3):
        made.record(*key, 1.0)
    assert [row[:3] for row in made.rows()] == [(key[1], key[0], 3)]
    assert made.profiler.get_profiling_summary() == []


def test_more_keys_than_a_profiler_has_are_all_in_the_plain_sums() -> None:
    made = Statistics()
    refused = SimpleNamespace(count=0)
    for number in range(70):
        made.record("train", number if number % 2 else str(number), 1.0)
        refused.count += number % 2
    assert len(made.rows()) == 70
    assert len(made.profiler.get_profiling_summary()) == 70 - refused.count


@pytest.mark.parametrize("arguments", [("a", "b"), ("a", "b", "1"), ("a", [], 1.0), ([], "b", 1.0), ("a", "b", None)])
def test_what_cannot_be_recorded_is_a_type_error(arguments: tuple[Any, ...]) -> None:
    made = Statistics()
    with pytest.raises(TypeError):
        made.record(*arguments)
    assert made.rows() == []


@pytest.mark.parametrize("arguments", [(), (1, 0, 0), (_core.Profiler(), "1", 0), (_core.Profiler(), 0)])
def test_it_is_made_of_a_profiler_and_skips(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        _core.PlainProfiler(*arguments)


def test_keys_that_change_the_statistics_when_they_are_compared() -> None:
    made = Statistics()
    acts = [made.reset, lambda: made.record("new", str(len(made.rows())), 1.0), lambda: None, lambda: 1 / 0]
    keys = [Comparing(act) for act in acts]
    done = failed = 0
    for turn in range(50):
        for stage in (*keys, 1):
            for name in (*keys, 1):
                try:
                    made.record(stage, name, turn)
                    made.rows(keys[turn % 4])
                    done += 1
                except ZeroDivisionError:
                    failed += 1
    assert done > 0
    assert failed > 0
    made.reset()
    made.record("a", "b", 1.0)
    assert [row[:3] for row in made.rows()] == [("b", "a", 1)]


@pytest.mark.parametrize(("compared", "equal"), [(1, False), (1, True), (2, False)])
def test_a_sample_goes_with_the_statistics_that_its_key_discards(compared: int, equal: bool) -> None:
    made = Statistics()
    times = itertools.count(1)

    class Key:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            if next(times) == compared:
                made.reset()
                made.record("other", "other", 1.0)
            return equal

    made.record(1, "node", 1.0)
    made.record(Key(), "node", 1.0)
    assert [row[:3] for row in made.rows()] == [("other", "other", 1)]


def test_a_sample_goes_with_the_statistics_that_its_stage_discards() -> None:
    made = Statistics()

    class Stage(enum.Enum):
        TRAIN = "train"

        @property
        def value(self) -> str:
            made.reset()
            return "train"

    made.record("val", "node", 1.0)
    for _ in range(2):
        made.record(Stage.TRAIN, "node", 1.0)
        assert made.rows() == []


def test_the_only_stage_of_its_kind_goes_while_keys_are_compared() -> None:
    made = Statistics()

    class Name:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            made.reset()
            for number in range(50):
                made.record(f"other {number}", "other", 1.0)
            return False

    def stage() -> str:
        return str(b"the stage", "ascii")

    for _ in range(50):
        made.record(stage(), 1, 1.0)
        made.record(stage(), Name(), 1.0)
        assert {row[1] for row in made.rows()} == {f"other {number}" for number in range(50)}


def test_a_row_in_the_making_goes_with_the_statistics() -> None:
    made = Statistics()
    threshold = gc.get_threshold()

    def reset(phase: str, _: object) -> None:
        made.reset()

    for turn in range(20):
        made.reset()
        for number in range(20):
            made.record(f"stage {turn}", f"node {turn}.{number}", 1.0)
        gc.callbacks.append(reset)
        gc.set_threshold(turn % 5 + 1)
        try:
            rows = made.rows()
        finally:
            gc.callbacks.remove(reset)
            gc.set_threshold(*threshold)
        assert [row[0] for row in rows] == [f"node {turn}.{number}" for number in range(len(rows))]


def test_a_name_whose_end_records() -> None:
    made = Statistics()

    class Last:
        def __del__(self) -> None:
            made.record("end", "of the name", 1.0)

    made.record("train", Last(), 1.0)
    made.reset()
    assert [row[0] for row in made.rows()] == ["of the name"]


def test_it_is_freed_with_what_it_holds() -> None:
    made: Any = Statistics()
    made.itself = made
    made.record(made, "node", 1.0)
    assert vars(made) == {"itself": made}
    dead = weakref.ref(made)
    del made
    gc.collect()
    assert dead() is None


# --- timers ---


def test_the_usual_call_does_without_the_original(faster: Faster) -> None:
    for _ in range(5):
        faster.call()
        faster.call("other", "val")
    assert faster.original_calls == 0
    rows = faster._profiler.rows()
    assert [row[:3] for row in rows] == [("node", "train", 5), ("other", "val", 5)]
    assert all(0 <= row[6] <= row[3] <= row[7] for row in rows)
    for row, stats in zip(rows, faster._profiler.profiler.get_profiling_summary(), strict=True):
        assert (stats.count, stats.median_ms, stats.last_ms) == (row[2], row[4], row[9])
        assert (stats.self_total_ms, stats.active_total_ms) == (None, stats.total_ms)


def test_times_are_those_of_the_monotonic_clock(faster: Faster) -> None:
    before = time.perf_counter_ns()
    begun = faster._start(NODE, {})
    assert before <= begun <= time.perf_counter_ns()
    faster._stop(begun - 3_000_000, NODE, {}, "train")
    after = time.perf_counter_ns()
    (row,) = faster._profiler.rows()
    assert 3 <= row[9] <= 3 + (after - begun) / 1e6


def unusual() -> Iterator[tuple[str, Callable[[Faster], Any]]]:
    """What has the original called, twice."""

    def assigned(**attributes: Any) -> Callable[[Faster], Any]:
        def act(faster: Faster) -> None:
            vars(faster).update(attributes)
            faster.call()

        return act

    yield "synchronising", assigned(_synchronize_cuda=True)
    yield "truth of another kind", assigned(_synchronize_cuda=0)

    def with_another_clock(faster: Faster) -> None:
        with mock.patch("time.perf_counter_ns", iter(range(2)).__next__):
            faster.call()

    yield "another clock", with_another_clock

    def with_another_time(faster: Faster) -> None:
        with mock.patch.dict(globals(), time=SimpleNamespace(perf_counter_ns=iter(range(2)).__next__)):
            faster.call()

    yield "another time", with_another_time

    def by_name(faster: Faster) -> None:
        begun = faster._start(node=NODE, inputs={})
        faster._stop(begun, NODE, {}, stage="train")

    yield "arguments by name", by_name


@pytest.mark.parametrize("act", [pytest.param(act, id=what) for what, act in unusual()])
def test_what_is_out_of_the_ordinary_is_the_originals(faster: Faster, act: Callable[[Faster], Any]) -> None:
    act(faster)
    assert faster.original_calls == 2
    assert [row[:3] for row in faster._profiler.rows()] == [("node", "train", 1)]


@pytest.mark.parametrize("begun", [-(2**62), 2**80, 1.5, -(2**63)])
def test_starts_that_are_out_of_range_are_the_originals(faster: Faster, begun: Any) -> None:
    faster._stop(begun, NODE, {}, "train")
    assert faster.original_calls == 1
    assert faster._profiler.rows()[0][2] == 1


def test_a_start_that_is_to_come_is_counted_as_it_is(faster: Faster) -> None:
    faster._stop(time.perf_counter_ns() + 10**12, NODE, {}, "train")
    assert faster.original_calls == 0
    assert -1e6 <= faster._profiler.rows()[0][9] < 0
    assert faster._profiler.profiler.get_profiling_summary() == []


def test_another_profiler_is_the_originals(faster: Faster) -> None:
    class Derived(Statistics):
        pass

    for profiler in (mock.Mock(), Derived()):
        faster._profiler = profiler
        faster.call()
    assert faster.original_calls == 2
    assert faster._profiler.rows()[0][2] == 1


def test_a_record_in_the_place_of_ours_is_called(faster: Faster) -> None:
    faster._profiler.note = "is in its dictionary"
    faster.call()
    assert faster.original_calls == 0
    for owner in (faster._profiler, Statistics):
        with mock.patch.object(owner, "record") as record:
            faster.call()
            assert record.call_count == 1
    assert faster.original_calls == 2
    faster.call()
    assert faster.original_calls == 2
    assert faster._profiler.rows()[0][2] == 2


def test_a_class_that_changes_all_the_time_is_looked_at_anew(faster: Faster) -> None:
    for number in range(20):
        Statistics.number = number  # type: ignore[attr-defined]
        faster.call()
    assert faster.original_calls == 0
    del Statistics.number  # type: ignore[attr-defined]


def test_errors_are_those_of_the_attributes(faster: Faster) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'name'"):
        faster._stop(1, object(), {}, "train")
    with pytest.raises(TypeError, match="unhashable"):
        faster._stop(1, NODE, {}, [])
    del faster._profiler
    with pytest.raises(AttributeError, match="_profiler"):
        faster._stop(1, NODE, {}, "train")
    for timer, arguments in ((Faster._start, (1, 2)), (Faster._stop, (1, 2, 3, 4))):
        with pytest.raises(AttributeError, match="_synchronize_cuda"):
            timer(object(), *arguments)
    with pytest.raises(TypeError, match="missing"):
        faster._start()


# --- what is remembered of nodes and pipelines ---


class Counting(Faster):
    def count(self, node: Any) -> None:
        self._stop(self._start(node, {}), node, {}, "train")


class Named(Counting):
    """With timers that know what names are made of."""

    _start = _core.PlainTimer(Pipeline._start, False, Statistics, ("first", "second"))
    _stop = _core.PlainTimer(Pipeline._stop, True, Statistics, ("first", "second"))


def make_named() -> Counting:
    """With such timers that have met no node yet."""
    timers = {
        name: _core.PlainTimer(vars(Pipeline)[name], stops, Statistics, ("first", "second"))
        for name, stops in (("_start", False), ("_stop", True))
    }
    made: Counting = type("Fresh", (Counting,), timers)()
    return made


class Node:
    """A node whose name is made of two attributes."""

    def __init__(self, first: Any = "node", second: Any = 1) -> None:
        self.first = first
        self.second = second

    @property
    def name(self) -> Any:
        return f"{self.first}-{self.second}"


def attributes_that_change() -> Iterator[tuple[Any, Callable[[], Any]]]:
    node = Node()
    yield node, lambda: setattr(node, "first", "other")
    yield node, lambda: vars(node).update(second=2)
    yield node, lambda: setattr(node, "second", None)
    yield node, lambda: setattr(node, "__dict__", {"first": "new", "second": 3})
    listed = Node(["in a list"])
    yield listed, lambda: listed.first.append("more")


def classes_that_change() -> Iterator[tuple[Any, Callable[[], Any]]]:
    class Changing(Node):
        pass

    node = Changing()
    yield node, lambda: setattr(Changing, "name", property(lambda self: "of another property"))
    yield node, lambda: setattr(Changing, "name", "of the class")
    yield node, lambda: setattr(Changing, "name", Node.name)
    yield node, lambda: setattr(Changing, "first", property(lambda self: "another property"))
    yield node, lambda: setattr(Changing, "first", 1)
    yield node, lambda: setattr(node, "__class__", Node)

    class Partly(Node):
        first = "of the class"

        def __init__(self) -> None:
            self.second = 1

    partly = Partly()
    yield partly, lambda: setattr(Partly, "first", "changed")
    yield partly, lambda: setattr(partly, "first", "of its own")


def other_properties() -> Iterator[tuple[Any, Callable[[], Any]]]:
    """Names that others make of the same attributes."""

    class Upper(Node):
        @property
        def name(self) -> Any:
            return f"{self.second} {self.first}"

    for node in (Node(), Upper(), Node(), Upper()):
        yield node, lambda node=node: setattr(node, "second", node.second + 1)  # type: ignore[misc]


MORE = ["a"]  # that names are made of


def around(more: list[str]) -> Callable[[Any], Any]:
    return lambda node: node.first + more[0]


def with_default(node: Any, more: list[str] = MORE) -> Any:
    return node.first + more[0]


def with_keyword(node: Any, *, more: list[str] = MORE) -> Any:
    return node.first + more[0]


def with_code_within(node: Any) -> Any:
    def third() -> Any:
        return node.third

    return third()


NAMES_OF_MORE: dict[str, Callable[[Any], Any]] = {
    "a variable of the function around it": around(MORE),
    "a global variable": lambda node: node.first + MORE[0],
    "a default": with_default,
    "a default by name": with_keyword,
    "another attribute": lambda node: node.third,
    "an attribute in code within": with_code_within,
    "what has no code": operator.attrgetter("third"),
}


def names_of_more() -> Iterator[tuple[Any, Callable[[], Any]]]:
    """Names that are made of more than the two attributes."""
    for get in NAMES_OF_MORE.values():
        node: Any = type("Odd", (Node,), {"name": property(get)})()

        def change(node: Any = node) -> None:
            MORE[0] += "a"
            node.third = MORE[0]

        change()
        yield node, change


def attributes_from_elsewhere() -> Iterator[tuple[Any, Callable[[], Any]]]:
    class Found(Node):
        def __getattribute__(self, attribute: str) -> Any:
            return MORE[0] if attribute == "second" else super().__getattribute__(attribute)

    class Lacking(Node):
        def __init__(self) -> None:
            self.first = "lacks the second"

        def __getattr__(self, attribute: str) -> Any:
            return MORE[0]

    for kind in (Found, Lacking):
        yield kind(), lambda: MORE.insert(0, f"{MORE[0]}a")


def other_nodes() -> Iterator[tuple[Any, Callable[[], Any]]]:
    """Nodes without a dict of attributes, or without a property."""

    class Slotted:
        __slots__ = ("first", "second")
        first: Any
        second: Any
        name = Node.name

    slotted = Slotted()
    slotted.first, slotted.second = "slot", 1
    yield slotted, lambda: setattr(slotted, "second", 2)
    plain = SimpleNamespace(name="plain")
    yield plain, lambda: setattr(plain, "name", "changed")


CASES = (
    attributes_that_change,
    classes_that_change,
    other_properties,
    names_of_more,
    attributes_from_elsewhere,
    other_nodes,
)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("cases", CASES)
def test_a_node_is_counted_under_the_name_that_it_has_now(cases: Callable[[], Iterator[Any]], is_first: bool) -> None:
    for node, change in cases():
        named = make_named()
        expected: list[Any] = []
        for known in [] if is_first else [Node(), Node("other")]:
            named.count(known)
            expected.append(known.name)
        for act in (None, change, change):
            if act is not None:
                act()
            expected += [node.name] * 2
            named.count(node)
            named.count(node)
        assert [(row[0], row[2]) for row in named._profiler.rows()] == list(Counter(expected).items())
        assert named.original_calls == 0


def test_more_nodes_than_are_remembered_have_their_own_names() -> None:
    named = Named()
    nodes = [Node(f"node {number % 40}", number) for number in range(400)]
    for node in nodes * 2:
        named.count(node)
    assert [(row[0], row[2]) for row in named._profiler.rows()] == [(node.name, 2) for node in nodes]


def test_a_name_that_raises_passes_it_on() -> None:
    named = Named()
    node = Node()
    named.count(node)
    del node.second
    for _ in "ab":
        with pytest.raises(AttributeError, match="second"):
            named.count(node)
    node.second = 1
    named.count(node)
    assert [row[:3] for row in named._profiler.rows()] == [("node-1", "train", 2)]


def test_names_that_are_remembered_do_not_keep_nodes_alive() -> None:
    named = Named()
    node = Node()
    dead = weakref.ref(node)
    named.count(node)
    del node
    assert dead() is None
    named.count(Node())
    assert [row[2] for row in named._profiler.rows()] == [2]


def odd_pipelines() -> Iterator[Any]:
    """Pipelines whose attributes are not what their dict says."""

    class Found(Named):
        def __getattribute__(self, attribute: str) -> Any:
            return vars(Found)["others"] if attribute == "_profiler" else super().__getattribute__(attribute)

    class Lacking(Named):
        others: Any

        def __getattr__(self, attribute: str) -> Any:
            return self.others

    class Slotted(Named):
        __slots__ = ("_profiler",)

    class Computed(Named):
        _profiler: Any = property(lambda self: self.others, lambda self, value: None)

    kinds: list[Any] = [Found, Lacking, Slotted, Computed]
    for kind in kinds:
        kind.others = Statistics()
        pipeline = kind()
        vars(pipeline).pop("_profiler", None)
        yield pipeline


@pytest.mark.parametrize("pipeline", [pytest.param(p, id=type(p).__name__) for p in odd_pipelines()])
def test_a_pipeline_is_asked_for_its_attributes_where_they_may_be_anything(pipeline: Any) -> None:
    for _ in range(2):
        before = pipeline._profiler
        pipeline.count(Node())
        pipeline.count(Node())
        assert [row[2] for row in before.rows()] == [2]
        type(pipeline).others = Statistics()
        if isinstance(vars(type(pipeline)).get("__slots__"), tuple):
            pipeline._profiler = type(pipeline).others
        assert pipeline._profiler is not before
    assert pipeline.original_calls == 0


def test_a_pipeline_that_changes_is_looked_at_anew() -> None:
    named, other = Named(), Named()
    node = Node()
    profilers = [named._profiler, Statistics(), Statistics()]
    for number, profiler in enumerate(profilers):
        vars(named)["_profiler"] = profiler
        vars(named)[f"attribute {number}"] = None
        named.count(node)
        other.count(node)
        named._profiler = profiler
        named.count(node)
        begun = named._start(node, {})
        named._profiler = other._profiler
        named._stop(begun, node, {}, "train")
    assert [row[2] for profiler in profilers for row in profiler.rows()] == [2, 2, 2]
    assert [row[2] for row in other._profiler.rows()] == [6]
    named._synchronize_cuda = True
    named.count(node)
    assert named.original_calls == 2
    del named._synchronize_cuda
    with pytest.raises(AttributeError, match="_synchronize_cuda"):
        named.count(node)


def test_a_timer_answers_as_the_method_does(faster: Faster) -> None:
    for timer in (Faster._start, faster._start):
        assert (timer.__name__, timer.__doc__, timer.__qualname__) == ("_start", "Begin.", "Pipeline._start")
    assert Faster._start.__wrapped__ is Pipeline._start
    assert repr(Faster._start) == f"<faster {Pipeline._start!r}>"
    with pytest.raises(AttributeError):
        _ = Faster._start.nothing
    assert faster._start.__self__ is faster


def test_a_timer_stands_for_a_function_of_a_module_with_time() -> None:
    without_time: dict[str, Any] = {}
    exec("def start(self, node, inputs): pass", without_time)
    other_time: dict[str, Any] = {"time": 1}
    exec("def start(self, node, inputs): pass", other_time)
    for function in (without_time["start"], other_time["start"]):
        with pytest.raises(TypeError, match="a function of a module that has imported time"):
            _core.PlainTimer(function, False, Statistics)
    with pytest.raises(AttributeError, match="__globals__"):
        _core.PlainTimer(len, False, Statistics)
    with pytest.raises(TypeError, match="profilers must be a class of PlainProfilers, got <class 'int'>"):
        _core.PlainTimer(Pipeline._start, False, int)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _core.PlainTimer()  # type: ignore[call-arg]


def test_a_timer_is_freed_with_its_class() -> None:
    def make() -> weakref.ref[type]:
        class Own(Statistics):
            pass

        class Short(Pipeline):
            _start = _core.PlainTimer(Pipeline._start, False, Own)

        Own.user = Short  # type: ignore[attr-defined]
        return weakref.ref(Short)

    dead = make()
    gc.collect()
    assert dead() is None


def test_a_timer_is_freed_with_what_it_knows_names_by() -> None:
    def make() -> weakref.ref[Any]:
        def get(node: Any) -> Any:
            return node.first

        named = make_named()
        named.count(type("Kind", (Node,), {"name": property(get)})())
        vars(get)["user"] = type(named)
        return weakref.ref(type(named))

    dead = make()
    gc.collect()
    assert dead() is None


def test_nothing_is_leaked_by_calls(faster: Faster) -> None:
    for _ in range(100):
        faster.call()
    before = sys.getrefcount(NODE.name), sys.getrefcount(None), len(gc.get_objects())
    for _ in range(1000):
        faster._stop(faster._start(NODE, {}), NODE, {}, "train")
    assert sys.getrefcount(NODE.name) - before[0] <= 2
    assert abs(sys.getrefcount(None) - before[1]) < 500
    assert len(gc.get_objects()) - before[2] < 500


# --- recordings ---


def events_of(prof: cp.profile) -> dict[str, Any]:
    """The events by their names."""
    return {event.name: event for event in prof.events()}


def test_nodes_are_events_of_a_recording(faster: Faster) -> None:
    faster.call("before")
    with cp.profile(operators=False) as prof, cp.record("batch"):
        begun = faster._start(NODE, {})
        with cp.record("inside"):
            faster.call("deeper")
        faster._stop(begun, NODE, {}, "val")
    faster.call("after")
    found = events_of(prof)
    assert set(found) == {"batch", "node", "inside", "deeper"}
    assert [found[name].kind for name in ("node", "deeper", "inside")] == ["node", "node", "record"]
    assert (found["node"].stage, found["deeper"].stage) == ("val", "train")
    parents = {name: found[name].parent_span_id for name in found}
    assert parents["node"] == found["batch"].span_id
    assert parents["inside"] == found["node"].span_id
    assert parents["deeper"] == found["inside"].span_id
    assert len({event.trace_id for event in found.values()}) == 1
    assert found["batch"].start <= found["node"].start <= found["inside"].start
    assert found["inside"].end <= found["node"].end <= found["batch"].end
    assert [row[2] for row in faster._profiler.rows()] == [1, 1, 1, 1]


def test_nodes_that_are_timed_by_the_original_are_recorded_too(faster: Faster) -> None:
    faster._synchronize_cuda = True
    with cp.profile(operators=False) as prof:
        faster.call()
    assert [(event.name, event.stage) for event in prof.events()] == [("node", "train")]
    assert faster.original_calls == 2


def test_a_node_that_fails_has_no_event_and_disturbs_no_other(faster: Faster) -> None:
    with cp.profile(operators=False) as prof:
        for _ in range(40):
            faster._start(NODE, {})
            faster.call("other")
        with cp.record("label"):
            pass
    found = [(event.name, event.parent_span_id) for event in prof.events()]
    assert sorted(found) == [("label", None), *[("other", None)] * 40]


def test_pauses_and_ends_of_a_recording_while_a_node_runs(faster: Faster) -> None:
    early = faster._start(NODE, {})
    with cp.profile(operators=False) as prof:
        faster._stop(early, NODE, {}, "began before")
        across = faster._start(NODE, {})
        cut = faster._start(NODE, {})
        prof.pause()
        faster._stop(cut, NODE, {}, "cut")
        faster.call("paused")
        prof.resume()
        faster._stop(across, NODE, {}, "across")
        late = faster._start(NODE, {})
    faster._stop(late, NODE, {}, "ends after")
    assert [(event.stage, event.cut) for event in prof.events()] == [("across", False), ("cut", True)]


@pytest.mark.parametrize("stage", ["a\0", 1, "x" * 5000])
def test_what_is_no_name_of_an_event_is_counted_all_the_same(faster: Faster, stage: Any) -> None:
    with cp.profile(operators=False) as prof:
        faster._stop(faster._start(NODE, {}), NODE, {}, stage)
        faster._stop(1.5, NODE, {}, "no start that is known")
        with pytest.raises(AttributeError, match="name"):
            faster._stop(faster._start(object(), {}), object(), {}, "train")
    assert len(prof.events()) == 0
    assert [row[2] for row in faster._profiler.rows()] == [1, 1]


def test_nodes_of_other_profilers_are_not_recorded(faster: Faster) -> None:
    class Deaf(Statistics):
        def record(self, *arguments: Any) -> None:
            pass

    with cp.profile(operators=False) as prof:
        for profiler in (mock.Mock(), Deaf()):
            faster._profiler = profiler
            faster.call()
        del faster._profiler
        with pytest.raises(AttributeError, match="_profiler"):
            faster.call()
    assert len(prof.events()) == 0


@pytest.mark.filterwarnings("ignore:activity CUDA is not recorded:RuntimeWarning")
def test_a_recording_of_devices_only_has_no_nodes(faster: Faster) -> None:
    with cp.profile([cp.ProfilerActivity.CUDA], operators=False) as prof:
        faster.call()
    assert len(prof.events()) == 0


def test_nodes_of_several_threads_are_recorded(faster: Faster) -> None:
    def run() -> None:
        for _ in range(50):
            faster.call()

    with cp.profile(operators=False) as prof:
        threads = [threading.Thread(target=run, name=name) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert Counter(event.thread_name for event in prof.events()) == {"a": 50, "b": 50}


def test_wrapped_functions_of_others_stay_off(p: cp.Profiler) -> None:
    """What is always on in a drop-in does not make calls of others dearer."""
    p.set_profiling(False)
    made = Statistics()
    made.profiler._count_no_nodes()
    made.record("train", "node", 1.0)
    assert [stats.count for stats in made.profiler.get_profiling_summary()] == [1]
