"""Averages by name and their table: the figures of torch.profiler, and what is told otherwise."""

from __future__ import annotations

import importlib
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cprofiling.analysis.averages import SORT_KEYS, KeyAverage, KeyAverages
from cprofiling.analysis.grouping import export_stacks, key_averages
from cprofiling.recording.columns import ANNOTATIONS, device_name
from cprofiling.recording.exports import load_trace
from cprofiling.recording.result import Recording
from cprofiling.recording.tree import device_owners, host_tree
from recordings import DEVICE, DROPPED, INSTANT, NODE, RECORD, STEP, US, Row, call, device, host, made

SUSPENDABLE = 4


def figures(averages: KeyAverages, *names: str) -> dict[str, tuple[float, ...]]:
    return {average.key: tuple(getattr(average, name) for name in names) for average in averages}


def times(*rows: Row) -> dict[str, tuple[float, ...]]:
    """Count, total and self time on the host, in microseconds, by name."""
    return figures(key_averages(made(rows)), "count", "cpu_time_total", "self_cpu_time_total")


def device_times(*rows: Row) -> dict[str, tuple[float, ...]]:
    return figures(key_averages(made(rows)), "device_time_total", "self_device_time_total")


GPU = [
    host("block", 0, 100, cat="user_annotation", external_id=1),
    host("aten::mm", 10, 60, external_id=2),
    call("cudaLaunchKernel", 20, 30, 8, external_id=2),
    host("aten::add", 70, 90, external_id=3),
    call("cudaLaunchKernel", 75, 80, 9, external_id=3),
    device("gemm", 40, 140, correlation=8, external_id=2),
    device("add", 140, 160, correlation=9, external_id=3),
    device("block", 40, 160, cat="gpu_user_annotation", external_id=1),
]

# --- times on the host ----------------------------------------------------------------------------------------------


def test_a_span_without_length_stays_inside_its_parent() -> None:
    rows = [host("a", 0, 10, kind=NODE, span=1), host("b", 10, 10, kind=NODE, span=2, parent_span=1)]
    assert host_tree(made(rows)).parents == [-1, 0]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            [host("a", 0, 100), host("b", 10, 40), host("c", 20, 30), host("b", 50, 60)],
            {"a": (1, 100, 60), "b": (2, 40, 30), "c": (1, 10, 10)},
            id="children are subtracted",
        ),
        pytest.param(
            [host("a", 0, 10), host("a", 10, 10), host("b", 10, 20)],
            {"a": (2, 10, 10), "b": (1, 10, 10)},
            id="what begins where another ends is beside it",
        ),
        pytest.param(
            [host("outer", 0, 100), host("enter", 10, 40), host("block", 30, 80)],
            {"outer": (1, 100, 30), "enter": (1, 30, 20), "block": (1, 50, 50)},
            id="the time of rows that overlap belongs to the later one",
        ),
        pytest.param(
            [host("a", 0, 100), host("b", 10, 40, thread="1/2")],
            {"a": (1, 100, 100), "b": (1, 30, 30)},
            id="threads are apart",
        ),
        pytest.param(
            [host("a", 0, 100), host("a", 10, 90), host("a", 20, 80), host("b", 30, 40), host("b", 50, 60)],
            {"a": (1, 100, 80), "b": (2, 20, 20)},
            id="an only child of the same name is its parent",
        ),
        pytest.param(
            [host("a.py(1): f", 0, 100, cat="python_function"), host("aten::mm", 10, 60)],
            {"a.py(1): f": (1, 100, 50), "aten::mm": (1, 50, 50)},
            id="frames of Python count",
        ),
        pytest.param(
            [
                host("PyTorch Profiler (0)", 0, 100, cat="Trace"),
                host("a", 0, 50),
                host("aten::is_leaf", 10, 40),
                host("b", 20, 30),
                host("Iteration Start", 5, 5, kind=INSTANT),
            ],
            {"a": (1, 50, 40), "b": (1, 10, 10)},
            id="what is no event or too small is left out",
        ),
    ],
)
def test_times_of_the_host(rows: list[Row], expected: dict[str, tuple[float, ...]]) -> None:
    assert times(*rows) == expected


def test_coroutines_that_take_turns_have_the_time_in_which_they_ran() -> None:
    turns = {"kind": NODE, "flags": SUSPENDABLE}
    rows = [
        host("first", 0, 100, span=1, suspended_ns=60 * US, **turns),
        host("second", 10, 90, span=2, suspended_ns=50 * US, **turns),
        host("inside", 20, 30, kind=NODE, span=3, parent_span=1),
        host("elsewhere", 20, 30, kind=NODE, span=4, parent_span=1, thread="1/2"),
        host("away", 40, 60, span=5, parent_span=2, suspended_ns=20 * US, **turns),
    ]
    expected = {
        "first": (1, 100, 30), "second": (1, 80, 30), "inside": (1, 10, 10), "elsewhere": (1, 10, 10),
        "away": (1, 20, 0),
    }  # fmt: skip
    assert times(*rows) == expected


def test_a_self_time_is_never_negative() -> None:
    turns = {"kind": NODE, "flags": SUSPENDABLE}
    rows = [
        host("cut", 0, 10, span=1, suspended_ns=8 * US, **turns),
        host("inside", 1, 9, kind=NODE, span=2, parent_span=1),
    ]
    assert times(*rows)["cut"] == (1, 10, 0)


