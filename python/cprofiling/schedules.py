"""When a recording records: ``schedule`` and the actions that it answers with."""

from __future__ import annotations

from enum import Enum
from operator import index

from cprofiling.format import shown_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import SupportsIndex

_SHOWN_STEPS = 40


class ProfilerAction(Enum):
    """What a recording does in a step."""

    NONE = 0
    """Nothing."""
    WARMUP = 1
    """Nothing is kept, but what has to be started beforehand is started."""
    RECORD = 2
    """Record."""
    RECORD_AND_SAVE = 3
    """Record, and at the end of the step finish the cycle: its handler is called."""


class Schedule:
    """An answer to "what is to be done in step n?", in cycles; made by ``schedule``. Its str shows it step by step."""

    __slots__ = ("active", "repeat", "skip_first", "wait", "warmup")

    def __init__(self, wait: int, warmup: int, active: int, repeat: int, skip_first: int) -> None:
        self.wait = wait
        self.warmup = warmup
        self.active = active
        self.repeat = repeat
        self.skip_first = skip_first

    @property
    def cycle(self) -> int:
        """The number of steps in a cycle."""
        return self.wait + self.warmup + self.active

    def __call__(self, step: int) -> ProfilerAction:
        """What is to be done in this step; the first is step 0."""
        step -= self.skip_first
        if step < 0 or (self.repeat > 0 and step >= self.repeat * self.cycle):
            return ProfilerAction.NONE
        place = step % self.cycle
        if place < self.wait:
            return ProfilerAction.NONE
        if place < self.wait + self.warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < self.cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    def describe(self, step: int) -> str:
        """What happens in this step, in words."""
        action = self(step)
        step -= self.skip_first
        if step < 0:
            return "skipped"
        if self.repeat > 0 and step >= self.repeat * self.cycle:
            return "nothing any more"
        number, place = divmod(step, self.cycle)
        of = f" of {self.repeat}" if self.repeat > 0 else ""
        phase = {
            ProfilerAction.NONE: f"wait {place + 1} of {self.wait}",
            ProfilerAction.WARMUP: f"warmup {place - self.wait + 1} of {self.warmup}",
        }.get(action, f"record {place - self.wait - self.warmup + 1} of {self.active}")
        ready = ", then the trace is ready" if action is ProfilerAction.RECORD_AND_SAVE else ""
        return f"cycle {number + 1}{of}: {phase}{ready}"

    def __repr__(self) -> str:
        return (
            f"schedule(wait={self.wait}, warmup={self.warmup}, active={self.active}, repeat={self.repeat}, "
            f"skip_first={self.skip_first})"
        )

    def __str__(self) -> str:
        return "\n".join([repr(self), *self._lines()])

    def _lines(self) -> Iterator[str]:
        cycles = self.repeat if self.repeat > 0 else 2
        last = self.skip_first + cycles * self.cycle
        for step in range(min(last, _SHOWN_STEPS)):
            yield f"  step {step}: {self.describe(step)}"
        if last > _SHOWN_STEPS:
            yield f"  ... up to step {last - 1}"
        if self.repeat > 0:
            yield f"  from step {last} on: nothing any more"
        else:
            yield "  and so on, until the recording is stopped"


def schedule(
    wait: SupportsIndex,
    warmup: SupportsIndex,
    active: SupportsIndex,
    repeat: SupportsIndex = 0,
    skip_first: SupportsIndex = 0,
) -> Schedule:
    """Record in cycles: leave ``wait`` steps out, warm up for ``warmup`` steps, record ``active`` steps.

    A step ends with each ``prof.step()``; the first, step 0, begins with the recording.

    wait, warmup: steps, >= 0. active: steps, >= 1.
    repeat: cycles, >= 0; 0 goes on until the recording is stopped.
    skip_first: steps before the first cycle, >= 0.

    ``print(schedule(...))`` shows what will happen, step by step. Raises TypeError for what is no integer, ValueError
    for what is too small; both name the parameter.
    """
    return Schedule(
        _count("wait", wait, 0),
        _count("warmup", warmup, 0),
        _count("active", active, 1),
        _count("repeat", repeat, 0),
        _count("skip_first", skip_first, 0),
    )


def _count(parameter: str, value: SupportsIndex, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{parameter} must be an integer, got {shown_value(value)}")
    number = index(value)
    if number < least:
        raise ValueError(f"{parameter} must be >= {least}, got {number}")
    return number
