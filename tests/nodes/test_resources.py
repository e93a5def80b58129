"""Resource figures of nodes: made, kept, copied, sent, merged, and explained."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import itertools
import json
import math
import pickle
import struct
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest

import cprofiling as cp
from calls import by_name, profiler_on
from cprofiling import _core
from cprofiling.nodes import missing_figures
from cprofiling.nodes.resources import (
    COUNTER_SHIFT,
    COUNTERS_ASKED,
    GPU,
    LAUNCHES,
    LAUNCHES_UNKNOWN,
    MEMORY,
    PEAK_UNKNOWN,
    WAITS,
    CounterValue,
    MemoryFigures,
    NodeCounters,
    NodeLaunches,
    NodeMemory,
    fields_from,
)
from cprofiling.nodes.stats import NodeProfilingStats, stats_from_row
from fragments import parsed
from snapshot_bytes import sealed, u128

pytestmark = pytest.mark.native

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)

CAUSES = 11
NO_CAUSE = (0,) * CAUSES
NO_GPU = (0, None, None, None, None, None, 0, NO_CAUSE)
TIMES = (2, 1.5, 1.0, 2.0, 3.0, 0.25, 0, NO_CAUSE)
LAUNCHED = (1, 2, 3_500_000, 4, 5, 6, 7, 8)
COUNTED = (0b101, (2, 0, 2, 0, 0, 0, 0), (10, 0, 6, 0, 0, 0, 0), 0)
DEVICE, HOST, NOTHING = (2, 100, 150, 60, 400), (2, 1000, 900, -90, -1), (0, 0, 0, 0, 0)
ROW = ("n", "train", 2, *[1.0] * 12, 0, 0, 0, 0, 1.0, 1.0, None)
NO_RISE = "in no call it rose above the most before, so that what a call reached is not known"
NO_PEAK = "nobody keeps the most there was, or it cannot be counted anew"
PARTS: dict[int, dict[str, Any]] = {
    GPU: {
        "gpu_count": 2, "gpu_mean_ms": 1.5, "gpu_p50_ms": 1.0, "gpu_p99_ms": 2.0, "gpu_total_ms": 3.0,
        "queue_delay_ms": 0.25, "gpu_reason": None,
    },
    LAUNCHES: {"launches": NodeLaunches(1, 2, 3.5, 4, 5, 6, 7, 8)},
    COUNTERS_ASKED: {
        "counters": NodeCounters(
            {"cpu_time": CounterValue(5.0, 10, 2, "ns"), "page_faults": CounterValue(3.0, 6, 2, "times")}
        )
    },
    MEMORY: {"memory": NodeMemory(MemoryFigures(2, 100, 150, 60, 400), MemoryFigures(2, 1000, 900, -90, None))},
}  # fmt: skip


# The core's rows, as csrc/statistics/summary.c names them; what is not told apart here is a plain tuple.
FIELDS = [field.name for field in dataclasses.fields(NodeProfilingStats)[: len(ROW)]]
untyped: Any = namedtuple  # noqa: PYI024 the fields are counted, not written here
NodeRow = untyped("NodeRow", [*FIELDS, "resources"])
Resources = namedtuple(  # noqa: PYI024
    "Resources", "asked gpu launches counters device_memory host_memory waits wait_ms"
)
Gpu = namedtuple(  # noqa: PYI024
    "Gpu", "count mean_ms p50_ms p99_ms total_ms queue_delay_ms multi_stream missed"
)
Memory = namedtuple("Memory", "calls entry exit change peak")  # noqa: PYI024
Counters = namedtuple("Counters", "asked counted totals estimated")  # noqa: PYI024
Launches = namedtuple(  # noqa: PYI024
    "Launches", "launches kernels kernel_ns copies bytes_to_device bytes_to_host bytes_on_device fills"
)


def resources(
    asked: int,
    *,
    gpu: tuple[Any, ...] = TIMES,
    launches: tuple[int, ...] = LAUNCHED,
    counters: tuple[Any, ...] = COUNTED,
    device: tuple[int, ...] = DEVICE,
    host: tuple[int, ...] = HOST,
    waits: int = 0,
) -> Resources:
    return Resources(
        asked, Gpu(*gpu), Launches(*launches), Counters(*counters), Memory(*device), Memory(*host), waits, 0.5
    )


def beyond(asked: int, **more: Any) -> dict[str, Any]:
    return fields_from(resources(asked, **more))


def core_row(asked: int, **more: Any) -> Any:
    """A row of a summary as the core gives it."""
    return NodeRow(*ROW, resources(asked, **{"gpu": NO_GPU, **more}))


# ---- from the core's figures ---------------------------------------------------------------------


@pytest.mark.parametrize("asked", [sum(bits) for n in range(5) for bits in itertools.combinations(PARTS, n)])
@pytest.mark.parametrize("waits", [0, 3])
def test_what_was_asked_for_is_there_and_nothing_else(asked: int, waits: int) -> None:
    expected: dict[str, Any] = {}
    for bit, part in PARTS.items():
        expected |= part if asked & bit else {}
    assert beyond(asked) == expected
    expected |= {"sync_total_ms": 0.5, "sync_count": waits} if waits else {}
    stats = stats_from_row(core_row(asked | (WAITS if waits else 0), gpu=TIMES, waits=waits))
    assert stats == dataclasses.replace(stats_from_row(NodeRow(*ROW, None)), **expected)


@pytest.mark.parametrize(
    ("known", "multi_stream", "missed", "reason"),
    [
        (1, 0, {}, None),
        (0, 0, {}, "the device has not told yet"),
        (0, 0, {1: 1}, "no device was in use (1 call)"),
        (0, 0, {2: 2}, "there was no context on the device (2 calls)"),
        (1, 0, {3: 1}, "the stream was being captured (1 call)"),
        (1, 0, {4: 5}, "the call ended on another device than it began on (5 calls)"),
        (1, 0, {5: 1}, "the context was destroyed (1 call)"),
        (1, 0, {6: 1}, "the device refused (1 call)"),
        (1, 0, {7: 1000}, "too many calls waited for the device (1000 calls)"),
        (0, 0, {8: 1}, "the device cannot tell (1 call)"),
        (0, 0, {9: 2}, "it gave way to its consumer, whose work is on the same stream (2 calls)"),
        (0, 0, {10: 1}, "the stream was not told (1 call)"),
        (1, 1, {}, "1 call began on one stream and ended on another"),  # by which its delay is not known
        (
            2, 2, {3: 1, 6: 3},
            "the stream was being captured (1 call); the device refused (3 calls); "
            "2 calls began on one stream and ended on another",
        ),
    ],
)  # fmt: skip
def test_the_reason_says_how_many_calls(known: int, multi_stream: int, missed: dict[int, int], reason: str) -> None:
    causes = tuple(missed.get(at, 0) for at in range(CAUSES))
    figures = (known, *[1.0 if known else None] * 5, multi_stream, causes)
    fields = beyond(GPU, gpu=figures)
    assert (fields["gpu_count"], fields["gpu_reason"]) == (known, reason)


@pytest.mark.parametrize(
    ("count", "multi_stream", "is_said"), [(0, 0, False), (2, 2, False), (2, 1, True), (2, 0, True)]
)
def test_a_queue_that_the_device_does_not_tell_of(count: int, multi_stream: int, *, is_said: bool) -> None:
    """A call on two streams has no delay: that is another reason."""
    reason = beyond(GPU, gpu=(count, 1.0, 1.0, 1.0, 1.0, None, multi_stream, NO_CAUSE))["gpu_reason"]
    assert reason.endswith("queue_delay_ms is not known, as the device's events tell nothing of its queue") == is_said


@pytest.mark.parametrize(("device_peak", "more", "why"), [(-1, 0, NO_RISE), (-1, PEAK_UNKNOWN, NO_PEAK), (7, 0, None)])
def test_why_a_peak_is_not_known(device_peak: int, more: int, why: str | None) -> None:
    found = beyond(MEMORY | more, device=(1, 2, 3, 1, device_peak))["memory"]
    assert (found.device.peak, found.device.peak_reason) == (None if why else 7, why)
    assert (found.host.peak, found.host.peak_reason) == (None, NO_RISE)
    assert beyond(MEMORY | more, device=NOTHING, host=(1, 2, 3, 1, 5))["memory"].host.peak_reason is None


def test_memory_that_is_not_known() -> None:
    neither = beyond(MEMORY, device=NOTHING, host=NOTHING)["memory"]
    assert (neither.device, neither.host) == (None, None)
    assert neither.reason == "neither a framework's allocator nor a driver told how much of it was in use"
    assert beyond(MEMORY, host=NOTHING)["memory"] == NodeMemory(MemoryFigures(2, 100, 150, 60, 400), None)
    assert beyond(MEMORY, device=(1, 0, 0, 0, 0))["memory"].device == MemoryFigures(1, 0, 0, 0, 0)


def test_counters_by_name() -> None:
    names = ("cpu_time", "context_switches", "page_faults", "cycles", "instructions", "branch_misses", "cache_misses")
    counted, totals = (4, 4, 4, 0, 3, 0, 2), (10**30, 8, 0, 0, 10, 0, 5)
    counters = beyond(COUNTERS_ASKED, counters=(0b1111111, counted, totals, 1))["counters"]
    assert tuple(counters) == names
    assert counters["cpu_time"] == CounterValue(2.5e29, 10**30, 4, "ns", estimated=False)
    assert counters["page_faults"] == CounterValue(0.0, 0, 4, "times", estimated=False)
    assert counters["cycles"] is None
    assert counters["instructions"] == CounterValue(10 / 3, 10, 3, "times", estimated=True)
    exact = beyond(COUNTERS_ASKED, counters=(0b1111111, counted, totals, 0))["counters"]["instructions"]
    assert exact.estimated is False
    assert list(beyond(COUNTERS_ASKED, counters=(0b1001, (1,) * 7, (7,) * 7, 0))["counters"]) == ["cpu_time", "cycles"]


def test_counters_that_nobody_knows() -> None:
    fields = beyond(COUNTERS_ASKED, counters=(0b1001, (0,) * 7, (0,) * 7, 0))
    assert fields == {"counters": NodeCounters({"cpu_time": None, "cycles": None})}


# ---- the values ----------------------------------------------------------------------------------

FIGURES = MemoryFigures(calls=1, entry=2, exit=3, change=1, peak=None)
VALUES = [
    NodeLaunches(1, 2, 3.5, 4, 5, 6, 7, 8),
    FIGURES,
    NodeMemory(FIGURES, None, None),
    NodeMemory(None, FIGURES, "why"),
]


def full(**more: Any) -> NodeProfilingStats:
    """Statistics in which every field is known."""
    given: dict[str, Any] = {field.name: at + 0.5 for at, field in enumerate(dataclasses.fields(NodeProfilingStats))}
    given |= {"node_name": "n", "stage": cp.ExecutionStage.VAL, "count": 2, "gpu_count": 2, "gpu_reason": "none"}
    for part in PARTS.values():
        given |= part
    return NodeProfilingStats(**{**given, "total_ms": 1.0, "sync_total_ms": 4.0, "sync_count": 4, **more})


@pytest.mark.parametrize("value", [*VALUES, full()], ids=lambda value: type(value).__name__)
def test_values_are_frozen_copied_and_described(value: Any) -> None:
    again = [pickle.loads(pickle.dumps(value, protocol)) for protocol in PROTOCOLS]
    for other in (*again, copy.copy(value), copy.deepcopy(value), dataclasses.replace(value)):
        assert (type(other), other, hash(other), repr(other)) == (type(value), value, hash(value), repr(value))
    for field in dataclasses.fields(value):
        assert f"    {field.name}: " in (inspect.getdoc(type(value)) or "")
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, 1)


def test_as_a_dict_everything_is_plain() -> None:
    values = dataclasses.asdict(full())
    assert values["launches"]["kernel_ms"] == 3.5
    assert (values["memory"]["device"]["change"], values["memory"]["host"]["peak"]) == (60, None)
    assert values["counters"]["cpu_time"]["total"] == 10
    assert json.loads(json.dumps(values)) == values


@pytest.mark.parametrize(
    ("cpu_time", "count", "total_ms", "share"),
    [
        (CounterValue(0.0, 1_500_000, 2, "ns"), 2, 3.0, 0.5),
        (CounterValue(0.0, 0, 2, "ns"), 2, 3.0, 0.0),
        (CounterValue(0.0, 3_300_000, 2, "ns"), 2, 3.0, 1.1),  # two clocks
        (CounterValue(0.0, 1_500_000, 1, "ns"), 2, 3.0, None),  # of one of the calls it is not known
        (CounterValue(0.0, 1_500_000, 2, "ns"), 2, 0.0, None),
        (CounterValue(0.0, 20_000, 2, "ns"), 2, 0.04, 0.5),
        (CounterValue(0.0, 20_000, 2, "ns"), 2, 0.039, None),  # reading it takes too large a part of such calls
        (CounterValue(0.0, 0, 2, "ns"), 0, 0.0, None),
        (None, 2, 3.0, None),
    ],
)
def test_the_share_of_the_processor(
    cpu_time: CounterValue | None, count: int, total_ms: float, share: float | None
) -> None:
    stats = full(counters=NodeCounters({"cpu_time": cpu_time}), count=count, total_ms=total_ms)
    assert stats.cpu_share == (None if share is None else pytest.approx(share, rel=1e-15))
    assert dataclasses.replace(stats, counters=NodeCounters()).cpu_share is None


# ---- reasons -------------------------------------------------------------------------------------


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Have nobody give a reason, whatever this machine refuses."""
    monkeypatch.setattr(_core, "gpu_time_reason", lambda: None)
    monkeypatch.setattr(_core, "cupti_reason", lambda: None)
    monkeypatch.setattr(_core, "perf_status", lambda: [("cpu_time", "ns", None), ("context_switches", "times", None)])
    monkeypatch.setattr(missing_figures, "memory_reason", lambda: None)
    return monkeypatch


