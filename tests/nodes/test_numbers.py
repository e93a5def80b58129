"""The figures of a summary against exact arithmetic, and against cuvis-ai-core's profiler (scenarios E4 to E11).

``record()`` is fed with streams of known samples. What is expected comes from a reference written here in plain Python:
P² after Jain & Chlamtac (1985) in the order of operations that the median promises, and integers and fractions for
everything else.
"""

from __future__ import annotations

import functools
import math
import operator
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on
from cprofiling import NodeProfilingStats, ProfilingSummary

RELATIVE = Fraction(1, 10**12)  # of mean, std and total, against the exact rational value
AGAINST_CUVIS = 1e-10  # the same against cuvis-ai-core, whose sums are plain floats
QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
MOST = 100_000
SEED = 20_240_717


# --- sample streams ---


def normal(n: int) -> Iterator[float]:
    rng = random.Random(SEED)
    return (max(0.0, rng.gauss(12.5, 2.0)) for _ in range(n))


def exponential(n: int) -> Iterator[float]:
    rng = random.Random(SEED + 1)
    return (rng.expovariate(1 / 3.0) for _ in range(n))


def constant(n: int) -> Iterator[float]:
    return (0.1 for _ in range(n))


# The steps of these two are odd, so that no mean lies halfway between two numbers of two decimals: there a rounding in
# the last place, which nobody promises, would change what a table shows.
def rising(n: int) -> Iterator[float]:
    return (0.0113579 + i * 0.370137 for i in range(n))


def falling(n: int) -> Iterator[float]:
    return (0.0113579 + (n - i) * 0.370137 for i in range(n))


def pareto(n: int) -> Iterator[float]:
    rng = random.Random(SEED + 2)
    return (0.05 * rng.paretovariate(1.16) for _ in range(n))


def two_valued(n: int) -> Iterator[float]:
    rng = random.Random(SEED + 3)
    return (rng.choice((1.1, 80.3)) for _ in range(n))


