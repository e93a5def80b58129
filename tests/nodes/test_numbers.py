"""The figures of a summary against exact arithmetic, and against cuvis-ai-core's profiler (scenarios E4 to E11).

``record()`` is fed with streams of known samples; integers and fractions say what is expected. The core's tests hold
its P² estimate, sums and buckets by themselves.
"""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from calls import Index, profiler_on
from cprofiling import NodeProfilingStats, ProfilingSummary

AGAINST_CUVIS = 1e-10  # relative, of mean, std and total; its sums are plain floats
QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
MOST = 100_000
SEED = 20_240_717


# --- sample streams ---


def random_stream(seed: int, draw: Callable[[random.Random], float]) -> Callable[[int], Iterator[float]]:
    def stream(n: int) -> Iterator[float]:
        rng = random.Random(SEED + seed)
        return (draw(rng) for _ in range(n))

    return stream


# The steps of the rising and the falling one are odd, so that no mean lies halfway between two numbers of two decimals.
STREAMS: dict[str, Callable[[int], Iterator[float]]] = {
    "normal": random_stream(0, lambda rng: max(0.0, rng.gauss(12.5, 2.0))),
    "exponential": random_stream(1, lambda rng: rng.expovariate(1 / 3.0)),
    "constant": lambda n: (0.1 for _ in range(n)),
    "rising": lambda n: (0.0113579 + i * 0.370137 for i in range(n)),
    "falling": lambda n: (0.0113579 + (n - i) * 0.370137 for i in range(n)),
    "pareto": random_stream(2, lambda rng: 0.05 * rng.paretovariate(1.16)),
    "two-valued": random_stream(3, lambda rng: rng.choice((1.1, 80.3))),
}
SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 50, 1000)
SKIPS = (0, 1, 3, 1000)
SIZES_AND_SKIPS = [
    *((n, skipped) for n in SIZES for skipped in SKIPS),
    *(pytest.param(MOST, skipped, marks=pytest.mark.slow) for skipped in (0, 1000)),
]


@functools.cache
def samples(name: str, n: int) -> tuple[float, ...]:
    return tuple(STREAMS[name](n))


# --- the profiler under test ---


def recorded(streams: dict[str, tuple[float, ...]], **options: Any) -> ProfilingSummary:
    """Record some streams, one key each, in turns; return the summary."""
    profiler = profiler_on(**options)
    record_in_turns(profiler.record, streams)
    return profiler.get_profiling_summary()


def record_in_turns(record: Callable[[str, str, float], object], streams: dict[str, tuple[float, ...]]) -> None:
    for i in range(max(map(len, streams.values()), default=0)):
        for name, values in streams.items():
            if i < len(values):
                record("train", name, values[i])


def stats_of(values: Iterable[Any], *, skip_first_n: int = 0) -> NodeProfilingStats:
    """Record one stream; return its statistics."""
    profiler = profiler_on(skip_first_n=skip_first_n)
    for value in values:
        profiler.record("train", "node", value)
    (stats,) = profiler.get_profiling_summary()
    return stats


@pytest.mark.parametrize(("n", "skip_first_n"), SIZES_AND_SKIPS)
def test_streams_give_the_exact_figures(n: int, skip_first_n: int) -> None:
    streams = {name: samples(name, n) for name in STREAMS}
    summary = recorded(streams, skip_first_n=skip_first_n)
    assert [stats.node_name for stats in summary] == (list(STREAMS) if n else [])
    assert summary.skip_first_n == skip_first_n
    for stats in summary:
        values = streams[stats.node_name]
        kept = values[skip_first_n:]
        assert (stats.count, stats.skipped_count) == (len(kept), min(skip_first_n, n))
        assert (stats.error_count, stats.cancelled_count, stats.dropped_count) == (0, 0, 0)
        assert (stats.min_ms, stats.max_ms) == (min(kept, default=0.0), max(kept, default=0.0))
        assert (stats.first_ms, stats.last_ms) == (values[0], kept[-1] if kept else 0.0)
        if len(kept) <= 5:
            assert stats.median_ms == (statistics.median(kept) if kept else 0.0)
        assert stats.mean_ms == pytest.approx(statistics.mean(kept or [0.0]), rel=1e-12, abs=0)
        assert stats.total_ms == pytest.approx(math.fsum(kept), rel=1e-12, abs=0)
        assert stats.std_ms == pytest.approx(statistics.pstdev(kept or [0.0]), rel=1e-12, abs=0)


