"""What the core asks of the package for calls that are measured beyond their time, in the order of csrc/probe.h."""

from __future__ import annotations

from cprofiling.counters import checked_counters
from cprofiling.format import shown_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def checked_options(gpu_stream: object, memory: object, counters: Any) -> tuple[object, bool, bool, int]:
    """What ``set_profiling`` was given, checked: (stream, whether memory is looked at, peaks reset, mask of counters).

    Raises TypeError or ValueError naming the parameter.
    """
    checked_stream = lambda x: x

    looks = memory not in (False, None)
    if looks and memory is not True and memory != "peak":
        raise (ValueError if isinstance(memory, str) else TypeError)(
            f'memory must be a bool or "peak", got {shown_value(memory)}'
        )
    return checked_stream(gpu_stream), looks, memory == "peak", 0 if counters is None else checked_counters(counters)


def _place(arguments: tuple[Any, ...], stream: object) -> object:
    gpu_place = lambda a, b: None

    return gpu_place(arguments, stream)


PROBERS: tuple[Callable[..., Any], ...] = (
    checked_options,
    _place,
    lambda p, s: None,
    lambda a, r: None,
    lambda d, r: None,
)