EVERYTHING = GPU | LAUNCHES | MEMORY | COUNTERS_ASKED | 0b11 << COUNTER_SHIFT


def missed(*causes: int) -> tuple[Any, ...]:
    """The core's GPU figures of as many calls, each of which has no time for one of the causes."""
    return (*NO_GPU[:-1], tuple(causes.count(cause) for cause in range(CAUSES)))


NO_CUDA, REFUSED, UNSUPPORTED = 1, 6, 8


COUNTER = "the counter context_switches is not to be had: refused"
TOLD_BY: dict[str, tuple[list[Any], tuple[str, ...]]] = {
    "times only": ([NodeRow(*ROW, None), core_row(WAITS)], ()),
    "all calls have a GPU time, or will": ([core_row(GPU)], ()),
    "no CUDA": ([core_row(GPU, gpu=missed(NO_CUDA, NO_CUDA))], ("the driver",)),
    "refused": ([core_row(GPU, gpu=missed(NO_CUDA, REFUSED))], ("the driver", "note")),
    "unsupported": ([core_row(GPU, gpu=missed(UNSUPPORTED))], ("the driver", "note")),
    "launches": ([core_row(LAUNCHES), core_row(LAUNCHES_UNKNOWN)], ("launches: CUPTI",)),
    "memory": ([core_row(MEMORY)], ()),
    "no device's memory": ([core_row(MEMORY, device=NOTHING)], ("memory",)),
    "nobody asked for memory": ([core_row(0, device=NOTHING)], ()),
    "no peak": ([core_row(MEMORY | PEAK_UNKNOWN)], ("nobody keeps it",)),
    "counters to be had": ([core_row(COUNTERS_ASKED | 1 << COUNTER_SHIFT)], ()),
    "a counter": ([core_row(COUNTERS_ASKED | 2 << COUNTER_SHIFT)], (COUNTER,)),
    "counters of one reason": (
        [core_row(COUNTERS_ASKED | 0b111 << COUNTER_SHIFT)],
        ("the counters context_switches, page_faults are not to be had: refused",),
    ),
    "everything": (
        [core_row(EVERYTHING, gpu=missed(REFUSED), device=NOTHING)],
        ("the driver", "note", "launches: CUPTI", "memory", COUNTER),
    ),
    "each by another node": (
        [core_row(GPU, gpu=missed(NO_CUDA)), core_row(COUNTERS_ASKED | 2 << COUNTER_SHIFT), core_row(LAUNCHES)],
        ("the driver", "launches: CUPTI", COUNTER),
    ),
}


