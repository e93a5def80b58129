"""The report as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from functools import cache
from typing import Any

import cprofiling
from cprofiling._internal.optional import imported
from cprofiling._internal.report_format import Format
from cprofiling._internal.text import format_time, shown_text
from cprofiling.nodes.summary_table import NO_DATA
from cprofiling.report.document import Document, Measurement
from cprofiling.report.html import figures, page
from cprofiling.report.tables import facts

_FOLDER = os.path.dirname(__file__)
_NOT_TOLD = "not known"
_SHARE = re.compile(r"\d %")
_NO_NODES = "No node and no labelled block was recorded."


class Html(Format):
    """A page that needs nothing else."""

    suffixes = (".html", ".htm")
    compares = True

    def render(self, view: Any) -> str:
        """Return the page."""
        return render(view.compared, against=None if view.against is None else view.against.document)


def render(document: Document, against: Document | None = None) -> str:
    """Return a report as an HTML page.

    The page is one file that asks nothing of the network: a policy in it forbids that, and any script but its own.
    Names are data: each is shown as in the other reports, with control characters and surrogates as escapes. Without
    scripts its tables are still there.

    Args:
        document: What is shown.
        against: Another run, which is shown beside it: the differences of each node, both timelines, and how both were
            measured.

    Raises ImportError, naming the extra, without Jinja2.
    """
    runs = [document] if against is None else [document, against]
    titles = ["this run", "the other run"]
    for names in ([run.title for run in runs], [os.path.basename(run.source or "") for run in runs]):
        if len(set(names)) == len(runs) and all(names):
            titles = [shown_text("title", name) for name in names]
            break
    tables = {"nodes": figures.node_table(document)}
    if against is not None:
        tables["comparison"] = figures.comparison_table(document, against)
    for number, section in enumerate(document.sections.values()):
        name = f"section-{number}"
        tables[name] = figures.section_table(name, section)
    parts = [_part(number, run) for number, run in enumerate(runs)]
    measured = [{**_of_measurement(run.measurement), **facts(run)} for run in runs]
    script, style = _text("report.js"), _text("report.css")
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    html: str = _template().render(
        title=shown_text("title", document.title),
        titles=titles,
        kind=document.kind,
        sources=[shown_text("source", run.source) if run.source else "" for run in runs],
        is_named_by_file=bool(titles[1:]) and titles[1] == os.path.basename(runs[-1].source or ""),
        tiles=_tiles(document),
        findings=[
            {
                **{name: shown_text(name, getattr(found, name)) for name in ("title", "text", "advice")},
                # A title has the share of what it is about, which may be less than the whole: a second one beside it
                # is a riddle.
                "share": "" if _SHARE.search(found.title) else f"{100 * found.share:.0f}",
            }
            for found in document.findings
        ],
        comparison=tables.get("comparison"),
        nodes=tables["nodes"],
        sections=[table for name, table in tables.items() if name.startswith("section-")],
        parts=parts,
        axis=figures.axis_of(document.nodes),
        compared_axis=figures.axis_of((*document.nodes, *against.nodes)) if against is not None else None,
        measured=[
            (label, [each.get(label, "") for each in measured])
            for label in dict.fromkeys(key for each in measured for key in each)
        ],
        reasons=[
            (name, [shown_text("reason", reason) for reason in run.measurement.reasons])
            for name, run in zip(titles, runs, strict=True)
            if run.measurement.reasons
        ],
        made_by=f"cprofiling {getattr(cprofiling, '__version__', '')}".rstrip(),
        nothing=_NO_NODES if document.kind == "recording" else NO_DATA,
        data=_data([*tables.values(), *(table for part in parts for table in part["tables"])], parts),
        style=style,
        script=script,
        policy=f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",  # no script and no style but these
    )
    return html


def _part(number: int, run: Document) -> dict[str, Any]:
    """Return the timeline and icicle of a run, in words and for the script."""
    names = page.Names()
    part: dict[str, Any] = {"number": number, "tables": [], "timeline": None, "icicle": None}
    data: dict[str, Any] = {}
    if run.timeline is not None and run.timeline.spans:
        data["timeline"] = page.timeline_data(run.timeline, names)
        table = page.track_table(run.timeline, f"tracks-{number}")
        part["timeline"] = {"table": table, "notes": page.timeline_notes(run.timeline)}
        part["tables"].append(table)
    if run.icicle:
        data["icicle"] = page.icicle_data(run.icicle, names)
        table = page.icicle_table(run.icicle, f"tree-{number}")
        part["icicle"] = {"table": table}
        part["tables"].append(table)
    part["data"] = {"names": names.shown, **data}
    return part


def _tiles(document: Document) -> list[tuple[str, str]]:
    """Return the labels and texts of the figures on top."""
    nodes = document.nodes
    tiles = [("Nodes", f"{len(nodes):,}"), ("Calls", f"{sum(node.count or 0 for node in nodes):,}")]
    if nodes:
        tiles.append(("Time in nodes", format_time(sum(map(figures.own_ms, nodes)))))
    if document.timeline is not None and document.timeline.spans:
        tiles.append(("Recorded", format_time(document.timeline.duration_ns / 1e6)))
    for label, name in (("Errors", "error_count"), ("Cancelled", "cancelled_count"), ("Skipped", "skipped_count")):
        count = sum(getattr(node, name) for node in nodes)
        if count:
            tiles.append((label, f"{count:,}"))
    if document.measurement.dropped:
        tiles.append(("Dropped", f"{document.measurement.dropped:,}"))
    return tiles


def _of_measurement(measured: Measurement) -> dict[str, str]:
    cost, skipped, waited = measured.cost_ns, measured.skip_first_n, measured.synchronized
    return {
        "Clock": _NOT_TOLD if measured.clock is None else shown_text("clock", measured.clock),
        "Own cost of one profiled call": (
            _NOT_TOLD if cost is None else f"{format_time(cost / 1e6)}, measured and not subtracted"
        ),
        **({} if skipped is None else {"First calls of each node left out": f"{skipped:,}"}),
        **({} if waited is None else {"Nodes waited for their devices": "yes" if waited else "no"}),
        "Dropped": f"{measured.dropped:,}",
        "Internal errors of the profiler": f"{measured.internal_errors:,}",
    }


def _data(tables: list[figures.Table], parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the script is given."""
    return {
        "tables": {
            table.name: {
                "kinds": [heading.kind for heading in table.headings],
                "rows": table.values,
                # the numbers and counts of bins by turns
                "bins": [
                    [[value for pair in filled for value in pair] for filled in row] for row in table.distributions
                ],
            }
            for table in tables
        },
        "runs": [part["data"] for part in parts],
    }


@cache
def _text(name: str) -> str:
    with open(os.path.join(_FOLDER, name), encoding="utf-8", newline="\n") as file:
        return file.read()


@cache
def _template() -> Any:
    jinja2 = imported("jinja2", install="cprofiling[report]")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment.from_string(_text("report.html.j2"))
