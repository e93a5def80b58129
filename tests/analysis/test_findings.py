"""Findings: each rule on a recording that shows what it is about, and on one that just does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from cprofiling.analysis.evidence import Evidence
from cprofiling.analysis.findings import findings
from cprofiling.analysis.findings.change import more_calls, more_copies, slower, slower_calls
from cprofiling.analysis.findings.content import float64, gradients, memory_growth
from cprofiling.analysis.findings.device import copies, device_waits, launch_bound
from cprofiling.analysis.findings.finding import Finding, Findings
from cprofiling.analysis.findings.host import (
    data_loading,
    dominant_operator,
    many_short_calls,
    outside_nodes,
    python_overhead,
)
from cprofiling.export import event_rows, frame_columns
from cprofiling.recording import intervals
from recordings import COUNTER, DROPPED, INSTANT, NODE, RECORD, STEP, Row, call, device, host, made, trace

Rule = Callable[[Evidence], Any]
RuleOfTwo = Callable[[Evidence, Evidence], Any]
ANNOTATION = {"cat": "user_annotation"}


def found(rule: Rule, rows: Sequence[Row]) -> list[Finding]:
    return list(rule(Evidence(made(rows))))


def the(rule: Rule, rows: Sequence[Row]) -> Finding:
    (finding,) = found(rule, rows)
    later = [{**row, **{at: row[at] + 12_345_678 for at in ("start", "end") if at in row}} for row in rows]
    assert found(rule, later) == [finding]
    assert finding.kind == rule.__name__
    assert 0 <= finding.share <= 1
    assert finding.rows == tuple(sorted(set(finding.rows)))
    return finding


def cited(finding: Finding, rows: Sequence[Row]) -> list[str]:
    """The names of the rows that a finding rests on."""
    evidence = Evidence(made(rows))
    return [evidence.texts[row] for row in finding.rows]


def node(name: str, start: int, end: int, **more: Any) -> Row:
    return host(name, start, end, **{"kind": NODE, "span": start * 1000 + end, **more})


# --- time outside any node ------------------------------------------------------------------------------------------


def test_time_outside_nodes() -> None:
    rows = [
        node("a", 0, 4000), node("b", 1000, 3000, span=7, parent_span=4000), node("c", 4500, 7500),
        node("d", 4600, 8000, thread="1/2"), node("e", 9500, 10_000), host("between", 4000, 4500),
    ]  # fmt: skip
    finding = the(outside_nodes, rows)
    assert finding.figures == {
        "idle_ns": 2_000_000, "wall_ns": 10_000_000, "gaps": 2, "longest_gap_ns": 1_500_000, "share": 0.2,
    }  # fmt: skip
    assert cited(finding, rows) == ["a", "c", "d", "e"]
    assert "'d' and 'e'" in finding.text
    assert "record()" in finding.advice


# --- loading data ---------------------------------------------------------------------------------------------------

LOADING = [
    node("pipeline", 0, 10_000, span=1),
    host("load_batch", 1000, 2000, kind=RECORD, span=2, parent_span=1),
    host("aten::stack", 1100, 1900),
    node("infer", 2000, 9900, span=3, parent_span=1),
]


def test_data_that_everything_waits_for() -> None:
    finding = the(data_loading, LOADING)
    assert finding.figures == {"waiting_ns": 1_000_000, "loading_ns": 1_000_000, "calls": 1, "share": 0.1}
    assert cited(finding, LOADING) == ["load_batch"]
    assert "num_workers" in finding.advice
    assert "pin_memory=True" in finding.advice


def test_loading_waits_for_the_copies_that_it_starts() -> None:
    rows = [*LOADING, call("cudaMemcpyAsync", 1200, 1300, 1), device("Memcpy HtoD", 1300, 1900, correlation=1)]
    assert the(data_loading, rows).figures["waiting_ns"] == 1_000_000


@pytest.mark.parametrize(
    "more",
    [
        node("infer", 1500, 1502, thread="1/2"), host("aten::mm", 1500, 1502, thread="1/2"), device("gemm", 1500, 1502),
    ],
)  # fmt: skip
def test_data_that_is_loaded_while_others_work_is_no_finding(more: Row) -> None:
    assert found(data_loading, [*LOADING, more]) == []


def test_a_node_around_others_does_not_work_while_data_is_loaded() -> None:
    rows = [*LOADING, node("worker", 0, 9000, span=8, thread="1/2"), node("w", 5000, 6000, parent_span=8, thread="1/2")]
    assert the(data_loading, rows).figures["waiting_ns"] == 1_000_000


def test_short_loading_is_no_finding() -> None:
    assert found(data_loading, [node("load_data", 0, 999), node("infer", 1000, 5000)]) == []
    assert found(data_loading, [host("ProfilerStep#1", 0, 9000, kind=STEP), node("infer", 0, 9000)]) == []


@pytest.mark.parametrize(
    ("name", "is_loading"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", True), ("## load_batch ##", True),
        ("LoadImageFromFile", True), ("preload_data", True), ("fetch frames", True), ("next_batch", True),
        ("Pipeline.read_image", True), ("image_loading", True), ("data_loader", True), ("prefetch", True),
        ("thread_data", False), ("load_weights", False), ("infer", False), ("batch_norm", False), ("get_item", False),
    ],
)  # fmt: skip
def test_loading_is_known_by_its_name(name: str, is_loading: bool) -> None:
    assert bool(found(data_loading, [node(name, 0, 5000), node("infer", 5000, 9000)])) is is_loading


# --- one that dominates ---------------------------------------------------------------------------------------------


def test_an_operator_that_dominates() -> None:
    rows = [
        node("pipeline", 0, 10_000), host("conv", 0, 3000), host("conv", 3000, 5000), host("mm", 5000, 9000),
        call("cudaDeviceSynchronize", 9000, 10_000, 1),
    ]  # fmt: skip
    finding = the(dominant_operator, rows)
    assert finding.title == "conv takes 50 % of the time on the host"
    assert finding.figures == {"time_ns": 5_000_000, "total_ns": 10_000_000, "calls": 2, "share": 0.5}
    assert cited(finding, rows) == ["conv", "conv"]
    assert "batch size" in finding.advice


def test_advice_fits_what_dominates() -> None:
    def advice(*rows: Row) -> str:
        return the(dominant_operator, [*rows, node("b", 8000, 8100), node("c", 8100, 8200)]).advice

    plain = advice(node("pack", 0, 3000), node("pack", 3000, 6000))
    assert plain.startswith("Look inside it first: make the functions that it calls nodes")
    assert "with_stack=True" in plain
    assert "call it less often" in plain
    assert "Recorded with record_shapes=True, key_averages(group_by_input_shape=True" in plain
    once = advice(node("main", 0, 6000))
    assert once.startswith("It was called once: put record() blocks around its parts")
    around = advice(node("net", 0, 6000), host("aten::mm", 100, 200))
    assert "beside its operators" in around
    for text in (plain, once, around):
        assert "autocast" not in text
    assert "batch" not in plain + once
    for text in (
        advice(host("aten::mm", 0, 6000)),
        the(dominant_operator, [device("gemm", 0, 9000), device("add", 9000, 9100), device("mul", 9100, 9200)]).advice,
    ):
        assert "a lower precision (autocast) cheaper ones" in text
    assert "record_shapes=True" in advice(host("aten::mm", 0, 6000))
    known = advice(host("aten::mm", 0, 6000, shapes="[[2, 2]]"))
    assert "record_shapes" not in known
    assert "key_averages(group_by_input_shape=True, group_by_node=True) shows what it is called with" in known


def test_a_node_that_starts_a_device_s_work_is_no_plain_function() -> None:
    rows = [
        node("net", 0, 6000, span=9), call("cudaLaunchKernel", 100, 200, 7), device("k", 300, 400, correlation=7),
        node("b", 8000, 8100), node("c", 8100, 8200),
    ]  # fmt: skip
    assert "beside its operators" in the(dominant_operator, rows).advice


def kernels(name: str, **more: Any) -> list[Row]:
    return [device(name, 0, 5000, **more), device("add", 5000, 8000), device("mul", 8000, 10_000)]


def test_a_kernel_that_dominates() -> None:
    finding = the(dominant_operator, kernels("gemm"))
    assert finding.title == "gemm takes 50 % of the time on the device"
    assert "batch size" in finding.advice
    assert "ranks" in the(dominant_operator, kernels("ncclDevKernel_AllReduce_Sum")).advice
    assert found(dominant_operator, kernels("Memcpy HtoD", cat="gpu_memcpy")) == []
    assert found(dominant_operator, kernels("Stream Sync", cat="cuda_sync")) == []


# --- Python ---------------------------------------------------------------------------------------------------------


def calls(count: int, each: int, start: int = 0, step: int = 0, name: str = "op{}", **more: Any) -> list[Row]:
    """Some calls, one after the other; each may have its own name."""
    step = step or each
    return [
        host(name.format(at % 10), start + at * step, start + at * step + each, **more) for at in range(count)
    ]  # fmt: skip


def test_python_that_takes_as_long_as_what_it_calls() -> None:
    rows = [node("post", 0, 10_000), *calls(10, 500, step=1000)]
    finding = the(python_overhead, rows)
    assert finding.figures == {
        "python_ns": 5_000_000, "operators_ns": 5_000_000, "operators": 10, "calls": 1, "share": 0.5,
    }  # fmt: skip
    assert cited(finding, rows) == ["post"]
    assert "1 call of 'post' spent" in finding.text
    assert "operators that it called directly" in finding.text
    assert "CUDA graph" in finding.advice


def test_what_another_thread_does_meanwhile_is_not_python_s_time() -> None:
    rows = [node("post", 0, 10_000), *calls(10, 100, step=1000), host("backward", 0, 3000, thread="1/2")]
    assert the(python_overhead, rows).figures["python_ns"] == (10_000 - 1000 - 3000 + 300) * 1000


def test_code_without_a_finding_hides_no_later_one() -> None:
    late = [node("late", 150_000, 200_000), *calls(10, 100, start=150_000, step=1000)]
    few = [node("few", 0, 50_000), *calls(9, 100, step=500)]
    beside = [node("beside", 0, 50_000), *calls(10, 100, step=500), host("backward", 0, 50_000, thread="1/2")]
    for rows in (few, beside):
        assert found(python_overhead, rows) == []
        assert the(python_overhead, [*rows, *late]).text.startswith("1 call of 'late'")


# --- many short calls -----------------------------------------------------------------------------------------------


def test_many_short_calls_of_one_function() -> None:
    rows = [
        host("step", 0, 5000), *calls(50, 50, name="aten::mul_"), host("step", 5000, 10_000),
        *calls(50, 50, 5000, name="aten::mul_"), host("long", 10_000, 50_000),
    ]  # fmt: skip
    finding = the(many_short_calls, rows)
    assert finding.figures == {"time_ns": 5_000_000, "calls": 100, "mean_ns": 50_000, "share": 0.1}
    assert "in 2 calls of 'step'" in finding.text
    assert set(cited(finding, rows)) == {"aten::mul_"}
    assert "fused" in finding.advice
    rows = [host("step", 0, 5000), *calls(50, 100, name="aten::mul_")]
    assert the(many_short_calls, [*rows, *({**row, "thread": "1/2"} for row in rows)]).share == 1.0


def test_many_short_calls_in_nothing() -> None:
    finding = the(many_short_calls, calls(60, 90, name="tiny", kind=NODE))
    assert "in nothing recorded" in finding.text
    assert "fused" not in finding.advice
    assert "move the loop into it" in finding.advice
    assert found(many_short_calls, [*calls(30, 90, name="tiny"), *calls(30, 90, 9000, name="tiny", thread="1/2")]) == []


# --- memory ---------------------------------------------------------------------------------------------------------

MIB = 1 << 20


def growing(changes: Sequence[int], column: str = "memory_change") -> list[Row]:
    return [node("infer", at * 100, at * 100 + 50, **{column: change}) for at, change in enumerate(changes)]


@pytest.mark.parametrize(
    ("column", "what"), [("memory_change", "the process"), ("device_memory_change", "the device's allocator")]
)
def test_memory_that_grows_with_each_call(column: str, what: str) -> None:
    changes = [50 * MIB, 0, 0, 0, 4 * MIB, 0, -MIB, 5 * MIB, 0, 0, 2 * MIB, 0]
    finding = the(memory_growth, growing(changes, column))
    assert finding.figures == {"growth_bytes": 10 * MIB, "calls": 9, "bytes_per_call": 10 * MIB / 9}
    assert finding.rows == tuple(range(3, 12))
    assert finding.share == 10 / 61
    assert f"the memory of {what} grew by 10.0 MiB" in finding.text
    assert ".detach()" in finding.advice


def allocated(at: int, total: object, **more: Any) -> Row:
    args = json.dumps({"Total Allocated": total, "Bytes": 1, **more})
    return {"name": "[memory]", "start": at * 1000, "kind": INSTANT, "args": args}


@pytest.mark.parametrize(
    ("more", "what"), [({}, "the host's allocator"), ({"Device Type": 1, "Device Id": 0}, "the allocator of device 0")]
)
def test_allocations_that_grow_with_each_step(more: dict[str, int], what: str) -> None:
    rows = [
        *(host(f"ProfilerStep#{at}", at * 100, at * 100 + 99, kind=STEP) for at in range(12)),
        *(allocated(at * 100 + 50, (at + 1) * 2 * MIB, **more) for at in range(12)),
        *(allocated(at * 100 + 60, (at + 1) * 2 * MIB, **{"Device Id": -1, **more}) for at in range(12)),
        {"name": "[memory]", "start": 5, "kind": INSTANT},
        {"name": "[memory]", "start": 6, "kind": INSTANT, "args": "[1]"},
        allocated(7, "much"),
        allocated(8, 7, **{"Device Type": []}),
    ]
    finding = the(memory_growth, rows)
    assert finding.figures["growth_bytes"] == 18 * MIB
    assert what in finding.text
    flat = [row if row["kind"] == STEP else allocated(row["start"] // 1000, 7 * MIB, **more) for row in rows]
    assert found(memory_growth, flat) == []


def test_allocations_that_grow_with_each_call_of_a_node() -> None:
    rows = [*growing([0] * 12), *(allocated(at * 100 + 20, (at + 1) * 2 * MIB) for at in range(12))]
    rows = [{name: value for name, value in row.items() if name != "memory_change"} for row in rows]
    for kind in (NODE, RECORD):
        of_kind = [row if row["kind"] == INSTANT else {**row, "kind": kind} for row in rows]
        assert the(memory_growth, of_kind).title == "Memory grows with each call of infer"
    from_the_fourth = [row for row in rows if row["kind"] != INSTANT or row["start"] > 300_000]
    assert the(memory_growth, from_the_fourth).figures["growth_bytes"] == 16 * MIB


# --- precision ------------------------------------------------------------------------------------------------------

SINGLE: dict[str, Any] = {"types": '["float", "Scalar"]', "shapes": "[[8, 8], []]"}
DOUBLE: dict[str, Any] = {"types": '["double", "Scalar"]', "shapes": "[[8, 8], []]"}
CALLED_WITH_DOUBLE = node("f", 0, 9000, types='["float64"]', shapes="[[3]]")
NUMBER: dict[str, Any] = {"types": '["float", "double"]', "shapes": "[[8, 8], []]"}


def test_double_precision_inside_single() -> None:
    rows = [
        node("infer", 0, 50_000, types='["float32"]', shapes="[[1, 3]]"), host("aten::add", 0, 1000, **DOUBLE),
        host("aten::add_", 100, 900, **DOUBLE), host("aten::mm", 2000, 50_000, **SINGLE),
        call("cudaLaunchKernel", 200, 300, 1), device("add", 3000, 8000, correlation=1),
    ]  # fmt: skip
    finding = the(float64, rows)
    assert finding.figures == {"calls": 1, "host_ns": 1_000_000, "device_ns": 5_000_000, "share": 0.1}
    assert cited(finding, rows) == ["aten::add"]
    assert "torch.float32" in finding.advice


def test_double_precision_among_single() -> None:
    rows = [*calls(3, 100, **SINGLE), host("aten::add", 1000, 2000, **DOUBLE), host("aten::mm", 2000, 50_000)]
    assert the(float64, rows).share == 0.02
    assert found(float64, [*rows[:1], *rows[3:]]) == []


def test_types_without_shapes_count() -> None:
    rows = [*calls(3, 100, types='["float"]'), host("aten::add", 1000, 5000, types='["float", "double"]')]
    assert the(float64, rows).figures["calls"] == 1


# --- gradients ------------------------------------------------------------------------------------------------------


def numbered(name: str, start: int, end: int, number: int, **more: Any) -> Row:
    return host(name, start, end, args=json.dumps({"Sequence number": number, "Fwd thread id": 0}), **more)


FORWARD = [
    numbered("linear", 0, 10, 0),
    numbered("mm", 10, 20, 0),
    numbered("relu", 20, 30, 1),
    numbered("mm", 30, 40, 2),
]


def test_gradients_that_nobody_uses() -> None:
    finding = the(gradients, [*FORWARD, host("plain", 50, 60), host("args", 60, 80, args="{}")])
    assert finding.figures == {"operations": 2, "operators_ns": 70_000, "share": 70 / 80}
    assert finding.rows == (2, 3)
    assert "no_grad()" in finding.advice
    assert the(gradients, [{**row, "start": 0, "end": 1} for row in FORWARD]).share == 1.0


BACKWARD = host("autograd::engine::evaluate_function: MmBackward0", 100, 110)


@pytest.mark.parametrize("stage", ["val", "test", "inference"])
def test_gradients_in_an_evaluation_beside_training(stage: str) -> None:
    later = [{**row, "start": row["start"] + 500_000, "end": row["end"] + 500_000} for row in FORWARD]
    rows = [
        node("fit", 0, 200, stage="train"), *FORWARD, BACKWARD, node("evaluate", 500, 600, stage=stage), *later,
    ]  # fmt: skip
    finding = the(gradients, rows)
    assert finding.figures["operations"] == 2
    assert all(row > 6 for row in finding.rows)


# --- copies ---------------------------------------------------------------------------------------------------------


def copying(time: int, name: str = "Memcpy HtoD (Pinned -> Device)", **more: Any) -> list[Row]:
    """A copy, and 40 ms of other work."""
    return [
        device("gemm", 0, 20_000), device("gemm", 20_000, 40_000), *([device("gemm", 50_000, 50_000)] * 8),
        device(name, 60_000, 60_000 + time, cat="gpu_memcpy", bytes=MIB, correlation=9, **more),
    ]  # fmt: skip


def test_copies_that_take_much_of_the_device_s_time() -> None:
    rows = [host("aten::copy_", 100, 400), call("cudaMemcpyAsync", 200, 300, 9), *copying(4445)]
    finding = the(copies, rows)
    assert finding.title == "HtoD copies take 10 % of the device's time"
    assert finding.figures["count"] == 1
    assert finding.figures["bytes"] == MIB
    assert finding.figures["time_ns"] == 4_445_000
    assert finding.figures["host_ns"] == 100_000
    assert "1 of 1 was started by 'aten::copy_'" in finding.text
    assert "the host spent 0.10 ms in the calls that made it" in finding.text
    assert "not pinned" not in finding.text
    assert "pin_memory=True" in finding.advice
    assert "non_blocking=True" in finding.advice
    assert cited(finding, rows) == ["Memcpy HtoD (Pinned -> Device)"]


def test_copies_of_memory_that_is_not_pinned_are_found_earlier() -> None:
    finding = the(copies, copying(2106, "Memcpy DtoH (Device -> Pageable)"))
    assert finding.figures["pageable_ns"] == 2_106_000
    assert finding.text.endswith("in the calls that made it, waiting there included.")
    assert "2.11 ms of it from or to memory that is not pinned" in finding.text
    assert ".item()" in finding.advice


def test_copies_that_are_many_are_found_earlier() -> None:
    rows = [
        *copying(2106, "Memcpy DtoD (Device -> Device)"),
        device("Memcpy DtoD (Device -> Device)", 63_000, 63_000, cat="gpu_memcpy"),
    ]
    assert found(copies, rows) == []
    few_kernels = [*rows[:8], *rows[10:]]
    assert the(copies, few_kernels).figures["count"] == 2
    assert ".contiguous()" in the(copies, few_kernels).advice


def test_copies_that_the_host_waits_for() -> None:
    rows = [call("cudaMemcpyAsync", 55_000, 62_000, 9), *copying(100, "Memcpy PtoP (Device -> Device)")]
    finding = the(copies, rows)
    assert finding.title == "The host is held up by PtoP copies for 11 % of its time"
    assert finding.share == 7 / 62
    assert "group_by_node" in finding.advice


def test_where_the_host_waits_for_devices_is_summed_up_by_node() -> None:
    rows = [
        node("train", 0, 90_000, span=1), host("aten::item", 1000, 9000),
        call("cudaStreamSynchronize", 2000, 8000, 1), call("cuStreamSynchronize", 2001, 7999, 1, cat="cuda_driver"),
        node("show", 20_000, 30_000, span=2, parent_span=1), call("cudaDeviceSynchronize", 21_000, 23_000, 2),
        call("cudaEventSynchronize", 50_000, 51_000, 3), call("cudaLaunchKernel", 60_000, 80_000, 4),
        call("cudaDeviceSynchronize", 95_000, 96_000, 5), node("train", 96_000, 100_000, span=3),
    ]  # fmt: skip
    finding = the(device_waits, rows)
    assert finding.title == "The host waits for devices in 10 % of the time"
    assert finding.figures == {"time_ns": 10_000_000, "calls": 4, "share": 0.1}
    assert finding.text == (
        "4 calls that synchronized took 10.00 ms. By node: 'train' 7.00 ms (70 %) in 2 calls, 'show' 2.00 ms (20 %) in "
        "1 call, outside nodes 1.00 ms (10 %) in 1 call."
    )
    assert "cudaLaunchKernel" not in cited(finding, rows)
    many = [row for at in range(7) for row in (
        node(f"n{at}", at * 1000, at * 1000 + 900), call("cudaStreamSynchronize", at * 1000, at * 1000 + 500 + at, at))
    ]  # fmt: skip
    assert "By node: 'n6' 0.51 ms (14 %)" in the(device_waits, many).text
    assert the(device_waits, many).text.endswith(", and 2 more.")


def test_copies_are_summed_up_by_node_with_the_line_of_its_function(tmp_path: Path) -> None:
    copied = copying(100, "Memcpy DtoH (Device -> Pageable)")
    recording = made([node("show", 54_000, 62_500), call("cudaMemcpyAsync", 55_000, 62_000, 9), *copied])
    path = tmp_path / "trace.json"
    recording.export_chrome_trace(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "cprofiling": {"sources": {"show": "f.py:12"}}}))
    (finding,) = [finding for finding in cp.load_trace(path).findings() if finding.kind == "copies"]
    assert finding.text.endswith(" By node: 'show' (f.py:12) 7.00 ms (100 %) in 1 call.")


# --- launches -------------------------------------------------------------------------------------------------------


def launched(count: int, work: int, every: int, delay: int = 5, start: int = 0) -> list[Row]:
    """Kernels that are launched regularly, with the time from the end of the call to the start of the work."""
    rows = []
    for at in range(count):
        begin = start + at * every
        rows.append(call("cudaLaunchKernel", begin, begin + 4, start + at + 1))
        rows.append(device("k", begin + 4 + delay, begin + 4 + delay + work, correlation=start + at + 1))
    return rows


def test_a_device_that_waits_for_launches() -> None:
    rows = [*launched(20, 50, 103), host("end", 0, 40_000)]
    finding = the(launch_bound, rows)
    assert finding.figures == {
        "stretches": 1, "time_ns": 2_007_000, "work_ns": 1_000_000, "launches": 20, "share": 2_007 / 40_000,
    }  # fmt: skip
    assert finding.share == 1_007 / 40_000
    assert set(cited(finding, rows)) == {"k"}
    assert "CUDA graph" in finding.advice


# --- against another recording --------------------------------------------------------------------------------------


def changes(rule: RuleOfTwo, now: Sequence[Row], before: Sequence[Row]) -> list[Finding]:
    return list(rule(Evidence(made(now)), Evidence(made(before))))


def copies_of(count: int, kind: str = "DtoD", start: int = 0) -> list[Row]:
    return [device(f"Memcpy {kind}", start + at, start + at + 1, cat="gpu_memcpy") for at in range(count)]


def steps(count: int, each: int = 1000) -> list[Row]:
    return [host(f"ProfilerStep#{at}", at * each, (at + 1) * each, kind=STEP) for at in range(count)]


def stages(each: int, calls_of_each: int = 20, name: str = "stage", **more: Any) -> list[Row]:
    """Calls of a node, and of another one that always takes 1 ms, by turns."""
    rows = []
    for at in range(calls_of_each):
        start = at * (each + 1000)
        rows += [node(name, start, start + each, **more), node("other", start + each, start + each + 1000)]
    return rows


def test_more_copies_than_before() -> None:
    now = [*copies_of(200), *copies_of(7, "HtoD", 500), *steps(2)]
    (finding,) = changes(more_copies, now, [*copies_of(10), *copies_of(14, "HtoD", 500), *steps(4)])
    assert finding.kind == "more_copies"
    assert finding.title == "17.2 times as many device copies as in the baseline"
    assert "207 copies against 24, in 2 steps against 4 (DtoD 200 against 10, HtoD 7 against 14)" in finding.text
    assert finding.figures == {
        "count": 207, "baseline_count": 24, "time_ns": 207_000, "baseline_time_ns": 24_000,
    }  # fmt: skip
    assert len(finding.rows) == 207
    assert finding.advice.startswith("Look at what the DtoD copies were started by")


def test_copies_that_are_new_are_many_more() -> None:
    (finding,) = changes(more_copies, copies_of(100), [])
    assert finding.title == "Many more device copies than in the baseline"


def test_more_calls_than_before() -> None:
    now = [*calls(40, 100, name="mm"), host("add", 5000, 9000), device("gemm", 0, 2000), device("gemm", 3000, 5000)]
    before = [*calls(20, 100, name="mm"), host("add", 5000, 9000), device("gemm", 0, 1000)]
    mm, gemm = changes(more_calls, now, before)
    assert gemm.title == "mm runs 40 times against 20 in the baseline"
    assert mm.title == "gemm runs 2 times against 1 in the baseline"
    assert mm.figures == {"count": 2, "baseline_count": 1, "extra_ns": 3_000_000}
    assert "on the device" in mm.text
    assert "group_by_node" in mm.advice


def test_no_more_names_are_told_than_one_reads() -> None:
    now = [host(f"op{at}", at * 5000, (at + 1) * 5000) for at in range(5)]
    assert [finding.title[:3] for finding in changes(more_calls, now, [])] == ["op0", "op1", "op2"]
    assert len(changes(more_calls, calls(10, 100, name="mm"), [])) == 1  # 1 ms more


def test_slower_than_before() -> None:
    (finding,) = changes(slower, steps(3, 11_000), steps(5, 10_000))
    assert finding.title == "Steps take 10 % longer than in the baseline"
    assert finding.rows == (0, 1, 2)
    assert finding.share == pytest.approx(1 / 11)
    (finding,) = changes(slower, [node("a", 0, 3000)], [node("a", 0, 2000), node("a", 3000, 5000)])
    assert finding.title == "Calls of 'a' take 50 % longer than in the baseline"
    assert finding.figures == {"mean_ns": 3_000_000, "baseline_mean_ns": 2_000_000}


def test_what_became_slower_is_named() -> None:
    now = stages(3000)
    (finding,) = findings(Evidence(made(now)), baseline=Evidence(made(stages(1000))))
    assert finding.kind == "slower_calls"
    assert finding.title == "stage takes 3.00 ms a call against 1.00 ms in the baseline"
    assert finding.text == (
        "20 calls of 'stage' took 60.00 ms against 20.00 ms in 20 calls, in 40 calls of nodes against 40, without "
        "nodes and labels inside: 40.00 ms more, 100 % of all growth among nodes and labels."
    )
    assert finding.figures == {
        "time_ns": 60_000_000, "baseline_time_ns": 20_000_000, "count": 20, "baseline_count": 20,
        "mean_ns": 3_000_000, "baseline_mean_ns": 1_000_000, "extra_ns": 40_000_000, "growth_share": 1.0,
    }  # fmt: skip
    assert set(cited(finding, now)) == {"stage"}
    assert finding.share == 0.5


def test_what_became_slower_inside_another_node_is_not_that_one() -> None:
    def pipeline(stage: int, mm: int, kernel: int) -> list[Row]:
        return [
            node("pipeline", 0, 40_000), host("label", 0, stage, kind=RECORD, span=5),
            host("aten::mm", 1000, 1000 + mm), device("gemm", 50_000, 50_000 + kernel),
        ]  # fmt: skip

    listed = changes(slower_calls, pipeline(20_000, 15_000, 9000), pipeline(8000, 3000, 2000))
    assert [(finding.title.split()[0], finding.figures["extra_ns"]) for finding in listed] == [
        ("label", 12_000_000), ("aten::mm", 12_000_000), ("gemm", 7_000_000),
    ]  # fmt: skip
    assert "without operators inside" in listed[1].text
    assert "the work of devices" in listed[2].text


def test_the_largest_growth_is_told_first_and_no_more_than_one_reads() -> None:
    before = [node(f"n{at}", at * 20_000, at * 20_000 + 1000) for at in range(5)] + [node("fast", 120_000, 130_000)]
    now = [node(f"n{at}", at * 20_000, at * 20_000 + 10_000 + at * 1000) for at in range(5)]
    now.append(node("fast", 120_000, 121_000))
    listed = changes(slower_calls, now, before)
    assert [finding.title[:2] for finding in listed] == ["n4", "n3", "n2"]
    assert [finding.figures["growth_share"] for finding in listed] == [13 / 55, 12 / 55, 11 / 55]
    assert "1 call of 'n4' took 14.00 ms against 1.00 ms in 1 call" in listed[0].text


def test_more_in_all_for_as_many_steps() -> None:
    now = [*steps(2, 40_000), *calls(30, 1000, name="mm")]
    before = [*steps(2, 40_000), *calls(20, 1000, name="mm")]
    (finding,) = changes(slower_calls, now, before)
    assert finding.title == "mm takes 30.00 ms in all against 20.00 ms in the baseline"
    assert changes(slower_calls, now[2:], before[2:]) == []  # a longer recording has more calls


def test_labels_that_run_more_often_are_told() -> None:
    (finding,) = changes(
        more_calls, [node("a", 0, 9000), host("label", 0, 3000, kind=RECORD, span=7)], [node("a", 0, 9000)]
    )
    assert finding.title == "label runs 1 time against 0 in the baseline"
    assert finding.text.startswith("1 against 0 calls of 'label' on the host, in 1 call of 'a' against 1")


# --- what is none ---------------------------------------------------------------------------------------------------

NO_FINDING: dict[Rule, list[list[Row]]] = {
    outside_nodes: [
        [node("a", 0, 4000), node("b", 5999, 10_000)], [node("a", 0, 100), node("b", 1099, 1200)],
        [node("a", 0, 4000)], [host("a", 0, 4000), host("b", 9000, 10_000)], [],
    ],
    dominant_operator: [
        [host("conv", 0, 4999), host("mm", 4999, 8000), host("add", 8000, 10_000)],
        [host("conv", 0, 9000), host("mm", 9000, 10_000)],
        [host("conv", 0, 900), host("mm", 900, 1000), host("add", 1000, 1100)],
        [call("cudaStreamSynchronize", 0, 9000, 1), host("mm", 9000, 9100), host("add", 9100, 9200)],
        [host("block", 0, 9000, **ANNOTATION), host("mm", 9000, 9100), host("add", 9100, 9200)],
        [host("frame", 0, 9000, cat="python_function"), host("mm", 9000, 9100), host("add", 9100, 9200)],
        [],
    ],
    python_overhead: [
        [node("post", 0, 10_000), *calls(10, 501, step=1000)],
        [node("post", 0, 9000), *calls(9, 100, step=1000)],
        [node("post", 0, 900), *calls(10, 10, step=50)],
        [node("post", 0, 2000), *calls(10, 10, step=50), host("long", 3000, 30_000)],
        [node("post", 0, 10_000), *calls(10, 100, step=500), host("backward", 0, 10_000, thread="1/2")],
        [node("post", 0, 10_000), *calls(10, 450, step=1000), host("backward", 0, 2000, thread="1/2")],
        [host("linear", 0, 10_000), *calls(10, 100, step=500)],
    ],
    many_short_calls: [
        [host("step", 0, 10_000), *calls(49, 100, name="mul")],
        [host("step", 0, 10_000), *calls(50, 101, name="mul")],
        [host("step", 0, 10_000), *calls(50, 100)],
        [host("step", 0, 51_000), *calls(50, 100, name="mul")],
        [host("step", 0, 900), *calls(50, 10, name="mul")],
        calls(60, 90, name="launch", cat="cuda_runtime"),
        calls(60, 90, name="x.py(1): f", cat="python_function"),
        calls(60, 90, name="autograd::engine::evaluate_function: Add"),
        calls(60, 90, name="ProfilerStep#1", kind=STEP),
    ],
    memory_growth: [
        growing([9 * MIB] * 11), growing([MIB] * 11 + [2 * MIB - 1]), growing([4 * MIB] * 9 + [0] * 3),
        growing([20 * MIB] * 3 + [0] * 9), growing([4 * MIB, -4 * MIB] * 8),
    ],
    float64: [
        [*calls(3, 100, **SINGLE), host("aten::add", 1000, 1999, **DOUBLE)],
        [*calls(3, 100, **SINGLE), host("aten::add", 1000, 2000, **DOUBLE), host("long", 2000, 51_000)],
        [*calls(3, 100, **SINGLE), host("aten::mul", 1000, 5000, **NUMBER)],
        [*calls(3, 100, **SINGLE), host("f", 1000, 5000, types='["float", "float", "double"]')],
        [CALLED_WITH_DOUBLE, *calls(3, 9, **SINGLE), host("a", 50, 8000, **DOUBLE)],
        [host("aten::add", 0, 9000)],
        [*calls(3, 100, **SINGLE), host("aten::add", 1000, 9000, types='"double"', shapes='{"double": 1}')],
        [*calls(3, 100, **SINGLE), host("aten::add", 1000, 9000, types='[["double"], 7]')],
        [*calls(3, 100, **SINGLE), host("aten::add", 1000, 9000, types="7")],
        [],
    ],
    gradients: [
        FORWARD[:3], [*FORWARD, BACKWARD], [host("mm", 0, 10)], [],
        [numbered("mm", at, at + 1, 7) for at in range(9)],
        [numbered("mm", at, at + 1, at, thread=f"1/{at}") for at in range(9)],
        [*FORWARD, BACKWARD, node("infer", 0, 50, stage="inference")],
        [*FORWARD, BACKWARD, node("fit", 0, 50, stage="train")],
    ],
    copies: [
        copying(4444), copying(2105, "Memcpy DtoH (Device -> Pageable)"),
        [device("Memcpy HtoD", 0, 999, cat="gpu_memcpy")], [device("Memset", 0, 9999, cat="gpu_memset")],
        [host("mm", 0, 10)],
    ],
    device_waits: [
        [call("cudaStreamSynchronize", 0, 999, 1), host("end", 0, 40_000)],
        [call("cudaStreamSynchronize", 0, 4999, 1), host("end", 0, 50_000)],
        [host("cudaStreamSynchronize", 0, 9000)], [call("cudaLaunchKernel", 0, 9000, 1)],
    ],
    launch_bound: [
        launched(19, 50, 103), launched(20, 54, 103), launched(20, 50, 103, delay=20), launched(20, 1, 40),
        [*launched(20, 50, 103), host("end", 0, 41_000)],
        [*launched(10, 50, 103), device("busy", 1030, 1050), *launched(10, 50, 103, start=1100)],
        [device("k", at * 100, at * 100 + 1) for at in range(50)],
        [],
    ],
}  # fmt: skip


@pytest.mark.parametrize(("rule", "rows"), [(rule, rows) for rule, cases in NO_FINDING.items() for rows in cases])
def test_what_just_does_not_show_it_is_no_finding(rule: Rule, rows: list[Row]) -> None:
    assert found(rule, rows) == []


NO_CHANGE: dict[RuleOfTwo, list[tuple[list[Row], list[Row]]]] = {
    more_copies: [
        (copies_of(199), copies_of(100)), (copies_of(99), []), (copies_of(130), copies_of(40)),
        ([*copies_of(400), *steps(4)], [*copies_of(101), *steps(1)]), ([], copies_of(500)), ([], []),
    ],
    more_calls: [
        (calls(39, 100, name="mm"), calls(20, 100, name="mm")), (calls(9, 100, name="mm"), []),
        ([*calls(20, 100, name="mm"), host("add", 2000, 42_000)], [host("add", 0, 1)]),
        (copies_of(5000), []), ([], calls(20, 100, name="mm")),
    ],
    slower: [
        (steps(3, 10_999), steps(3, 10_000)), (steps(3, 3000), steps(3, 2001)), (steps(3), []), ([], steps(3)),
        (steps(2, 1000), steps(2, 9000)), (stages(3000), stages(1000)),
        ([node("a", 0, 9000)], [node("b", 0, 2000)]),
    ],
    slower_calls: [
        (stages(3000, 40), stages(3000)), (stages(1099), stages(1000)), (stages(3000), []), ([], stages(3000)),
        (stages(1500, 1), stages(510, 1)), (stages(1000), stages(3000)),
        ([*steps(2, 90_000), *calls(40, 1000, name="mm")], [*steps(2, 90_000), *calls(20, 1000, name="mm")]),
        (steps(20, 3000), steps(20, 1000)), (stages(5000, name="new"), stages(1000)),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "now", "before"), [(rule, *case) for rule, cases in NO_CHANGE.items() for case in cases]
)
def test_what_just_did_not_change_is_no_finding(rule: RuleOfTwo, now: list[Row], before: list[Row]) -> None:
    assert changes(rule, now, before) == []


# --- all of them ----------------------------------------------------------------------------------------------------


def test_findings_are_sorted_and_print_themselves() -> None:
    listed = findings(Evidence(made([node("a\nx", 0, 4000), node("b", 7000, 10_000), node("c", 10_000, 10_100)])))
    assert [finding.kind for finding in listed] == ["dominant_operator", "outside_nodes"]
    assert len({*listed, *listed}) == 2
    lines = str(listed).splitlines()
    assert lines[:2] == ["Findings", "1. a\\nx takes 56 % of the time on the host"]
    assert lines[2].startswith("  1 call of 'a\\nx' took 4.00 ms of 7.10 ms on the host")
    assert lines[2].endswith(", without nodes that ran inside it.")
    assert lines[3].startswith("  Advice: It was called once")
    assert lines[4:6] == ["  Rows: 0", "2. 30 % of the time is outside any node"]
    assert len(lines) == 9


def test_a_finding_prints_some_of_its_rows() -> None:
    def shown(count: int) -> str:
        return str(Finding("kind", "title", "text", "advice", {}, tuple(range(count)), 0.5)).splitlines()[-1]

    assert shown(5) == "  Rows: 0, 1, 2, 3, 4"
    assert shown(1205) == "  Rows: 0, 1, 2, 3, 4 and 1,200 more"


def test_findings_are_short_in_a_shell_and_a_list_in_a_notebook() -> None:
    listed = findings(Evidence(made([node("a<b>", 0, 4000), node("c", 9000, 10_000)])))
    assert repr(listed) == "<Findings: 1 finding>"
    html = listed._repr_html_()
    assert html.count("<li>") == 1
    assert "&#x27;a&lt;b&gt;&#x27; and &#x27;c&#x27;" in html
    nothing = findings(Evidence(made([], dropping=True)), Evidence(made([], dropping=True)))
    assert str(nothing) == (
        f"Findings\nNothing found: no rule's limit is reached.\n{DROPPED}\nOf the baseline: {DROPPED}"
    )
    nothing = findings(Evidence(made([], dropping=True)))
    assert repr(nothing) == "<Findings, empty>"
    assert nothing._repr_html_() == (
        f"<p><b>Findings</b></p>\n<p>Nothing found: no rule&#x27;s limit is reached.</p>\n<p>{DROPPED}</p>"
    )


@pytest.mark.parametrize("baseline", [3, "trace.json", [], 0])
def test_a_baseline_is_a_recording(baseline: Any) -> None:
    for report in (made([]).findings, made([]).overview):
        with pytest.raises(TypeError) as caught:
            report(baseline)
        assert str(caught.value) == f"baseline must be a recording, got {baseline!r} ({type(baseline).__name__})"


def test_the_rows_of_a_finding_are_found_by_their_numbers() -> None:
    """Also where counters have numbers in between."""
    counters = [{"name": "memory", "start": at, "kind": COUNTER, "args": '{"bytes": 1}'} for at in (0, 1, 4_000_000)]
    recording = made([*counters, node("a", 0, 4000), node("b", 9000, 10_000)])
    rows = {row for finding in recording.findings() for row in finding.rows}
    assert rows
    assert {recording.event(row).name for row in rows} <= {"a", "b"}
    frame = frame_columns(recording)
    assert len(recording.events()) == len(event_rows(recording)) == 2
    assert rows <= set(event_rows(recording))
    assert frame["name"] == [recording.event(row).name for row in event_rows(recording)]


def test_findings_as_a_dataframe() -> None:
    pytest.importorskip("pandas")
    listed = findings(Evidence(made([node("a", 0, 4000), node("b", 9000, 10_000)])))
    frame = listed.to_pandas()
    assert list(frame.columns) == ["kind", "title", "share", "text", "advice", "rows"]
    assert list(frame["kind"]) == ["outside_nodes"]
    assert list(Findings().to_pandas().columns) == list(frame.columns)


@pytest.mark.slow
def test_what_is_copied_more_often_in_a_real_trace_is_named() -> None:
    control, test = trace("control"), trace("test")
    listed = findings(Evidence(test), baseline=Evidence(control))
    (finding,) = [finding for finding in listed if finding.kind == "more_copies"]
    assert finding.title == "21.3 times as many device copies as in the baseline"
    assert "4,856 copies against 228" in finding.text
    assert "DtoD 4,645 against 18" in finding.text
    assert "4,596 of 4,645 were started by 'aten::copy_'" in finding.text
    kinds, cats = test.column("kind"), test.column("cat")
    assert kinds is not None
    assert cats is not None
    assert len(finding.rows) == 4856
    assert {(kinds[row], test.strings[cats[row]]) for row in finding.rows} == {(4, "gpu_memcpy")}
    assert {finding.kind for finding in listed} >= {"copies", "slower", "more_calls"}
    assert "DtoD copies take 10 % of the device's time" in {finding.title for finding in listed}
    turned = findings(Evidence(control), baseline=Evidence(test))
    assert not {finding.kind for finding in turned} & {"more_copies", "slower"}
    assert not any("DtoD" in finding.title for finding in turned)


def test_operations_on_times() -> None:
    assert intervals.union([(5, 9), (0, 2), (1, 3), (3, 4), (7, 7), (6, 8), (20, 20)]) == [(0, 4), (5, 9)]
    left, right = [(0, 10), (20, 30), (40, 41)], [(2, 3), (5, 25), (29, 50)]
    assert intervals.common(left, right) == [(2, 3), (5, 10), (20, 25), (29, 30), (40, 41)]
    assert intervals.without(left, right) == [(0, 2), (3, 5), (25, 29)]
    assert intervals.without(left, []) == left
    assert intervals.gaps(left) == [(10, 20), (30, 40)]
    assert intervals.length(left) == 21