def test_steps_are_around_what_is_in_them() -> None:
    rows = [
        host("run", 0, 100, cat="user_annotation"),
        host("ProfilerStep#7", 10, 50, kind=STEP),
        host("a", 20, 30),
        host("ProfilerStep#8", 50, 90, kind=STEP),
        host("b", 85, 95),
        host("c", 60, 80),
        host("d", 70, 75),
        host("e", 30, 40, thread="1/2"),
    ]
    assert times(*rows) == {
        "run": (1, 100, 15), "ProfilerStep*": (2, 80, 45), "a": (1, 10, 10), "b": (1, 10, 10), "c": (1, 20, 15),
        "d": (1, 5, 5), "e": (1, 10, 10),
    }  # fmt: skip


@pytest.mark.parametrize("kind", [NODE, RECORD])
def test_a_call_of_a_node_inside_itself_is_a_call(kind: int) -> None:
    rows = [host("a", 0, 100, kind=kind, span=1), host("a", 10, 90, kind=kind, span=2, parent_span=1)]
    assert times(*rows) == {"a": (2, 180, 100)}


def test_a_node_and_an_operator_of_one_name_are_two() -> None:
    rows = [host("mm", 0, 100, kind=NODE, span=1), host("mm", 100, 200), host("mm", 200, 300, cat="user_annotation")]
    assert [average.count for average in key_averages(made(rows))] == [1, 1, 1]


def test_a_parent_is_before_its_children_whatever_ids_say() -> None:
    rows = [
        host("early", 0, 10, kind=NODE, span=2, parent_span=1),
        host("inside", 1, 9, kind=NODE, span=3, parent_span=2),
        host("late", 5, 8, kind=NODE, span=1, parent_span=4),
        host("later", 6, 7, kind=NODE, span=4, parent_span=5),
        host("around", 0, 20, kind=NODE, span=5),
    ]
    recording = made(rows)
    assert list(recording.column("parent") or ()) == [-1, 3, 1, 4, 0]
    assert host_tree(recording).parents == [-1, 0, 1, 0, 0]


def test_a_long_way_up_is_not_gone() -> None:
    count = 150
    rows = [host("a", at, 1000, kind=NODE, span=at + 1, parent_span=at + 2) for at in range(count)]
    assert host_tree(made(rows)).parents == [-1] * count


# --- times on the device --------------------------------------------------------------------------------------------


def test_work_belongs_to_the_operator_that_started_it() -> None:
    assert [
        (average.key, average.device_type, average.device_time_total, average.self_device_time_total)
        for average in key_averages(made(GPU))
    ] == [
        ("block", "cpu", 120, 0), ("aten::mm", "cpu", 100, 100), ("cudaLaunchKernel", "cpu", 0, 0),
        ("block", "cuda", 120, 120), ("gemm", "cuda", 100, 100), ("aten::add", "cpu", 20, 20), ("add", "cuda", 20, 20),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            [
                host("node", 0, 100, kind=NODE, span=1), host("frame", 5, 90, cat="python_function"),
                call("cuLaunchKernelEx", 10, 20, 4, cat="cuda_driver"), device("gemm", 40, 90, correlation=4),
            ],
            {"node": (50, 50), "frame": (0, 0), "cuLaunchKernelEx": (0, 0), "gemm": (50, 50)},
            id="by the call of the runtime, without external ids",
        ),
        pytest.param(
            [
                host("aten::mm", 0, 50, external_id=1), call("cudaLaunchKernel", 10, 20, 2, external_id=2),
                host("aten::add", 60, 90, external_id=2), device("gemm", 40, 90, correlation=2, external_id=2),
            ],
            {"aten::mm": (50, 50), "cudaLaunchKernel": (0, 0), "aten::add": (0, 0), "gemm": (50, 50)},
            id="not by external ids that only repeat correlations",
        ),
        pytest.param(
            [
                host("aten::mm", 0, 50, external_id=7), call("cudaLaunchKernel", 45, 55, 2, external_id=7),
                device("gemm", 60, 90, correlation=2, external_id=7),
            ],
            {"aten::mm": (30, 30), "cudaLaunchKernel": (0, 0), "gemm": (30, 30)},
            id="by its external id, of a call beside its operator",
        ),
        pytest.param(
            [
                host("operator", 0, 100, external_id=7), host("node", 10, 90, kind=NODE, span=1),
                call("cudaLaunchKernel", 20, 30, 2, external_id=7),
                device("gemm", 60, 90, correlation=2, external_id=7),
            ],
            {"operator": (0, 0), "node": (30, 30), "cudaLaunchKernel": (0, 0), "gemm": (30, 30)},
            id="by the node between operator and call",
        ),
        pytest.param(
            [
                host("a", 0, 100), call("launch", 200, 210, 3), device("k", 50, 60),
                device("l", 220, 230, correlation=3),
            ],
            {"a": (0, 0), "launch": (0, 0), "k": (10, 10), "l": (10, 10)},
            id="by nobody",
        ),
    ],
)  # fmt: skip
def test_who_started_work(rows: list[Row], expected: dict[str, tuple[float, ...]]) -> None:
    assert device_times(*rows) == expected


def test_work_of_a_merged_row_belongs_to_the_one_that_stands_for_it() -> None:
    rows = [
        host("a", 0, 100, external_id=6),
        host("a", 10, 90, external_id=7),
        call("launch", 20, 40, 2, external_id=7),
        call("launch", 25, 35, 2, external_id=7),
        device("gemm", 60, 90, correlation=2, external_id=7),
    ]
    assert device_times(*rows)["a"] == (30, 30)
    by_call = [{**row, "external_id": -1} for row in rows]
    assert device_times(*by_call)["a"] == (30, 30)


