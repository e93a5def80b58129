"""Plain sums and plain timers, of which drop-ins for profilers written in Python are made, without such a profiler."""

from __future__ import annotations

import gc
import math
import random
import statistics
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

import cprofiling as cp
from calls import profiler_on
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


class Comparing:
    """A key that does something whenever it is compared."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        self.act()
        return False


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


def test_nothing_is_leaked_by_calls(faster: Faster) -> None:
    for _ in range(100):
        faster.call()
    before = sys.getrefcount(NODE.name), sys.getrefcount(None), len(gc.get_objects())
    for _ in range(1000):
        faster._stop(faster._start(NODE, {}), NODE, {}, "train")
    assert sys.getrefcount(NODE.name) - before[0] <= 2
    assert abs(sys.getrefcount(None) - before[1]) < 500
    assert len(gc.get_objects()) - before[2] < 500


def test_wrapped_functions_of_others_stay_off(p: cp.Profiler) -> None:
    """What is always on in a drop-in does not make calls of others dearer."""
    p.set_profiling(False)
    made = Statistics()
    made.profiler._count_no_nodes()
    made.record("train", "node", 1.0)
    assert [stats.count for stats in made.profiler.get_profiling_summary()] == [1]
