"""Latency by input signature, the shapes and dtypes of tensor arguments.

``set_profiling(True, by_shape=True)`` asks for it; ``get_profiling_summary().shapes`` and ``snapshot().stats().shapes``
have it, and the printed summary shows it, with the signature that makes a node's slowest calls.

A tensor is anything with ``shape``, a sequence of ints, and ``dtype``. Arguments are looked at, and one level deep the
items of lists, tuples, dicts (values) and dataclasses, shown in parentheses. A class is judged by its first instance.
``self``, the first parameter of a method by that name, is left out, and so are values after the 64th and the names of
arguments. A dimension that is no int is ``?``; a signature of more than 1,024 bytes ends with ``...``. Calls without a
tensor, ``with`` blocks among them, have the empty signature.

A node keeps the first 16 signatures in each stage; calls of all others count under ``OVERFLOW``. A call counts under
its signature when it counts in its node: as a sample, an error or a cancellation. Skipped and dropped calls and those
of ``record()`` have no signature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from cprofiling._internal.text import format_time, plain_table, shown_text
from cprofiling.nodes import exports

__all__ = ["OVERFLOW", "ShapeStats", "ShapeSummary", "ShapeVerdict"]

OVERFLOW = "__overflow__"  # the signature that stands for all but the first 16 of a node

LEAST_CALLS = 200  # of a node that a verdict is about,
LEAST_OF_SHAPE = 5  # and of the signature
_LEAST_TAIL_SHARE = 0.5
_LEAST_LIFT = 2.0
_MOST_CHANCE = 0.001


class ShapeStats(NamedTuple):
    """Statistics of a node's calls with one signature, an immutable value.

    Times are as in ``NodeProfilingStats``; with a count of 0 they are 0.0, and the percentiles None.

    Attributes:
        node_name: Name of the node.
        stage: Execution stage of the calls; for the four known stages an ``ExecutionStage``, which is a str.
        signature: Dtypes and shapes of the tensors, such as ``float32[8,3,224,224], int64[8]``; empty for none;
            ``OVERFLOW`` for all signatures but the first 16.
        count: Number of samples, 0 or more.
        error_count: Calls that an exception left.
        cancelled_count: Calls that ``asyncio.CancelledError`` left.
        mean_ms: Arithmetic mean of the samples.
        p50_ms: 50th percentile, within 1 %; None if it is not known.
        p99_ms: 99th percentile, as ``p50_ms``.
        min_ms: Smallest sample, exact.
        max_ms: Largest sample, exact.
        total_ms: Sum of the samples, exact to rounding.
        share: Part of the node's samples with a signature that have this one: 0 to 1.
        tail_count: How many of the node's slowest samples are among these: of a hundredth of them, or of ten where that
            is more, as exactly as the buckets of a histogram tell them apart.
        tail_share: Part of the node's slowest samples that are among these: 0 to 1.
    """

    node_name: str
    stage: str
    signature: str
    count: int  # type: ignore[assignment]  # not the method of tuples
    error_count: int
    cancelled_count: int
    mean_ms: float
    p50_ms: float | None
    p99_ms: float | None
    min_ms: float
    max_ms: float
    total_ms: float
    share: float
    tail_count: int
    tail_share: float


class ShapeVerdict(NamedTuple):
    """The signature that makes the slowest calls of a node, with the evidence.

    Attributes:
        stats: The signature's figures: it has at least half of the node's slowest samples, and at least twice its share
            of all samples; by chance alone, that would be so in less than one node of a thousand.
        node_p50_ms: 50th percentile of all the node's samples, of those without a signature, too.
        node_p99_ms: 99th percentile of these.
        node_count: How many they are: at least 200, 5 of them of the signature.
    """

    stats: ShapeStats
    node_p50_ms: float
    node_p99_ms: float
    node_count: int

    def __str__(self) -> str:
        stats = self.stats
        return (
            f"{shown_text('node_name', stats.node_name)} ({shown_text('stage', stats.stage)}): "
            f"{shown_signature(stats.signature)} makes the tail: it is {_percent(stats.share)} of the calls and "
            f"{_percent(stats.tail_share)} of the slowest ({stats.tail_count}); its p50 is "
            f"{_time(stats, stats.p50_ms)} and its p99 {_time(stats, stats.p99_ms)}, where all calls have "
            f"{format_time(self.node_p50_ms)} and {format_time(self.node_p99_ms)}"
        )


class ShapeSummary(tuple["ShapeStats", ...]):  # noqa: SLOT001 its verdicts are an attribute
    """Figures of all signatures by node, largest total time first.

    Nodes are in the summary's order. ``print`` and notebooks show a table with the verdicts below.

    Attributes:
        verdicts: For nodes whose slowest calls have one signature much more often than others: which, and the evidence.
    """

    verdicts: tuple[ShapeVerdict, ...] = ()

    def __str__(self) -> str:
        table = [["Node", "Stage", *(label for label, _, _ in COLUMNS), "Signature"]]
        for row in shown_rows(self):
            names = [shown_text("node_name", row.node_name), shown_text("stage", row.stage)]
            table.append([*names, *(text(row) for _, _, text in COLUMNS), shown_signature(row.signature)])
        shown = [plain_table(table, [True, True, *[False] * len(COLUMNS), True])] if len(table) > 1 else []
        return "\n".join([*shown, *map(str, self.verdicts)])

    def _repr_html_(self) -> str:
        return exports.shapes_html(self)


def shapes_from(rows: Iterable[Any], nodes: Iterable[Any]) -> ShapeSummary:
    """Make the summary from the core's rows and the nodes' statistics."""
    known = {(node.node_name, node.stage): node for node in nodes}
    stats: list[ShapeStats] = []
    verdicts: list[ShapeVerdict] = []
    for key, group in groupby(rows, key=lambda row: (row.node_name, row.stage)):
        node = known[key]
        of_key = list(group)
        samples = sum(row.count for row in of_key)
        of_node = []
        for row in of_key:
            values = dict(zip(row.__match_args__, row, strict=True))
            tail, slowest = values.pop("tail"), values.pop("slowest")
            values["stage"] = node.stage
            values["share"] = row.count / samples if samples else 0.0
            of_node.append(ShapeStats(**values, tail_count=tail, tail_share=tail / slowest if slowest else 0.0))
        of_node.sort(key=lambda each: (-each.total_ms, each.signature))
        stats += of_node
        if (found := _verdict(of_node, node)) is not None:
            verdicts.append(found)
    summary = ShapeSummary(stats)
    summary.verdicts = tuple(verdicts)
    return summary


def _verdict(stats: Sequence[ShapeStats], node: Any) -> ShapeVerdict | None:
    """Return the signature behind a node's tail, None if none or unclear."""
    samples = sum(each.count for each in stats)
    if samples < LEAST_CALLS or len(stats) < 2 or node.p99_ms is None:
        return None
    worst = max(stats, key=lambda each: each.tail_share)
    part, expected = worst.tail_share, worst.share
    if part < max(_LEAST_TAIL_SHARE, _LEAST_LIFT * expected) or worst.count < LEAST_OF_SHAPE:
        return None
    # A bound on the chance of this many slow calls if all signatures were alike (Chernoff, Hoeffding).
    divergence = part * math.log(part / expected)
    if part < 1:
        divergence += (1 - part) * math.log((1 - part) / (1 - expected))
    slowest = worst.tail_count / part
    is_by_chance = math.exp(-slowest * divergence) > _MOST_CHANCE
    return None if is_by_chance else ShapeVerdict(worst, node.p50_ms, node.p99_ms, node.count)


