"""The tables of a page, with sort keys and reasons for missing figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from cprofiling._internal.tables import Section
from cprofiling._internal.text import format_time, shown_text
from cprofiling.report import tables
from cprofiling.report.against import SECTION
from cprofiling.report.charts import Axis, bars, bins, lines
from cprofiling.report.document import Document, Node

if TYPE_CHECKING:
    from cprofiling._internal.tables import Unit
    from cprofiling.report.charts import Bins

UNKNOWN = "not known"
_NO_SAMPLES = "no call has succeeded"
_MOST_MARKED = 20  # reasons that stand below a table with a number
_DIGITS = 6
_TIMES = {"ms": 1.0, "us": 1e-3, "ns": 1e-6}
_LEAST_CHANGE = 0.0005


class Heading(NamedTuple):
    """A column, under the title of a group with its neighbours if it has one.

    kind: ``time`` (in ms), ``change`` or ``growth`` (a share, where more of a ``change`` is worse), ``chart``, or the
    unit of a section's column. extra: shown among all figures only. is_bad: it counts faults.
    """

    title: str
    kind: str
    tip: str = ""
    extra: bool = False
    group: str = ""
    is_bad: bool = False


class Cell(NamedTuple):
    """A cell with a number and its unit, a text, or a dash and its reason."""

    text: str = ""
    unit: str = ""
    reason: str = ""
    note: int = 0
    tone: str = ""
    chart: Chart | None = None


class Chart(NamedTuple):
    """The outlines of one or two histograms, with a label in words."""

    outlines: tuple[str, ...]
    lines: str
    label: str


@dataclass
class Table:
    """A table, with ``name`` as its id in the page."""

    name: str
    caption: str
    headings: list[Heading]
    rows: list[list[Cell]] = field(default_factory=list)
    values: list[list[str | float | None]] = field(default_factory=list)  # the sort keys of the rows, times in ms
    distributions: list[list[Bins]] = field(default_factory=list)  # of each row
    sorted_by: int = -1  # the column by which the rows descend, or -1
    notes: list[str] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)  # why figures are missing, numbered
    marked: set[int] = field(default_factory=set)  # the numbers that columns have without ``extra``

    @property
    def groups(self) -> list[tuple[str, list[tuple[int, Heading]]]]:
        """The columns with their places, neighbours of one group together."""
        found = groupby(enumerate(self.headings), lambda placed: placed[1].group)
        return [(title, list(placed)) for title, placed in found]

    def add(
        self, values: Sequence[Any], reasons: Mapping[int, str] | None = None, charts: Mapping[int, Chart] | None = None
    ) -> None:
        """Add a row.

        ``reasons`` and ``charts`` have, by column, why values are None, and drawings.
        """
        cells, reasons, charts = [], reasons or {}, charts or {}
        for at, (heading, value) in enumerate(zip(self.headings, values, strict=True)):
            if at in charts:
                cells.append(Cell(chart=charts[at]))
            elif value is None:
                reason = shown_text("reason", reasons.get(at, UNKNOWN))
                if reason not in self.reasons and len(self.reasons) < _MOST_MARKED:
                    self.reasons[reason] = len(self.reasons) + 1
                cells.append(Cell("\N{EN DASH}", reason=reason, note=self.reasons.get(reason, 0)))
                if not heading.extra:
                    self.marked.add(cells[-1].note)
            else:
                cells.append(shown(value, heading.kind))
        self.rows.append(cells)
        self.values.append([_sortable(value) for value in values])

    def for_script(self) -> dict[str, Any]:
        """Return the sort keys and the bins, as the page's script reads them."""
        return {
            "kinds": [heading.kind for heading in self.headings],
            "rows": self.values,
            # the numbers and counts of bins by turns
            "bins": [[[value for pair in filled for value in pair] for filled in row] for row in self.distributions],
        }


def shown(value: Any, kind: str) -> Cell:
    """Return a value as people read it; more is worse of a ``change``."""
    if kind in ("change", "growth"):
        if abs(value) < _LEAST_CHANGE:
            return Cell("0.0", "%")
        is_more = value > 0
        arrow = "\N{BLACK UP-POINTING TRIANGLE}" if is_more else "\N{BLACK DOWN-POINTING TRIANGLE}"
        tone = "worse" if is_more else "better"
        text = f"{arrow} {100 * value:+.1f}".replace("-", "\N{MINUS SIGN}")
        return Cell(text, "%", tone=tone if kind == "change" else "")
    text = tables.shown(value, "ms" if kind == "time" else cast("Unit", kind))
    number, _, unit = (text, "", "") if isinstance(value, str) else text.partition(" ")
    return Cell(number, unit)


def _sortable(value: Any) -> str | float | None:
    if isinstance(value, str):
        return shown_text("text", value)
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