def test_waits_are_rows_but_no_work() -> None:
    rows = [*GPU, device("Stream Sync", 100, 160, cat="cuda_sync", correlation=8, external_id=2)]
    averages = key_averages(made(rows))
    assert figures(averages, "device_time_total")["aten::mm"] == (100,)
    assert figures(averages, "self_device_time_total")["Stream Sync"] == (60,)
    assert averages.table().endswith("Self CUDA time total: 120.000us\n")


@pytest.mark.parametrize(
    ("cat", "name"),
    [
        ("cuda_runtime", "cuda"),
        ("xpu_runtime", "xpu"),
        ("mtia_driver", "mtia"),
        ("privateuse1_runtime", "privateuseone"),
    ],
)
def test_the_device_has_its_name(cat: str, name: str) -> None:
    averages = key_averages(made([host("launch", 0, 10, cat=cat), device("gemm", 5, 10)]))
    assert averages.use_device == averages[1].device_type == averages[0].use_device == name
    assert f"Self {name.upper()} %" in averages.table()
    assert key_averages(made([device("short", 5, 6)])).table().endswith("Self CUDA time total: 1.000us\n")


# --- memory ---------------------------------------------------------------------------------------------------------


def allocation(at: int, size: int, device_type: int = 0, **more: Any) -> Row:
    args = json.dumps({"Bytes": size, "Device Type": device_type, "Total Allocated": 0})
    return {"name": "[memory]", "start": at * US, "kind": INSTANT, "cat": "cpu_instant_event", "args": args, **more}


MEMORY = ("cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage")


def test_memory_is_what_was_allocated_meanwhile() -> None:
    rows = [
        host("a", 0, 100), host("b", 10, 40), allocation(5, 1000), allocation(20, 300), allocation(30, -100),
        allocation(35, 64, device_type=1), allocation(100, 1), allocation(110, 7), allocation(120, 9, device_type=1),
    ]  # fmt: skip
    averages = key_averages(made(rows))
    assert figures(averages, *MEMORY) == {
        "a": (1201, 1001, 64, 0), "b": (200, 200, 64, 64), "[memory]": (7, 7, 9, 9),
    }  # fmt: skip
    assert figures(averages, "count", "cpu_time_total") == {"a": (1, 100), "b": (1, 30), "[memory]": (2, 0)}
    assert averages.has_memory


def unsized(at: int, **more: Any) -> Row:
    return {"name": "[memory]", "start": at, "kind": INSTANT, **more}


def measured(name: str, start: int, end: int, size: int, **more: Any) -> Row:
    return host(name, start, end, kind=NODE, span=start + 1, memory_change=size, **more)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            [
                host("a", 0, 100), unsized(5, bytes=10), unsized(6, bytes=20, device=0), unsized(8),
                unsized(7, args='{"Bytes": "many"}'),
            ],
            {"a": (10, 10, 20, 20)},
            id="by columns, without arguments",
        ),
        pytest.param(
            [
                host("a", 0, 100, kind=NODE, span=1, memory_change=4096, device_memory_change=-512),
                host("b", 10, 40), allocation(20, 300),
            ],
            {"a": (4096, 4096, -512, -512), "b": (300, 300, 0, 0)},
            id="measured before added up",
        ),
        pytest.param(
            [
                host("ProfilerStep#1", 0, 100, kind=STEP), measured("outer", 10, 90, 5000),
                host("label", 20, 80, kind=RECORD, span=7, parent_span=11),
                measured("inner", 30, 40, 3000, parent_span=7), measured("inner", 50, 60, 1000, parent_span=7),
                measured("alone", 200, 210, 70),
            ],
            {
                "ProfilerStep*": (0, 0, 0, 0), "outer": (5000, 1000, 0, 0), "label": (0, 0, 0, 0),
                "inner": (4000, 4000, 0, 0), "alone": (70, 70, 0, 0),
            },
            id="measured less measured, through what was not measured",
        ),
        pytest.param(
            [
                host("ProfilerStep#1", 0, 100, kind=STEP), measured("node", 10, 60, 1 << 20), host("aten::mm", 20, 30),
                host("aten::t", 70, 80), allocation(5, 1), allocation(15, 20), allocation(25, 300),
                allocation(75, 4000),
            ],
            {
                "ProfilerStep*": (4321, 1, 0, 0), "node": (1 << 20, 1 << 20, 0, 0), "aten::mm": (300, 300, 0, 0),
                "aten::t": (4000, 4000, 0, 0),
            },
            id="added up less added up",
        ),
    ],
)  # fmt: skip
def test_memory_of_rows(rows: list[Row], expected: dict[str, tuple[float, ...]]) -> None:
    assert figures(key_averages(made(rows)), *MEMORY) == expected


@pytest.mark.parametrize("rows", [[], GPU], ids=["nothing", "no memory"])
def test_without_memory_there_is_none(rows: list[Row]) -> None:
    averages = key_averages(made(rows))
    assert not averages.has_memory
    assert " Mem" not in averages.table()


# --- groups ---------------------------------------------------------------------------------------------------------