def shown_signature(signature: str) -> str:
    """Return a signature as people read it, without line breaks."""
    if signature == OVERFLOW:
        return "(all other signatures)"
    return shown_text("signature", signature) if signature else "(no tensor)"


def _percent(share: float) -> str:
    percent = 100 * share
    if 0 < percent < 0.05:
        return "<0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 9.95 else f"{percent:.0f} %"


def _time(row: ShapeStats, time_ms: float | None) -> str:
    return "-" if time_ms is None or row.count == 0 else format_time(time_ms)


def shown_rows(rows: Iterable[ShapeStats]) -> list[ShapeStats]:
    """Return the rows of nodes with any tensor."""
    listed = list(rows)
    told = {(row.node_name, row.stage) for row in listed if row.signature}
    return [row for row in listed if (row.node_name, row.stage) in told]


COLUMNS: tuple[tuple[str, str, Callable[[ShapeStats], str]], ...] = (
    ("Calls", "number of samples", lambda row: str(row.count)),
    ("Share", "part of the node's samples", lambda row: _percent(row.share)),
    ("Mean", "arithmetic mean of the samples", lambda row: _time(row, row.mean_ms)),
    ("p50", "50th percentile, within 1 %", lambda row: _time(row, row.p50_ms)),
    ("p99", "99th percentile, within 1 %", lambda row: _time(row, row.p99_ms)),
    ("Max", "largest sample", lambda row: _time(row, row.max_ms)),
    ("Total", "sum of the samples", lambda row: _time(row, row.total_ms)),
    ("Tail", "part of the node's slowest samples", lambda row: _percent(row.tail_share)),
    ("Errors", "calls that an exception left", lambda row: str(row.error_count)),
)  # fmt: skip