@pytest.mark.parametrize("case", TOLD_BY)
def test_each_part_has_its_reasons(silent: pytest.MonkeyPatch, case: str) -> None:
    rows, told = TOLD_BY[case]
    silent.setattr(_core, "gpu_time_reason", lambda: "the driver")
    silent.setattr(_core, "cupti_reason", lambda: "CUPTI")
    silent.setattr(missing_figures, "memory_reason", lambda: "memory")
    silent.setattr(missing_figures, "peak_reason", lambda: "nobody keeps it")
    refused = [(name, "times", "refused") for name in ("context_switches", "page_faults")]
    silent.setattr(_core, "perf_status", lambda: [("cpu_time", "ns", None), *refused])
    assert missing_figures.reasons_beyond(rows, "note") == told
    assert missing_figures.reasons_beyond([*rows, NodeRow(*ROW, None), *rows], "note") == told, "each is said once"


def test_reasons_that_nobody_gives(silent: pytest.MonkeyPatch) -> None:
    assert missing_figures.reasons_beyond([core_row(EVERYTHING, device=NOTHING)], None) == ()
    [reason] = missing_figures.reasons_beyond([core_row(LAUNCHES_UNKNOWN)], None)
    assert reason.startswith("launches: not counted in all calls: ")
    silent.setattr(missing_figures, "wait_reason", lambda: "no wait")
    assert "no wait" in missing_figures.reasons_of(0, 0, 0)


