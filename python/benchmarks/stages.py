"""The contexts of stages, which are always on, and the one that is on for debugging only."""

from __future__ import annotations

import importlib
from typing import Any

from .candidates import BARE, cprofiling, new_function, own, plain
from .harness import LOOP_ONLY, Workload

PYTHON_WITH = "empty Python with"
PYTHON_WITH_NEW = "empty Python with, made for each"
STAGE_WITH = "cprofiling ProfilingContext, one object"
STAGE_WITH_NEW = "cprofiling ProfilingContext, made for each"
STAGE_DECORATOR = "cprofiling ProfilingContext, as decorator"
IDLE_WITH = "cprofiling ProfilingContextDebug, off, one object"
IDLE_WITH_NEW = "cprofiling ProfilingContextDebug, off, made for each"
IDLE_DECORATOR = "cprofiling ProfilingContextDebug, off, as decorator"


class EmptyContext:
    """The least that a context manager with a label costs which is written in Python."""

    def __init__(self, label: str) -> None:
        """Keep the label."""
        self.label = label

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Do nothing."""


def layers() -> Any:
    """Return ``cprofiling.layers``; logging is as Python has it, off for INFO."""
    return importlib.import_module(f"{cprofiling().__name__}.layers")


@plain.add(PYTHON_WITH, baseline=LOOP_ONLY)
def python_with() -> Workload:
    """An empty context manager in Python."""
    return Workload("with c: pass", {"c": EmptyContext("stage")})


@plain.add(PYTHON_WITH_NEW, baseline=LOOP_ONLY)
def new_python_with() -> Workload:
    """The same, made for each block, as stages are in programs."""
    return Workload("with label('stage'): pass", {"label": EmptyContext})


@own.add(STAGE_WITH, baseline=LOOP_ONLY)
def stage_with() -> Workload:
    """A stage."""
    return Workload("with c: pass", {"c": layers().ProfilingContext("stage")})


@own.add(STAGE_WITH_NEW, baseline=LOOP_ONLY)
def new_stage_with() -> Workload:
    """A stage whose context is made for each block."""
    return Workload("with stage('stage'): pass", {"stage": layers().ProfilingContext})


@own.add(STAGE_DECORATOR, baseline=BARE)
def stage_decorator() -> Workload:
    """A decorated function, which is given nothing."""
    return Workload("f()", {"f": layers().ProfilingContext("stage")(new_function())})


@own.add(IDLE_WITH, baseline=LOOP_ONLY)
def idle_with() -> Workload:
    """A stage for debugging, off."""
    return Workload("with c: pass", {"c": layers().ProfilingContextDebug("stage")})


@own.add(IDLE_WITH_NEW, baseline=LOOP_ONLY)
def new_idle_with() -> Workload:
    """The same, made for each block."""
    return Workload("with stage('stage'): pass", {"stage": layers().ProfilingContextDebug})


@own.add(IDLE_DECORATOR, baseline=BARE)
def idle_decorator() -> Workload:
    """A function decorated for debugging: the very same object."""
    return Workload("f()", {"f": layers().ProfilingContextDebug("stage")(new_function())})
