"""The breakdown of a stage: what of a recording took the most time."""

from __future__ import annotations

import json

import pytest

from cprofiling.layers.recording import NOTHING, STAND_IN, breakdown_of
from recorded import outer, profile
from recordings import Row, call, device, host, made

GPU = [
    host("block", 0, 100, cat="user_annotation"),
    host("aten::mm", 10, 60),
    call("cudaLaunchKernel", 20, 30, 8),
    device("gemm", 40, 140, correlation=8),
    device("gemm", 140, 160, correlation=9),
    device("Memcpy DtoH", 160, 170, cat="gpu_memcpy"),
    device("block", 40, 160, cat="gpu_user_annotation"),
    device("wait", 40, 160, cat="cuda_sync"),
]


def test_kernels_of_a_device_are_summed_up_by_name() -> None:
    assert breakdown_of(made(GPU), "vae") == {
        "name": "vae",
        "total_kernel_time_ms": 0.13,
        "num_kernels": 2,
        "top_kernels": [
            {"name": "gemm", "ms": 0.12, "cuda_ms": 0.12, "cpu_ms": 0.0},
            {"name": "Memcpy DtoH", "ms": 0.01, "cuda_ms": 0.01, "cpu_ms": 0.0},
        ],
    }


def test_operators_stand_in_where_there_is_no_device() -> None:
    rows = [
        host("block", 0, 100, cat="user_annotation"),
        host("model.py(3): forward", 0, 90, cat="python_function"),
        host("aten::linear", 10, 60),
        host("aten::mm", 20, 50),
        host("cudaGetDevice", 70, 80, cat="cuda_runtime"),
    ]
    found = breakdown_of(made(rows), "a\ud800/b", rank=3)
    assert list(found)[:2] == ["name", "rank"]
    assert (found["name"], found["rank"], found["note"]) == ("a\ud800/b", 3, STAND_IN)
    assert [(row["name"], row["ms"], row["cuda_ms"], row["cpu_ms"]) for row in found["top_kernels"]] == [
        ("aten::mm", 0.03, 0.0, 0.03),
        ("aten::linear", 0.02, 0.0, 0.02),
    ]
    assert json.loads(json.dumps(found)) == found


def test_the_list_has_fifty_at_most_and_the_totals_all() -> None:
    rows: list[Row] = [device(f"k{number}", number * 10, number * 10 + number + 1) for number in range(9, 69)]
    found = breakdown_of(made(rows), "dit")
    assert found["num_kernels"] == 60
    assert [row["name"] for row in found["top_kernels"]] == [f"k{number}" for number in range(68, 18, -1)]
    assert found["total_kernel_time_ms"] == round(sum(number + 1 for number in range(9, 69)) / 1000, 6)
    assert "note" not in found


def test_equal_times_are_in_the_order_of_names() -> None:
    rows = [device(name, place, place + 5) for place, name in enumerate("cab")]
    assert [row["name"] for row in breakdown_of(made(rows), "x")["top_kernels"]] == ["a", "b", "c"]


def test_a_recording_of_nothing_says_so_and_of_drops_too() -> None:
    found = breakdown_of(made([], dropping=True), "")
    assert found == {
        "name": "", "total_kernel_time_ms": 0, "num_kernels": 0, "top_kernels": [], "note": NOTHING, "dropped": 12_345,
    }  # fmt: skip


def test_a_running_programs_nodes_stand_in() -> None:
    with profile() as prof:
        outer()
    found = breakdown_of(prof, "outer")
    assert sorted(row["name"] for row in found["top_kernels"]) == ["inner", "outer"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1,), TypeError, "name must be a str, got 1 "),
        (("x", "0"), TypeError, "rank must be an integer, got '0'"),
        (("x", -1), ValueError, "rank must be >= 0, got -1"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[object, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        breakdown_of(made([]), *arguments)  # type: ignore[arg-type]