STREAMS: dict[str, Callable[[int], Iterator[float]]] = {
    stream.__name__: stream for stream in (normal, exponential, constant, rising, falling, pareto, two_valued)
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


# --- the reference ---


class ReferenceMedian:
    """P² for p = 0.5: float64 milliseconds, products before quotients from left to right."""

    def __init__(self) -> None:
        self.heights: list[float] = []
        self.positions = [1, 2, 3, 4, 5]
        self.desired = [1.0, 2.0, 3.0, 4.0, 5.0]

    def add(self, value: float) -> None:
        if len(self.heights) < 5:
            self.heights.append(value)
            if len(self.heights) == 5:
                self.heights.sort()
            return
        for i in range(self._cell(value) + 1, 5):
            self.positions[i] += 1
        for i, increment in enumerate((0.0, 0.25, 0.5, 0.75, 1.0)):
            self.desired[i] += increment
        for i in (1, 2, 3):
            self._adjust(i)

    def _cell(self, value: float) -> int:
        q = self.heights
        q[0], q[4] = min(q[0], value), max(q[4], value)
        # A value equal to the largest marker stays in the last cell.
        return next((cell for cell in range(3) if value < q[cell + 1]), 3)

    def _adjust(self, i: int) -> None:
        q, n = self.heights, self.positions
        distance = self.desired[i] - n[i]
        if distance >= 1 and n[i + 1] - n[i] > 1:
            d = 1
        elif distance <= -1 and n[i - 1] - n[i] < -1:
            d = -1
        else:
            return
        moved = q[i] + d / (n[i + 1] - n[i - 1]) * (
            (n[i] - n[i - 1] + d) * (q[i + 1] - q[i]) / (n[i + 1] - n[i])
            + (n[i + 1] - n[i] - d) * (q[i] - q[i - 1]) / (n[i] - n[i - 1])
        )
        if not q[i - 1] < moved < q[i + 1]:
            moved = q[i] + d * (q[i + d] - q[i]) / (n[i + d] - n[i])
        q[i] = moved
        n[i] += d

    @property
    def value(self) -> float:
        q = sorted(self.heights) if len(self.heights) < 5 else self.heights
        if not q:
            return 0.0
        middle = len(q) // 2
        return q[middle] if len(q) % 2 else (q[middle - 1] + q[middle]) / 2


def reference_median(values: Iterable[float]) -> float:
    estimator = ReferenceMedian()
    for value in values:
        estimator.add(value)
    return estimator.value


@dataclass(frozen=True)
class Exact:
    """Sum, mean and variance of floats as fractions, without any rounding."""

    total: Fraction
    mean: Fraction
    variance: Fraction

    @classmethod
    def of(cls, values: Iterable[float]) -> Exact:
        ratios = [value.as_integer_ratio() for value in values]
        if not ratios:
            return cls(Fraction(0), Fraction(0), Fraction(0))
        scale = max(denominator for _, denominator in ratios)  # powers of two: the largest is a multiple of all
        scaled = [numerator * (scale // denominator) for numerator, denominator in ratios]
        n, total = len(scaled), sum(scaled)
        spread = n * sum(x * x for x in scaled) - total * total
        return cls(Fraction(total, scale), Fraction(total, scale * n), Fraction(spread, scale * scale * n * n))


def assert_close(actual: float, exact: Fraction) -> None:
    """Assert a relative distance of at most 1e-12 from an exact value; none at all from 0."""
    assert abs(Fraction(actual) - exact) <= RELATIVE * abs(exact), (actual, float(exact))


def assert_root_close(actual: float, exact_square: Fraction) -> None:
    """Assert that ``actual`` is the square root of a fraction, to 1e-12 relative."""
    assert actual >= 0
    square = Fraction(actual) ** 2
    low, high = (1 - RELATIVE) ** 2 * exact_square, (1 + RELATIVE) ** 2 * exact_square
    assert low <= square <= high, (actual, math.sqrt(exact_square))


@functools.cache
def reference(name: str, n: int, skipped: int) -> tuple[Exact, float]:
    values = samples(name, n)[skipped:]
    return Exact.of(values), reference_median(values)


# --- the profiler under test ---


def recorded(streams: dict[str, tuple[float, ...]], *, skip_first_n: int = 0) -> ProfilingSummary:
    """Record some streams, one key each, in turns; return the summary."""
    profiler = profiler_on(skip_first_n=skip_first_n)
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


def assert_simple_figures(stats: NodeProfilingStats, values: tuple[float, ...], skipped: int) -> None:
    kept = values[skipped:]
    assert stats.count == len(kept)
    assert stats.skipped_count == min(skipped, len(values))
    assert (stats.error_count, stats.cancelled_count, stats.dropped_count) == (0, 0, 0)
    assert stats.min_ms == min(kept, default=0.0)
    assert stats.max_ms == max(kept, default=0.0)
    assert stats.last_ms == (kept[-1] if kept else 0.0)
    assert stats.first_ms == values[0]


@pytest.mark.parametrize(("n", "skip_first_n"), SIZES_AND_SKIPS)
def test_streams_give_the_exact_figures(n: int, skip_first_n: int) -> None:
    streams = {name: samples(name, n) for name in STREAMS}
    summary = recorded(streams, skip_first_n=skip_first_n)
    assert [stats.node_name for stats in summary] == (list(STREAMS) if n else [])
    assert summary.skip_first_n == skip_first_n
    for stats in summary:
        exact, median = reference(stats.node_name, n, skip_first_n)
        assert_simple_figures(stats, streams[stats.node_name], skip_first_n)
        assert stats.median_ms == median, stats.node_name
        assert_close(stats.mean_ms, exact.mean)
        assert_close(stats.total_ms, exact.total)
        assert_root_close(stats.std_ms, exact.variance)


@pytest.mark.parametrize("name", STREAMS)
def test_the_median_is_the_reference_after_each_sample(name: str) -> None:
    profiler = profiler_on()
    estimator = ReferenceMedian()
    for value in samples(name, 1000):
        profiler.record("train", "node", value)
        estimator.add(value)
        (stats,) = profiler.get_profiling_summary()
        assert stats.median_ms == estimator.value, stats.count


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
    assert_close(stats.total_ms, Fraction(2_500_000_000_000))


# --- hard numbers ---


def test_zeros_are_samples() -> None:
    stats = stats_of([0.0] * 10_000)
    assert stats.count == 10_000
    for field in ("mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms", "first_ms", *QUANTILES):
        assert getattr(stats, field) == 0.0, field


def test_std_does_not_cancel() -> None:
    values = [1e9 + (i % 2) * 0.5 for i in range(100_000)]
    stats = stats_of(values)
    exact = Exact.of(values)
    assert exact.variance == Fraction(1, 16)
    assert_root_close(stats.std_ms, exact.variance)
    assert_close(stats.mean_ms, exact.mean)


def test_the_total_does_not_drift() -> None:
    n = 200_000
    stats = stats_of([0.1] * n)
    exact = Fraction(0.1) * n
    assert stats.total_ms == float(exact)
    assert functools.reduce(operator.add, [0.1] * n) != float(exact)  # as a plain float sum does
    assert stats.mean_ms == 0.1
    assert stats.std_ms == 0.0


@pytest.mark.parametrize("seed", range(10))
def test_samples_over_the_whole_range_of_magnitudes(seed: int) -> None:
    rng = random.Random(seed)
    values = [min(1e12, 10 ** rng.uniform(-9, 12)) for _ in range(2000)]
    stats = stats_of(values)
    exact = Exact.of(values)
    assert_close(stats.total_ms, exact.total)
    assert_close(stats.mean_ms, exact.mean)
    assert_root_close(stats.std_ms, exact.variance)
    assert stats.median_ms == reference_median(values)


class Index:
    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


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
    assert stats.total_ms == expected


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


TEN = ("node_name", "stage", "count", "min_ms", "max_ms", "last_ms")


@pytest.mark.parametrize(("n", "skip_first_n"), SIZES_AND_SKIPS)
def test_streams_give_what_cuvis_gives(cuvis: Any, n: int, skip_first_n: int) -> None:
    streams = {name: samples(name, n) for name in STREAMS}
    peer = cuvis.PipelineProfiler(skip_first_n=skip_first_n)
    record_in_turns(peer.record, streams)
    theirs = peer.snapshot()
    ours = recorded(streams, skip_first_n=skip_first_n)
    assert [[getattr(stats, field) for field in TEN] for stats in ours] == [
        [getattr(stats, field) for field in TEN] for stats in theirs
    ]
    for our, their in zip(ours, theirs, strict=True):
        assert our.median_ms == pytest.approx(their.median_ms, rel=1e-12, abs=1e-12)
        for field in ("mean_ms", "std_ms", "total_ms"):
            assert getattr(our, field) == pytest.approx(getattr(their, field), rel=AGAINST_CUVIS, abs=AGAINST_CUVIS)
    for total_frames in (None, n):
        options: Any = {"total_frames": total_frames, "skip_first_n": skip_first_n}
        for rows in (ours, theirs):
            expected = cuvis.format_profiling_table(rows, **options)
            assert without_medians(cp.format_profiling_table(rows, **options)) == expected
        for our, their in zip(ours, theirs, strict=True):
            table = without_medians(cp.format_profiling_table([our], **options))
            assert table == cuvis.format_profiling_table([their], **options) or is_on_an_edge(our)


def without_medians(table: str) -> str:
    """Return a table without the line of medians that are not those of the column."""
    return table.partition("\nMedian(ms) is the P² estimate")[0]


def is_on_an_edge(stats: NodeProfilingStats) -> bool:
    """Whether a printed digit hangs on less than what a plain sum of floats, which is the peer's total, is off by."""
    printed = [(stats.total_ms / 1e3, 3), (stats.mean_ms, 2), (stats.std_ms, 2), (1e3 / stats.mean_ms, 1)]
    return any(
        f"{figure * (1 - AGAINST_CUVIS):.{digits}f}" != f"{figure * (1 + AGAINST_CUVIS):.{digits}f}"
        for figure, digits in printed
    )
