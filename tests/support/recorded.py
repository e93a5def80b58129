"""Nodes that tests record, and what they ask of recordings and traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cprofiling as cp


def profile(**options: Any) -> cp.profile:
    """A recording without PyTorch's operators, which other tests may have loaded."""
    return cp.profile(operators=False, **options)


@cp.profile_node("inner")
def inner() -> None:
    pass


@cp.profile_node("outer")
def outer() -> None:
    inner()
    with cp.record("label"):
        inner()


def names(recording: cp.profile | cp.Recording) -> list[str]:
    return [event.name for event in recording.events()]


def names_in_file(trace: Path) -> list[str]:
    """The names of the events of a trace, by their start."""
    return [event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