# ---- the nodes

_NODE = Heading("Node", "text", "name of the node")
_STAGE = Heading("Stage", "text", "execution stage of the calls")
_CHART = Heading("Distribution", "chart", "all samples on a logarithmic axis; lines at p50 and p99")
# The figures that are shown only when somebody asks for all.
_EXTRA = {
    "std_ms", "min_ms", "p95_ms", "median_ms", "first_ms", "last_ms", "active_total_ms", "gpu_count", "gpu_p50_ms",
    "queue_delay_ms", "launches.kernels", "launches.bytes_to_device", "launches.bytes_to_host",
    "launches.bytes_on_device", "memory.host.peak",
}  # fmt: skip
_BAD = ("error_count", "cancelled_count", "dropped_count")
_FIELDS = {
    name: Heading(title, "time" if unit == "ms" else unit, tip, extra=name in _EXTRA, is_bad=name in _BAD)
    for name, title, unit, tip in tables.FIGURES.values()
}
# 0.0 without a sample
_TEN = ("share", "mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms")


def node_table(document: Document) -> Table:
    """Return the table of all nodes, the largest total first."""
    nodes = sorted(document.nodes, key=lambda node: node.total_ms or 0.0, reverse=True)
    whole_ms = math.fsum(map(own_ms, nodes))
    shares = [own_ms(node) / whole_ms if whole_ms > 0 and node.count != 0 else None for node in nodes]
    counters = dict.fromkeys(name for node in nodes for name in node.counters)
    fields = dict(_FIELDS)
    for name in counters:
        shown_name, is_time = shown_text("counter", name), name == "cpu_time"
        title = "CPU time" if is_time else shown_name.replace("_", " ").capitalize()
        fields[f"counters.{name}"] = Heading(title, "time" if is_time else "number", f"mean of {shown_name} in a call")
    headings = {
        path: heading
        for path, heading in fields.items()
        if any(
            path == "share" or (figure(node, path) if path.endswith("_count") else figure(node, path) is not None)
            for node in nodes
        )
    }
    named = [_NODE, _STAGE, _CHART] if any(node.stage for node in nodes) else [_NODE, _CHART]
    first = len(named)
    table = Table("nodes", "Nodes", [*named, *headings.values()])
    axis = axis_of(nodes)
    for node, share in zip(nodes, shares, strict=True):
        filled = bins(node.histogram or ())
        names = [node.node_name, node.stage][: first - 1]
        figures = [share if path == "share" else figure(node, path) for path in headings]
        reasons = {at: reason(node, path) for at, path in enumerate(headings, first)}
        table.add([*names, node.p50_ms, *figures], reasons, {first - 1: distribution([node], [filled], axis)})
        table.distributions.append([filled])
    if "total_ms" in headings:
        table.sorted_by = first + list(headings).index("total_ms")
    titles: dict[str, list[str]] = {}
    for path, heading in _FIELDS.items():
        told = {reason(node, path) for node in nodes if figure(node, path) is None} - {UNKNOWN}
        if nodes and path not in headings and told:
            titles.setdefault("; ".join(sorted(told)), []).append(heading.title)
    table.notes = [
        f"Of no node known: {', '.join(names)} ({shown_text('reason', why)})." for why, names in titles.items()
    ]
    return table


def figure(node: Node, path: str) -> Any:
    """Return the value at the end of a path, None where unknown."""
    if path in _TEN and node.count == 0:
        return None
    if path.startswith("counters."):
        value = node.counters.get(path.partition(".")[2])
        return None if value is None else value.mean / 1e6 if path == "counters.cpu_time" else value.mean
    found: Any = node
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def reason(node: Node, path: str) -> str:
    """Return why a node lacks the figure at the end of a path."""
    told = node.unknown.get(path)
    if told is None and path in _TEN and node.count == 0:
        return _NO_SAMPLES
    if told is None and path.startswith("memory."):
        kind, name = path.split(".")[1:]
        of_kind = getattr(node.memory, kind, None)
        told = of_kind.peak_reason if of_kind is not None and name == "peak" else getattr(node.memory, "reason", None)
    return told or UNKNOWN


def own_ms(node: Node) -> float:
    """Return the self time of a node, or its total where that is unknown."""
    return node.self_total_ms if node.self_total_ms is not None else node.total_ms or 0.0


def axis_of(nodes: Iterable[Node]) -> Axis:
    """Return an axis for the samples of all nodes."""
    known = [node for node in nodes if node.count and node.min_ms is not None and node.max_ms is not None]
    return Axis.around([*(node.min_ms or 0.0 for node in known), *(node.max_ms or 0.0 for node in known)])


