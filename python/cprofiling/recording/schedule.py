"""Schedules of recordings, and their actions."""

from __future__ import annotations

from enum import Enum
from typing import SupportsIndex

from cprofiling._internal.arguments import index, index_between

_SHOWN_LINES = 40
_SHOWN_CYCLES = 2  # of one that goes on
_SHOWN_SINGLY = 8  # steps of a phase, which is one line if it has more
_OVER = "nothing any more"


class ProfilerAction(Enum):
    """Action of a recording in one step."""

    NONE = 0
    """Nothing."""
    WARMUP = 1
    """Nothing is kept, but sources are started beforehand."""
    RECORD = 2
    """Record."""
    RECORD_AND_SAVE = 3
    """Record, and at the end of the step finish the cycle: its handler is called."""


_ACTIONS = {"wait": ProfilerAction.NONE, "warmup": ProfilerAction.WARMUP, "record": ProfilerAction.RECORD}


class schedule:  # noqa: N801 named as others name theirs
    """Record in cycles of steps to wait, to warm up and to record.

    A step ends with each ``prof.step()``; the first, step 0, begins with the recording. ``print(schedule(...))`` shows
    each step's action.

    Args:
        wait: Steps, >= 0.
        warmup: Steps, >= 0.
        active: Steps, >= 1.
        repeat: Cycles, >= 0; 0 goes on until the recording is stopped.
        skip_first: Steps before the first cycle, >= 0.
        skip_first_wait: >= 0; not 0: the first cycle does not wait.

    Attributes:
        cycle: The number of steps in a cycle.

    Raises TypeError or ValueError, naming the parameter.
    """

    def __init__(
        self,
        wait: SupportsIndex,
        warmup: SupportsIndex,
        active: SupportsIndex,
        repeat: SupportsIndex = 0,
        skip_first: SupportsIndex = 0,
        skip_first_wait: SupportsIndex = 0,
    ) -> None:
        self.wait = index_between("wait", wait, 0)
        self.warmup = index_between("warmup", warmup, 0)
        self.active = index_between("active", active, 1)
        self.repeat = index_between("repeat", repeat, 0)
        self.skip_first = index_between("skip_first", skip_first, 0)
        self.skip_first_wait = index_between("skip_first_wait", skip_first_wait, 0)
        self.cycle = self.wait + self.warmup + self.active

    def __call__(self, step: int) -> ProfilerAction:
        """Return the action for this step, counted from 0. TypeError unless an integer."""
        number, place = self._find(index("step", step))
        if number < 0:
            return ProfilerAction.NONE
        if place == self.cycle - 1:
            return ProfilerAction.RECORD_AND_SAVE
        return _ACTIONS[self._phase(place)[0]]

    def describe(self, step: int) -> str:
        """Return a description of this step."""
        number, place = self._find(index("step", step))
        if number < 0:
            return "skipped" if step < self.skip_first else _OVER
        phase, first, count = self._phase(place)
        return self._words(number, phase, str(place - first + 1), count, is_last=place + 1 == self.cycle)

    def __repr__(self) -> str:
        names = ("wait", "warmup", "active", "repeat", "skip_first")
        values = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return f"schedule({values}{', skip_first_wait=1' if self.skip_first_wait else ''})"

    def __str__(self) -> str:
        step = self.skip_first
        lines = [repr(self), *([f"  {_steps(0, step)}: skipped"] if step > 0 else [])]
        while len(lines) <= _SHOWN_LINES:
            number, place = self._find(step)
            if number < 0:
                return "\n".join([*lines, f"  from step {step} on: {_OVER}"])
            if self.repeat == 0 and number >= _SHOWN_CYCLES:
                return "\n".join([*lines, "  and so on, until the recording is stopped"])
            phase, first, count = self._phase(place)
            if count <= _SHOWN_SINGLY:
                lines.append(f"  step {step}: {self.describe(step)}")
                step += 1
            else:
                words = self._words(number, phase, f"1 to {count}", count, is_last=phase == "record")
                lines.append(f"  {_steps(step, first + count - place)}: {words}")
                step += first + count - place
        last = self._begin + self.repeat * self.cycle - 1
        return "\n".join([*lines, "  and so on" + (f", up to step {last}" if self.repeat > 0 else "")])

    def _find(self, step: int) -> tuple[int, int]:
        """Return a step's cycle and place in it, from 0, or (-1, 0) outside."""
        if step < self.skip_first:
            return -1, 0
        number, place = divmod(step - self._begin, self.cycle)
        return (number, place) if self.repeat == 0 or number < self.repeat else (-1, 0)

    @property
    def _begin(self) -> int:
        """The step at which the first cycle would begin with its wait."""
        return self.skip_first - (self.wait if self.skip_first_wait else 0)

    def _phase(self, place: int) -> tuple[str, int, int]:
        """Return the phase of a place in a cycle, its first place and its length."""
        if place < self.wait:
            return "wait", 0, self.wait
        if place < self.wait + self.warmup:
            return "warmup", self.wait, self.warmup
        return "record", self.wait + self.warmup, self.active

    def _words(self, number: int, phase: str, place: str, count: int, *, is_last: bool) -> str:
        of = f" of {self.repeat}" if self.repeat > 0 else ""
        ready = ", then the trace is ready" if is_last else ""
        return f"cycle {number + 1}{of}: {phase} {place} of {count}{ready}"


def _steps(first: int, count: int) -> str:
    return f"step {first}" if count == 1 else f"steps {first} to {first + count - 1}"
