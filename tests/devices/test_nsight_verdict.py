"""What limits a kernel: the rules, at their limits, and the figures that follow from metrics."""

from __future__ import annotations

import math

import pytest

import ncu_samples as samples
from cprofiling.devices.nsight import metrics as ncu_metrics
from cprofiling.devices.nsight.kernels import NcuKernel
from cprofiling.devices.nsight.metrics import Metrics
from cprofiling.devices.nsight.verdict import Verdict, verdict_of, waves_of

NAMES = {
    "compute": samples.COMPUTE, "memory": samples.MEMORY, "dram": samples.DRAM, "duration": samples.DURATION,
    "waves": samples.WAVES, "occupancy": samples.OCCUPANCY, "sms": samples.PROCESSORS,
    "possible": "sm__maximum_warps_per_active_cycle_pct", "l2": ncu_metrics.L2[0], "l1": ncu_metrics.L1[1],
    "tensor": ncu_metrics.TENSOR[0], "registers": "launch__occupancy_limit_registers",
    "shared": "launch__occupancy_limit_shared_mem", "warps": "launch__occupancy_limit_warps",
    "resident": "launch__occupancy_limit_blocks", "grid": "launch__grid_size",
}  # fmt: skip


def metrics(**known: float) -> Metrics:
    return Metrics({NAMES.get(name, name): place for place, name in enumerate(known)}, list(known.values()))


def operation(kind: str, unit: str = "sm") -> str:
    return f"{unit}__sass_thread_inst_executed_op_{kind}_pred_on.sum"


def judged(blocks: float | None = None, **known: float) -> Verdict:
    return verdict_of(metrics(**known), blocks)


@pytest.mark.parametrize(
    ("known", "kind"),
    [
        ({"compute": 60, "memory": 59.9}, "compute_bound"),
        ({"compute": 59.9, "memory": 60}, "memory_bound"),
        ({"compute": 75, "memory": 75}, "memory_bound"),
        ({"compute": 59.9, "memory": 59.9}, "latency_bound"),
        ({"compute": 0, "memory": 0}, "latency_bound"),
        ({"compute": 10, "memory": 10, "duration": 4999.9}, "launch_bound"),
        ({"compute": 10, "memory": 10, "duration": 4999.9, "waves": 0.99}, "launch_bound"),
        ({"compute": 10, "memory": 10, "duration": 4999.9, "waves": 1}, "latency_bound"),
        ({"compute": 10, "memory": 10, "duration": 5000, "waves": 0.5}, "latency_bound"),
        ({"compute": 10, "memory": 60, "duration": 1000, "waves": 0.5}, "memory_bound"),
        ({"duration": 1000, "waves": 0.5}, "launch_bound"),
        ({"duration": 9000, "waves": 0.5}, None),
        ({"compute": 90}, None),
        ({"memory": 90}, None),
        ({"compute": 30, "dram": 70}, "memory_bound"),  # one level of memory stands for all
        ({"compute": 65, "dram": 30, "l2": 70}, "memory_bound"),
        ({}, None),
    ],
)
def test_the_rules(known: dict[str, float], kind: str | None) -> None:
    verdict = judged(**known)
    assert verdict.kind == kind
    assert (verdict.reason is None) == (kind is not None)
    assert (verdict.limiter is None) == (kind is None)
    assert verdict.recommendation


@pytest.mark.parametrize(("compute", "at_limit"), [(80, False), (80.1, True)])
def test_above_eighty_percent_a_kernel_is_at_its_limit(compute: float, at_limit: bool) -> None:
    verdict = judged(compute=compute, memory=5)
    assert verdict.at_limit is at_limit
    assert verdict.recommendation.startswith("At its limit. ") is at_limit


def test_the_reason_names_what_is_missing() -> None:
    both = f"{samples.COMPUTE} and {samples.MEMORY} have no value in the report"
    assert judged().reason == both
    assert judged(memory=50).reason == f"{samples.COMPUTE} has no value in the report"
    assert judged(compute=50).reason == f"{samples.MEMORY} has no value in the report"


