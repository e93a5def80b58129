from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import pytest

from cprofiling import _core
from cprofiling.counters import (
    COUNTERS,
    HARDWARE_COUNTERS,
    UNITS,
    CounterValue,
    NodeCounters,
    checked_counters,
    counters_from,
)

ALL = (1 << len(COUNTERS)) - 1
CPU_TIME = CounterValue(mean=1234.5, total=2469, samples=2, unit="ns")
CYCLES = CounterValue(mean=10.0, total=20, samples=2, unit="times", estimated=True)
INSTRUCTIONS = CounterValue(mean=15.0, total=30, samples=2, unit="times", estimated=True)


@pytest.fixture
def counters() -> NodeCounters:
    return NodeCounters({"cpu_time": CPU_TIME, "cycles": CYCLES, "cache_misses": None})


def test_names_and_units_are_the_cores() -> None:
    assert [(name, unit) for name, unit, _ in _core.perf_status()] == list(UNITS.items())
    assert HARDWARE_COUNTERS == ("cycles", "instructions", "branch_misses", "cache_misses")


def test_a_counter_has_a_value_or_a_reason() -> None:
    reasons = {name: reason for name, _, reason in _core.perf_status()}
    assert {reasons[name] for name in COUNTERS if name not in HARDWARE_COUNTERS} == {None}
    assert all(reason is None or len(reason) > 10 for reason in reasons.values())
    assert _core.perf_in_user_space() in (True, False)
    if reasons["cycles"] is not None:
        assert _core.perf_in_user_space() is False


