"""Where series of times become steady: synthetic ones, of which that is known."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest

from cprofiling.analysis.steady_state import (
    FLAT,
    NOT_CERTAIN,
    NOT_STEADY,
    SLOWDOWN,
    TOO_FEW,
    WARM_UP,
    levels,
    steadiness,
)

Series = Callable[[random.Random, int], list[float]]


def noise(source: random.Random, part: float = 0.05) -> float:
    return math.exp(source.gauss(0, part))


def first(cold: int, times: float) -> Series:
    """The first calls take so many times as long."""
    return lambda source, count: [noise(source) * (times if at < cold else 1) for at in range(count)]


STATIONARY: dict[str, Series] = {
    "normal": lambda source, count: [10 + source.gauss(0, 0.2) for _ in range(count)],
    "log-normal": lambda source, count: [noise(source, 0.5) for _ in range(count)],
    "exponential": lambda source, count: [source.expovariate(1) for _ in range(count)],
    "heavy tail": lambda source, count: [source.paretovariate(1.5) for _ in range(count)],
    "two modes": lambda source, count: [source.choice((1, 1, 1, 10)) * noise(source, 0.01) for _ in range(count)],
    "outliers": lambda source, count: [noise(source) + (source.random() < 0.03) * 9 for _ in range(count)],
    "a few ticks": lambda source, count: [source.choice((40, 50, 50, 60)) for _ in range(count)],
    "each tenth slow": lambda source, count: [(5 if at % 10 == 0 else 1) * noise(source, 0.01) for at in range(count)],
}


@pytest.mark.parametrize("series", STATIONARY.values(), ids=STATIONARY)
def test_steady_series_are_flat(series: Series) -> None:
    """Of 100 steady series at most 5 are told to be another thing; one is what the test is made for."""
    source = random.Random(1)
    found = Counter(steadiness(series(source, 120)).state for _ in range(100))
    assert found[FLAT] >= 95, found


@pytest.mark.parametrize(
    ("series", "cold"),
    [
        (first(1, 3), 1),
        (first(3, 2), 3),
        (first(10, 1.3), 10),
        (first(50, 1.3), 50),
        (
            lambda source, count: [noise(source) * (100 if at == 0 else 1.5 if at < 20 else 1) for at in range(count)],
            20,
        ),
        (lambda source, count: [noise(source) * (9 if 0 < at < 4 else 1) for at in range(count)], 4),
    ],
)
def test_warm_ups_are_found_where_they_end(series: Series, cold: int) -> None:
    source = random.Random(2)
    found = [steadiness(series(source, 200)) for _ in range(25)]
    right = [each for each in found if each.state == WARM_UP and abs((each.cold or 0) - cold) <= max(2, cold // 10)]
    assert len(right) >= 22
    assert all(each.start == each.cold for each in right)


def test_a_very_slow_first_call_is_cold_though_another_one_is_as_slow() -> None:
    """As with what is compiled for new shapes later on."""
    source = random.Random(12)
    found = []
    for _ in range(10):
        again = source.randrange(30, 80)
        series = [noise(source) * (900 if at == 0 else 950 if at == again else 1) for at in range(80)]
        found.append(steadiness(series)[:2])
    assert found.count((WARM_UP, 1)) >= 9


def test_a_warm_up_that_fades_ends_where_it_is_within_a_few_percent() -> None:
    source = random.Random(3)
    for _ in range(10):
        found = steadiness([noise(source) * (1 + 4 * math.exp(-at / 10)) for at in range(300)])
        assert found.state == WARM_UP
        assert found.cold is not None
        assert 25 <= found.cold <= 60


def test_slower_calls_later_on_are_a_slowdown() -> None:
    source = random.Random(4)
    for _ in range(10):
        found = steadiness([noise(source) * (1.3 if at >= 120 else 1) for at in range(200)])
        assert found.state == SLOWDOWN
        assert found.cold == 0
        assert found.start is not None
        assert abs(found.start - 120) <= 2
        assert [level.end for level in found.levels] == [found.start, 200]


def test_what_was_slow_for_a_while_is_a_slowdown() -> None:
    source = random.Random(13)
    found = steadiness([noise(source) * (2 if 60 <= at < 120 else 1) for at in range(180)])
    assert found[:3] == (SLOWDOWN, 0, 120)


def test_a_slowdown_has_cold_calls_as_well() -> None:
    source = random.Random(5)
    found = steadiness([noise(source) * (1.3 if at >= 120 else 9 if at < 3 else 1) for at in range(200)])
    assert (found.state, found.cold, found.start) == (SLOWDOWN, 3, 120)


def test_what_changes_near_its_end_is_not_steady() -> None:
    source = random.Random(6)
    late = steadiness([noise(source) * (1.3 if at >= 270 else 1) for at in range(300)])
    ramp = steadiness([noise(source) * (1 + at / 1000) for at in range(2000)])
    assert [late.state, ramp.state] == [NOT_STEADY] * 2
    assert late.cold is late.start is None
    cold = steadiness([noise(source) * (1.3 if at >= 270 else 40 if at < 2 else 1) for at in range(300)])
    assert (cold.state, cold.cold, cold.start) == (NOT_STEADY, 2, None)


def test_levels_that_differ_by_little_are_one() -> None:
    source = random.Random(7)
    found = steadiness([noise(source, 0.002) * (1.03 if at < 100 else 1) for at in range(300)])
    assert len(found.levels) == 2  # it is seen
    assert (found.state, found.cold) == (FLAT, 0)  # and no matter


def test_calls_that_depend_on_each_other_are_not_taken_for_levels() -> None:
    source = random.Random(8)
    told: Counter[str] = Counter()
    for _ in range(40):
        state, series = 0.0, []
        for _ in range(400):
            state = 0.5 * state + source.gauss(0, 1)
            series.append(math.exp(0.1 * state))
        told[steadiness(series).state] += 1
    assert told[FLAT] >= 37, told


def test_few_calls_are_too_few_to_tell() -> None:
    source = random.Random(9)
    assert [steadiness([200.0] + [1.0] * more).state for more in (8, 9)] == [TOO_FEW, WARM_UP]
    assert steadiness([noise(source) for _ in range(19)]).state == TOO_FEW
    doubtful = steadiness([3.0] + [noise(source, 0.3) for _ in range(29)])
    assert (doubtful.state, doubtful.cold) == (TOO_FEW, None)
    assert doubtful.p_value is not None
    assert 0.01 < doubtful.p_value < 0.2
    assert steadiness([200.0] + [noise(source) for _ in range(14)]).state == WARM_UP  # which needs no statistics


def test_thin_evidence_is_not_certain() -> None:
    """As of 93 ms beside 69 calls of at most 38 ms, where chance has a tail."""
    source = random.Random(8)
    tail = [min(38.0, source.expovariate(1 / 15)) for _ in range(69)]
    found = steadiness([93.0, *tail])
    assert (found.state, found.cold) == (NOT_CERTAIN, None)
    assert found.p_value is not None
    assert 0.01 < found.p_value < 0.2
    assert [steadiness([60.0, *tail[:more]]).state for more in (48, 49)] == [TOO_FEW, NOT_CERTAIN]
    assert steadiness([38.0, *tail]).state == FLAT
    assert steadiness([93.0] + [source.uniform(30, 38) for _ in range(69)]).state == WARM_UP


def test_equal_and_empty_times() -> None:
    assert steadiness([]).state == TOO_FEW
    assert steadiness([0.0] * 30)[:3] == (FLAT, 0, 0)
    assert steadiness([4.0] + [0.0] * 60)[:2] == (FLAT, 0)  # what takes no time has no scale: one call tells nothing
    assert steadiness([7] * 30) == (FLAT, 0, 0, ((0, 30, 7),), 1.0)
    assert levels([7] * 30) == (1.0, ((0, 30, 7),))


def test_the_unit_of_times_does_not_matter() -> None:
    source = random.Random(10)
    series = first(20, 1.5)(source, 300)
    found, in_ns = steadiness(series), steadiness([round(time * 1e9) for time in series])
    assert (found.state, found.cold) == (in_ns.state, in_ns.cold) == (WARM_UP, 20)


def test_a_p_value_by_hand() -> None:
    """Two calls of 1.5 ms, of others the nine longest 1.1 times as long as the next one."""
    others = [*[1.122, 1.0, 1.0, 1.0] * 8, 1.122, 1.0, 1.02, 1.0]
    found = steadiness([1.5, 1.5, *[1.0] * 10, *others])
    tail = (1 - 1.645 / math.sqrt(9)) / math.log(1.1)
    surprise = 2 * (math.log(37 / 1) + tail * math.log(1.5 / 1.122))
    assert (found.state, found.cold) == (WARM_UP, 2)
    assert found.p_value == pytest.approx(2 * 3 * math.exp(-surprise) * (1 + surprise))


def test_dependence_by_hand() -> None:
    """Blocks of three with means of ranks of -3, 3 and 0, squares of differences of 36 and 9, a variance of 7.5."""
    assert levels([0, 1, 2, 6, 7, 8, 3, 4, 5])[0] == pytest.approx(3 * 22.5 / 2 / 0.455 / 7.5)


def test_four_calls_are_no_level() -> None:
    several = [9, 2, 15, 5, 11, 7, 3, 13, 8, 4, 14, 6, 12, 10, 16, 1]
    assert len(levels([*several, 90, 91, 92, 93])[1]) == 1
    assert [level.end for level in levels([*several, 90, 91, 92, 93, 94])[1]] == [16, 21]


def test_cuts_are_found_in_long_series_to_the_call() -> None:
    source = random.Random(11)
    dependence, found = levels([noise(source) * (2 if at < 7_321 else 1) for at in range(20_000)])
    assert dependence >= 1
    assert [level.end for level in found] == [7_321, 20_000]
    assert found[0].median == pytest.approx(2, rel=0.01)
