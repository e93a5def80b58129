"""Snapshots: statistics pickled, stored, sent and merged (failure scenarios E5, E10, E14, F9, I9, I10, D14)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import os
import pickle
import random
import statistics
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cprofiling as cp
from calls import beside, profiler_on, run_threads, switching_often
from snapshot_bytes import sealed

pytestmark = [pytest.mark.native, pytest.mark.forks]

PROTOCOLS = range(6)
TWO_63 = 2**63
MERGED_REASON = (
    "the statistics are merged: last_ms is that of the snapshot taken last, "
    "and first_ms known only where one snapshot has it"
)

# Written by version 5: see test_golden_bytes(). Compressed, in base 85.
GOLDEN = (
    "c-nIg2=aFe_6uNTfPfFo5Sobrm1bl>0uCMyj11V-F)%VQv#_$Ub8vET^YHTVvqOb-"
    "7)mly6_RuEld}~vixr%G{GGkyef|CXL;U?boplrvixm<TN>YnU6p9loi<uY>ZDnQPK$r>!T4w*|OczIY5xNVQ8HfQK4iH)djaGuv0uI>KVF5x_sC<Pt"
    "wr}Jxl{q-^qbgg-j>0b~O3ci2$|)^Uc)OrsHtQKyMl_EygV~G>=;DkF!~y*3AJ~&d(;k#1<}eHn(7-Ub0nW7fiv<?h*7BJ;clRHC2>@=qGfn"
)


def golden() -> bytes:
    return zlib.decompress(base64.b85decode(GOLDEN))


def other_golden(*changes: tuple[bytes, bytes]) -> cp.Snapshot:
    """The golden snapshot of another Profiler, with other bytes in some places."""
    body = golden()[:-8]
    for old, new in ((bytes(range(16)), b"another Profiler"), *changes):
        assert body.count(old) == 1
        body = body.replace(old, new)
    return cp.Snapshot.from_bytes(sealed(body))


# Profilers


def recorded(samples: Iterable[tuple[str, float]], *, skip_first_n: int = 0) -> cp.Snapshot:
    profiler = profiler_on(skip_first_n=skip_first_n)
    for name, elapsed_ms in samples:
        profiler.record("train", name, elapsed_ms)
    return profiler.snapshot()


def busy_profiler() -> cp.Profiler:
    """Return a Profiler with calls of all kinds behind it."""
    profiler = profiler_on(skip_first_n=1)

    @profiler.profile_node
    def outer() -> int:
        return inner() + inner()

    @profiler.profile_node(name="inner \n<b>", stage="val")
    def inner() -> int:
        return sum(range(100))

    @profiler.profile_node
    def broken() -> None:
        raise KeyError

    @profiler.profile_node
    async def waiting() -> None:
        await asyncio.sleep(0)

    @profiler.profile_node
    def emptying() -> None:
        profiler.reset_profiling()

    emptying()
    for _ in range(20):
        outer()
        with pytest.raises(KeyError):
            broken()
        asyncio.run(waiting())
        profiler.record("métrique", "\ud800", 1.1)
    return profiler


def by_name(snapshot: cp.Snapshot) -> dict[str, cp.NodeProfilingStats]:
    return {stats.node_name: stats for stats in snapshot.stats()}


def test_snapshot_gives_the_summary_of_its_moment() -> None:
    profiler = busy_profiler()
    summary = profiler.get_profiling_summary()
    snapshot = profiler.snapshot()
    profiler.record("later", "later", 1.0)
    stats = snapshot.stats()
    assert stats == summary
    assert isinstance(stats, cp.ProfilingSummary)
    assert stats.skip_first_n == summary.skip_first_n == 1
    assert set(stats.reasons) == set(summary.reasons)
    assert stats.internal_errors == summary.internal_errors
    assert stats.cost_ns == summary.cost_ns
    assert stats[0].stage == "inference"
    assert [row.node_name for row in stats if row.dropped_count] != []
    (of_stage,) = snapshot.stats("val")
    assert snapshot.stats(cp.ExecutionStage.VAL) == [of_stage]
    assert of_stage.node_name == "inner \n<b>"


def test_snapshot_of_a_pipeline() -> None:
    class Pipeline(cp.PipelineProfiling):
        pass

    pipeline = Pipeline()
    pipeline.set_profiling(True)
    pipeline.profiler.record("train", "a", 2.0)
    assert pipeline.snapshot().stats() == pipeline.get_profiling_summary()


def test_snapshot_is_immutable_and_made_by_others() -> None:
    snapshot: Any = recorded([("a", 1.0)])
    for name in ("name", "stats"):
        with pytest.raises(AttributeError):
            setattr(snapshot, name, 1)
    assert not hasattr(snapshot, "__dict__")
    with pytest.raises(TypeError, match=r"Snapshot is made by Profiler.snapshot\(\), Snapshot.merge\(\) or"):
        cp.Snapshot()


def test_shown() -> None:
    snapshot = busy_profiler().snapshot()
    merged = cp.Snapshot.merge([snapshot, recorded([("a", 1.0)])])
    assert repr(snapshot) == "<Snapshot keys=6 sources=1>"
    assert repr(merged) == "<Snapshot keys=7 sources=2>"
    assert snapshot._repr_html_() == snapshot.stats()._repr_html_()
    assert "<b>" not in snapshot._repr_html_()
    assert MERGED_REASON in merged._repr_html_()


# Carrying


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pickle(protocol: int) -> None:
    snapshot = busy_profiler().snapshot()
    merged = cp.Snapshot.merge([snapshot, recorded([("a", 1.0)])])
    for original in (snapshot, merged):
        again = pickle.loads(pickle.dumps(original, protocol))
        assert type(again) is cp.Snapshot
        assert again == original
        assert again.stats() == original.stats()
        assert vars(again.stats()) == vars(original.stats())


def test_copies_are_the_object() -> None:
    snapshot = recorded([("a", 1.0)])
    assert copy.copy(snapshot) is snapshot
    assert copy.deepcopy([snapshot])[0] is snapshot


def test_equality_and_hash() -> None:
    snapshot = recorded([("a", 1.0)])
    again = cp.Snapshot.from_bytes(snapshot.to_bytes())
    other = recorded([("a", 1.0)])
    assert snapshot == again
    assert (snapshot != again) is False
    assert hash(snapshot) == hash(again)
    assert snapshot != other
    assert len({snapshot, again, other}) == 2
    assert snapshot != snapshot.to_bytes()
    with pytest.raises(TypeError):
        snapshot < again  # type: ignore[operator]  # noqa: B015


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_like_objects(kind: Callable[[bytes], Any]) -> None:
    snapshot = recorded([("a", 1.0)])
    assert cp.Snapshot.from_bytes(kind(snapshot.to_bytes())) == snapshot
    assert cp.Snapshot.from_bytes(data=kind(snapshot.to_bytes())) == snapshot


@pytest.mark.parametrize("data", ["text", None, 3, [1, 2]])
def test_what_is_not_bytes_like(data: Any) -> None:
    with pytest.raises(TypeError, match="data must be a bytes-like object"):
        cp.Snapshot.from_bytes(data)


def test_format_error() -> None:
    assert issubclass(cp.FormatError, ValueError)
    assert (cp.FormatError.__module__, cp.FormatError.__qualname__) == ("cprofiling", "FormatError")
    error = pickle.loads(pickle.dumps(cp.FormatError("why")))
    assert type(error) is cp.FormatError
    assert error.args == ("why",)


# The format


def test_golden_bytes() -> None:
    """The golden bytes are read, and written again."""
    snapshot = cp.Snapshot.from_bytes(golden())
    assert snapshot.to_bytes() == golden()
    stats = snapshot.stats()
    assert [tuple(vars(row).values())[:10] for row in stats] == [
        ("Blur \ud800", "train", 2, 4.0, 4.0, 1.0, 3.0, 5.0, 8.0, 5.0),
        ("", "val", 1, 0.5, 0.5, 0.0, 0.5, 0.5, 0.5, 0.5),
    ]
    assert [tuple(vars(row).values())[15:22] for row in stats] == [
        (1, 2, 2, 3, 9.0, 7.0, 7.5),
        (0, 0, 0, 0, 0.5, None, None),
    ]
    assert stats[0].p50_ms == 4.0
    assert stats[0].p999_ms == pytest.approx(5.0, rel=0.01)
    assert vars(stats) == {
        "skip_first_n": 2,
        "median": "histogram",
        "reasons": ("the clock is CLOCK_MONOTONIC, as a test says", "µ"),
        "internal_errors": 1,
        "cost_ns": 48.5,
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"at byte \d+"),
        (golden()[:100], "^cut or extended: 100 bytes, where the length at byte 16 says 1008$"),
        (golden() + b"\0", "cut or extended: 1009 bytes"),
        (golden()[:90] + b"?" + golden()[91:], r"at byte \d+"),
        (golden()[:8] + b"\4" + golden()[9:], r"^schema version 4 at byte 8, where this program reads version 5$"),
        (golden()[:8] + b"\6" + golden()[9:], r"^schema version 6 at byte 8, where this program reads version 5$"),
        (sealed(golden()[:56] + struct.pack("<Q", 2**60) + golden()[64:-8]), "number of sources"),
    ],
    ids=range(7),
)
def test_bytes_that_are_no_snapshot(data: bytes, message: str) -> None:
    with pytest.raises(cp.FormatError, match=message):
        cp.Snapshot.from_bytes(data)


@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_characters="\0")), st.text(st.characters(exclude_characters="\0"))),
        unique=True,
        max_size=8,
    )
)
@settings(deadline=None)
def test_any_name_comes_back_in_its_place(names: list[tuple[str, str]]) -> None:
    profiler = profiler_on()
    for stage, node in names:
        profiler.record(stage, node, 1.0)
    snapshot = cp.Snapshot.from_bytes(profiler.snapshot().to_bytes())
    assert [(str(stats.stage), stats.node_name) for stats in snapshot.stats()] == names


# Merging


def snapshots_that_raise() -> Iterator[cp.Snapshot]:
    yield recorded([("a", 1.0)])
    raise KeyError("mine")


@pytest.mark.parametrize(
    ("snapshots", "error", "message"),
    [
        ([], ValueError, "snapshots must not be empty"),
        (iter(()), ValueError, "snapshots must not be empty"),
        (None, TypeError, "snapshots must be an iterable of Snapshots"),
        (cp.Profiler(), TypeError, "snapshots must be an iterable of Snapshots"),
        ([recorded([("a", 1.0)]), b""], TypeError, r"snapshots\[1\] must be a Snapshot, got \w+"),
        ([recorded([("a", 1.0)]), cp.Snapshot], TypeError, r"snapshots\[1\] must be a Snapshot, got \w+"),
        (snapshots_that_raise(), KeyError, "mine"),
    ],
)
def test_what_cannot_be_merged(snapshots: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        cp.Snapshot.merge(snapshots)


def test_same_data_twice() -> None:
    profiler = profiler_on()
    profiler.record("train", "a", 1.0)
    first = profiler.snapshot()
    profiler.record("train", "a", 2.0)
    second = profiler.snapshot()
    other = recorded([("a", 1.0)])
    both = cp.Snapshot.merge([other, first])
    identity = first.to_bytes()[80:96].hex()
    for snapshots, places in (([first, first], (0, 1)), ([second, other, first], (0, 2)), ([both, second], (0, 1))):
        with pytest.raises(ValueError, match="the same data twice") as raised:
            cp.Snapshot.merge(snapshots)
        a, b = places
        assert f"snapshots[{a}] and snapshots[{b}] both hold generation 1 of Profiler {identity}" in str(raised.value)


def test_reset_begins_other_data() -> None:
    profiler = profiler_on()
    parts = []
    for _ in range(3):
        profiler.record("train", "a", 2.0)
        parts.append(profiler.snapshot())
        profiler.reset_profiling()
    merged = cp.Snapshot.merge(parts)
    assert by_name(merged)["a"].count == 3
    assert [part.stats()[0].count for part in parts] == [1, 1, 1]


def test_merged_statistics() -> None:
    left = profiler_on()
    right = profiler_on()
    for elapsed_ms in (1.0, 2.0, 3.0, 4.0, 10.0, 11.0):
        left.record("train", "a", elapsed_ms)
    for elapsed_ms in (5.0, 6.0, 7.0):
        right.record("train", "a", elapsed_ms)
    right.record("train", "b", 8.0)
    a, b = left.snapshot(), right.snapshot()
    merged = cp.Snapshot.merge([a, b])
    stats = by_name(merged)
    row = stats["a"]
    assert (row.count, row.min_ms, row.max_ms, row.total_ms) == (9, 1.0, 11.0, 49.0)
    assert row.mean_ms == pytest.approx(49 / 9, rel=1e-15)
    assert row.std_ms == pytest.approx((361 / 9 - (49 / 9) ** 2) ** 0.5, rel=1e-14)
    assert row.median_ms == row.p50_ms == pytest.approx(5.0, rel=0.01)
    assert row.last_ms == 7.0
    assert row.first_ms is None
    assert stats["b"].first_ms == 8.0
    assert stats["b"].median_ms == stats["b"].p50_ms
    assert merged.stats().reasons[-1] == MERGED_REASON
    assert MERGED_REASON not in a.stats().reasons
    assert a.stats()[0].median_ms == left.get_profiling_summary()[0].median_ms == a.stats()[0].p50_ms


@given(st.lists(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=4), min_size=1, max_size=6))
@settings(deadline=None)
def test_the_median_of_parts_is_that_of_all_samples(parts: list[list[float]]) -> None:
    snapshots = [recorded([("a", value) for value in values]) for values in parts]
    merged = pickle.loads(pickle.dumps(cp.Snapshot.merge(snapshots)))
    whole = [value for values in parts for value in values]
    for snapshot, samples in [*zip(snapshots, parts, strict=True), (merged, whole)]:
        [row] = snapshot.stats()
        assert row.median_ms == row.p50_ms
        if len(samples) <= 5:
            assert row.median_ms == statistics.median(samples)
        else:
            assert row.median_ms == pytest.approx(statistics.median_low(samples), rel=0.01)


def test_estimates_are_kept_and_not_merged() -> None:
    profiler = profiler_on(median="p2")
    for elapsed_ms in (1.0, 100.0) * 50:
        profiler.record("train", "a", elapsed_ms)
    snapshot = profiler.snapshot()
    for same in (snapshot, cp.Snapshot.from_bytes(snapshot.to_bytes()), pickle.loads(pickle.dumps(snapshot))):
        assert same.stats() == profiler.get_profiling_summary()
        assert same.stats().median == "p2"
        assert same.stats()[0].median_ms != same.stats()[0].p50_ms
        assert str(same.stats()).startswith("Profiling Summary (median=p2)\n")
    merged = cp.Snapshot.merge([snapshot]).stats()
    assert (merged.median, merged[0].median_ms) == ("histogram", merged[0].p50_ms)
    assert str(merged).startswith("Profiling Summary\n")


def test_merging_one() -> None:
    snapshot = recorded([("a", 1.0), ("b", 2.0)])
    merged = cp.Snapshot.merge([snapshot])
    assert merged != snapshot
    assert [stats.node_name for stats in merged.stats()] == ["a", "b"]
    assert cp.Snapshot.merge([merged]) == merged
    assert merged.stats()[0].first_ms == 1.0


def test_remarks_of_merged_snapshots() -> None:
    head = struct.pack("<3Qd", 2, 2, 1, 48.5)  # least and most skip_first_n, internal errors, cost
    other = other_golden((head, struct.pack("<3Qd", 3, 3, 2, 60.0)), (b"as a test says", b"as others say."))
    stats = cp.Snapshot.merge([other, cp.Snapshot.from_bytes(golden())]).stats()
    assert vars(stats) == {
        "skip_first_n": 3,
        "median": "histogram",
        "reasons": (
            "the clock is CLOCK_MONOTONIC, as a test says",
            "the clock is CLOCK_MONOTONIC, as others say.",
            "µ",
            MERGED_REASON,
            "the merged statistics were gathered with skip_first_n from 2 to 3",
        ),
        "internal_errors": 3,
        "cost_ns": 60.0,
    }


def test_skips_are_added() -> None:
    parts = [recorded([("a", 9.0)] * 4, skip_first_n=3) for _ in range(3)]
    merged = cp.Snapshot.merge(parts).stats()
    assert merged.skip_first_n == 3
    assert (merged[0].skipped_count, merged[0].count) == (9, 3)
    assert not any("skip_first_n from" in reason for reason in merged.reasons)


def test_samples_that_the_histogram_lost() -> None:
    class Lossy(cp.Snapshot):
        __slots__ = ()

        def _rows(self, stage: Any, *part: int) -> Any:
            rows, skip_first_n, median, *_ = super()._rows(stage, *part)
            return rows, skip_first_n, median, 2, 0, []

    reason = "2 samples are missing from the percentiles, for want of memory"
    assert Lossy.from_bytes(golden()).stats().reasons[-1] == reason


def test_counts_that_do_not_fit() -> None:
    many = struct.pack("<5Q", 2, 2**62, 2, 2, 3)
    parts = [other_golden((struct.pack("<5Q", 2, 1, 2, 2, 3), many)) for _ in range(2)]
    data = parts[1].to_bytes()[:-8].replace(b"another Profiler", b"a third Profiler")
    parts[1] = cp.Snapshot.from_bytes(sealed(data))
    with pytest.raises(OverflowError, match=r"a count of the merged snapshots exceeds 2\*\*63-1"):
        cp.Snapshot.merge(parts)


SAMPLES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.floats(0.0, 1e12) | st.sampled_from([0.0, 5e-324, 1e-300, 0.1, 1e12]) | st.integers(0, 10**12).map(float),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(st.lists(SAMPLES, min_size=1, max_size=6), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_order_and_grouping_do_not_show(parts: list[list[tuple[str, float]]], rng: random.Random) -> None:
    snapshots = [recorded(part) for part in parts]
    expected = cp.Snapshot.merge(snapshots)
    while len(snapshots) > 1:
        rng.shuffle(snapshots)
        group = rng.randint(1, len(snapshots))
        snapshots[:group] = [cp.Snapshot.merge(snapshots[:group])]
    merged = cp.Snapshot.merge(snapshots)
    assert merged.to_bytes() == expected.to_bytes()
    assert merged.stats() == expected.stats()


# Processes and threads


def test_child_merges_with_its_parent() -> None:
    profiler = profiler_on()
    profiler.record("train", "a", 1.0)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside the threads of other tests
        child = os.fork()
    if child == 0:
        profiler.record("train", "a", 2.0)
        os.write(writer, profiler.snapshot().to_bytes())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        from_child = cp.Snapshot.from_bytes(pipe.read())
    assert os.waitpid(child, 0)[1] == 0
    (row,) = cp.Snapshot.merge([profiler.snapshot(), from_child]).stats()
    assert (row.count, row.total_ms) == (2, 3.0)


def what_is_wrong(snapshot: cp.Snapshot, least: int) -> list[object]:
    """Return the contradictions in a snapshot of one node that has been called at least so often."""
    wrong: list[object] = []
    if cp.Snapshot.from_bytes(snapshot.to_bytes()) != snapshot:
        wrong.append(snapshot)
    for row in cp.Snapshot.merge([snapshot]).stats():
        is_torn = not row.count * row.min_ms * (1 - 1e-9) <= row.total_ms <= row.count * row.max_ms * (1 + 1e-9)
        if row.count < least or is_torn:
            wrong.append(row)
    return wrong


def test_snapshots_beside_calls() -> None:
    profiler = profiler_on()
    calls, threads = 2000, 4
    wrong: list[object] = []
    least = [0]

    @profiler.profile_node
    def node() -> None:
        pass

    def work() -> None:
        for _ in range(calls):
            node()

    def look() -> None:
        snapshot = profiler.snapshot()
        wrong.extend(what_is_wrong(snapshot, least[0]))
        least[0] = sum(row.count for row in snapshot.stats())

    with switching_often(), beside(look):
        run_threads(*[work] * threads)
    assert wrong == []
    assert profiler.snapshot().stats()[0].count == calls * threads


# The extension's side


class OtherSnapshot(cp.Snapshot):
    __slots__ = ()


def test_subclass_stays_itself() -> None:
    snapshot = OtherSnapshot.from_bytes(golden())
    assert type(snapshot) is OtherSnapshot
    assert type(OtherSnapshot.merge([snapshot])) is OtherSnapshot
    assert type(pickle.loads(pickle.dumps(snapshot))) is OtherSnapshot
    assert snapshot == cp.Snapshot.from_bytes(golden())


# Each allocation of CPython's fails in turn: MemoryError, or the right answer, and nothing else.
WITHOUT_MEMORY = """
import _testcapi
import os
import cprofiling as cp
from cprofiling import _core

