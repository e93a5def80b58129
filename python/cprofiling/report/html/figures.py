"""The tables of a page, with sort keys and reasons for missing figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from cprofiling._internal.tables import Section
from cprofiling._internal.text import counted, format_time, shown_text
from cprofiling.report import tables
from cprofiling.report.against import SECTION
from cprofiling.report.charts import Axis, bars, bins, lines
from cprofiling.report.document import Document, Node

if TYPE_CHECKING:
    from cprofiling._internal.tables import Unit
    from cprofiling.report.charts import Bins

    Pair: TypeAlias = tuple[Node | None, Node | None]  # of this run and of the other

UNKNOWN = "not known"
_NO_SAMPLES = "no call has succeeded"
_NO_SOURCE = "it is a block or no Python function, or several functions have the name"
_MOST_MARKED = 20  # reasons that stand below a table with a number
_DIGITS = 6
_TIMES = {"ms": 1.0, "us": 1e-3, "ns": 1e-6}
_LEAST_CHANGE = 0.0005


class Heading(NamedTuple):
    """A column, under the title of a group with its neighbours if it has one.

    kind: ``time`` or ``difference`` (in ms), ``change`` or ``growth`` (a share), ``chart``, ``source`` (a file and a
    line), or the unit of a section's column. More of a ``difference`` or ``change`` is worse. rank: where room is
    short, the highest are not shown; those of ``RARE`` only when somebody asks. is_bad: it counts faults.
    """

    title: str
    kind: str
    tip: str = ""
    rank: int = 0
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
    """The outlines of one or two histograms, with a label in words.

    ends: the least and the largest time, where the axis is of this drawing alone.
    """

    outlines: tuple[str, ...]
    lines: str
    label: str
    ends: tuple[str, ...] = ()


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
    headline: list[tuple[str, list[str]]] = field(default_factory=list)  # what it tells, a label with names each

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
                cells.append(self.marked(Cell("\N{EN DASH}"), reasons.get(at, UNKNOWN)))
            else:
                cells.append(shown(value, heading.kind))
        self.rows.append(cells)
        self.values.append([_sortable(value) for value in values])

    def marked(self, cell: Cell, reason: str) -> Cell:
        """Return a cell with a reason, which stands below the table."""
        reason = shown_text("reason", reason)
        if reason not in self.reasons and len(self.reasons) < _MOST_MARKED:
            self.reasons[reason] = len(self.reasons) + 1
        return cell._replace(reason=reason, note=self.reasons.get(reason, 0))

    def layout(self) -> dict[str, Any]:
        """Return what the page's script needs to lay the table out."""
        return {
            "kinds": [heading.kind for heading in self.headings],
            "ranks": [heading.rank for heading in self.headings],
            "opens": bool(self.distributions),
        }

    def figures(self) -> dict[str, Any]:
        """Return the sort keys and the bins, as the page's script reads them."""
        return {
            "rows": self.values,
            # the numbers and counts of bins by turns
            "bins": [[[value for pair in filled for value in pair] for filled in row] for row in self.distributions],
        }


def shown(value: Any, kind: str) -> Cell:
    """Return a value as people read it."""
    if kind in ("change", "growth"):
        if abs(value) < _LEAST_CHANGE:
            return Cell("0.0", "%")
        is_more = value > 0
        arrow = "\N{BLACK UP-POINTING TRIANGLE}" if is_more else "\N{BLACK DOWN-POINTING TRIANGLE}"
        tone = "worse" if is_more else "better"
        text = f"{arrow} {100 * value:+.1f}".replace("-", "\N{MINUS SIGN}")
        return Cell(text, "%", tone=tone if kind == "change" else "")
    text = tables.shown(value, "ms" if kind in ("time", "difference") else cast("Unit", kind))
    number, _, unit = (text, "", "") if isinstance(value, str) else text.partition(" ")
    if kind == "difference" and value:
        return Cell(f"+{number}" if value > 0 else number, unit, tone="worse" if value > 0 else "better")
    return Cell(number, unit)


