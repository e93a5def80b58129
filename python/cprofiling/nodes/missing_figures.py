"""Why figures of a summary are missing or uncertain, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cprofiling import _core
from cprofiling._internal.text import shown_names
from cprofiling.devices.memory import memory_reason, peak_reason
from cprofiling.devices.wait import wait_reason
from cprofiling.nodes.resources import (
    COUNTER_SHIFT,
    COUNTERS_ASKED,
    GPU,
    LAUNCHES,
    LAUNCHES_UNKNOWN,
    MEMORY,
    PEAK_UNKNOWN,
)
from cprofiling.nodes.snapshot import lost_reason

REFUSED = "there are more keys than a Profiler keeps; calls of the others are __overflow__ of their stage"
_NO_CUDA = 1  # among the causes of cprof_gpu_cause
_NOT_IN_ALL = (
    "not counted in all calls: CUPTI was not to be had then, or they were blocks in tasks outside of a profiled "
    "coroutine, where others run in the thread meanwhile"
)


def not_entered(stages: Iterable[str]) -> str:
    """Say why no node ran in the stages that were entered."""
    return (
        f"no node has run in stage {shown_names(stages)}, which was entered: new threads do not inherit cp.stage() or "
        "`with profiler`; submit contextvars.copy_context().run, or use cp.stage(..., default=True)"
    )


def reasons_beyond(rows: Iterable[Any], note: str | None) -> tuple[str, ...]:
    """Return why resource figures are missing, one sentence each."""
    known = [row.resources for row in rows if row.resources is not None]
    asked = 0
    for each in known:
        asked |= each.asked
    told: list[tuple[str, str | None]] = []
    if asked & GPU:
        causes = {cause for each in known for cause, calls in enumerate(each.gpu.missed) if calls}
        told.append(("", _core.gpu_time_reason() if causes else None))
        told.append(("", note if causes - {_NO_CUDA} else None))
    if asked & (LAUNCHES | LAUNCHES_UNKNOWN):
        told.append(("launches: ", _core.cupti_reason() or (_NOT_IN_ALL if asked & LAUNCHES_UNKNOWN else None)))
    if any(each.asked & MEMORY and each.device_memory.calls == 0 for each in known):
        told.append(("", memory_reason()))
    if asked & PEAK_UNKNOWN:
        told.append(("", peak_reason()))
    reasons = [what + reason for what, reason in told if reason]
    if asked & COUNTERS_ASKED:
        refused: dict[str, list[str]] = {}
        for at, (name, _, reason) in enumerate(_core.perf_status()):
            if reason is not None and asked >> COUNTER_SHIFT >> at & 1:
                refused.setdefault(reason, []).append(name)
        for reason, names in refused.items():
            which = f"the counter {names[0]} is" if len(names) == 1 else f"the counters {', '.join(names)} are"
            reasons.append(f"{which} not to be had: {reason}")
    return tuple(dict.fromkeys(reasons))


def reasons_of(lost: int, unread: int, refused: int) -> tuple[str, ...]:
    """Return why figures are uncertain or features off."""
    name, refusal = _core.clock()
    backward = _core.clock_backward()
    missing = f"{unread} keys or more are missing, as a thread has stopped in the middle of an update"
    reasons = (
        refusal and f"the clock is {name}, as {refusal}",
        backward and f"the clock went backwards {backward} times; these calls count as 0 ns",
        _core.gpu_reason(),
        wait_reason(),
        lost and lost_reason(lost),
        unread and missing,
        refused and REFUSED,
    )
    return tuple([reason for reason in reasons if reason])