def test_groups_by_shapes() -> None:
    rows = [
        host("mm", 0, 10, shapes="[[2,3],[]]"), host("mm", 10, 30, shapes="[[4,3],[]]"),
        host("mm", 30, 60, shapes="[[2,3],[]]"), host("add", 60, 70),
    ]  # fmt: skip
    averages = key_averages(made(rows), group_by_input_shape=True)
    assert [(average.key, average.input_shapes, average.cpu_time_total) for average in averages] == [
        ("mm", [[2, 3], []], 40), ("mm", [[4, 3], []], 20), ("add", [], 10),
    ]  # fmt: skip
    assert [average.input_shapes for average in key_averages(made(rows))] == [[], []]
    lines = averages.table().splitlines()
    assert lines[1].endswith("  # of Calls      Input Shapes  ")
    assert lines[3].endswith("             2      [[2, 3], []]  ")
    assert averages.table(max_shapes_column_width=6).splitlines()[3].endswith("             2  [[2, 3  ")


def test_shapes_that_were_not_recorded_group_nothing_with_a_warning() -> None:
    recording = made([host("a", 0, 10), host("a", 10, 20)])
    with pytest.warns(RuntimeWarning, match="no shapes were recorded; record_shapes=True records them") as caught:
        averages = recording.key_averages(group_by_input_shape=True)
    assert caught[0].filename == __file__
    assert averages == recording.key_averages()
    assert made([]).key_averages(group_by_input_shape=True) == []


def test_stacks_of_torch_end_in_an_empty_line_that_is_no_frame(tmp_path: Path) -> None:
    recording = made([host("a", 0, 10, stack="x.py(1): f\ny.py(2): main\n")])
    (average,) = key_averages(recording, group_by_stack_n=5)
    assert average.stack == ["x.py(1): f", "y.py(2): main"]
    export_stacks(recording, tmp_path / "stacks.txt")
    assert (tmp_path / "stacks.txt").read_text() == "y.py(2): main;x.py(1): f;a 10\n"


def test_groups_by_recorded_stacks() -> None:
    rows = [
        host("a", 0, 10, stack="x.py(1): f\ny.py(2): main"), host("a", 10, 30, stack="x.py(1): f\nz.py(3): main"),
        host("a", 30, 60, stack="x.py(1): f"), host("b", 60, 70),
    ]  # fmt: skip
    one = key_averages(made(rows), group_by_stack_n=1)
    assert [(average.key, average.stack) for average in one] == [("a", ["x.py(1): f"]), ("b", [])]
    two = key_averages(made(rows), group_by_stack_n=2)
    assert [average.count for average in two] == [1, 1, 1, 1]
    assert key_averages(made(rows))[0].stack == []
    frame = {"cat": "python_function"}
    around = [host("main", 0, 100, **frame), host("f", 10, 40, **frame), host("a", 20, 30), host("a", 50, 60)]
    averages = key_averages(made([*around, host("PyTorch", 0, 200, cat="Trace", thread="1/9")]), group_by_stack_n=2)
    assert [(average.key, average.stack) for average in averages] == [
        ("main", []), ("f", ["main"]), ("a", ["f", "main"]), ("a", ["main"]),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="group_by_stack_n must be >= 0, got -1"):
        key_averages(made([]), group_by_stack_n=-1)


def test_groups_by_node() -> None:
    rows = [
        host("outer", 0, 200, kind=NODE, span=1),
        host("inner", 10, 90, kind=NODE, span=2, parent_span=1),
        host("mm", 20, 40),
        call("launch", 30, 40, 5),
        device("gemm", 35, 50, correlation=5),
        host("mm", 100, 110),
        host("mm", 300, 310),
    ]
    averages = key_averages(made(rows), group_by_node=True)
    assert [(average.key, average.node) for average in averages] == [
        ("outer", "outer"), ("inner", "inner"), ("mm", "inner"), ("launch", "inner"), ("gemm", "inner"),
        ("mm", "outer"), ("mm", ""),
    ]  # fmt: skip
    assert averages.table().splitlines()[1].endswith("    # of Calls       Node  ")
    assert {average.node for average in key_averages(made(rows))} == {""}


# --- the table ------------------------------------------------------------------------------------------------------

TABLE = """\
--------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------
                Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg     Self CUDA   Self CUDA %    CUDA total  CUDA time avg    # of Calls
--------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------
               block        30.00%      30.000us       100.00%     100.000us     100.000us       0.000us         0.00%     120.000us     120.000us             1
            aten::mm        40.00%      40.000us        50.00%      50.000us      50.000us     100.000us        83.33%     100.000us     100.000us             1
    cudaLaunchKernel        15.00%      15.000us        15.00%      15.000us       7.500us       0.000us         0.00%       0.000us       0.000us             2
               block         0.00%       0.000us         0.00%       0.000us       0.000us     120.000us       100.00%     120.000us     120.000us             1
                gemm         0.00%       0.000us         0.00%       0.000us       0.000us     100.000us        83.33%     100.000us     100.000us             1
           aten::add        15.00%      15.000us        20.00%      20.000us      20.000us      20.000us        16.67%      20.000us      20.000us             1
                 add         0.00%       0.000us         0.00%       0.000us       0.000us      20.000us        16.67%      20.000us      20.000us             1
--------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------
Self CPU time total: 100.000us
Self CUDA time total: 120.000us
"""  # noqa: E501


def without_ends(table: str) -> str:
    """A table without the blanks at the ends of its lines, which a source file may not have."""
    return "".join(f"{line.rstrip(' ')}\n" for line in table.splitlines())