def _sortable(value: Any) -> str | float | None:
    if isinstance(value, str):
        return shown_text("text", value)
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


# ---- the nodes

# The figures that are shown where there is room for them, those that are needed most first.
_BY_NEED = (
    "total_ms", "share", "p99_ms", "error_count", "p50_ms", "stage", "chart", "self_total_ms", "mean_ms", "count",
    "gpu_mean_ms", "memory.device.peak", "memory.device.change", "memory.host.change", "counters.", "launches.launches",
    "launches.kernel_ms", "sync_total_ms", "dropped_count", "cancelled_count", "max_ms", "p90_ms", "gpu_total_ms",
    "gpu_p99_ms", "p999_ms", "skipped_count", "source",
)  # fmt: skip
RARE = 1000  # the rank of the others
_RANKS = {name: rank for rank, name in enumerate(_BY_NEED, 1)}
_NODE = Heading("Node", "text", "name of the node")
_STAGE = Heading("Stage", "text", "execution stage of the calls", _RANKS["stage"])
_CHART = Heading("Distribution", "chart", "all samples on a logarithmic axis; lines at p50 and p99", _RANKS["chart"])
_SOURCE = Heading("Source", "source", "file and line of the function", _RANKS["source"])
_BAD = ("error_count", "cancelled_count", "dropped_count")
_FIELDS = {
    name: Heading(title, "time" if unit == "ms" else unit, tip, _RANKS.get(name, RARE), is_bad=name in _BAD)
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
        tip = f"mean of {shown_name} in a call"
        fields[f"counters.{name}"] = Heading(title, "time" if is_time else "number", tip, _RANKS["counters."])
    fields["source"] = _SOURCE
    headings = {
        path: heading
        for path, heading in fields.items()
        if any(
            path == "share" or (figure(node, path) if path.endswith("_count") else figure(node, path) is not None)
            for node in nodes
        )
    }
    for path, heading in headings.items():
        if not any(figure(node, path) for node in nodes) and path != "share":
            headings[path] = heading._replace(rank=RARE)  # 0 of all nodes
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
    if path == "source":
        return _NO_SOURCE
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
    return Axis.around(_ends_ms(nodes))


def _ends_ms(nodes: Iterable[Node | None]) -> list[float]:
    known = [node for node in nodes if node is not None and node.count]
    return [end for node in known for end in (node.min_ms, node.max_ms) if end is not None]


def distribution(nodes: Sequence[Node | None], filled: Sequence[Bins], axis: Axis | None = None) -> Chart:
    """Return the drawing of one or two nodes' samples.

    The second is drawn as an outline. axis: None for one of their own.
    """
    ends_ms = _ends_ms(nodes) if axis is None else []
    axis = axis or Axis.close_to(ends_ms)
    words = [_in_words(node) for node in nodes]
    label = words[0] if len(words) == 1 else f"Now: {words[0]}. Before: {words[1]}"
    node = nodes[0]
    marked = lines((node.p50_ms, node.p99_ms), axis) if node is not None and node.count else ""
    ends = (format_time(min(ends_ms)), format_time(max(ends_ms))) if ends_ms else ()
    return Chart(tuple(bars(each, axis) for each in filled), marked, label, ends)


def _in_words(node: Node | None) -> str:
    if node is None or not node.count or node.min_ms is None or node.max_ms is None:
        return "no samples"
    told = f"{node.count:,} samples from {format_time(node.min_ms)} to {format_time(node.max_ms)}"
    if node.p50_ms is None or node.p99_ms is None:
        return told
    return f"{told}, half below {format_time(node.p50_ms)}, 99 of 100 below {format_time(node.p99_ms)}"


# ---- two runs

_COMPARED = ("mean_ms", "self_total_ms", "count", "p50_ms", "p99_ms", "error_count")
_SIDES = ("Before", "Now", "Change")
_MISSING = "it takes both runs to have it"
_FROM_NOTHING = "there is no share of 0, or one of the runs has no such figure"
_VERDICT = Heading("Verdict", "text", "what a comparison has said of it, or that one run alone has it", 1)
_BOTH = _CHART._replace(tip="the samples of both runs, on an axis for each row; lines at p50 and p99 now")
_BOUNDS = {
    name: Heading(title, "time", f"{end} end of the interval of the change, for all rows together", RARE, "Mean")
    for name, title, end in (("low_ms", "Change from", "lower"), ("high_ms", "Change to", "upper"))
}
_MOVED = Heading("Difference", "difference", "self time of the run: now less before", 0, "Self")
# Shown where there is room, those that are needed most first, after the verdict.
_CHANGED = (
    "mean_ms Change", "mean_ms Now", "mean_ms Before", "self_total_ms Difference", "chart", "p50_ms Change",
    "count Change", "p99_ms Change", "error_count Change",
)  # fmt: skip
_MARKS = {"slower": "\N{BLACK UP-POINTING TRIANGLE} ", "faster": "\N{BLACK DOWN-POINTING TRIANGLE} "}
_TONES = {"slower": "worse", "faster": "better", "new": "noted", "gone": "noted"}
_MORE_CALLS = 1.5  # times as many calls, or as few, beside what most nodes have
_SEVERAL = 5  # nodes, of which most can be said
_CALLED = "Called more or less often"
_MOST_NAMED = 5  # nodes in a headline


def comparison_table(document: Document, against: Document) -> Table:
    """Return the nodes of two runs side by side, what has changed first."""
    ours = {(node.stage, node.node_name): node for node in document.nodes}
    theirs = {(node.stage, node.node_name): node for node in against.nodes}
    pairs = {key: (ours.get(key), theirs.get(key)) for key in (*ours, *theirs)}
    judged = _judged(document)
    calls, usual_calls = _unusual_calls(pairs)
    verdicts = {
        key: "new" if before is None else "gone" if now is None else judged.get(key, {}).get("verdict") or ""
        for key, (now, before) in pairs.items()
    }
    unchanged = {key for key, verdict in verdicts.items() if verdict not in _TONES and key not in calls}
    keys = sorted(pairs, key=lambda key: (key in unchanged, -abs(_moved_ms(pairs[key]))))
    headings = {"node": _NODE, "stage": _STAGE, "verdict": _VERDICT, "chart": _BOTH, **_sides(pairs)}
    for name in headings.keys() - {"node", "stage", "verdict"}:
        rank = _CHANGED.index(name) + 2 if name in _CHANGED else RARE
        headings[name] = headings[name]._replace(rank=rank)
    rows = {}
    for key, (now, before) in pairs.items():
        told = [f"{calls[key]:.1f}x the calls" if key in calls else "", verdicts[key]]
        row: dict[str, Any] = {"stage": key[0], "node": key[1], "verdict": ", ".join(filter(None, told))}
        for name in _COMPARED:
            was, is_now = (None if node is None else figure(node, name) for node in (before, now))
            growth = None if was is None or is_now is None else is_now / was - 1 if was else None if is_now else 0.0
            row |= zip([f"{name} {side}" for side in _SIDES], [was, is_now, growth], strict=True)
        bounds = {name: judged.get(key, {}).get(name) for name in _BOUNDS}
        moved_ms = _moved_ms((now, before))
        rows[key] = {**row, **bounds, "chart": moved_ms, "self_total_ms Difference": moved_ms}
    named = [name for name in headings if name == "node" or any(row[name] not in (None, "") for row in rows.values())]
    table = Table("comparison", "Nodes of both runs", [headings[name] for name in named])
    for key in keys:
        nodes, row = pairs[key], rows[key]
        filled = [bins(node.histogram or ()) if node is not None else [] for node in nodes]
        chart = distribution(nodes, filled)
        reasons = dict.fromkeys(range(len(named)), _MISSING if None in nodes else _FROM_NOTHING)
        table.add([row[name] for name in named], reasons, {named.index("chart"): chart})
        table.distributions.append(filled)
        cells = table.rows[-1]
        if verdicts[key] not in _MARKS:  # what may be noise is not called worse or better by a colour
            cells[:] = [cell._replace(tone="") for cell in cells]
        if "verdict" in named:
            at = named.index("verdict")
            text = _MARKS.get(verdicts[key], "") + cells[at].text
            cells[at] = cells[at]._replace(text=text, tone=_TONES.get(verdicts[key], "noted" if key in calls else ""))
            reason = "" if None in nodes else judged.get(key, {}).get("reason")
            if reason:
                cells[at] = table.marked(cells[at], reason)
    named_groups = {verdict.capitalize(): [key for key in keys if verdicts[key] == verdict] for verdict in _TONES}
    named_groups[_CALLED] = [key for key in keys if key in calls]
    for title, found in named_groups.items():
        names = []
        for key in found[:_MOST_NAMED]:
            growth = rows[key]["mean_ms Change"]
            amount = "" if growth is None else f" ({100 * growth:+.1f} % a call)"
            names.append(shown_text("node", key[1]) + (f" ({calls[key]:.1f}x)" if title == _CALLED else amount))
        if len(found) > _MOST_NAMED:
            names.append(f"{len(found) - _MOST_NAMED:,} more")
        if found:
            table.headline.append((title, names))
    others = Counter(verdict for key, verdict in verdicts.items() if key in unchanged and verdict)
    table.headline += [(verdict.capitalize(), [counted(count, "node")]) for verdict, count in others.items()]
    if usual_calls:
        table.notes.append(f"Most nodes were called {usual_calls:.1f} times as often as before.")
    if SECTION in document.sections:
        table.notes += [shown_text("note", note) for note in document.sections[SECTION].notes]
    return table


def _judged(document: Document) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of the comparison that a document has, by stage and node."""
    if SECTION not in document.sections:
        return {}
    section = document.sections[SECTION]
    names = [column.name for column in section.columns]
    rows: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in section.rows]
    return {(row["stage"], row["node_name"]): row for row in rows}


def _unusual_calls(pairs: Mapping[Any, Pair]) -> tuple[dict[Any, float], float]:
    """Return how many times as many calls some nodes have, and most of them if that is not 1."""
    factors = {
        key: now.count / before.count
        for key, (now, before) in pairs.items()
        if now is not None and before is not None and now.count and before.count
    }
    usual = sorted(factors.values())[len(factors) // 2] if len(factors) >= _SEVERAL else 1.0
    unusual = {key: factor for key, factor in factors.items() if abs(math.log(factor / usual)) > math.log(_MORE_CALLS)}
    return unusual, usual if abs(math.log(usual)) > math.log(_MORE_CALLS) else 0.0


def _sides(pairs: Mapping[Any, Pair]) -> dict[str, Heading]:
    """Return the columns of the figures that are known, three for each."""
    headings: dict[str, Heading] = {}
    for name in _COMPARED:
        if not any(figure(node, name) for pair in pairs.values() for node in pair if node is not None):
            continue
        of = _FIELDS[name]
        kinds = (of.kind, of.kind, "change" if of.kind == "time" else "growth")
        for side, kind in zip(_SIDES, kinds, strict=True):
            headings[f"{name} {side}"] = Heading(side, kind, f"{of.tip}: {side.lower()}", group=of.title)
        if name == "mean_ms":
            headings |= _BOUNDS
        if name == "self_total_ms":
            headings["self_total_ms Difference"] = _MOVED
    return headings


def _moved_ms(pair: Pair) -> float:
    """Return how many ms a node takes more than in the other run."""
    now, before = pair
    return (own_ms(now) if now else 0.0) - (own_ms(before) if before else 0.0)


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
