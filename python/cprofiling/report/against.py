"""Runs side by side, with a verdict for each node."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from cprofiling._internal.tables import Column, Section
from cprofiling.analysis.comparison import RowTimes, Run, compare_runs, outcome
from cprofiling.analysis.timing_reports import run_of_report

if TYPE_CHECKING:
    from cprofiling.analysis.comparison import TimingComparison
    from cprofiling.report.document import Document, Node
    from cprofiling.report.view import View

    Key: TypeAlias = tuple[str, str]  # stage and node

SECTION = "comparison"
_COLUMNS = (
    Column("node_name", "Node"),
    Column("stage", "Stage"),
    Column("baseline_count", "Calls before", "count"),
    Column("count", "Calls", "count"),
    Column("baseline_ms", "Mean before", "ms"),
    Column("mean_ms", "Mean", "ms"),
    Column("difference_ms", "Difference", "ms"),
    Column("difference_pct", "Change", "percent"),
    Column("low_ms", "At least", "ms", "lower end of the interval of the difference, for all rows together"),
    Column("high_ms", "At most", "ms", "upper end of the interval of the difference, for all rows together"),
    Column("verdict", "Verdict"),
    Column("reason", "Reason"),
)


def comparison_of(baseline: Sequence[View], new: Sequence[View], **options: float) -> TimingComparison:
    """Compare the calls of runs.

    ``options`` are those of ``compare_runs``.

    ValueError for runs of several kinds, and as ``compare_runs``.
    """
    kinds = {view.kind: None for view in (*baseline, *new)}
    if len(kinds) > 1:
        raise ValueError(f"what is compared must be of one kind, got {' with '.join(kinds)}")
    labels = _labels(view.tables for view in (*baseline, *new))
    old, current = ([_run(view, labels) for view in side] for side in (baseline, new))
    row_kind: Literal["stage", "node"] = "stage" if isinstance(baseline[0].of, Mapping) else "node"
    return compare_runs(old, current, row_kind=row_kind, **options)


def compared(view: View, against: View) -> Document:
    """Return a document with a section on what has changed."""
    found = comparison_of([against], [view])
    keys = {label: key for key, label in _labels((against.tables, view.tables)).items()}
    rows = tuple(
        (
            *reversed(keys[row.name]), row.baseline_count, row.new_count, row.baseline_ms, row.new_ms,
            row.difference_ms, row.difference_pct, *(row.interval_ms or (None, None)),
            outcome(row), row.reason,
        )
        for row in found.stages
    )  # fmt: skip
    other = against.tables
    section = Section(f"Compared with {other.source or other.title}", _COLUMNS, rows, found.notes)
    return replace(view.document, kind="comparison", sections={SECTION: section, **view.document.sections})


def _labels(documents: Iterable[Document]) -> dict[Key, str]:
    """Return a label for each node, with its stage where there are several."""
    keys = list(dict.fromkeys(_key(node) for document in documents for node in document.nodes))
    is_one_stage = len({stage for stage, _ in keys}) <= 1
    labels = {(stage, name): name if is_one_stage else f"{name} ({stage})" for stage, name in keys}
    if len(set(labels.values())) < len(labels):  # of names made to look like others
        labels = {key: f"{key[1]!r} ({key[0]!r})" for key in keys}
    return labels


def _key(node: Node) -> Key:
    return node.stage, node.node_name


def _run(view: View, labels: dict[Key, str]) -> Run:
    """Return a view as a run to compare.

    A timing report has more than its nodes.
    """
    if isinstance(view.of, Mapping):
        return run_of_report(view.of)
    document = view.tables
    rows = {labels[_key(node)]: RowTimes.of(vars(node), node.total_ms or 0.0) for node in document.nodes}
    host, world_size = document.facts.get("host"), document.facts.get("world_size")
    return Run(
        rows,
        math.fsum(node.total_ms or 0.0 for node in document.nodes),
        document.source or document.title,
        tuple(rows.items()) or None,  # runs are never equal in all of it
        () if host is None else (str(host),),
        world_size if isinstance(world_size, int) else None,
    )