def neighbours(ordered: list[float], quantile: float) -> tuple[float, float]:
    rank = quantile * (len(ordered) - 1)
    return ordered[math.floor(rank)], ordered[math.ceil(rank)]


@pytest.mark.parametrize("n", [1000, 1001, 4096, MOST])
@pytest.mark.parametrize("name", STREAMS)
def test_percentiles_are_between_their_neighbours_or_within_one_percent(name: str, n: int) -> None:
    values = tuple(max(value, 1e-4) for value in samples(name, n))  # 100 ns at least
    (stats,) = recorded({name: values})
    ordered = sorted(values)
    previous = stats.min_ms
    for field, quantile in QUANTILES.items():
        low, high = neighbours(ordered, quantile)
        figure = getattr(stats, field)
        assert low * 0.99 <= figure <= high * 1.01, (field, low, figure, high)
        assert previous <= figure <= stats.max_ms
        previous = figure


@pytest.mark.parametrize("value_ms", [1e-6, 1.7e-6, 1e-4, 0.05, 1.0, 999.9, 3.6e6, 8.64e7])
def test_percentiles_of_one_value_are_within_one_percent_from_1_ns_to_24_h(value_ms: float) -> None:
    stats = stats_of([value_ms, value_ms * 1.5, value_ms, value_ms, value_ms * 0.5])
    assert stats.p50_ms is not None
    assert stats.p50_ms == pytest.approx(value_ms, rel=0.01)


def test_percentiles_beyond_24_h_are_clamped_but_min_and_max_are_exact() -> None:
    stats = stats_of([1e12, 5e11, 1e12])
    assert (stats.min_ms, stats.max_ms, stats.last_ms, stats.median_ms) == (5e11, 1e12, 1e12, 1e12)
    for field in QUANTILES:
        assert stats.min_ms <= getattr(stats, field) <= stats.max_ms
    assert stats.total_ms == 2.5e12


# --- hard numbers ---


def test_zeros_are_samples() -> None:
    stats = stats_of([0.0] * 10_000)
    assert stats.count == 10_000
    for field in ("mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms", "first_ms", *QUANTILES):
        assert getattr(stats, field) == 0.0, field


class Float:
    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7.0),
        (0, 0.0),
        (-0.0, 0.0),
        (10**12, 1e12),
        (1e12, 1e12),
        (5e-324, 5e-324),
        (2.2250738585072014e-308, 2.2250738585072014e-308),
        (Decimal("0.1"), 0.1),
        (Fraction(1, 3), 1 / 3),
        (Index(3), 3.0),
        (Float(0.3), 0.3),
    ],
)
def test_numbers_of_all_kinds_are_taken_unchanged(value: Any, expected: float) -> None:
    stats = stats_of([value])
    assert stats.min_ms == stats.max_ms == stats.last_ms == stats.median_ms == stats.first_ms == expected
    assert math.copysign(1.0, stats.last_ms) == 1.0
    assert stats.total_ms == stats.mean_ms == expected
    assert stats.std_ms == 0.0


def test_numpy_scalars_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    values = [numpy.float64(0.1), numpy.float32(0.5), numpy.int64(3), numpy.uint8(7)]
    stats = stats_of(values)
    assert (stats.count, stats.min_ms, stats.max_ms, stats.last_ms) == (4, 0.1, 7.0, 7.0)