profiler = cp.Profiler()
profiler.set_profiling(True)
profiler.record("train", "a", 1.0)
first = profiler.snapshot()
profiler.reset_profiling()
profiler.record("train", "\\ud800", 1.0)
second = profiler.snapshot()
data = second.to_bytes()
merged = cp.Snapshot.merge([first, second])
rows = merged.stats()
noted = _core.take_snapshot(cp.Snapshot, profiler, 0, (b"a note", b"another note"))
operations = {
    "snapshot": lambda: profiler.snapshot().stats() == second.stats(),
    "merge": lambda: cp.Snapshot.merge([first, second]) == merged,
    "from_bytes": lambda: cp.Snapshot.from_bytes(bytearray(data)) == second,
    "pickle": lambda: second.__reduce__()[1] == (data,),
    "hash": lambda: hash(merged) == hash(merged),
    "stats": lambda: merged.stats() == rows,
    "notes": lambda: noted.stats().reasons == ("a note", "another note"),
    "stage": lambda: merged.stats("\\ud800") == [],
}
for name, operation in operations.items():
    failures = 0
    for n in range(1, 150):
        _testcapi.set_nomemory(n, n + 1)
        try:
            result = operation()
        except MemoryError:
            result = None
            failures += 1
        finally:
            _testcapi.remove_mem_hooks()
        assert result in (None, True), (name, n)
    assert failures, name