def test_threads_find_the_same_reasons() -> None:
    found: list[list[tuple[str, str, str | None]]] = []
    threads = [threading.Thread(target=lambda: found.append(_core.perf_status())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [_core.perf_status()] * 8


# What set_profiling() takes.


class Wanted(str, Enum):
    TIME = "cpu_time"


class Text(str):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    ("asked", "bits"),
    [
        ((), 0),
        ([], 0),
        (("cpu_time",), 1),
        (["cache_misses", "cpu_time"], 0b1000001),
        (("page_faults", "page_faults"), 0b100),
        ({"context_switches"}, 0b10),
        ({"cycles": "of a dict, the keys"}, 0b1000),
        ((Wanted.TIME,), 1),
        ((Text("cycles"),), 0b1000),
        (COUNTERS, ALL),
        (NodeCounters({"instructions": None}), 0b10000),
    ],
)
def test_what_is_asked_for(asked: Any, bits: int) -> None:
    assert checked_counters(asked) == bits
    assert checked_counters(iter(asked)) == bits


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("cpu_time", r"counters must be a tuple of names, such as \('cpu_time',\), got 'cpu_time' \(str\)"),
        (b"cpu_time", r"counters must be a tuple of names, .* \(bytes\)"),
        (None, r"counters must be a tuple of names, .*, got None \(NoneType\)"),
        (7, r"counters must be a tuple of names, .*, got 7 \(int\)"),
        (True, r"counters must be a tuple of names, .*, got True \(bool\)"),
        (("cpu_time", 3), r"counters\[1\] must be a str, got 3 \(int\)"),
        ((b"cycles",), r"counters\[0\] must be a str, got b'cycles' \(bytes\)"),
    ],
)
def test_what_is_no_iterable_of_names(asked: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        checked_counters(asked)


@pytest.mark.parametrize("name", ["cycle", "", "CPU_TIME", "cpu_time ", "x" * 1000, Text("cpu")])
def test_an_unknown_name(name: str) -> None:
    with pytest.raises(ValueError, match=r"counters\[1\] must be one of 'cpu_time', 'context_switches', .*'cache_miss"):
        checked_counters(("cycles", name))


def test_an_iterable_that_fails_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        checked_counters(str(1 / number) for number in (0,))


# What the statistics give.


def test_the_cores_figures() -> None:
    counted = (4, 4, 4, 0, 3, 0, 2)
    totals = (10**30, 8, 0, 0, 10, 0, 5)
    counters = counters_from(ALL, counted, totals, 1)
    assert tuple(counters) == COUNTERS
    assert counters["cpu_time"] == CounterValue(2.5e29, 10**30, 4, "ns", estimated=False)
    assert counters["context_switches"] == CounterValue(2.0, 8, 4, "times", estimated=False)
    assert counters["page_faults"] == CounterValue(0.0, 0, 4, "times", estimated=False)
    assert counters["cycles"] is None
    assert counters["instructions"] == CounterValue(10 / 3, 10, 3, "times", estimated=True)
    assert counters["cache_misses"] == CounterValue(2.5, 5, 2, "times", estimated=True)
    exact = counters_from(ALL, counted, totals, 0)["instructions"]
    assert exact is not None
    assert exact.estimated is False


def test_only_what_was_asked_for_is_there() -> None:
    counters = counters_from(0b1001, (1,) * 7, (7,) * 7, 0)
    assert list(counters) == ["cpu_time", "cycles"]
    assert "page_faults" not in counters
    with pytest.raises(KeyError, match="page_faults"):
        counters["page_faults"]
    assert counters_from(0, (1,) * 7, (7,) * 7, 0) == {}


@pytest.mark.parametrize(
    ("cycles", "instructions", "ipc"),
    [
        (CYCLES, INSTRUCTIONS, 1.5),
        (None, INSTRUCTIONS, None),
        (CYCLES, None, None),
        (CYCLES, CounterValue(30.0, 30, 1, "times"), None),
        (CounterValue(0.0, 0, 2, "times"), INSTRUCTIONS, None),
        (CYCLES, CounterValue(0.0, 0, 2, "times"), 0.0),
    ],
)
def test_instructions_per_cycle(
    cycles: CounterValue | None, instructions: CounterValue | None, ipc: float | None
) -> None:
    assert NodeCounters({"cycles": cycles, "instructions": instructions}).ipc == ipc


def test_without_both_there_are_no_instructions_per_cycle(counters: NodeCounters) -> None:
    assert counters.ipc is None
    assert NodeCounters().ipc is None


def test_it_is_a_mapping(counters: NodeCounters) -> None:
    assert isinstance(counters, Mapping)
    assert len(counters) == 3
    assert dict(counters) == {"cpu_time": CPU_TIME, "cycles": CYCLES, "cache_misses": None}
    assert counters == dict(counters)
    assert counters != {"cpu_time": CPU_TIME}
    assert counters.get("instructions") is None
    assert list(counters.items())[2] == ("cache_misses", None)


def test_equal_ones_have_the_same_hash(counters: NodeCounters) -> None:
    other = NodeCounters(reversed(list(counters.items())))
    assert other == counters
    assert hash(other) == hash(counters)
    assert len({other, counters, NodeCounters()}) == 2


def test_it_says_what_it_holds(counters: NodeCounters) -> None:
    assert repr(counters).startswith("NodeCounters({'cpu_time': CounterValue(mean=1234.5, total=2469, samples=2, ")
    assert eval(repr(counters)) == counters


@pytest.mark.parametrize(
    "change",
    [
        lambda counters: counters.__setitem__("cpu_time", None),
        lambda counters: counters.__delitem__("cpu_time"),
        lambda counters: setattr(counters, "cpu_time", 1),
        lambda counters: setattr(counters, "_values", {}),
        lambda counters: delattr(counters, "_values"),
        lambda counters: setattr(counters["cpu_time"], "total", 1),
    ],
)
def test_it_cannot_be_changed(counters: NodeCounters, change: Callable[[Any], object]) -> None:
    with pytest.raises((AttributeError, dataclasses.FrozenInstanceError)):
        change(counters)
    assert counters["cpu_time"] == CPU_TIME
    assert len(counters) == 3


def test_what_it_was_made_of_is_not_part_of_it(counters: NodeCounters) -> None:
    values = dict(counters)
    made = NodeCounters(values)
    values.clear()
    assert made == counters


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(counters: NodeCounters, protocol: int) -> None:
    read = pickle.loads(pickle.dumps(counters, protocol))
    assert type(read) is NodeCounters
    assert read == counters
    assert list(read) == list(counters)
    assert hash(read) == hash(counters)


def test_copies_are_itself(counters: NodeCounters) -> None:
    assert copy.copy(counters) is counters
    assert copy.deepcopy(counters) is counters
    assert copy.deepcopy([counters])[0] is counters


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({3: None}, r"a counter's name must be a str, got 3 \(int\)"),
        ({"cycles": 3}, r"the value of cycles must be a CounterValue, got 3 \(int\)"),
        (7, "not iterable"),
    ],
)
def test_what_it_cannot_hold(values: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        NodeCounters(values)