@pytest.mark.parametrize(
    ("known", "limiter", "advice"),
    [
        ({"memory": 83, "dram": 83}, "DRAM bandwidth 83 % of peak", "coalesced"),
        ({"memory": 83, "dram": 40, "l2": 82.9}, "L2 cache bandwidth 83 % of peak", "tile"),
        ({"memory": 83, "dram": 40, "l2": 50, "l1": 83}, "L1 cache bandwidth 83 % of peak", "bank conflicts"),
        ({"memory": 83, "dram": 40}, "memory 83 % of peak", "fewer bytes"),
        ({"compute": 70, "memory": 1}, "SM throughput 70 % of peak", "fewer instructions"),
        ({"compute": 70, "memory": 1, "tensor": 69}, "tensor pipe 69 % of peak", "smaller type"),
        ({"compute": 70, "memory": 1, "tensor": 30}, "SM throughput 70 % of peak", "tensor cores"),
        ({"memory": 9, "waves": 0.03, "sms": 132, "grid": 4}, "grid of 4 blocks on 132 SMs: 0.03 waves", "more blocks"),
        ({"memory": 9, "waves": 0.5, "sms": 1, "grid": 1}, "grid of 1 block on 1 SM: 0.50 waves", "more blocks"),
        ({"memory": 9, "waves": 0.5}, "grid: 0.50 waves", "more blocks"),
        (
            {"memory": 9, "waves": 4, "registers": 2, "shared": 8, "warps": 8, "resident": 32, "possible": 25},
            "registers limit occupancy to 25 %",
            "fewer registers",
        ),
        ({"memory": 9, "registers": 2, "warps": 8}, "registers limit occupancy", "fewer registers"),
        ({"memory": 9, "shared": 1, "warps": 8, "possible": 12}, "shared memory limits occupancy to 12 %", "less"),
        (
            {"memory": 9, "resident": 32, "warps": 64, "possible": 50},
            "the number of blocks on an SM limits occupancy to 50 %",
            "larger blocks",
        ),
        ({"memory": 9, "registers": 2, "warps": 2}, "stalls: compute 0 % and memory 9 % of peak", "independent work"),
        ({"memory": 9, "registers": 2}, "stalls: compute 0 % and memory 9 % of peak", "independent work"),
        ({"memory": 9, "registers": 7, "warps": 8, "possible": 88}, "stalls: compute 0 % and memory 9 % of peak", ""),
        ({"memory": 9, "occupancy": 20, "possible": 75}, "achieved occupancy 20 % of 75 % possible", "evenly"),
        ({"memory": 9, "occupancy": 70, "possible": 75}, "stalls: compute 0 % and memory 9 % of peak", "stalls"),
        ({"duration": 2300, "memory": 1}, "2.3 µs in all", "Launch less often"),
        ({"duration": 2300, "waves": 0.25}, "2.3 µs in all, with a grid: 0.25 waves", "CUDA graph"),
    ],
)  # fmt: skip
def test_what_limits_it_and_what_to_do(known: dict[str, float], limiter: str, advice: str) -> None:
    verdict = judged(**{"compute": 0, **known})
    assert verdict.limiter == limiter
    assert advice in verdict.recommendation


def test_waves_follow_from_blocks_and_limits() -> None:
    limits = {"registers": 4.0, "shared": 8.0, "warps": 8.0, "resident": 32.0}
    assert waves_of(metrics(sms=100, **limits), 200) == 0.5
    assert waves_of(metrics(sms=100, waves=3, **limits), 200) == 3
    assert waves_of(metrics(sms=100, **limits), None) is None
    assert waves_of(metrics(sms=0, **limits), 200) is None
    assert waves_of(metrics(sms=100, registers=4), 200) is None
    assert waves_of(metrics(sms=100, **{**limits, "shared": 0.0}), 200) is None
    assert (
        judged(4, duration=2000, sms=100, **limits).limiter
        == "2.0 µs in all, with a grid of 4 blocks on 100 SMs: 0.01 waves"
    )


OF_SINGLE = {operation(kind): count for kind, count in (("fadd", 10.0), ("fmul", 5.0), ("ffma", 100.0))}


def test_operations_and_bytes() -> None:
    reads, writes = ncu_metrics.DRAM_PARTS
    kernel = NcuKernel("k", metrics(**OF_SINGLE, **{reads: 30, writes: 13}))
    assert (kernel.flops, kernel.dram_bytes, kernel.arithmetic_intensity) == (215, 43, 5)
    whole = NcuKernel("k", metrics(**OF_SINGLE, **{"dram__bytes.sum": 860, reads: 1}))
    assert (whole.dram_bytes, whole.arithmetic_intensity) == (860, 0.25)
    assert NcuKernel("k", metrics(**OF_SINGLE, **{reads: 1})).dram_bytes is None
    assert NcuKernel("k", metrics(**OF_SINGLE, **{"dram__bytes.sum": 0})).arithmetic_intensity is None


@pytest.mark.parametrize("unit", ["sm", "smsp"])
@pytest.mark.parametrize("kind", "fhd")
def test_operations_are_counted_for_each_type_of_which_all_are_known(kind: str, unit: str) -> None:
    add, mul, fma = (operation(f"{kind}{name}", unit) for name in ("add", "mul", "fma"))
    whole = {add: 1.0, mul: 2.0, fma: 4.0}
    assert NcuKernel("k", metrics(**whole)).flops == 11
    assert NcuKernel("k", metrics(**{**whole, operation(f"{kind}add", "smsp"): 1.0})).flops == 11
    for name in whole:
        assert NcuKernel("k", metrics(**{**whole, name: math.nan})).flops is None
        assert NcuKernel("k", metrics(**{each: whole[each] for each in whole if each != name})).flops is None


def test_a_sum_of_some_operations_is_none_of_all() -> None:
    half = {operation("hadd"): math.nan, operation("hmul"): math.nan, operation("hfma"): math.nan}
    kernel = NcuKernel("k", metrics(**OF_SINGLE, **half, **{"dram__bytes.sum": 10}))
    assert (kernel.flops, kernel.arithmetic_intensity) == (None, None)
    assert NcuKernel("k", metrics(**OF_SINGLE, **dict.fromkeys(half, 1.0))).flops == 219


def test_blocks_come_from_the_grid_or_the_metric() -> None:
    assert NcuKernel("k", metrics(grid=7), grid=(2, 3, 1)).blocks == 6
    assert NcuKernel("k", metrics(grid=7)).blocks == 7