class BadFloat:
    def __float__(self) -> float:
        raise ZeroDivisionError("no number today")


class WrongFloat:
    def __float__(self) -> str:
        return "1.0"


NO_DURATION: list[tuple[Any, type[Exception], str]] = [
    *((value, ValueError, "elapsed_ms must be >= 0 ms") for value in (-1e-300, -1, -(10**400))),
    *(
        (value, ValueError, "elapsed_ms must be <= 1e12 ms")
        for value in (math.nextafter(1e12, math.inf), 10**12 + 1, 10**400, 10**5000, Decimal("1e13"))
    ),
    *(
        (value, ValueError, "elapsed_ms")
        for value in (
            math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("Infinity"), Fraction(10**400), Float(math.nan),
        )
    ),
    *((value, TypeError, "elapsed_ms") for value in (True, False, None, "1.0", b"1", 1j, [1.0], (), object(), float)),
    (BadFloat(), ZeroDivisionError, "no number today"),
    (WrongFloat(), TypeError, "__float__"),
]  # fmt: skip


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize(("value", "error", "message"), NO_DURATION, ids=range(len(NO_DURATION)))
def test_what_is_no_duration_is_refused_and_changes_nothing(
    value: Any, error: type[Exception], message: str, is_on: bool
) -> None:
    profiler = profiler_on()
    profiler.record("train", "node", 1.5)
    profiler.set_profiling(is_on)
    before = [asdict(stats) for stats in profiler.get_profiling_summary()]
    for name in ("node", "another node"):
        with pytest.raises(error, match=message):
            profiler.record("train", name, value)
    after = profiler.get_profiling_summary()
    assert [asdict(stats) for stats in after] == before
    assert after.internal_errors == 0


# --- time that only calls have ---


def test_what_record_does_not_know_is_none() -> None:
    stats = stats_of([1.0, 2.0])
    assert (stats.self_total_ms, stats.active_total_ms) == (None, None)


def test_totals_of_calls_are_whole_nanoseconds() -> None:
    profiler = profiler_on()

    @profiler.profile_node
    def node() -> int:
        return sum(range(100))

    for _ in range(1000):
        node()
    (stats,) = profiler.get_profiling_summary()
    for figure in (stats.total_ms, stats.min_ms, stats.max_ms, stats.last_ms, stats.first_ms, stats.self_total_ms):
        assert figure is not None
        assert figure == round(figure * 1e6) / 1e6
    assert stats.count * stats.min_ms <= stats.total_ms <= stats.count * stats.max_ms
    assert stats.mean_ms == pytest.approx(stats.total_ms / stats.count, rel=1e-12)
    assert stats.self_total_ms == stats.active_total_ms == stats.total_ms


# --- the same streams through cuvis-ai-core ---


@pytest.fixture
def cuvis() -> Any:
    return pytest.importorskip("cuvis_ai_core.pipeline.profiling")


TEN = ("node_name", "stage", "count", "min_ms", "max_ms", "last_ms", "median_ms")


@pytest.mark.parametrize(("n", "skip_first_n"), SIZES_AND_SKIPS)
def test_streams_give_what_cuvis_gives(cuvis: Any, n: int, skip_first_n: int) -> None:
    streams = {name: samples(name, n) for name in STREAMS}
    peer = cuvis.PipelineProfiler(skip_first_n=skip_first_n)
    record_in_turns(peer.record, streams)
    theirs = peer.snapshot()
    ours = recorded(streams, skip_first_n=skip_first_n, median="p2")
    assert [[getattr(stats, field) for field in TEN] for stats in ours] == [
        [getattr(stats, field) for field in TEN] for stats in theirs
    ]
    for our, their in zip(ours, theirs, strict=True):
        for field in ("mean_ms", "std_ms", "total_ms"):
            assert getattr(our, field) == pytest.approx(getattr(their, field), rel=AGAINST_CUVIS, abs=AGAINST_CUVIS)