def test_the_table_to_the_character() -> None:
    table = key_averages(made(GPU)).table()
    assert without_ends(table) == TABLE
    assert all(line.endswith("  ") for line in table.splitlines()[:-2])
    assert str(key_averages(made(GPU))) == table


def test_header_limit_and_top_level() -> None:
    averages = key_averages(made(GPU))
    lines = averages.table(header="Run 7", row_limit=2, top_level_events_only=True).splitlines()
    width = len(lines[-3]) - 2
    assert lines[:4] == ["=" * width, "Run 7", "=" * width, "Only rows at the top level are shown."]
    assert [line.split()[0] for line in lines[7:-3]] == ["block", "block"]
    assert len(averages.table(row_limit=0).splitlines()) == 6
    many = key_averages(made([host(f"name {at}", at, at + 1) for at in range(120)]))
    assert many.table(row_limit=None) == many.table(row_limit=-1)
    assert many.table(row_limit=None).count("name ") == 120


@pytest.mark.parametrize(
    ("option", "value", "error", "message"),
    [
        ("row_limit", 1.5, TypeError, "row_limit must be an integer or None, got 1.5 (float)"),
        ("row_limit", True, TypeError, "row_limit must be an integer or None, got True (bool)"),
        ("max_name_column_width", "a", TypeError, "max_name_column_width must be an integer or None, got 'a' (str)"),
        ("max_name_column_width", 0, ValueError, "max_name_column_width must be >= 1, got 0"),
        ("max_src_column_width", 2.0, TypeError, "max_src_column_width must be an integer or None, got 2.0 (float)"),
        ("max_shapes_column_width", -1, ValueError, "max_shapes_column_width must be >= 1, got -1"),
        ("time_unit", "ns", ValueError, "time_unit must be one of s, ms, us, got 'ns' (str)"),
        ("time_unit", [], ValueError, "time_unit must be one of s, ms, us, got [] (list)"),
    ],
)  # fmt: skip
def test_wrong_options_of_a_table_are_named(option: str, value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        key_averages(made(GPU)).table(**{option: value})  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize("width", [1, 2, 3, 4, 10])
def test_narrow_columns(width: int) -> None:
    rows = [host("a long name", 0, 10, shapes="[[1, 2]]", stack="file.py(1): function")]
    averages = key_averages(made(rows), group_by_input_shape=True, group_by_stack_n=1)
    table = averages.table(
        max_name_column_width=width, max_shapes_column_width=width, max_src_column_width=width
    ).splitlines()  # fmt: skip
    assert table[0].startswith("-" * width + "  -")
    assert table[3].split()[0] == ("a long name"[: max(width - 3, 0)] + "...").split()[0]


def test_ranges_of_a_profiler_are_rows_without_a_share() -> None:
    ranges = [device("gemm", at, at + 100, cat="cuda_profiler_range") for at in (0, 100)]
    table = key_averages(made([host("a", 0, 100), *ranges])).table().splitlines()
    assert " NaN " in next(line for line in table if "gemm" in line)
    assert table[-2:] == [
        "Self CUDA time total: 0.000us",
        "No row is work of the device: waits, annotations and ranges of profilers are no part of its total.",
    ]
    averages = key_averages(made([*ranges, device("gemm", 10, 20)]))
    assert [(of.key, of.count, of.is_device_work) for of in averages] == [("gemm", 2, False), ("gemm", 1, True)]
    assert averages.table().endswith("Self CUDA time total: 10.000us\n")


@pytest.mark.parametrize(
    ("end", "unit", "expected"),
    [
        (999, None, "999.000us"), (1000, None, "1.000ms"), (2_500_000, None, "2.500s"), (2500, "s", "0.003s"),
        (2500, "ms", "2.500ms"), (2500, "us", "2500.000us"),
    ],
)  # fmt: skip
def test_units_of_time(end: int, unit: str | None, expected: str) -> None:
    table = key_averages(made([host("a", 0, end)])).table(time_unit=unit)
    assert table.endswith(f"Self CPU time total: {expected}\n")


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"), (-1, "-1 B"), (1023, "1023 B"), (1024, "1.00 KB"), (-1536, "-1.50 KB"), (5 << 20, "5.00 MB"),
        (3 << 30, "3.00 GB"), (1 << 40, "1024.00 GB"),
    ],
)  # fmt: skip
def test_sizes(size: int, shown: str) -> None:
    rows = [host("a", 0, 10, kind=NODE, memory_change=size), host("b", 10, 20, kind=NODE, memory_change=77)]
    line = key_averages(made(rows)).table().splitlines()[3]
    assert line.endswith(f"  {shown:>12}  {shown:>12}             1  ")


def test_floating_point_operations() -> None:
    expected = {
        0: "--", 1: "1.000", 999: "999.000", 1000: "1.000 K", 999_999: "999.999 K", 10**6: "1.000 M",
        10**9 - 1: "1000.000 M", 10**9: "1.000 G", 10**12: "1.000 T", 10**15: "1.000 P",
    }  # fmt: skip
    table = KeyAverages(KeyAverage("a", 1, flops=flops) for flops in expected).table()
    assert [line[-14:].strip() for line in table.splitlines()[3:-2]] == list(expected.values())


def test_memory_of_a_device_has_columns_where_some_grew() -> None:
    rows = [*GPU, host("a", 200, 210, kind=NODE, span=1, memory_change=0, device_memory_change=2048)]
    assert "CPU Mem  Self CPU Mem      CUDA Mem  Self CUDA Mem    # of Calls" in key_averages(made(rows)).table()
    rows[-1]["device_memory_change"] = -2048
    assert "CPU Mem  Self CPU Mem    # of Calls" in key_averages(made(rows)).table()