os._exit(0)  # CPython 3.13 without a GIL may not come to its own end after failures
"""


def test_without_memory() -> None:
    pytest.importorskip("_testcapi")
    run = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


# ---- groups of buckets ---------------------------------------------------------------------------


def test_groups_hold_what_is_between_their_bounds() -> None:
    profiler = profiler_on()
    for node, ms in (("first", 1.0), ("second", 4.0), ("first", 2.0), ("first", 1.0), ("first", 1e12)):
        profiler.record("train", node, ms)
    snapshot = profiler.snapshot()
    one, two = (row * 64 + place for row, place in ((20, 58), (21, 58)))  # in which 1 ms and 2 ms are
    assert snapshot._groups(()) == [((0, 4), ()), ((0, 1), ())]
    assert snapshot._groups((one, one + 1, two, two + 1)) == [((1, 2, 3, 1, 4, 1), ()), ((4, 1), ())]
    assert snapshot._groups((0, 3071)) == [((1, 3, 2, 1), ()), ((1, 1), ())]
    assert snapshot._groups(tuple(range(1, 3072)))[1] == ((two + 64, 1), ())
    assert cp.Profiler().snapshot()._groups((1,)) == []


def test_rows_and_groups_are_had_a_few_at_a_time() -> None:
    profiler = profiler_on()
    for number in range(600):
        profiler.record("train", str(number), 1.0 + number)
    snapshot = profiler.snapshot()
    rows, groups = snapshot._rows(None).rows, snapshot._groups(None)
    assert list(snapshot._keys(None)) == list(zip(rows, groups, strict=True))
    for first, most in ((0, 0), (0, 1), (598, 9), (600, 1), (10**9, 1), (-1, 2), (5, -1)):
        part = slice(max(0, first), max(0, first) + max(0, most))
        assert snapshot._rows(None, first, most).rows == rows[part]
        assert snapshot._groups(None, first, most) == groups[part]


def test_a_mean_is_between_the_least_and_the_most(p: cp.Profiler) -> None:
    """A forged total may differ from them by what rounding can do."""
    p.record("val", "node", 3.25)
    body = p.snapshot().to_bytes()[:-8]
    forged = []
    for bit in range(8 * len(body)):
        changed = bytearray(body)
        changed[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(cp.FormatError):
            forged += [row for row in cp.Snapshot.from_bytes(sealed(bytes(changed))).stats() if row.total_ms != 3.25]
    assert any(row.total_ms > row.max_ms for row in forged)
    for row in forged:
        assert row.min_ms <= row.mean_ms <= row.max_ms
