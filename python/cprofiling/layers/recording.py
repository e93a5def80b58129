"""Recording of one use of a stage, with its breakdown and its files."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cprofiling._internal import arguments, environment, log
from cprofiling._internal.text import checked_text, file_name_of
from cprofiling.analysis.grouping import key_averages
from cprofiling.layers import output_folder
from cprofiling.recording.columns import RUNTIME, column, texts_of
from cprofiling.recording.profile import profile
from cprofiling.recording.traces import chrome_writer

if TYPE_CHECKING:
    from cprofiling.recording.result import Reports

MOST_KERNELS = 50
STAND_IN = "no work of a device was recorded: operators of the host stand in for kernels, with the time of their own"
NOTHING = "nothing was recorded that takes time: neither work of a device nor operators of the host"

_DIGITS = 6  # of milliseconds: nanoseconds
_PYTHON = "python_function"


def options() -> dict[str, Any]:
    """Return the options of recordings from the environment."""
    return {
        "record_shapes": environment.boolean(environment.SHAPES, default=True),
        "profile_memory": environment.boolean(environment.MEMORY, default=True),
        "with_stack": environment.boolean(environment.STACK, default=True),
    }


class StageRecording:
    """A recording that runs from the start of a stage to its end.

    Attributes:
        profile: What records.
    """

    chosen = options()  # read once: a value that makes no sense is warned of once

    def __init__(self, name: str, prof: profile) -> None:
        self._name = name
        self.profile = prof
        self._process = os.getpid()

    @classmethod
    def begin(cls, name: str) -> StageRecording | None:
        """Start a recording, or log a line where another one runs."""
        prof = profile(**cls.chosen)
        try:
            prof.start()
        except RuntimeError as error:
            log.complain(f"[Profiler] {name!a} is not recorded: {error}")
            return None
        return cls(name, prof)

    def end(self, rank: int) -> None:
        """Stop, and write trace and breakdown. Raises OSError.

        In a forked child there is nothing to do: the recording is its parent's.
        """
        if os.getpid() != self._process:
            return
        self.profile.stop()
        recording = self.profile.recording
        trace, stem = output_folder.reserved(
            output_folder.folder(), f"{file_name_of(self._name)}_rank{rank}", ".trace.json.gz"
        )
        try:
            chrome_writer.export_to_path(recording, trace, compress=True)
        except BaseException:
            with suppress(OSError):
                os.unlink(trace)
            raise
        log.say(f"[Profiler] Chrome trace saved to: {trace}")
        path = trace.with_name(f"{stem}.breakdown.json")
        output_folder.write_json(path, breakdown_of(recording, self._name, rank))
        log.say(f"[Profiler] Kernel breakdown saved to: {path}")


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