ESCAPED = "\\nb\\x1b"


def test_names_are_cut_and_escaped() -> None:
    averages = key_averages(made([host("n" * 52, 0, 10), host("m" * 51, 10, 20), host("a\nb\x1b", 20, 30)]))
    lines = averages.table().splitlines()
    assert [line[:55] for line in lines[3:6]] == ["n" * 52 + "...", f"{'m' * 51:>55}", f"{'a' + ESCAPED:>55}"]
    assert [line.split()[0] for line in averages.table(max_name_column_width=10).splitlines()[3:6]] == [
        "nnnnnnn...", "mmmmmmm...", "a\\nb\\x1...",
    ]  # fmt: skip
    assert averages.table(max_name_column_width=None).splitlines()[3].startswith(" " * 4 + "n" * 52)


def test_stacks_have_a_line_for_each_frame() -> None:
    rows = [host("a", 0, 10, stack="/long/way/x.py(1): f\ny.py(2): main"), host("b", 10, 20)]
    averages = key_averages(made(rows), group_by_stack_n=2)
    lines = averages.table(max_src_column_width=15).splitlines()
    assert lines[1].endswith("  Source Location  ")
    assert [line[-20:] for line in lines[3:8]] == [
        "1  ...y/x.py(1): f  ", "   y.py(2): main    ", " " * 20, "1                   ", " " * 20,
    ]  # fmt: skip
    assert averages.table(max_src_column_width=3).splitlines()[3].endswith(" f  ")
    assert averages.table(max_src_column_width=None).splitlines()[3].endswith("/long/way/x.py(1): f      ")


def test_averages_are_short_in_a_shell_and_a_table_in_a_notebook() -> None:
    averages = key_averages(made([*GPU, host("a<b>", 200, 210, stack="x.py(1): f\ny.py(2): g")]), group_by_stack_n=2)
    assert repr(averages) == "<KeyAverages: 8 names>"
    html = averages._repr_html_()
    ET.fromstring(html)
    assert '<th scope="col">Self CUDA %</th>' in html
    assert '<th scope="col" class="cprofiling-text">Source location</th>' in html
    assert '<td class="cprofiling-text">a&lt;b&gt;</td><td>9.1 %</td><td>10.00 µs</td>' in html
    own = [row.split("</td>")[6].removeprefix("<td>") for row in html.split("<tr>")[2:]]
    assert own[:2] == ["120.0 µs", "100.0 µs"], "the longest first"
    assert '<td class="cprofiling-text">x.py(1): f\ny.py(2): g</td>' in html
    assert "<p>Self CPU time total: 110.0 µs</p>" in html
    assert html.count("<tr>") == 9
    empty = key_averages(made([]))
    assert repr(empty) == "<KeyAverages, empty>"
    assert "<p>No events were recorded.</p>" in empty._repr_html_()


def test_averages_as_a_dataframe() -> None:
    pytest.importorskip("pandas")
    frame = key_averages(made(GPU)).to_pandas()
    assert list(frame.columns) == [
        "Name", "Self CPU %", "Self CPU (us)", "CPU total %", "CPU total (us)", "CPU time avg (us)", "Self CUDA (us)",
        "Self CUDA %", "CUDA total (us)", "CUDA time avg (us)", "# of Calls",
    ]  # fmt: skip
    assert tuple(frame.iloc[1]) == ("aten::mm", 40.0, 40.0, 50.0, 50.0, 50.0, 100.0, 100.0 * 100 / 120, 100.0, 100.0, 1)
    grouped = [
        host("net", 0, 30, kind=NODE, span=1), host("a", 5, 10, shapes="[[2, 3]]", stack="x.py(1): f"),
        allocation(6, 64), allocation(7, 32, device_type=1),
    ]  # fmt: skip
    averages = key_averages(made(grouped), True, 1, True)
    assert "[[2, 3]]  x.py(1): f" in averages.table()
    assert (
        '<td class="cprofiling-text">[[2, 3]]</td><td class="cprofiling-text">x.py(1): f</td>' in averages._repr_html_()
    )
    frame = averages.to_pandas()
    assert list(frame.columns)[-8:] == [
        "CPU Mem (bytes)", "Self CPU Mem (bytes)", "CUDA Mem (bytes)", "Self CUDA Mem (bytes)", "# of Calls", "Node",
        "Input Shapes", "Source Location",
    ]  # fmt: skip
    assert list(frame.iloc[1])[-8:] == [64, 64, 32, 32, 1, "net", [[2, 3]], ["x.py(1): f"]]
    nothing = key_averages(made([host("a", 5, 5)])).to_pandas()
    assert math.isnan(nothing["Self CPU %"][0])
    assert list(KeyAverages().to_pandas().columns)[-1] == "# of Calls"


def test_memory_of_two_kinds_is_told() -> None:
    node = host("net", 0, 30, kind=NODE, span=1, memory_change=4096)
    line = (
        "CPU Mem of nodes and labelled blocks is the change of the process's resident memory, of other rows the bytes "
    )
    lines = key_averages(made([node, host("aten::mm", 5, 10), allocation(6, 64)])).table().splitlines()
    assert lines[-2].startswith("Self CPU time total: ")
    assert lines[-1].startswith(line)
    for rows in ([node], [host("aten::mm", 5, 10), allocation(6, 64)]):
        assert line not in key_averages(made(rows)).table()


