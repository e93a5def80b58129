"""Callbacks of the core for resource figures (``csrc/probes/probe.h``)."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import ref

from cprofiling import _core
from cprofiling._internal import arguments
from cprofiling._internal.process import call_at_fork, unkept
from cprofiling._internal.text import checked_text, shown_value
from cprofiling.devices.in_use import checked_stream, gpu_place, gpu_place_at_exit
from cprofiling.devices.memory import memory_at_entry, memory_at_exit
from cprofiling.devices.wait import device_to_wait_for, wait_for_device
from cprofiling.nodes.resources import COUNTERS

PEAK = "peak"

_is_any_asked = False


def is_any_asked() -> bool:
    """Return whether a Profiler of this process was asked for more than times."""
    return _is_any_asked


def checked_options(gpu_stream: object, memory: object, counters: Any) -> tuple[object, bool, bool, int]:
    """Return the checked options of ``set_profiling``.

    These are (stream, look at memory, reset peaks, mask of counters). Raises TypeError or ValueError naming the
    parameter.
    """
    global _is_any_asked  # noqa: PLW0603 of the process
    _is_any_asked = True
    if memory is not True and memory is not False and memory != PEAK:
        error = ValueError if isinstance(memory, str) else TypeError
        raise error(f'memory must be a bool or "peak", got {shown_value(memory)}')
    asked = 0 if counters is None else checked_counters(counters)
    return checked_stream(gpu_stream), memory is not False, memory == PEAK, asked


def checked_counters(counters: Iterable[str]) -> int:
    """Return counter names as bits in the order of ``COUNTERS``.

    Names may repeat; an empty iterable gives 0.

    Raises TypeError unless given an iterable of str (a single str is none); ValueError for an unknown name, listing the
    known ones.
    """
    if isinstance(counters, (str, bytes)) or not isinstance(counters, Iterable):
        raise TypeError(f"counters must be a tuple of names, such as ('cpu_time',), got {shown_value(counters)}")
    asked = 0
    for index, name in enumerate(counters):
        parameter = f"counters[{index}]"
        asked |= 1 << COUNTERS.index(arguments.choice(parameter, checked_text(parameter, name), COUNTERS))
    return asked


_launching: dict[int, ref[_core.Profiler]] = {}  # by their ids, until they are gone
_is_at_exit = False


def _hold_launches(profiler: _core.Profiler) -> None:
    """Tell where CUPTI may be, and release it before the interpreter ends."""
    from cprofiling.devices.cupti import library_folders

    _core.cupti_set_folders(library_folders())
    global _is_at_exit  # noqa: PLW0603 once is enough
    if not _is_at_exit:
        _is_at_exit = True
        atexit.register(unkept(_stop_launches))
    _launching[id(profiler)] = ref(profiler, partial(_launching.pop, id(profiler)))


def _stop_launches() -> None:
    for held in tuple(_launching.values()):
        profiler = held()
        if profiler is not None:
            profiler._stop_launches()


call_at_fork(after_in_child=_stop_launches)  # CUPTI is the parent's: the child's launches are not counted


PROBERS: tuple[Callable[..., Any], ...] = (
    checked_options,
    gpu_place,
    gpu_place_at_exit,
    memory_at_entry,
    memory_at_exit,
    _hold_launches,
    device_to_wait_for,
    wait_for_device,
)