def distribution(nodes: Sequence[Node | None], filled: Sequence[Bins], axis: Axis) -> Chart:
    """Return the drawing of one or two nodes' samples.

    The second is drawn as an outline.
    """
    words = [_in_words(node) for node in nodes]
    label = words[0] if len(words) == 1 else f"This run: {words[0]}. The other: {words[1]}"
    node = nodes[0]
    marked = lines((node.p50_ms, node.p99_ms), axis) if node is not None and node.count else ""
    return Chart(tuple(bars(each, axis) for each in filled), marked, label)


def _in_words(node: Node | None) -> str:
    if node is None or not node.count or node.min_ms is None or node.max_ms is None:
        return "no samples"
    told = f"{node.count:,} samples from {format_time(node.min_ms)} to {format_time(node.max_ms)}"
    if node.p50_ms is None or node.p99_ms is None:
        return told
    return f"{told}, half below {format_time(node.p50_ms)}, 99 of 100 below {format_time(node.p99_ms)}"


# ---- two runs

_COMPARED = ("mean_ms", "p50_ms", "p99_ms", "self_total_ms", "count", "error_count")
_NO_CHANGE = ("same", "unclear")
_MISSING = "it takes both runs to have it"
_FROM_NOTHING = "there is no share of 0, or one of the runs has no such figure"
_VERDICT = Heading("Verdict", "text", "what a comparison has said of it, or in which run it is")


def comparison_table(document: Document, against: Document) -> Table:
    """Return the nodes of two runs side by side, largest change first."""
    ours = {(node.stage, node.node_name): node for node in document.nodes}
    theirs = {(node.stage, node.node_name): node for node in against.nodes}
    verdicts = {}
    if SECTION in document.sections:
        section = document.sections[SECTION]
        rows = [dict(zip([column.name for column in section.columns], row, strict=True)) for row in section.rows]
        verdicts = {(row["stage"], row["node_name"]): row["verdict"] or "" for row in rows}
    verdicts = verdicts or {
        key: "this run only" if key in ours else "the other only" for key in ours.keys() ^ theirs.keys()
    }
    keys = sorted(dict.fromkeys((*ours, *theirs)), key=lambda key: -abs(_moved_ms(ours.get(key), theirs.get(key))))
    compared = [name for name in _COMPARED if any(figure(node, name) for node in (*ours.values(), *theirs.values()))]
    headings = [_NODE, _STAGE, *([_VERDICT] if verdicts else []), _CHART]
    first = len(headings)
    for heading in map(_FIELDS.__getitem__, compared):
        kinds = {
            "other": heading.kind,
            "this": heading.kind,
            "change": "change" if heading.kind == "time" else "growth",
        }
        headings += [
            Heading(side.capitalize(), kind, f"{heading.tip}: {side}", group=heading.title)
            for side, kind in kinds.items()
        ]
    table = Table("comparison", "Nodes of both runs", headings)
    axis = axis_of((*ours.values(), *theirs.values()))
    for key in keys:
        nodes = ours.get(key), theirs.get(key)
        filled = [bins(node.histogram or ()) if node is not None else [] for node in nodes]
        values: list[Any] = [key[1], key[0], *([verdicts.get(key, "")] if verdicts else []), _moved_ms(*nodes)]
        for name in compared:
            now, before = (None if node is None else figure(node, name) for node in nodes)
            growth = None
            if now is not None and before is not None:
                growth = now / before - 1 if before else 0.0 if not now else None
            values += [before, now, growth]
        reason = _MISSING if None in nodes else _FROM_NOTHING
        table.add(values, dict.fromkeys(range(len(headings)), reason), {first - 1: distribution(nodes, filled, axis)})
        if verdicts.get(key) in _NO_CHANGE:  # what may be noise is not called worse or better by a colour
            table.rows[-1] = [cell._replace(tone="") for cell in table.rows[-1]]
        table.distributions.append(filled)
    return table


def _moved_ms(ours: Node | None, theirs: Node | None) -> float:
    """Return how many ms a node takes more than in the other run."""
    return (own_ms(ours) if ours else 0.0) - (own_ms(theirs) if theirs else 0.0)


# ---- other tables


def section_table(name: str, section: Section) -> Table:
    """Return a section as a table, all times in ms."""
    kinds = ["time" if column.unit in _TIMES else column.unit for column in section.columns]
    headings = [Heading(column.title, kind, column.tip) for column, kind in zip(section.columns, kinds, strict=True)]
    table = Table(name, section.title, headings)
    factors = [_TIMES.get(column.unit) for column in section.columns]
    for row in section.rows:
        pairs = zip(row, factors, strict=True)
        table.add([value * factor if factor and isinstance(value, (int, float)) else value for value, factor in pairs])
    table.notes = [shown_text("note", note) for note in section.notes]
    return table
