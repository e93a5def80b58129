"""Schedules of recordings, and their actions."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from cprofiling._internal import arguments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import SupportsIndex

_SHOWN_LINES = 40
_SHOWN_CYCLES = 2  # of one that goes on
_SHOWN_SINGLY = 8  # steps of a phase, which is one line if it has more
_PARAMETERS = ("wait", "warmup", "active", "repeat", "skip_first", "skip_first_wait")
_OVER = "nothing any more"


class ProfilerAction(Enum):
    """Action of a recording in one step."""

    NONE = 0
    """Nothing."""
    WARMUP = 1
    """Nothing is kept, but what has to be started beforehand is started."""
    RECORD = 2
    """Record."""
    RECORD_AND_SAVE = 3
    """Record, and at the end of the step finish the cycle: its handler is called."""


class Schedule:
    """Action for each step, in cycles, made by ``schedule``.

    Its str shows it step by step.
    """

    __slots__ = (*_PARAMETERS, "__weakref__")

    def __init__(self, wait: int, warmup: int, active: int, repeat: int, skip_first: int, skip_first_wait: int) -> None:
        self.wait = wait
        self.warmup = warmup
        self.active = active
        self.repeat = repeat
        self.skip_first = skip_first
        self.skip_first_wait = skip_first_wait

    @property
    def cycle(self) -> int:
        """The number of steps in a cycle."""
        return self.wait + self.warmup + self.active

    def __call__(self, step: int) -> ProfilerAction:
        """Return the action for this step, counted from 0."""
        number, place = self._find(step)
        if number < 0 or place < self.wait:
            return ProfilerAction.NONE
        if place < self.wait + self.warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < self.cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    def describe(self, step: int) -> str:
        """Return a description of this step."""
        number, place = self._find(step)
        if number < 0:
            return "skipped" if step < self.skip_first else _OVER
        phase, first, count = self._phase(place)
        return self._words(number, phase, str(place - first + 1), count, is_last=place + 1 == self.cycle)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)}" for name in _PARAMETERS[:5])
        return f"schedule({values}{', skip_first_wait=1' if self.skip_first_wait else ''})"

    def __str__(self) -> str:
        lines = [repr(self)]
        for step, line in self._lines():
            lines.append(line)
            if len(lines) > _SHOWN_LINES and self._find(step)[0] >= 0:
                lines.append("  and so on" + (f", up to step {self._end() - 1}" if self.repeat > 0 else ""))
                break
        return "\n".join(lines)

    def _find(self, step: int) -> tuple[int, int]:
        """Return a step's cycle and place in it, from 0, or (-1, 0) outside."""
        if step < self.skip_first:
            return -1, 0
        number, place = divmod(step - self.skip_first + self._left_out, self.cycle)
        return (number, place) if self.repeat == 0 or number < self.repeat else (-1, 0)

    @property
    def _left_out(self) -> int:
        """Steps of the first cycle that are not waited for."""
        return self.wait if self.skip_first_wait else 0

    def _end(self) -> int:
        """The step after the last cycle."""
        return self.skip_first + self.repeat * self.cycle - self._left_out

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

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Lines, with the step that each begins with."""
        step = 0
        if self.skip_first > 0:
            yield 0, f"  {_steps(0, self.skip_first)}: skipped"
            step = self.skip_first
        while self.repeat > 0 or self._find(step)[0] < _SHOWN_CYCLES:
            number, place = self._find(step)
            if number < 0:
                yield step, f"  from step {step} on: {_OVER}"
                return
            phase, first, count = self._phase(place)
            if count <= _SHOWN_SINGLY:
                yield step, f"  step {step}: {self.describe(step)}"
                step += 1
            else:
                words = self._words(number, phase, f"1 to {count}", count, is_last=phase == "record")
                yield step, f"  {_steps(step, first + count - place)}: {words}"
                step += first + count - place
        yield step, "  and so on, until the recording is stopped"


def _steps(first: int, count: int) -> str:
    return f"step {first}" if count == 1 else f"steps {first} to {first + count - 1}"


def schedule(
    wait: SupportsIndex,
    warmup: SupportsIndex,
    active: SupportsIndex,
    repeat: SupportsIndex = 0,
    skip_first: SupportsIndex = 0,
    skip_first_wait: SupportsIndex = 0,
) -> Schedule:
    """Record in cycles of steps to wait, to warm up and to record.

    A step ends with each ``prof.step()``; the first, step 0, begins with the recording.

    wait, warmup: steps, >= 0. active: steps, >= 1.
    repeat: cycles, >= 0; 0 goes on until the recording is stopped.
    skip_first: steps before the first cycle, >= 0.
    skip_first_wait: >= 0; not 0: the first cycle does not wait.

    ``print(schedule(...))`` shows what will happen, step by step. Raises TypeError for what is no integer, ValueError
    for what is too small; both name the parameter.
    """
    return Schedule(
        arguments.index_between("wait", wait, 0),
        arguments.index_between("warmup", warmup, 0),
        arguments.index_between("active", active, 1),
        arguments.index_between("repeat", repeat, 0),
        arguments.index_between("skip_first", skip_first, 0),
        arguments.index_between("skip_first_wait", skip_first_wait, 0),
    )
