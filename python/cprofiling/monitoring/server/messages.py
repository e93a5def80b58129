"""Convert statistics and stages to messages and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import grpc

from cprofiling._internal.text import checked_text, shown_value
from cprofiling.monitoring.server import profiling_pb2 as pb
from cprofiling.monitoring.server.refusal import Refusal
from cprofiling.nodes.stats import ExecutionStage, NodeProfilingStats, ProfilingSummary

if TYPE_CHECKING:
    from typing import Any

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


def wire_text(text: str) -> str:
    """Return text with backslash escapes for characters that UTF-8 lacks."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def node_message(stats: Any) -> pb.NodeProfilingStats:
    """Return one key's statistics as a message.

    stats: ours, or an object with the first ten fields.
    """
    stage = checked_text("stage", stats.stage)
    number = _NUMBERS.get(stage)
    message = pb.NodeProfilingStats(
        node_name=wire_text(checked_text("node_name", stats.node_name)),
        stage=number,
        count=stats.count,
        mean_ms=stats.mean_ms,
        median_ms=stats.median_ms,
        std_ms=stats.std_ms,
        min_ms=stats.min_ms,
        max_ms=stats.max_ms,
        total_ms=stats.total_ms,
        last_ms=stats.last_ms,
    )
    if number is None:
        message.stage_name = wire_text(stage)
    if isinstance(stats, NodeProfilingStats):
        message.error_count = stats.error_count
        message.cancelled_count = stats.cancelled_count
        message.skipped_count = stats.skipped_count
        message.dropped_count = stats.dropped_count
        if stats.p50_ms is not None and stats.p99_ms is not None:
            message.p50_ms = stats.p50_ms
            message.p99_ms = stats.p99_ms
    return message


def filled(response: Any, summary: Iterable[Any], *, is_on: Any) -> Any:
    """Fill a message with statistics, and return it.

    Raises Refusal for more than ``MOST_BYTES``.
    """
    response.profiling_enabled = bool(is_on)
    response.skip_first_n = getattr(summary, "skip_first_n", 0)
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
    return ProfilingSummary(
        map(_stats_from, response.node_stats),
        skip_first_n=response.skip_first_n,
        reasons=response.reasons,
        internal_errors=response.internal_errors,
    )


def _stats_from(message: Any) -> NodeProfilingStats:
    return NodeProfilingStats(
        node_name=message.node_name,
        stage=message.stage_name if message.HasField("stage_name") else _STAGES.get(message.stage, ""),
        count=message.count,
        mean_ms=message.mean_ms,
        median_ms=message.median_ms,
        std_ms=message.std_ms,
        min_ms=message.min_ms,
        max_ms=message.max_ms,
        total_ms=message.total_ms,
        last_ms=message.last_ms,
        p50_ms=message.p50_ms if message.HasField("p50_ms") else None,
        p99_ms=message.p99_ms if message.HasField("p99_ms") else None,
        error_count=message.error_count,
        cancelled_count=message.cancelled_count,
        skipped_count=message.skipped_count,
        dropped_count=message.dropped_count,
    )
