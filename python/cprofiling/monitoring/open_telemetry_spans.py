"""Spans of recordings for OpenTelemetry, with their own ids."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from cprofiling._internal import arguments
from cprofiling._internal.optional import imported, own_version
from cprofiling._internal.row_kinds import CUT, NODE, OUTCOMES, UNFINISHED
from cprofiling._internal.text import shown_value
from cprofiling.monitoring.node_totals import exportable
from cprofiling.recording.columns import Recording, column, has, thread_number
from cprofiling.recording.result import Reports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.trace.export import SpanExporter

    from cprofiling.recording.profile import profile

_BATCH = 512  # spans that an exporter is given at a time, as the SDK does
_ERROR = OUTCOMES.index("error")
_COLUMNS = (
    "kind", "name", "stage", "track", "span", "parent_span", "trace_high", "trace_low", "start_ns", "end_ns", "outcome",
    "flags",
)  # fmt: skip


def open_telemetry_spans(recording: Recording | profile, *, resource: Resource | None = None) -> Iterator[ReadableSpan]:
    """Yield a recording's spans, nodes, labelled blocks and others with ids.

    They have the recording's trace, span and parent ids, times and names; attributes ``node`` (of nodes), ``stage``,
    ``thread.id`` and ``thread.name``; and ``outcome`` unless a call simply ended: ``error``, ``cancelled``,
    ``unfinished`` at the end of the recording, or ``cut`` by a pause. Errors have status ERROR; that of others is not
    set. A lone surrogate becomes a backslash escape. Operators and device work have no ids, and are left out.

    OpenTelemetry's API makes ids itself; spans of the past with given ids are the SDK's ``ReadableSpan``. So this needs
    opentelemetry-sdk, which every exporter has.

    recording: a Recording, or a ``profile`` that has one. Times of a loaded trace are those of the file. resource:
    source of the spans; default: that of the global tracer provider, or of the environment.

    Raises:
        ImportError: opentelemetry-sdk is not installed.
        TypeError: An argument is of another kind.
        RuntimeError: The ``profile`` has no recording yet.
    """
    if not isinstance(recording, Reports):
        raise TypeError(f"recording must be a Recording, or a profile that has one, got {shown_value(recording)}")
    sdk = imported("opentelemetry.sdk.trace", install="opentelemetry-sdk")
    if resource is None:
        resource = getattr(sdk.trace_api.get_tracer_provider(), "resource", None) or sdk.Resource.create()
    arguments.member("resource", resource, sdk.Resource)
    return _spans(sdk, resource, recording._finished())


def export_spans(
    recording: Recording | profile, exporter: SpanExporter | SpanProcessor, *, resource: Resource | None = None
) -> int:
    """Export a recording's spans (``open_telemetry_spans``), and count them.

    exporter: a ``SpanExporter``, called here with 512 spans at a time and left open; or a ``SpanProcessor`` such as the
    program's, which exports on its own and may drop spans beyond its queue. recording, resource: see there.

    Returns the number of spans taken.

    Raises:
        ImportError: opentelemetry-sdk is not installed.
        TypeError: An argument is of another kind.
        RuntimeError: The ``profile`` has no recording yet.
    """
    spans = open_telemetry_spans(recording, resource=resource)
    on_end, export = getattr(exporter, "on_end", None), getattr(exporter, "export", None)
    taken = 0
    if callable(on_end):
        for span in spans:
            on_end(span)
            taken += 1
    elif callable(export):
        while batch := tuple(islice(spans, _BATCH)):
            taken += len(batch) if getattr(export(batch), "name", "") == "SUCCESS" else 0
    else:
        raise TypeError(f"exporter must be a SpanExporter or a SpanProcessor, got {shown_value(exporter)}")
    return taken


def _spans(sdk: Any, resource: Resource, recording: Recording) -> Iterator[ReadableSpan]:
    """Yield the spans of a recording by their start."""
    from opentelemetry import trace
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    if not has(recording, "span"):
        return
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    scope = InstrumentationScope("cprofiling", own_version())
    none, error = trace.Status(), trace.Status(trace.StatusCode.ERROR)
    texts = recording.strings
    threads: list[dict[str, str | int]] = []
    for track in recording.tracks:
        number, thread = thread_number(track), track[6]
        threads.append({"thread.id": number} if isinstance(number, int) else {})  # not a text that stands for one
        if thread:
            threads[-1]["thread.name"] = exportable(thread)
    for kind, name, stage, track, span, parent, high, low, start, end, outcome, flags in zip(
        *(column(recording, name) for name in _COLUMNS), strict=True
    ):
        if not span:
            continue
        attributes = dict(threads[track])
        if kind == NODE:
            attributes["node"] = exportable(texts[name])
        if texts[stage]:
            attributes["stage"] = exportable(texts[stage])
        if flags & (UNFINISHED | CUT):
            attributes["outcome"] = "unfinished" if flags & UNFINISHED else "cut"
        elif outcome:
            attributes["outcome"] = OUTCOMES[outcome]
        context, above = (
            trace.SpanContext(high << 64 | low, each, is_remote=False, trace_flags=sampled) if each else None
            for each in (span, parent)
        )
        yield sdk.ReadableSpan(
            exportable(texts[name]),
            context,
            above,
            attributes=attributes,
            status=error if outcome == _ERROR else none,
            start_time=max(start, 0),  # since 1970, which is where OpenTelemetry begins
            end_time=max(end, 0),
            resource=resource,
            instrumentation_scope=scope,
        )
