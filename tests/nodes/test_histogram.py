"""Histograms of nodes, as values: what is in them, where they come from, and what is refused."""

from __future__ import annotations

import copy
import json
import math
import pickle
from enum import Enum
from random import Random
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_with
from cprofiling.nodes.histogram import Histogram, histogram_of
from hostile_names import NAMES


class Stage(Enum):
    NIGHT = "night"


@pytest.fixture(scope="module")
def times() -> list[float]:
    random = Random(8)
    return [random.lognormvariate(0, 1) for _ in range(3000)]


def test_each_time_is_in_one_bucket_around_it(times: list[float]) -> None:
    profiler = profiler_with({("train", "a"): times, ("val", "b"): [1.0]})
    summary, snapshot = profiler.get_profiling_summary(), profiler.snapshot()
    for histogram in (summary.histogram("a"), snapshot.histogram("a", "train"), snapshot.stats().histogram("a")):
        assert histogram.count == sum(count for *_, count in histogram) == len(times)
        assert [sum(lower <= time < upper for time in times) for lower, upper, _ in histogram] == [
            count for *_, count in histogram.buckets
        ]
        assert all(upper <= lower * (1 + 1 / 64 + 1e-12) for lower, upper, _ in histogram)
        assert list(histogram) == sorted(histogram)
        assert len(histogram) == len(histogram.buckets)
        assert histogram[0] == histogram.buckets[0]
    assert summary.histogram("a").stage is None
    assert snapshot.histogram("a", "train").stage == "train"


def test_quantiles_are_those_of_the_summary(times: list[float]) -> None:
    profiler = profiler_with({("train", "a"): times})
    (row,) = summary = profiler.get_profiling_summary()
    histogram = summary.histogram("a")
    for fraction, known in ((0.5, row.p50_ms), (0.9, row.p90_ms), (0.99, row.p99_ms), (0.999, row.p999_ms)):
        assert histogram.quantile(fraction) == pytest.approx(known, rel=1e-9)
    least, most = histogram.quantile(0.0), histogram.quantile(1)
    assert least == pytest.approx(min(times), rel=0.01)
    assert most == pytest.approx(max(times), rel=0.01)
    assert Histogram("a", None, ()).quantile(0.5) is None


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan, "0.5", True, None])
def test_a_fraction_is_from_0_to_1(fraction: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="fraction must be"):
        Histogram("a", None, ()).quantile(fraction)


def test_stages_are_apart_or_together() -> None:
    profiler = profiler_with({("train", "a"): [1.0, 1.0], ("night", "a"): [1.0, 50.0]})
    summary = profiler.get_profiling_summary()
    for stage in ("train", cp.ExecutionStage.TRAIN, Stage.NIGHT):
        assert summary.histogram("a", stage).count == 2
    together = summary.histogram("a")
    assert [count for *_, count in together] == [3, 1]
    assert "a (night)" in repr(summary.histogram("a", "night"))


def test_what_is_not_there_is_refused_with_what_there_is() -> None:
    summary = profiler_with({("train", "a"): [1.0]}).get_profiling_summary()
    with pytest.raises(ValueError, match=r"^node must be one that has been called \('a'\), got 'b' \(str\)$"):
        summary.histogram("b")
    with pytest.raises(ValueError, match=r"^stage must be one in which the node ran \('train'\), got 'val' \(str\)$"):
        summary.histogram("a", "val")
    with pytest.raises(TypeError, match="node must be a str"):
        summary.histogram(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stage must be a str"):
        summary.histogram("a", 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^node must be one that has been called \(none\), got 'a'"):
        cp.Profiler().get_profiling_summary().histogram("a")
    many = profiler_with({("train", f"n{number}"): [1.0] for number in range(10, 22)}).get_profiling_summary()
    named = ", ".join(f"'n{number}'" for number in range(10, 20))
    with pytest.raises(ValueError, match=rf"^node must be one that has been called \({named} and 2 more\), got 'a'"):
        many.histogram("a")


def test_copies_have_none() -> None:
    summary = profiler_with({("train", "a"): [1.0]}).get_profiling_summary()
    copies = (pickle.loads(pickle.dumps(summary)), copy.copy(summary), copy.deepcopy(summary), summary.copy())
    for other in (*copies, cp.ProfilingSummary(summary, cost_ns=summary.cost_ns)):
        assert (other, vars(other)) == (summary, vars(summary))
        with pytest.raises(ValueError, match="the summary has no histograms"):
            other.histogram("a")


def test_a_snapshots_summary_keeps_its_own() -> None:
    profiler = profiler_with({("train", "a"): [1.0]})
    live, kept = profiler.get_profiling_summary(), profiler.snapshot().stats()
    profiler.record("train", "a", 1.0)
    assert (live.histogram("a").count, kept.histogram("a").count) == (2, 1)


def test_a_merged_and_a_stored_snapshot_have_them() -> None:
    snapshots = [profiler_with({("train", "a"): [1.0, 3.0]}).snapshot() for _ in range(3)]
    merged = cp.Snapshot.from_bytes(cp.Snapshot.merge(snapshots).to_bytes())
    assert [count for *_, count in merged.histogram("a")] == [3, 3]


def test_it_is_a_value_that_prints_itself() -> None:
    profiler = profiler_with({("train", "a"): [1.0] * 9 + [20.0]})
    histogram = profiler.snapshot().histogram("a")
    assert histogram == pickle.loads(pickle.dumps(histogram))
    assert hash(histogram) == hash(profiler.snapshot().histogram("a"))
    assert repr(histogram) == "<Histogram of 'a': 10 samples in 2 buckets>"
    first, strip = str(histogram).split("\n")
    assert first == "a: 10 samples"
    assert strip == f"999.4 µs |█{' ' * 38}▁| 20.19 ms"
    decades = profiler_with({("s", "decades"): [0.01, 1.0, 100.0]}).snapshot().histogram("decades")
    assert str(decades).split("|")[1] == f"█{' ' * 19}█{' ' * 18}█"
    begin, _, rest = histogram._repr_html_().partition(">")
    assert begin.startswith('<pre style="font-family: ')
    assert "monospace" in begin
    assert rest == f"{histogram}</pre>"
    assert Histogram("<b>", "&", ())._repr_html_().endswith(">&lt;b&gt; (&amp;): no samples</pre>")
    assert str(Histogram("a", None, ())) == "a: no samples"
    assert "█" in str(profiler_with({("s", "zero"): [0.0]}).snapshot().histogram("zero"))
    assert json.loads(json.dumps(histogram.buckets)) == [list(bucket) for bucket in histogram]


def test_names_are_data() -> None:
    profiler = profiler_with({("s", name): [1.0] for name in NAMES})
    known = profiler.snapshot()._find_histograms()
    for name in NAMES:
        histogram = histogram_of(known, name, None)
        assert (histogram.node_name, histogram.count) == (name, 1)
        assert str(histogram).count("\n") == 1
        str(histogram).encode()
