"""What the core gathers beyond times, as values: made, kept, copied, sent, merged, and explained (F9)."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import pickle
import struct
from typing import Any

import pytest

import cprofiling as cp
from calls import by_name, profiler_on
from cprofiling import _core, reasons
from cprofiling.asked import COUNTER_SHIFT, COUNTERS, GPU, LAUNCHES, MEMORY
from cprofiling.counters import CounterValue, NodeCounters
from cprofiling.extras import MemoryFigures, NodeLaunches, NodeMemory, fields_from
from cprofiling.stats import NodeProfilingStats, is_beyond_times, stats_from_row
from test_snapshot import sealed, u128

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)

CAUSES = 11
NO_CAUSE = (0,) * CAUSES
NO_GPU = (0, None, None, None, None, None, 0, NO_CAUSE)
TIMES = (2, 1.5, 1.0, 2.0, 3.0, 0.25, 0, NO_CAUSE)
LAUNCHED = (1, 2, 3_500_000, 4, 5, 6, 7, 8)
COUNTED = (0b101, (2, 0, 2, 0, 0, 0, 0), (10, 0, 6, 0, 0, 0, 0), 0)
DEVICE, HOST, NOTHING = (2, 100, 150, 60, 400), (2, 1000, 900, -90, -1), (0, 0, 0, 0, 0)
PARTS: dict[int, dict[str, Any]] = {
    GPU: {
        "gpu_count": 2, "gpu_mean_ms": 1.5, "gpu_p50_ms": 1.0, "gpu_p99_ms": 2.0, "gpu_total_ms": 3.0,
        "queue_delay_ms": 0.25, "gpu_reason": None,
    },
    LAUNCHES: {"launches": NodeLaunches(1, 2, 3.5, 4, 5, 6, 7, 8)},
    COUNTERS: {
        "counters": NodeCounters(
            {"cpu_time": CounterValue(5.0, 10, 2, "ns"), "page_faults": CounterValue(3.0, 6, 2, "times")}
        )
    },
    MEMORY: {"memory": NodeMemory(MemoryFigures(2, 100, 150, 60, 400), MemoryFigures(2, 1000, 900, -90, None))},
}  # fmt: skip


def beyond(
    asked: int,
    *,
    gpu: tuple[Any, ...] = TIMES,
    launches: tuple[int, ...] = LAUNCHED,
    counters: tuple[Any, ...] = COUNTED,
    device: tuple[int, ...] = DEVICE,
    host: tuple[int, ...] = HOST,
    waits: int = 0,
    wait_ms: float = 0.0,
) -> dict[str, Any]:
    return fields_from((asked, gpu, launches, counters, device, host, waits, wait_ms))


# ---- from the core's figures ---------------------------------------------------------------------


@pytest.mark.parametrize("asked", [sum(bits) for n in range(5) for bits in itertools.combinations(PARTS, n)])
@pytest.mark.parametrize("waits", [0, 1])
def test_what_was_asked_for_is_there_and_nothing_else(asked: int, waits: int) -> None:
    expected: dict[str, Any] = {}
    for bit, part in PARTS.items():
        expected |= part if asked & bit else {}
    expected |= {"sync_total_ms": 0.5} if waits else {}
    assert beyond(asked, waits=waits, wait_ms=0.5) == expected
    stats = NodeProfilingStats("n", "s", 2, 1.0, 1.0, 0.0, 1.0, 1.0, 2.0, 1.0, **expected)
    assert is_beyond_times(stats) == bool(expected)


def test_every_field_is_one_of_the_statistics() -> None:
    names = {field.name for field in dataclasses.fields(NodeProfilingStats)}
    fields = beyond(GPU | LAUNCHES | COUNTERS | MEMORY, waits=1)
    assert set(fields) <= names
    row = ("n", "train", 2, *[1.0] * 12, 0, 0, 0, 0, 1.0, 1.0, None)
    given = (GPU | MEMORY, TIMES, LAUNCHED, COUNTED, DEVICE, HOST, 1, 0.5)
    stats = stats_from_row((*row, given))
    assert (stats.gpu_total_ms, stats.sync_total_ms, stats.launches) == (3.0, 0.5, None)
    assert stats.memory == PARTS[MEMORY]["memory"]
    assert stats_from_row((*row, None)).memory is None


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
        (1, 1, {}, "1 call began on one stream and ended on another"),
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


def test_causes_that_are_not_the_cores_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        beyond(GPU, gpu=(*NO_GPU[:-1], (0,) * (CAUSES + 1)))


def test_memory_that_is_not_known() -> None:
    neither = beyond(MEMORY, device=NOTHING, host=NOTHING)["memory"]
    assert (neither.device, neither.host) == (None, None)
    assert neither.reason == "during the calls no framework's allocator was in use that could be asked"
    assert beyond(MEMORY, host=NOTHING)["memory"] == NodeMemory(MemoryFigures(2, 100, 150, 60, 400), None)
    assert beyond(MEMORY, device=(1, 0, 0, 0, 0))["memory"].device == MemoryFigures(1, 0, 0, 0, 0)


def test_counters_that_nobody_knows() -> None:
    fields = beyond(COUNTERS, counters=(0b1001, (0,) * 7, (0,) * 7, 0))
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
    return NodeProfilingStats(**{**given, "total_ms": 1e-5, "sync_total_ms": 4.0, **more})


@pytest.mark.parametrize("value", [*VALUES, full()], ids=lambda value: type(value).__name__)
class TestValues:
    def test_are_frozen(self, value: Any) -> None:
        for field in dataclasses.fields(value):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(value, field.name, 1)
            with pytest.raises(dataclasses.FrozenInstanceError):
                delattr(value, field.name)

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_can_be_pickled(self, value: Any, protocol: int) -> None:
        again = pickle.loads(pickle.dumps(value, protocol))
        assert (type(again), again, hash(again), repr(again)) == (type(value), value, hash(value), repr(value))

    def test_can_be_copied(self, value: Any) -> None:
        assert copy.copy(value) == copy.deepcopy(value) == dataclasses.replace(value) == value
        assert {value, copy.deepcopy(value)} == {value}

    def test_differ_in_every_field(self, value: Any) -> None:
        for field in dataclasses.fields(value):
            other = NodeCounters() if field.name == "counters" else "another"
            assert dataclasses.replace(value, **{field.name: other}) != value

    def test_are_described(self, value: Any) -> None:
        for field in dataclasses.fields(value):
            assert f"\n    {field.name}: " in (inspect.getdoc(type(value)) or "")


def test_as_a_dict_everything_is_plain_but_the_counters() -> None:
    stats = full()
    values = dataclasses.asdict(stats)
    assert values["launches"] == {
        "launches": 1, "kernels": 2, "kernel_ms": 3.5, "copies": 4,
        "bytes_to_device": 5, "bytes_to_host": 6, "bytes_on_device": 7, "fills": 8,
    }  # fmt: skip
    assert values["memory"]["device"] == {"calls": 2, "entry": 100, "exit": 150, "change": 60, "peak": 400}
    assert values["memory"]["host"]["peak"] is None
    assert values["memory"]["reason"] is None
    assert values["counters"] is stats.counters


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_summaries_can_be_pickled(protocol: int) -> None:
    summary = cp.ProfilingSummary([full(), full(node_name="m")], skip_first_n=1, reasons=("why",), cost_ns=5.0)
    again = pickle.loads(pickle.dumps(summary, protocol))
    assert (again, again.reasons, again.cost_ns) == (summary, summary.reasons, 5.0)
    assert again[0].counters.ipc is None
    assert again._repr_html_() == summary._repr_html_()


@pytest.mark.parametrize(
    ("cpu_time", "count", "total_ms", "share"),
    [
        (CounterValue(0.0, 1_500_000, 2, "ns"), 2, 3.0, 0.5),
        (CounterValue(0.0, 0, 2, "ns"), 2, 3.0, 0.0),
        (CounterValue(0.0, 3_300_000, 2, "ns"), 2, 3.0, 1.1),  # two clocks
        (CounterValue(0.0, 1_500_000, 1, "ns"), 2, 3.0, None),  # of one of the calls it is not known
        (CounterValue(0.0, 1_500_000, 2, "ns"), 2, 0.0, None),
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
    monkeypatch.setattr(reasons, "memory_reason", lambda: None)
    return monkeypatch


EVERYTHING = GPU | LAUNCHES | MEMORY | COUNTERS | 0b11 << COUNTER_SHIFT


def test_where_all_is_well_there_is_nothing_to_say(silent: pytest.MonkeyPatch) -> None:
    assert reasons.reasons_beyond(EVERYTHING, None, [full()]) == ()


def test_each_part_has_its_reasons(silent: pytest.MonkeyPatch) -> None:
    silent.setattr(_core, "gpu_time_reason", lambda: "the driver")
    silent.setattr(_core, "cupti_reason", lambda: "CUPTI")
    silent.setattr(reasons, "memory_reason", lambda: "memory")
    silent.setattr(_core, "perf_status", lambda: [("cpu_time", "ns", None), ("context_switches", "times", "refused")])
    row = full(gpu_reason="the device refused (1 call)", memory=NodeMemory(None, None, "nobody"))
    rows = [full(gpu_reason=None), row, row]
    counter = "the counter context_switches is not to be had: refused"
    for asked, told in (
        (0, ()),
        (GPU, ("the driver", "note")),
        (LAUNCHES, ("CUPTI",)),
        (MEMORY, ("memory",)),
        (COUNTERS, ()),
        (COUNTERS | 1 << COUNTER_SHIFT, ()),
        (COUNTERS | 2 << COUNTER_SHIFT, (counter,)),
        (EVERYTHING, ("the driver", "note", "CUPTI", "memory", counter)),
    ):
        assert reasons.reasons_beyond(asked, "note", rows) == told
    assert reasons.reasons_beyond(MEMORY, None, [full()]) == (), "the device's is known"
    assert reasons.reasons_beyond(MEMORY, None, [full(memory=None)]) == ()
    assert reasons.reasons_beyond(GPU, "the driver", rows) == ("the driver",), "each is said once"
    assert reasons.reasons_beyond(GPU, "note", [full(gpu_reason=None)]) == (), "no call lacks its GPU time"


def test_why_a_peak_is_missing(silent: pytest.MonkeyPatch) -> None:
    silent.setattr(reasons, "peak_reason", lambda: "nobody keeps it")
    without = full(memory=NodeMemory(MemoryFigures(1, 1, 1, 0, None), None))
    assert reasons.reasons_beyond(MEMORY, None, [full(), without]) == ("nobody keeps it",)
    assert reasons.reasons_beyond(MEMORY, None, [full()]) == ()
    assert reasons.reasons_beyond(GPU, None, [without]) == ()


def test_why_a_device_was_not_waited_for(silent: pytest.MonkeyPatch) -> None:
    silent.setattr(reasons, "wait_reason", lambda: "no wait")
    assert "no wait" in reasons.reasons_of(0, 0, 0)


def test_a_summary_has_them(silent: pytest.MonkeyPatch) -> None:
    silent.setattr(
        _core, "perf_status", lambda: [("cpu_time", "ns", "no clock"), ("context_switches", "times", "refused")]
    )
    profiler = profiler_on(counters=("cpu_time", "context_switches"))
    for name in ("a", "b"):
        profiler.profile_node(name)(len)("")
    told = [
        "the counter cpu_time is not to be had: no clock",
        "the counter context_switches is not to be had: refused",
    ]
    assert [reason for reason in profiler.get_profiling_summary().reasons if "counter" in reason] == told
    profiler.set_profiling(False)
    profiler.set_profiling(True)
    assert [reason for reason in profiler.get_profiling_summary().reasons if "counter" in reason] == told
    profiler.reset_profiling()
    assert [reason for reason in profiler.get_profiling_summary().reasons if "counter" in reason] == []


def test_reasons_belong_to_the_statistics_and_not_to_the_configuration() -> None:
    profiler = profiler_on(kernels=True, memory="peak")
    profiler.profile_node("node")(len)("")
    assert profiler._asked == LAUNCHES | MEMORY
    told = profiler.get_profiling_summary().reasons
    assert "no CUDA in the process" in told
    profiler.set_profiling(False)
    assert profiler.get_profiling_summary().reasons == told, "it may be read when all is over"
    profiler.set_profiling(True, counters=("page_faults",))
    assert profiler._asked == LAUNCHES | MEMORY | COUNTERS | 0b100 << COUNTER_SHIFT
    profiler.set_profiling(True, skip_first_n=1)
    assert profiler._asked == 0, "these are other statistics"
    profiler.set_profiling(True, memory=True)
    assert profiler._asked == MEMORY
    profiler.set_profiling(True, reset=True)
    assert profiler._asked == 0
    profiler.set_profiling(True, memory=True)
    profiler.reset_profiling()
    assert profiler._asked == MEMORY


@pytest.mark.parametrize(
    ("patched", "value", "reason"),
    [
        ("clock", ("CLOCK_MONOTONIC", "it jumps"), "the clock is CLOCK_MONOTONIC, as it jumps"),
        ("clock_backward", 3, "the clock went backwards 3 times; these calls count as 0 ns"),
        ("gpu_reason", "no wait", "no wait"),
    ],
)
def test_reasons_of_the_process(monkeypatch: pytest.MonkeyPatch, patched: str, value: object, reason: str) -> None:
    monkeypatch.setattr(_core, "clock", lambda: ("tsc", None))
    monkeypatch.setattr(_core, "gpu_reason", lambda: None)
    assert reasons.reasons_of(0, 0, 0) == ()
    monkeypatch.setattr(_core, patched, lambda: value)
    assert reasons.reasons_of(0, 0, 0) == (reason,)


def test_reasons_of_a_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "clock", lambda: ("tsc", None))
    monkeypatch.setattr(_core, "gpu_reason", lambda: None)
    assert reasons.reasons_of(1, 2, 3) == (
        "1 samples are missing from the percentiles, for want of memory",
        "2 keys or more are missing, as a thread has stopped in the middle of an update",
        "there are more keys than a Profiler keeps; calls of the others are __overflow__ of their stage",
    )


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


def test_a_reset_discards_it() -> None:
    profiler = measured(2)
    profiler.reset_profiling()
    assert profiler.get_profiling_summary() == []
    profiler.set_profiling(True)
    profiler.profile_node("node")(len)("")
    assert not is_beyond_times(by_name(profiler)["node"])


def test_figures_stay_when_no_more_are_asked_for() -> None:
    profiler = measured(2)
    before = by_name(profiler)["node"]
    profiler.set_profiling(False)
    assert by_name(profiler)["node"] == before
    profiler.set_profiling(True)
    profiler.profile_node("node")(len)("")
    after = by_name(profiler)["node"]
    assert (after.count, after.counters, after.memory) == (3, before.counters, before.memory)
    assert after.cpu_share is None


def test_the_note_of_a_device_is_among_the_reasons(silent: pytest.MonkeyPatch) -> None:
    assert profiler_on(gpu_time=True)._device_note is None
    told: list[tuple[int, str | None]] = []

    def record(asked: int, note: str | None, stats: object) -> tuple[str, ...]:
        told.append((asked, note))
        return ("said",)

    silent.setattr("cprofiling.control.reasons_beyond", record)
    summary = profiler_on(gpu_time=True).get_profiling_summary()
    assert told == [(GPU, None)]
    assert summary.reasons[-1:] == ("said",)
    profiler_on().get_profiling_summary()
    assert len(told) == 1, "who asks for times only pays for nothing else"
