"""Convert statistics and stages to messages and back, and refuse calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc

from cprofiling._internal.text import checked_text, shown_value
from cprofiling.monitoring.server import profiling_pb2 as pb
from cprofiling.nodes.stats import ExecutionStage, NodeProfilingStats, ProfilingSummary

MOST_BYTES = 4 * 1024 * 1024  # of a message, as clients take if they are not told otherwise
_LONGEST_STAGE = 4096  # bytes, as of any stage
_NUMBERS = {
    "train": pb.EXECUTION_STAGE_TRAIN,
    "val": pb.EXECUTION_STAGE_VAL,
    "test": pb.EXECUTION_STAGE_TEST,
    "inference": pb.EXECUTION_STAGE_INFERENCE,
}
_STAGES = {number: ExecutionStage(stage) for stage, number in _NUMBERS.items()}
_KNOWN: dict[str, str] = {stage.value: stage for stage in ExecutionStage}
_FIGURES: tuple[str, ...] = (
    "count", "mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms",
)  # fmt: skip
_COUNTS = ("error_count", "cancelled_count", "skipped_count", "dropped_count")
_QUANTILES = ("p50_ms", "p99_ms")


class Refusal(Exception):  # noqa: N818 it is no error of ours
    """Ends a call with a status.

    code: a ``grpc.StatusCode``. details: a sentence for the client.
    """

    def __init__(self, code: Any, details: str) -> None:
        """Take over both."""
        super().__init__(details)
        self.code = code
        self.details = details


def stage_of(request: Any) -> str | None:
    """Return the requested stage, None for all.

    Known stages are ``ExecutionStage``, which others' pipelines may need. Raises Refusal for an unknown stage, and for
    two.
    """
    number = request.stage
    stage = _STAGES.get(number)
    if stage is None and number != pb.EXECUTION_STAGE_UNSPECIFIED:
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"stage must be an ExecutionStage, got {number}")
    if not request.HasField("stage_name"):
        return stage
    name: str = request.stage_name
    if "\0" in name or len(name.encode("utf-8")) > _LONGEST_STAGE:
        details = f"stage_name must have no NUL and at most {_LONGEST_STAGE} bytes, got {shown_value(name)}"
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, details)
    if stage not in (None, name):
        details = f"stage and stage_name must be the same stage, got {str(stage)!r} and {shown_value(name)}"
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, details)
    return _KNOWN.get(name, name)


def described(error: BaseException) -> str:
    """Return an exception's type and text."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 a broken __str__ must not hide the error
        return type(error).__name__


def wire_text(text: str) -> str:
    """Return text with backslash escapes for characters that UTF-8 lacks."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def node_message(stats: Any) -> pb.NodeProfilingStats:
    """Return statistics of ours, or of the first ten fields, as a message."""
    stage = checked_text("stage", stats.stage)
    fields = _FIGURES
    if isinstance(stats, NodeProfilingStats):
        fields += _COUNTS
        if stats.p50_ms is not None and stats.p99_ms is not None:
            fields += _QUANTILES
    message = pb.NodeProfilingStats(
        node_name=wire_text(checked_text("node_name", stats.node_name)),
        stage=_NUMBERS.get(stage),
        **{name: getattr(stats, name) for name in fields},
    )
    if stage not in _NUMBERS:
        message.stage_name = wire_text(stage)
    return message


def filled(response: Any, summary: Iterable[Any], *, is_on: Any) -> Any:
    """Fill a message with statistics, and return it.

    Raises Refusal for more than ``MOST_BYTES``.
    """
    response.profiling_enabled = bool(is_on)
    response.skip_first_n = getattr(summary, "skip_first_n", 0)
    response.median = getattr(summary, "median", "")
    response.reasons.extend(map(wire_text, getattr(summary, "reasons", ())))
    response.internal_errors = getattr(summary, "internal_errors", 0)
    size = 0
    for stats in summary:
        message = node_message(stats)
        size += message.ByteSize()
        if size > MOST_BYTES:
            break
        response.node_stats.append(message)
    if size > MOST_BYTES or response.ByteSize() > MOST_BYTES:
        raise Refusal(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"the statistics have more than {MOST_BYTES} bytes: ask for one stage, or read them in the process",
        )
    return response


def summary_from(response: Any) -> ProfilingSummary:
    """Return the statistics in a message, with defaults for missing figures."""
    stats = (
        NodeProfilingStats(
            node_name=message.node_name,
            stage=message.stage_name if message.HasField("stage_name") else _STAGES.get(message.stage, ""),
            **{name: getattr(message, name) for name in _FIGURES + _COUNTS},
            **{name: getattr(message, name) for name in _QUANTILES if message.HasField(name)},
        )
        for message in response.node_stats
    )
    return ProfilingSummary(
        stats,
        skip_first_n=max(response.skip_first_n, 0),  # as another's server might tell less than none
        median=response.median or "histogram",
        reasons=response.reasons,
        internal_errors=response.internal_errors,
    )