def test_an_empty_table_says_so() -> None:
    averages = key_averages(made([], dropping=True))
    assert averages == []
    assert "Name" in averages.table()
    assert averages.table().splitlines()[-3:] == ["No events were recorded.", "Self CPU time total: 0.000us", DROPPED]
    assert KeyAverages().table(sort_by="count").splitlines()[-1] == "Self CPU time total: 0.000us"


# --- order ----------------------------------------------------------------------------------------------------------


def keys(averages: KeyAverages, sort_by: str) -> list[str]:
    lines = averages.table(sort_by=sort_by).splitlines()
    return [line.split()[0] for line in lines[3:] if not line.startswith(("-", "Self"))]


def test_every_key_sorts_the_largest_first() -> None:
    averages = key_averages(made([*GPU[1:-1], allocation(15, 100), allocation(16, 50, device_type=1)]))
    for sort_by in SORT_KEYS:
        name = sort_by.replace("cuda", "device").replace("xpu", "device").replace("privateuse1", "device")
        figure_of = {average.key: getattr(average, name) for average in averages}
        assert [figure_of[key] for key in keys(averages, sort_by)] == sorted(figure_of.values(), reverse=True), sort_by


@pytest.mark.parametrize("sort_by", ["cuda_time_total", "device_time_total", "xpu_time", "self_cuda_time_total"])
def test_a_device_s_keys_sort_by_the_host_s_time_without_one(sort_by: str) -> None:
    rows = [host("a", 0, 80), host("b", 10, 60), host("c", 80, 130)]
    assert keys(key_averages(made(rows)), sort_by) == (["b", "c", "a"] if "self" in sort_by else ["a", "b", "c"])


def test_memory_that_was_not_recorded_sorts_by_time_with_a_warning() -> None:
    averages = key_averages(made([host("a", 0, 10), host("b", 10, 40), host("c", 40, 60)]))
    for sort_by in ("self_cpu_memory_usage", "privateuse1_memory_usage"):
        with pytest.warns(RuntimeWarning, match="no memory was recorded; profile_memory=True records it") as caught:
            assert keys(averages, sort_by) == ["b", "c", "a"]
        assert sort_by in str(caught[0].message)
        assert caught[0].filename == __file__
    assert KeyAverages().table(sort_by="cpu_memory_usage") == KeyAverages().table()
    known = key_averages(made([host("a", 0, 10), allocation(5, 100)]))
    assert keys(known, "self_cpu_memory_usage") == ["a"]


def test_an_unknown_key_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        ValueError, match=r"sort_by must be one of cpu_time, cpu_time_total, .*, got 'nosuch'"
    ) as caught:
        key_averages(made([])).table(sort_by="nosuch")
    for key in ("self_cuda_time_total", "xpu_memory_usage", "count"):
        assert f" {key}," in str(caught.value)


def test_the_whole_and_older_names() -> None:
    averages = key_averages(made([*GPU, allocation(15, 100), allocation(16, 50, device_type=1)]))
    whole = averages.total_average()
    assert (whole.key, whole.count, whole.use_device) == ("Total", 8, "cuda")
    assert whole.self_cpu_time_total == averages.self_cpu_time_total == 100
    assert whole.cpu_time == whole.cpu_time_total / 8
    mm = averages[1]
    assert (mm.cuda_time, mm.cuda_time_total, mm.self_cuda_time_total) == (100, 100, 100)
    assert (mm.cuda_memory_usage, mm.self_cuda_memory_usage) == (50, 50)
    assert mm.device_time == 100
    nothing = KeyAverage("a", 0)
    assert not any(getattr(nothing, name) for name in SORT_KEYS if "device" in name or "cpu" in name)
    assert KeyAverages().total_average().count == 0


# --- against torch's own --------------------------------------------------------------------------------------------


def torch_averages(recording: Recording) -> Any:
    """The averages that torch makes of the same events, times joined as ours are."""
    torch = pytest.importorskip("torch")
    util: Any = importlib.import_module("torch.autograd.profiler_util")
    kinds = torch.autograd.DeviceType
    use_device = device_name(recording)
    tree = host_tree(recording, merging=False)
    columns = {name: recording.column(name) for name in ("start_ns", "end_ns", "track", "name", "cat", "kind")}
    events = {}
    for row in range(len(recording)):
        values = {name: values[row] for name, values in columns.items() if values is not None}
        is_device = values["kind"] == DEVICE
        if is_device or row in tree:
            name = recording.strings[values["name"]]
            events[row] = util.FunctionEvent(
                id=row, name="ProfilerStep*" if name.startswith("ProfilerStep#") else name, overload_name="",
                thread=values["track"], start_us=values["start_ns"] / 1000, end_us=values["end_ns"] / 1000,
                use_device=use_device, stack=[], input_shapes=[], flops=0,
                device_type=kinds.CUDA if is_device else kinds.CPU,
                is_user_annotation=recording.strings[values["cat"]] in ANNOTATIONS,
            )  # fmt: skip
    for row, owner in device_owners(recording, tree).items():
        events[owner].append_kernel(events[row].name, 0, events[row].time_range.elapsed_us())
    listed = util.EventList(events.values(), use_device=use_device)
    listed._build_tree()
    return listed.key_averages()


