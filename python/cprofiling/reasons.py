"""Why figures of a summary are missing or uncertain, in sentences."""

from __future__ import annotations

from cprofiling import _core
from cprofiling.asked import COUNTER_SHIFT, COUNTERS, GPU, LAUNCHES, MEMORY
from cprofiling.device_memory import memory_reason, peak_reason
from cprofiling.device_wait import wait_reason
from cprofiling.snapshot import lost_reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cprofiling.extras import NodeMemory
    from cprofiling.stats import NodeProfilingStats


def reasons_beyond(asked: int, note: str | None, stats: Iterable[NodeProfilingStats]) -> tuple[str, ...]:
    """Why figures beyond times are missing, one sentence each, for what a Profiler asks for (bits as in the core).

    ``note``: what a device has said of itself, or None.
    """
    reasons: list[str | None] = []
    if asked & GPU and any(row.gpu_reason is not None for row in stats):
        reasons += [_core.gpu_time_reason(), note]
    if asked & LAUNCHES:
        reasons.append(_core.cupti_reason())
    if asked & MEMORY and any(row.memory is not None and row.memory.device is None for row in stats):
        reasons.append(memory_reason())
    if asked & MEMORY and any(_lacks_peak(row.memory) for row in stats):
        reasons.append(peak_reason())
    if asked & COUNTERS:
        wanted = asked >> COUNTER_SHIFT
        reasons += [
            f"the counter {name} is not to be had: {reason}"
            for at, (name, _, reason) in enumerate(_core.perf_status())
            if reason is not None and wanted >> at & 1
        ]
    return tuple(dict.fromkeys(filter(None, reasons)))


def _lacks_peak(memory: NodeMemory | None) -> bool:
    return memory is not None and memory.device is not None and memory.device.peak is None


def reasons_of(lost: int, unread: int, refused: int) -> tuple[str, ...]:
    """Why figures are less certain, or features off: what a reader of the summary should know."""
    name, refusal = _core.clock()
    backward = _core.clock_backward()
    gpu = _core.gpu_reason()
    reasons = []
    if refusal is not None:
        reasons.append(f"the clock is {name}, as {refusal}")
    if backward:
        reasons.append(f"the clock went backwards {backward} times; these calls count as 0 ns")
    if gpu is not None:
        reasons.append(gpu)
    not_waited = wait_reason()
    if not_waited is not None:
        reasons.append(not_waited)
    if lost:
        reasons.append(lost_reason(lost))
    if unread:
        reasons.append(f"{unread} keys or more are missing, as a thread has stopped in the middle of an update")
    if refused:
        reasons.append("there are more keys than a Profiler keeps; calls of the others are __overflow__ of their stage")
    return tuple(reasons)
