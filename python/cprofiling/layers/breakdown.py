"""Breakdown of a stage by the time of its kernels or operators."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cprofiling._internal import arguments
from cprofiling._internal.text import checked_text
from cprofiling.analysis.grouping import key_averages
from cprofiling.recording.columns import RUNTIME, column, texts_of

if TYPE_CHECKING:
    from typing import Any

    from cprofiling.recording.result import Reports

MOST_KERNELS = 50
STAND_IN = "no work of a device was recorded: operators of the host stand in for kernels, with the time of their own"
NOTHING = "nothing was recorded that takes time: neither work of a device nor operators of the host"

_DIGITS = 6  # of milliseconds: nanoseconds
_PYTHON = "python_function"


def breakdown_of(recording: Reports, name: str, rank: int | None = None) -> dict[str, Any]:
    """Return the names that took the most time in a recording.

    Args:
        recording: The recording, or the ``profile`` that made it.
        name: The stage's name, verbatim.
        rank: The process's rank, 0 or more; None: it has none, and the breakdown no key ``rank``.

    Returns:
        ``name``, ``rank`` if it is given, ``total_kernel_time_ms``, ``num_kernels`` (how many have different names),
        and ``top_kernels``: the 50 that took the most time, each with ``name``, ``ms``, ``cuda_ms`` (on a device) and
        ``cpu_ms`` (on the host). Kernels, copies and settings of memory count; what ran at the same time is added up.
        Where the recording has no work of a device, operators of the host stand in, each with its self time, which
        ``note`` says. ``dropped`` is there if events are missing from the figures: how many.

    Raises TypeError for a name that is no str and a rank that is no integer, ValueError for one below 0.
    """
    text = checked_text("name", name)
    finished = recording._finished()  # noqa: SLF001 what all reports ask
    averages = key_averages(finished)
    rows = [_row(each.key, each.self_device_time_total, 0.0) for each in averages if each.is_device_work]
    note = None
    if not rows:
        # Python frames and calls of a device's runtime are no operators.
        cats = texts_of(finished, _PYTHON, *RUNTIME)
        names = zip(column(finished, "cat"), column(finished, "name"), strict=True)
        other = {finished.strings[name] for name in {name for cat, name in names if cat in cats}} if cats else set()
        rows = [
            _row(each.key, 0.0, each.self_cpu_time_total)
            for each in averages
            if each.device_type == "cpu" and not each.is_user_annotation and each.key not in other
        ]
        note = STAND_IN if rows else NOTHING
    rows.sort(key=lambda row: (-row["ms"], row["name"]))
    found: dict[str, Any] = {"name": text}
    if rank is not None:
        found["rank"] = arguments.index_between("rank", rank, 0)
    found["total_kernel_time_ms"] = round(math.fsum(row["ms"] for row in rows), _DIGITS)
    found["num_kernels"] = len(rows)
    found["top_kernels"] = rows[:MOST_KERNELS]
    if note is not None:
        found["note"] = note
    if finished.dropped:
        found["dropped"] = finished.dropped
    return found


def _row(name: str, device_us: float, host_us: float) -> dict[str, Any]:
    device_ms, host_ms = round(device_us / 1e3, _DIGITS), round(host_us / 1e3, _DIGITS)
    return {"name": name, "ms": max(device_ms, host_ms), "cuda_ms": device_ms, "cpu_ms": host_ms}