MIXED = [
    host("ProfilerStep#0", 0, 500, kind=STEP, cat="user_annotation"),
    *({**row, "start": row["start"] + 20 * US, "end": row["end"] + 20 * US} for row in GPU),
    host("aten::linear", 200, 300), host("aten::t", 210, 240), host("aten::t", 212, 230), host("aten::as", 215, 220),
    host("aten::addmm", 250, 290), host("a" * 60, 310, 320), host("backward", 40, 90, thread="1/2"),
    host("ProfilerStep#1", 500, 2_400_000, kind=STEP, cat="user_annotation"), host("aten::linear", 600, 5000),
]  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {}, {"row_limit": 3}, {"header": "H"}, {"top_level_events_only": True}, {"sort_by": "cpu_time_total"},
        {"sort_by": "self_cuda_time_total", "row_limit": 1}, {"sort_by": "count", "row_limit": 1}, {"time_unit": "ms"},
        {"max_name_column_width": 20}, {"max_name_column_width": None},
    ],
)  # fmt: skip
def test_the_table_is_torch_s_to_the_character(options: dict[str, Any]) -> None:
    recording = made(MIXED)
    both = (key_averages(recording), torch_averages(recording))
    tables = [averages.table(**options).splitlines() for averages in both]
    if "top_level_events_only" in options:
        notes = [table.pop(1) for table in tables]  # each says in its own words what is left out
        assert all("top" in note for note in notes)
    assert tables[0] == tables[1]


def is_alike(one: str, other: str) -> bool:
    """Whether two cells are equal, but for the last digit of what lies between two: torch sums floats up."""
    figures = [re.fullmatch(r"(-?[\d.]+)(us|ms|s|%)", cell) for cell in (one, other)]
    if one == other or figures[0] is None or figures[1] is None:
        return one == other
    return figures[0][2] == figures[1][2] and abs(float(figures[0][1]) - float(figures[1][1])) < 0.0105


def alike(ours: str, theirs: str) -> bool:
    """Whether two tables are equal but for last digits."""
    cells = [[cell for line in table.splitlines() for cell in line.split()] for table in (ours, theirs)]
    return len(cells[0]) == len(cells[1]) and all(map(is_alike, *cells))


@pytest.mark.parametrize("options", [{}, {"group_by_input_shape": True}])
def test_a_profile_of_torch_gives_the_same_table(tmp_path: Path, options: dict[str, bool]) -> None:
    torch = pytest.importorskip("torch")
    profiler = torch.profiler
    activities = [profiler.ProfilerActivity.CPU]
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    with profiler.profile(activities=activities, record_shapes=True, profile_memory=True) as prof:
        for _ in range(3):
            with profiler.record_function("block"):
                model(torch.ones(4, 8)).sum().backward()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    averages = key_averages(load_trace(tmp_path / "trace.json"), **options)
    theirs = prof.key_averages(**options)
    assert alike(averages.table(row_limit=-1), theirs.table(row_limit=-1))
    assert {average.key: average.count for average in averages} == {of.key: of.count for of in theirs}
    assert not alike(averages.table(row_limit=-1), averages.table(row_limit=3))


# --- folded stacks --------------------------------------------------------------------------------------------------


def stacks(recording: Recording, folder: Path, **options: str) -> list[str]:
    export_stacks(recording, folder / "stacks.txt", **options)
    return (folder / "stacks.txt").read_text(encoding="utf-8").splitlines()


def test_stacks_are_the_rows_around(tmp_path: Path) -> None:
    rows = [host("main", 0, 100), host("f g", 10, 40), host("mm", 20, 30), host("f g", 50, 60), host("mm", 70, 80)]
    assert stacks(made(rows), tmp_path) == ["main 50", "main;f g 30", "main;f g;mm 10", "main;mm 10"]


def test_recorded_stacks_go_before_the_rows_around(tmp_path: Path) -> None:
    rows = [
        host("node", 0, 100, kind=NODE, stack="x.py(3): f\nx.py(9): main"), host("mm", 10, 40),
        host("node", 100, 150, kind=NODE, stack="x.py(3): f\nx.py(9): main"), host("PyTorch", 0, 1, cat="Trace"),
    ]  # fmt: skip
    assert stacks(made(rows), tmp_path) == ["x.py(9): main;x.py(3): f;node 120", "x.py(9): main;x.py(3): f;node;mm 30"]


@pytest.mark.parametrize("word", ["cuda", "device", "xpu", "privateuse1"])
def test_stacks_of_a_device_s_time(word: str, tmp_path: Path) -> None:
    assert stacks(made(GPU), tmp_path, metric=f"self_{word}_time_total") == ["block;aten::mm 100", "block;aten::add 20"]


def test_names_in_stacks_are_escaped(tmp_path: Path) -> None:
    rows = [
        host("a;b", 0, 10),
        host("c\nd\u2028\u2029\x85", 1, 9),
        {"name": "short", "start": 0, "end": 999, "thread": "1/2"},
    ]
    assert stacks(made(rows), tmp_path) == ["a\\x3bb 2", "a\\x3bb;c\\nd\\u2028\\u2029\\x85 8"]


def test_an_unknown_metric_is_refused(tmp_path: Path) -> None:
    assert stacks(made([]), tmp_path) == []
    (tmp_path / "stacks.txt").unlink()
    with pytest.raises(ValueError, match=r"metric must be one of self_cpu_time_total, .*, got 'count'"):
        export_stacks(made([]), tmp_path / "stacks.txt", "count")
    assert list(tmp_path.iterdir()) == []