REFUSED_COUNTERS = [("cpu_time", "ns", "no clock"), ("context_switches", "times", "refused")]
TOLD = ("the counter cpu_time is not to be had: no clock", "the counter context_switches is not to be had: refused")


def test_a_summary_has_them_of_its_rows(silent: pytest.MonkeyPatch) -> None:
    """Neither switching off nor another configuration takes them away; statistics that were not so asked have none."""
    silent.setattr(_core, "perf_status", lambda: REFUSED_COUNTERS)
    profiler = profiler_on(counters=("cpu_time", "context_switches"))
    assert profiler.get_profiling_summary().reasons == profiler_on().get_profiling_summary().reasons
    for name in ("a", "b"):
        profiler.profile_node(name, stage="train")(len)("")
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: profiler.set_profiling(False),
        lambda: profiler.set_profiling(True),
        lambda: profiler.set_profiling(True, gpu_time=True),
    ]
    for change in changes:
        change()
        summary = profiler.get_profiling_summary()
        assert summary.reasons[-2:] == TOLD
        assert profiler.get_profiling_summary("train").reasons[-2:] == TOLD
        assert not set(TOLD) & set(profiler.get_profiling_summary("val").reasons)
        assert profiler.format_profiling_summary().split("\n")[-2:] == list(TOLD)
        assert profiler.format_profiling_summary("val").startswith("No profiling data collected.\nno node has run in")
        assert set(TOLD) <= set(parsed(summary._repr_html_()).items)
    profiler.reset_profiling()
    assert not set(TOLD) & set(profiler.get_profiling_summary().reasons)


