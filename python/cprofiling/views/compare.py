"""Two runs side by side: which nodes became slower, judged as timing reports are."""

from __future__ import annotations

from dataclasses import replace

from cprofiling.stages.compare import compare_timing_reports
from cprofiling.views.document import Column, Section

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from cprofiling.stages.compare import StageComparison, TimingComparison
    from cprofiling.views.document import Document, Node

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
    Column("low_ms", "At least", "ms", "lower end of the 95 % interval of the difference"),
    Column("high_ms", "At most", "ms", "upper end of the 95 % interval of the difference"),
    Column("verdict", "Verdict"),
    Column("reason", "Reason"),
)


def comparison_of(document: Document, against: Document) -> TimingComparison:
    """Return what became of the times of a run's calls since another run; see ``stages.compare``.

    Nodes are compared as stages of timing reports are: the mean of their calls, with Welch's interval. What would be
    the same for a gate is ``unclear`` where the interval reaches beyond the smallest change that counts.
    """
    return _compared(document, against, _labels(document, against))


def compared(document: Document, against: Document) -> Document:
    """Return the document of a comparison: the nodes of the first run, and a section on what has changed."""
    labels = _labels(document, against)
    found = _compared(document, against, labels)
    keys = {label: key for key, label in labels.items()}
    rows = tuple((keys[row.name][1], keys[row.name][0], *_figures(row)) for row in found.stages)
    section = Section(f"Compared with {against.source or against.title}", _COLUMNS, rows, found.notes)
    return replace(document, kind="comparison", sections={SECTION: section, **document.sections})


def _compared(document: Document, against: Document, labels: dict[Key, str]) -> TimingComparison:
    found = compare_timing_reports(_report(against, labels), _report(document, labels))
    stages = tuple(_not_hiding(row, found.min_change_pct) for row in found.stages)
    total = _not_hiding(found.total, found.min_change_pct)
    notes = found.notes
    if any(row.verdict == "unclear" for row in (*stages, total)):
        notes += (
            f"Unclear is where the interval of the difference reaches beyond {found.min_change_pct:g} % of the mean "
            "before: a change may be hidden.",
        )
    return replace(found, stages=stages, total=total, notes=notes)


def _not_hiding(row: StageComparison, smallest_pct: float) -> StageComparison:
    """Return a row that is called the same only where it can be nothing else."""
    if row.verdict != "same" or row.interval_ms is None or row.baseline_ms is None:
        return row
    hides = max(map(abs, row.interval_ms)) > row.baseline_ms * smallest_pct / 100
    return replace(row, verdict="unclear") if hides else row


def _figures(row: StageComparison) -> tuple[Any, ...]:
    low, high = row.interval_ms or (None, None)
    return (
        row.baseline_count, row.new_count, row.baseline_ms, row.new_ms, row.difference_ms, row.difference_pct,
        low, high, "missing" if row.is_missing else row.verdict, row.reason,
    )  # fmt: skip


def _labels(*documents: Document) -> dict[Key, str]:
    """Return what the nodes are called, each differently: their names, with the stage where there are several."""
    keys = list(dict.fromkeys(_key(node) for document in documents for node in document.nodes))
    is_one_stage = len({stage for stage, _ in keys}) <= 1
    labels = {(stage, name): name if is_one_stage else f"{name} ({stage})" for stage, name in keys}
    if len(set(labels.values())) < len(labels):  # of names made to look like others
        labels = {key: f"{key[1]!r} ({key[0]!r})" for key in keys}
    return labels


def _key(node: Node) -> Key:
    return node.stage, node.node_name


def _report(document: Document, labels: dict[Key, str]) -> dict[str, Any]:
    """Return a document as a timing report that can be compared."""
    return {"stages": {labels[_key(node)]: _stage(node) for node in document.nodes}}


def _stage(node: Node) -> dict[str, Any]:
    figures = {"duration_ms": node.total_ms or 0.0, "error_count": node.error_count}
    if node.count is not None:
        figures["count"] = node.count
    if node.count != 0:
        moments = {"mean_ms": node.mean_ms, "min_ms": node.min_ms, "max_ms": node.max_ms, "std_ms": node.std_ms}
        figures |= {name: value for name, value in moments.items() if value is not None}
    return figures
