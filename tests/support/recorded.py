"""Nodes that tests record, and what they ask of recordings and traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cprofiling as cp
from cprofiling.recording.result import Event

# Names that JSON, pages and parsers may stumble over.
STRANGE = (
    'quote " and \\ and /', "control \x01\x1f\x7f \t\r\n", "line \u2028 and \u2029", "emoji \U0001f600, \u6f22\u5b57",
    "flag \U0001f1e6\U0001f1f9", "lone \udcff and \ud800", "</script><b>", "", "x" * 4096,
)  # fmt: skip


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


def check_nesting(events: list[Event]) -> None:
    """Each event is there once, and inside its parent, if that was kept, on the same thread."""
    spans = {event.span_id: event for event in events if event.span_id is not None}
    assert len(spans) == sum(event.span_id is not None for event in events)
    by_row = {event.row: event for event in events}
    for event in events:
        assert event.start <= event.end
        if event.parent_span_id in spans:
            assert event.parent == spans[event.parent_span_id].row
        parent = None if event.parent is None else by_row.get(event.parent)
        if parent is not None:
            assert (parent.thread_id, parent.start <= event.start, event.end <= parent.end) == (
                event.thread_id,
                True,
                True,
            )
            assert event.trace_id is None or parent.trace_id == event.trace_id


def names_in_file(trace: Path) -> list[str]:
    """The names of the events of a trace, by their start."""
    return [event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