def test_a_snapshot_has_them(silent: pytest.MonkeyPatch) -> None:
    silent.setattr(_core, "perf_status", lambda: REFUSED_COUNTERS)
    profiler = profiler_on(counters=("cpu_time", "context_switches"))
    profiler.profile_node("node")(len)("")
    profiler.set_profiling(False)
    taken = profiler.snapshot()
    silent.setattr(_core, "perf_status", list)  # elsewhere
    other = profiler_on()
    other.profile_node("node")(len)("")
    for snapshot in (taken, pickle.loads(pickle.dumps(taken)), cp.Snapshot.merge([taken, other.snapshot()])):
        assert set(TOLD) <= set(snapshot.stats().reasons)
    assert not set(TOLD) & set(other.snapshot().stats().reasons)


def test_a_reason_that_is_no_text_that_can_be_sent(silent: pytest.MonkeyPatch) -> None:
    silent.setattr(missing_figures, "memory_reason", lambda: "lone \ud800")
    profiler = profiler_on(memory=True)
    profiler.profile_node("node")(len)("")
    assert "lone ?" in profiler.snapshot().stats().reasons


def test_launches_that_could_not_be_counted_have_a_reason_also_later(silent: pytest.MonkeyPatch) -> None:
    silent.setattr(_core, "cupti_reason", lambda: "no CUDA")
    profiler = profiler_on(kernels=True)
    profiler.profile_node("node")(len)("")
    profiler.set_profiling(False)
    summary = profiler.get_profiling_summary()
    assert (summary[0].launches, summary.reasons[-1]) == (None, "launches: no CUDA")
    assert profiler.format_profiling_summary().endswith("\n\nlaunches: no CUDA"), "without a table"


# ---- snapshots -----------------------------------------------------------------------------------


def measured(calls: int, **more: Any) -> cp.Profiler:
    """A Profiler with counters and memory of so many calls."""
    profiler = profiler_on(memory=True, counters=("cpu_time", "page_faults"), **more)
    node = profiler.profile_node("node")(sum)
    for _ in range(calls):
        node(range(1000))
    return profiler


