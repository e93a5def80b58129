"""What the extension gives to views: histograms of snapshots, and columns as Arrow streams."""

from __future__ import annotations

import gc
import random

import pytest

import cprofiling as cp
from calls import profiler_on
from cprofiling import _core
from cprofiling.nodes.buckets import edge_ms, histogram_of, number_of
from hostile_names import NAMES

pytestmark = pytest.mark.native


def test_buckets_are_those_of_the_core() -> None:
    times_ns = [0, 1, 63, 64, 65, 1000, 2**40 + 12345, 2**47 - 1, 2**47, 10**17]
    times_ns += [int(10 ** random.Random(place).uniform(0, 14)) for place in range(200)]
    profiler = profiler_on()
    for time in times_ns:
        profiler.record("s", "n", time / 1e6)
    ((filled, gpu),) = profiler.snapshot()._groups(None)
    numbers = [*map(number_of, times_ns)]
    assert filled == tuple(part for number in sorted(set(numbers)) for part in (number, numbers.count(number)))
    assert gpu == ()
    for time in (time for time in times_ns if 64 <= time < 2**47):
        number = number_of(time)
        assert edge_ms(number) <= time / 1e6 < edge_ms(number + 1) <= edge_ms(number) * 1.0157
    assert histogram_of([64, 64, 10**6]) == (
        (edge_ms(number_of(64)), edge_ms(number_of(64) + 1), 2),
        (edge_ms(number_of(10**6)), edge_ms(number_of(10**6) + 1), 1),
    )


def test_histograms_are_in_the_order_of_the_statistics_with_all_names() -> None:
    profiler = profiler_on()
    for place, name in enumerate(NAMES):
        for _ in range(place % 3 + 1):
            profiler.record(name, name, 1.5)
    found = profiler.snapshot()._filled_buckets()
    assert list(found) == [(name, name) for name in NAMES]
    assert [[count for *_, count in times] for times, _ in found.values()] == [[n % 3 + 1] for n in range(len(NAMES))]
    assert cp.Profiler().snapshot()._groups(None) == []


@pytest.mark.parametrize(
    ("columns", "error", "match"),
    [
        ([], TypeError, "columns must be a tuple"),
        (([],), TypeError, "a column must be a tuple"),
        ((("a", "u"),), TypeError, "arrow_stream"),
        ((("a", "x", []),), ValueError, "a column's format must be u, l or g, got x"),
        ((("a", "l", [1]), ("b", "x", [1])), ValueError, "must be u, l or g"),
        ((("a", "l", [1]), ("b", "l", [])), ValueError, "all columns must have 1 rows, got 0"),
        ((("a", "u", [1]),), TypeError, "an item must be a str"),
        ((("a", "l", ["x"]),), TypeError, "int"),
        ((("a", "l", [2**63]),), OverflowError, "int"),
        ((("a", "g", ["x"]),), TypeError, "real number"),
    ],
)
def test_columns_that_are_none(columns: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        _core.arrow_stream(columns)  # type: ignore[arg-type]


@pytest.mark.parametrize("format_", ["l", "g"])
@pytest.mark.parametrize("added", [0, 1000])
def test_an_item_may_change_the_column_that_it_is_in(format_: str, added: int) -> None:
    class Item:
        def __index__(self) -> int:
            column[:] = [5] * added
            gc.collect()
            return 3

    column: list[object] = [Item(), 7, 2**40]
    pyarrow = pytest.importorskip("pyarrow")
    stream = _core.arrow_stream((("a", format_, column),))
    assert column == [5] * added
    found = pyarrow.RecordBatchReader._import_from_c_capsule(stream).read_all()
    assert found["a"].to_pylist() == [3, 7, 2**40]


def test_a_stream_that_nobody_takes() -> None:
    _core.arrow_stream((("a", "u", ["x", None]), ("b", "l", [1, None]), ("c", "g", [0.5, None])))
    _core.arrow_stream(())
    gc.collect()
