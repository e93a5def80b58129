"""Find the limit of a kernel from the metrics that ncu measured.

The rules, in this order. "Compute" is the throughput of the SMs and "memory" that of caches and device memory, both in
percent of their peak ("speed of light"), as ncu's section of that name has them:

* ``launch_bound``: the kernel takes less than 5 µs, it fills less than one wave of blocks (or that is not known), and
  neither throughput is known to reach 60 %. To launch a kernel takes the host some microseconds, so that a device with
  such kernels waits for the host, whatever happens inside them.
* None, with a reason: one of the two throughputs is not in the report. For memory's own, the largest of DRAM's, L2's
  and L1's will do.
* ``latency_bound``: both are below 60 %, ncu's own limit for "neither is used well": the kernel waits. Less than one
  wave, registers, shared memory or small blocks that limit the occupancy, or warps that stall, in this order, are why.
* ``memory_bound`` or ``compute_bound``: the larger of the two names it, memory where they are equal. Above 80 % it is
  at its limit: the same work cannot become much faster, only less work can.

Gaps between kernels tell nothing here: ncu runs kernels one by one, and each several times. That a program as a whole
waits for launches shows in a recording: the time between GPU events of a node far above the sum of its kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from cprofiling.devices.nsight import metrics as ncu_metrics
from cprofiling.devices.nsight.metrics import Metrics

MEMORY_BOUND, COMPUTE_BOUND, LATENCY_BOUND, LAUNCH_BOUND = (
    "memory_bound", "compute_bound", "latency_bound", "launch_bound",
)  # fmt: skip

_GOOD = 60.0  # percent of peak from which a unit is used well
_LIMIT = 80.0  # and above which it is at its limit
_SHORT_NS = 5_000.0
_FULL_OCCUPANCY = 60.0  # percent, from which occupancy is seldom what latency comes from
_LEVELS = {"DRAM": ncu_metrics.DRAM, "L2 cache": ncu_metrics.L2, "L1 cache": ncu_metrics.L1}
_NEAR = 0.95  # a part of the whole that is as good as all of it

_USE_LESS = "Move fewer bytes: fuse kernels, keep values in registers and shared memory, use smaller types."
_RECOMMENDATIONS = {
    "launch": "Launch less often: fuse kernels, put more work into each, or capture them in a CUDA graph.",
    "waves": "Give the device more blocks: larger batches, smaller blocks, or work split along another axis.",
    "registers": "Use fewer registers per thread (__launch_bounds__, --maxrregcount, shorter-lived values), "
    "or smaller blocks.",
    "shared memory": "Use less shared memory per block, or let each block do more with it.",
    "the number of blocks on an SM": "Use larger blocks, so that those that fit on an SM fill its warps.",
    "barriers": "Use fewer named barriers per block.",
    "imbalance": "Blocks and warps end at different times: divide the work more evenly, or use smaller blocks.",
    "stalls": "Warps wait: have more independent work in flight per thread, fewer barriers and dependent loads; "
    "ncu --set full tells which stalls.",
    "DRAM": f"{_USE_LESS} Check that accesses are coalesced.",
    "L2 cache": "Reuse more in shared memory and registers, and tile so that what a block reads is read once.",
    "L1 cache": "Access shared memory without bank conflicts, global memory coalesced, with wider loads.",
    "memory": _USE_LESS,
    "tensor pipe": "The tensor cores are busy: only fewer operations or a smaller type make it faster.",
    "SM": "Do fewer instructions: tensor cores where they apply, cheaper operations, smaller types, less index "
    "arithmetic.",
}


@dataclass(frozen=True)
class Verdict:
    """Limit of a kernel.

    Attributes:
        kind: ``memory_bound``, ``compute_bound``, ``latency_bound`` or ``launch_bound``; None if that is not known.
        reason: Why it is not known; None if it is.
        limiter: What limits it, with figures; None if that is not known.
        recommendation: What to do about it; without a verdict, how to get one.
        at_limit: Whether memory or compute is used to more than 80 % of its peak.
    """

    kind: str | None
    reason: str | None
    limiter: str | None
    recommendation: str
    at_limit: bool = False


def waves_of(metrics: Metrics, blocks: float | None) -> float | None:
    """Return how often the grid fills the device, computed if not reported."""
    waves = metrics.first(ncu_metrics.WAVES)
    processors = metrics.first(ncu_metrics.PROCESSORS)
    if waves is not None or blocks is None or not processors:
        return waves
    limits = _limits(metrics)
    resident = min(limits.values()) if len(limits) >= len(ncu_metrics.LIMITS) - 1 else 0.0  # barriers are new
    return blocks / (processors * resident) if resident > 0 else None


def memory_of(metrics: Metrics) -> float | None:
    """Return used memory throughput in percent, of known levels if need be."""
    whole = metrics.first(ncu_metrics.MEMORY)
    levels = [value for names in _LEVELS.values() if (value := metrics.first(names)) is not None]
    return max(levels, default=None) if whole is None else whole


def verdict_of(metrics: Metrics, blocks: float | None = None) -> Verdict:
    """Return the limit of a kernel with these metrics, by the rules above.

    blocks: blocks in its grid, or None.
    """
    compute, memory = metrics.first(ncu_metrics.COMPUTE), memory_of(metrics)
    waves = waves_of(metrics, blocks)
    duration_ns = metrics.first(ncu_metrics.DURATION)
    most = max((each for each in (compute, memory) if each is not None), default=0.0)
    if duration_ns is not None and duration_ns < _SHORT_NS and (waves is None or waves < 1) and most < _GOOD:
        where = "" if waves is None else f", with a {_grid_text(metrics, blocks, waves)}"
        return _judged(LAUNCH_BOUND, f"{duration_ns / 1000:.1f} µs in all{where}", "launch")
    if compute is None or memory is None:
        known = {ncu_metrics.COMPUTE[0]: compute, ncu_metrics.MEMORY[0]: memory}
        missing = [name for name, value in known.items() if value is None]
        reason = f"{' and '.join(missing)} {'has' if len(missing) == 1 else 'have'} no value in the report"
        return Verdict(None, reason, None, "Profile with ncu --set basic, or with its section SpeedOfLight.")
    if most < _GOOD:
        limiter, why = _latency(metrics, blocks, waves, (compute, memory))
        return _judged(LATENCY_BOUND, limiter, why)
    at_limit = most > _LIMIT
    if memory >= compute:
        values = {level: metrics.first(names) or 0.0 for level, names in _LEVELS.items()}
        level = max(values, key=values.__getitem__)
        if values[level] < memory * _NEAR:
            return _judged(MEMORY_BOUND, f"memory {memory:.0f} % of peak", "memory", at_limit)
        return _judged(MEMORY_BOUND, f"{level} bandwidth {values[level]:.0f} % of peak", level, at_limit)
    tensor = metrics.first(ncu_metrics.TENSOR) or 0.0
    if tensor >= compute * _NEAR:
        return _judged(COMPUTE_BOUND, f"tensor pipe {tensor:.0f} % of peak", "tensor pipe", at_limit)
    return _judged(COMPUTE_BOUND, f"SM throughput {compute:.0f} % of peak", "SM", at_limit)


def _judged(kind: str, limiter: str, why: str, at_limit: bool = False) -> Verdict:
    recommendation = _RECOMMENDATIONS[why]
    return Verdict(kind, None, limiter, f"At its limit. {recommendation}" if at_limit else recommendation, at_limit)


def _latency(metrics: Metrics, blocks: float | None, waves: float | None, used: tuple[float, float]) -> tuple[str, str]:
    """Return the cause of a kernel's waiting, and the key of its advice."""
    if waves is not None and waves < 1:
        return _grid_text(metrics, blocks, waves), "waves"
    achieved, possible = metrics.first(ncu_metrics.OCCUPANCY), metrics.first(ncu_metrics.MOST_OCCUPANCY)
    limits = _limits(metrics)
    limit = min(limits, key=limits.__getitem__, default="")
    if limits.get(limit, 0.0) < limits.get("warps", 0.0) and (possible is None or possible < _FULL_OCCUPANCY):
        to = "" if possible is None else f" to {possible:.0f} %"
        verb = "limit" if limit.endswith("s") else "limits"
        return f"{limit} {verb} occupancy{to}", limit
    if achieved is not None and possible is not None and achieved < _FULL_OCCUPANCY <= possible:
        return f"achieved occupancy {achieved:.0f} % of {possible:.0f} % possible", "imbalance"
    compute, memory = used
    return f"stalls: compute {compute:.0f} % and memory {memory:.0f} % of peak", "stalls"


def _grid_text(metrics: Metrics, blocks: float | None, waves: float) -> str:
    blocks = metrics.first(ncu_metrics.GRID) if blocks is None else blocks
    processors = metrics.first(ncu_metrics.PROCESSORS)
    size = "" if blocks is None else f" of {_counted(blocks, 'block')}"
    place = "" if processors is None else f" on {_counted(processors, 'SM')}"
    return f"grid{size}{place}: {waves:.2f} waves"


def _counted(count: float, noun: str) -> str:
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def _limits(metrics: Metrics) -> dict[str, float]:
    """Return the number of blocks that an SM holds at once, by limit."""
    values = {what: metrics.first(names) for what, names in ncu_metrics.LIMITS.items()}
    return {what: value for what, value in values.items() if value is not None}