def test_snapshots_keep_what_is_beyond_times() -> None:
    profiler = measured(3)
    taken = profiler.snapshot()
    for snapshot in (taken, cp.Snapshot.from_bytes(taken.to_bytes()), pickle.loads(pickle.dumps(taken))):
        (stats,) = snapshot.stats()
        assert stats == by_name(profiler)["node"]
        assert stats.count == 3
        assert stats.counters == by_name(profiler)["node"].counters
        counter = stats.counters["cpu_time"]
        assert counter is not None
        assert (counter.samples, counter.mean) == (3, counter.total / 3)
        assert stats.memory is not None
        assert stats.memory.host is not None
        assert (stats.memory.host.calls, stats.memory.device) == (3, None)
    assert cp.Snapshot.from_bytes(taken.to_bytes()) == taken


def test_merging_adds_what_is_beyond_times() -> None:
    parts = [measured(2), measured(3), profiler_on()]
    parts[2].profile_node("node")(len)("")
    each = [by_name(part)["node"] for part in parts]
    snapshots = [part.snapshot() for part in parts]
    (merged,) = cp.Snapshot.merge([cp.Snapshot.from_bytes(snapshot.to_bytes()) for snapshot in snapshots]).stats()
    assert merged.count == 6
    for name in ("cpu_time", "page_faults"):
        counters = [stats.counters[name] for stats in each[:2]]
        total = sum(counter.total for counter in counters if counter)
        assert merged.counters[name] == CounterValue(total / 5, total, 5, counters[0].unit if counters[0] else "")
    assert merged.cpu_share is None, "the third one did not count it"
    hosts = [stats.memory.host for stats in each[:2] if stats.memory]
    assert merged.memory is not None
    assert merged.memory.host is not None
    assert merged.memory.host.calls == 5
    assert merged.memory.host.change == sum(host.change for host in hosts if host)
    last = hosts[1]
    assert last is not None
    assert (merged.memory.host.entry, merged.memory.host.exit) == (last.entry, last.exit)
    (again,) = cp.Snapshot.merge(reversed(snapshots)).stats()
    assert again == merged


def test_totals_beyond_64_bits() -> None:
    data = measured(3).snapshot().to_bytes()
    (before,) = cp.Snapshot.from_bytes(data).stats()
    counter = before.counters["cpu_time"]
    assert counter is not None
    three = struct.pack("<Q", 3)
    assert data.count(three + u128(counter.total)) == 1
    for total in (2**64 - 1, 2**64, 2**64 + 5, 3 * (2**64 - 1)):
        changed = data[:-8].replace(three + u128(counter.total), three + u128(total))
        (stats,) = cp.Snapshot.from_bytes(sealed(changed)).stats()
        assert stats.counters["cpu_time"] == CounterValue(total / 3, total, 3, "ns")
    with pytest.raises(cp.FormatError, match="an impossible sum"):
        cp.Snapshot.from_bytes(sealed(changed.replace(three + u128(total), three + u128(total + 1))))


# ---- counters of keys without a sample -----------------------------------------------------------


def test_counters_are_known_by_name_before_there_is_a_sample() -> None:
    """A key that still skips, or that only failed, has the names that were asked for, also once all is off."""
    asked = ("cpu_time", "cycles")
    unknown = NodeCounters(dict.fromkeys(asked))
    profiler = profiler_on(counters=asked, memory=True, gpu_time=True, kernels=True, skip_first_n=1)
    profiler.profile_node("skips")(len)("")
    with contextlib.suppress(TypeError):
        profiler.profile_node("fails")(math.sqrt)("")  # type: ignore[arg-type]
    profiler.set_profiling(False)
    for stats in (*profiler.get_profiling_summary(), *profiler.snapshot().stats()):
        assert (stats.count, stats.counters, stats.counters["cpu_time"]) == (0, unknown, None)
        assert (stats.memory, stats.launches, stats.gpu_reason) == (None, None, None), "nothing else was looked at"
    text = profiler.format_profiling_summary().split("\n\n")[1].split("\n")
    assert text[0].split() == ["Node", "Stage", "CPU", "time", "Cycles", "CPU", "share"]
    assert text[2].split() == ["skips", "inference", "-", "-", "-"]
    assert "fails" not in "".join(text), "as in the first table"
