"""Columns of resource figures in text and HTML."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on
from cprofiling._internal.text import shown_text
from cprofiling.nodes.resource_columns import beyond_text, columns_of, shown_bytes
from cprofiling.nodes.resources import CounterValue, MemoryFigures, NodeCounters, NodeLaunches, NodeMemory
from cprofiling.nodes.stats import NodeProfilingStats
from fragments import DASH, HOSTILE_NAMES, parsed

GPU = ["GPU mean", "GPU p50", "GPU p99", "GPU total", "Queue"]
LAUNCHES = ["Launches", "Kernels", "Kernel time", "Copied"]
MEMORY = ["Device change", "Device peak", "Host change", "Host peak"]

TIMED: dict[str, Any] = {
    "gpu_count": 2, "gpu_mean_ms": 1.5, "gpu_p50_ms": 1.0, "gpu_p99_ms": 2.0, "gpu_total_ms": 3.0,
    "queue_delay_ms": 0.25,
}  # fmt: skip
LAUNCHED: dict[str, Any] = {"launches": NodeLaunches(1234, 5, 0.75, 3, 1024, 2048, 1536, 1)}
KEPT: dict[str, Any] = {
    "memory": NodeMemory(MemoryFigures(2, 10, 20, -3 << 20, 5 << 30), MemoryFigures(2, 10, 20, 100, None))
}
COUNTED = {
    "counters": NodeCounters(
        {
            "cpu_time": CounterValue(500_000.0, 1_000_000, 2, "ns"),
            "page_faults": CounterValue(1234.56, 2469, 2, "times"),
            "cycles": CounterValue(100.0, 200, 2, "times"),
            "instructions": CounterValue(150.0, 300, 2, "times"),
            "cache_misses": None,
        }
    )
}
COUNTERS = ["CPU time", "Page faults", "Cycles", "Instructions", "Cache misses", "CPU share", "IPC"]
WAITED: dict[str, Any] = {"sync_total_ms": 4.0, "sync_count": 4}
ALL: dict[str, Any] = {**TIMED, **LAUNCHED, **KEPT, **COUNTED, **WAITED}


def node(name: str = "n", stage: str = "train", count: int = 2, total_ms: float = 10.0, **more: Any) -> Any:
    mean_ms = total_ms / max(count, 1)
    return NodeProfilingStats(name, stage, count, mean_ms, mean_ms, 0.0, mean_ms, mean_ms, total_ms, mean_ms, **more)


def labels(*rows: NodeProfilingStats) -> list[str]:
    return [column.label for column in columns_of(rows)]


def figures(row: NodeProfilingStats) -> dict[str, str | None]:
    """What the columns that the row itself has say of it."""
    return {column.label: column.text(row) for column in columns_of([row])}


def reason(label: str, row: NodeProfilingStats, *others: NodeProfilingStats) -> str:
    """Why the row has no figure in a column that it or the others have."""
    (column,) = (column for column in columns_of([row, *others]) if column.label == label)
    assert column.text(row) is None
    return column.reason(row)


# ---- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({}, []),
        (TIMED, GPU),
        ({"gpu_reason": "no device was in use (1 call)"}, GPU),
        (LAUNCHED, LAUNCHES),
        (KEPT, MEMORY),
        ({"memory": NodeMemory(None, None)}, MEMORY),
        (COUNTED, COUNTERS),
        ({"counters": NodeCounters({"cpu_time": None})}, ["CPU time", "CPU share"]),
        ({"counters": NodeCounters({"cycles": None})}, ["Cycles"]),
        ({"counters": NodeCounters({"instructions": None, "cycles": None})}, ["Instructions", "Cycles", "IPC"]),
        (WAITED, ["Waiting"]),
        ({"sync_total_ms": 0.0}, ["Waiting"]),
        (ALL, [*GPU, *LAUNCHES, *MEMORY, *COUNTERS, "Waiting"]),
    ],
)
def test_columns_are_there_when_any_row_has_something(more: dict[str, Any], shown: list[str]) -> None:
    assert labels(node(**more)) == shown
    assert labels(node("other"), node(**more), node("third")) == shown
    assert all(column.tip for column in columns_of([node(**more)]))


def test_counters_of_several_rows_are_one_column_each() -> None:
    first = node(counters=NodeCounters({"cpu_time": None, "cycles": None}))
    second = node(counters=NodeCounters({"cycles": None, "page_faults": None}))
    assert labels(first, second) == ["CPU time", "Cycles", "Page faults", "CPU share"]


def test_what_the_figures_say() -> None:
    assert figures(node(**ALL)) == {
        "GPU mean": "1.50 ms", "GPU p50": "1.00 ms", "GPU p99": "2.00 ms", "GPU total": "3.00 ms", "Queue": "250.0 µs",
        "Launches": "1,234", "Kernels": "5", "Kernel time": "750.0 µs", "Copied": "4.5 KiB",
        "Device change": "-3.0 MiB", "Device peak": "5.0 GiB", "Host change": "100 B", "Host peak": None,
        "CPU time": "500.0 µs", "Page faults": "1,234.6", "Cycles": "100.0", "Instructions": "150.0",
        "Cache misses": None, "CPU share": "10 %", "IPC": "1.50", "Waiting": "4.00 ms",
    }  # fmt: skip


def test_why_a_figure_is_unknown() -> None:
    plain, full = node(), node(**ALL)
    for label in GPU:
        assert reason(label, plain, full) == "not known for this node"
        assert reason(label, node(gpu_reason="the device refused (1 call)")) == "the device refused (1 call)"
    for label in LAUNCHES:
        assert reason(label, plain, full) == "launches were not counted"
    for label in MEMORY:
        assert reason(label, plain, full) == "not known for this node"
        assert reason(label, node(memory=NodeMemory(None, None))) == "not known for this node"
    no_device = node(memory=NodeMemory(None, MemoryFigures(1, 1, 1, 0, None), "nobody was asked"))
    assert reason("Device change", no_device) == reason("Device peak", no_device) == "nobody was asked"
    assert reason("Host peak", no_device) == "not known for this node"
    no_peak = node(memory=NodeMemory(MemoryFigures(1, 1, 1, 0, None, "nobody keeps it"), None))
    assert reason("Device peak", no_peak) == "nobody keeps it"
    assert reason("Host change", no_peak) == "not known for this node"
    for label in ("CPU time", "Cache misses"):
        assert reason(label, plain, full) == "refused, or others ran in the thread meanwhile"
        assert reason(label, node(count=0, total_ms=0.0), full) == "no samples"
    assert reason("CPU share", plain, full) == "CPU time is not known"
    short = node(total_ms=0.03, counters=COUNTED["counters"])
    assert reason("CPU share", short) == "calls are too short, or some were not counted"
    assert reason("IPC", plain, full) == "cycles or instructions are not known"
    assert reason("Waiting", node(gpu_reason="another matter"), full) == "nothing was waited for"


# ---- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (-1, "-1 B"),
        (-1536, "-1.5 KiB"),
        (1023.95, "1.0 KiB"),
        (1_048_524, "1023.9 KiB"),
        (1_048_525, "1.0 MiB"),  # 1023.95 KiB would be shown as 1024.0 KiB
        (1 << 20, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 50, "1.0 PiB"),
        (1 << 60, "1.0 EiB"),
        ((1 << 63) - 1, "8.0 EiB"),
        (-(1 << 63), "-8.0 EiB"),
        (3 << 70, "3072.0 EiB"),
    ],
)
def test_bytes_have_the_unit_that_fits(count: float, shown: str) -> None:
    assert shown_bytes(count) == shown


# ---- the text table ------------------------------------------------------------------------------

TABLE = """\
Node   Stage  GPU mean  GPU p50  GPU p99  GPU total     Queue  Launches  Kernels  Kernel time  Copied  Waiting
--------------------------------------------------------------------------------------------------------------
slow   train         -        -        -          -         -         1        2      1.00 ms     2 B        -
timed  val     1.50 ms  1.00 ms  2.00 ms    3.00 ms  250.0 µs         -        -            -       -  4.00 ms
GPU time of slow (train): no device was in use (1 call)
Waiting for devices (synchronize_cuda) took 4.00 ms in 4 waits, 1.00 ms each; the GPU times need none of it."""


def test_the_table_as_text() -> None:
    launches = NodeLaunches(1, 2, 1.0, 0, 0, 2, 0, 0)
    stats = [
        node("timed", "val", total_ms=1.0, **TIMED, **WAITED),
        node("slow", total_ms=2.0, gpu_reason="no device was in use (1 call)", launches=launches),
    ]
    assert beyond_text(stats) == beyond_text(iter(stats)) == TABLE
    assert beyond_text([]) == beyond_text([node()]) == ""


def test_rows_are_those_of_the_first_table_in_its_order() -> None:
    failing = node("failing", count=0, total_ms=0.0, error_count=1, **LAUNCHED)
    skipped = node("skipped", count=0, total_ms=0.0, skipped_count=1)
    stats = [node("a", total_ms=1.0), node("b", total_ms=3.0, **TIMED), failing, skipped, node("c", total_ms=2.0)]
    first = cp.format_profiling_table(stats).split("\n")[3:-3]
    second = beyond_text(stats).split("\n")[2:]
    assert [line.split()[0] for line in first] == [line.split()[0] for line in second] == ["b", "c", "a", "skipped"]
    assert "Launches" not in beyond_text(stats)
    assert beyond_text([failing]) == ""


def test_the_summarys_reasons_are_below_the_table_also_where_there_is_none() -> None:
    assert beyond_text([node()], ["why", "it\nis"]) == "why\nit\\nis"
    assert beyond_text([], iter(["why"])) == "why"
    waited = beyond_text([node(**WAITED)], ["why"]).split("\n")
    assert waited[0].split() == ["Node", "Stage", "Waiting"]
    assert waited[3].startswith("Waiting for devices")
    assert waited[4:] == ["why"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_control_characters_are_escaped(name: str) -> None:
    """F4: a terminal is told nothing by a name, wherever it stands, and each row is one line."""
    counters = NodeCounters({name: None})
    text = beyond_text([node(name, name, gpu_reason=name or None, counters=counters)])
    text.encode()
    rows = text.split("\n")
    assert len(rows) == 3 + (name != "")
    for line in rows:
        assert not any(character < " " or "\x7f" <= character <= "\x9f" for character in line)


# ---- waiting -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([node(**TIMED)], None),
        ([node(count=1, sync_total_ms=0.5, sync_count=1)], "500.0 µs in 1 wait, 500.0 µs each."),
        (
            # Calls that did not wait do not make the others' waits shorter.
            [node(count=999, sync_total_ms=1.0, sync_count=2), node(sync_total_ms=3.0, sync_count=2), node(count=100)],
            "4.00 ms in 4 waits, 1.00 ms each.",
        ),
        ([node(sync_total_ms=2.0)], "2.00 ms."),
    ],
)
def test_what_waiting_has_cost(rows: list[NodeProfilingStats], said: str | None) -> None:
    line = beyond_text(rows).split("\n")[-1]
    assert line.startswith("Waiting for devices") == (said is not None)
    assert said is None or line == f"Waiting for devices (synchronize_cuda) took {said}"


# ---- rows of others ------------------------------------------------------------------------------


def test_other_objects_have_nothing_whatever_they_answer() -> None:
    ten = ("node_name", "stage", "count", "mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms")
    plain: Any = SimpleNamespace(**{name: getattr(node("other"), name) for name in ten})
    lookalike: Any = SimpleNamespace(**vars(plain), gpu_count=1, memory=5, launches="x", counters=7, sync_total_ms="y")
    for foreign in (plain, lookalike):
        assert columns_of([foreign]) == []
        assert beyond_text([foreign]) == ""
        mine = node("mine", **ALL)
        lines = beyond_text([foreign, mine]).split("\n")
        assert lines[0].split() == beyond_text([mine]).split("\n")[0].split()
        assert lines[2].split() == ["other", "train", *["-"] * len(columns_of([mine]))]
        fragment = parsed(beyond_html([foreign, mine]))
        assert fragment.column("Waiting") == [DASH, "4.00 ms"]


# ---- HTML ----------------------------------------------------------------------------------------


def beyond_html(rows: list[NodeProfilingStats]) -> str:
    return cp.ProfilingSummary(rows)._repr_html_()


def test_html_has_the_same_columns() -> None:
    full, plain = node("full", total_ms=20.0, **ALL), node("plain")
    fragment = parsed(beyond_html([full, plain]))
    expected = columns_of([full, plain])
    assert fragment.head[-len(expected) :] == [column.label for column in expected]
    for column in expected:
        assert fragment.column(column.label) == [column.text(full) or DASH, DASH]
        assert fragment.titles(column.label)[1] == column.reason(plain)
        (head,) = (cell for cell in fragment.rows[0] if cell.text == column.label)
        assert head.attributes["title"] == column.tip
    assert fragment.titles("Waiting")[0] is None
    assert fragment.items[-1] == (
        "Waiting for devices (synchronize_cuda) took 4.00 ms in 4 waits, 1.00 ms each; the GPU times need none of it."
    )


def test_html_tells_also_why_some_of_the_calls_have_no_gpu_time() -> None:
    partly = node("<a>", **TIMED, gpu_reason="the device refused (1 call)")
    fragment = parsed(beyond_html([partly]))
    assert fragment.column("GPU mean") == ["1.50 ms"]
    assert "GPU time of <a> (train): the device refused (1 call)" in fragment.items


@pytest.mark.parametrize("text", HOSTILE_NAMES)
def test_html_escapes_whatever_comes_from_outside(text: str) -> None:
    """F4: names of counters, and reasons that a driver or a framework gave."""
    memory = NodeMemory(None, None, text or None)
    row = node(gpu_reason=text or None, memory=memory, counters=NodeCounters({text: CounterValue(1.0, 2, 2, "times")}))
    fragment = parsed(beyond_html([row, node("timed", **TIMED)]))
    shown = shown_text("text", text)
    assert shown in fragment.head
    if text:
        assert fragment.titles("GPU mean")[0] == shown
        assert fragment.titles("Device change")[0] == shown


# ---- the Profiler's summary ----------------------------------------------------------------------


def test_the_profilers_summary_has_a_second_table_where_there_is_more() -> None:
    profiler = profiler_on()
    profiler.profile_node("plain")(len)("")
    assert "\n\n" not in profiler.format_profiling_summary()
    profiler.set_profiling(True, counters=("cpu_time",))
    profiler.profile_node("counted")(len)("")
    first, second = profiler.format_profiling_summary(total_frames=7).split("\n\n")
    assert first.startswith("Profiling Summary (7 frames)\n")
    assert second.split("\n")[0].split() == ["Node", "Stage", "CPU", "time", "CPU", "share"]
    assert {line.split()[0] for line in second.split("\n")[2:]} == {"plain", "counted"}
    assert profiler.format_profiling_summary("train").startswith("No profiling data collected.\nno node has run in")
