"""The HTML report, read with a parser: nothing runs or is fetched, and its tables need no script (F4, I14)."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import random
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_on
from cprofiling._internal.tables import Column, Section
from cprofiling._internal.text import format_time, shown_text
from cprofiling.nodes.resources import CounterValue, MemoryFigures, NodeLaunches, NodeMemory
from cprofiling.report.charts import Axis, bars, bins, lines
from cprofiling.report.document import Document, Finding, Measurement, Node, Span, Timeline, Track
from cprofiling.report.html.render import render
from cprofiling.views import View
from hostile_names import NAMES
from recorded import outer, profile

pytest.importorskip("jinja2")

DASH = "\N{EN DASH}"
UP = "\N{BLACK UP-POINTING TRIANGLE}"
VOID = {"meta", "link", "br", "input"}
IN_SVG = {"svg", "path", "rect", "text"}
DRAWN = {"path", "rect"}
ALLOWED = {
    "html", "head", "title", "style", "body", "a", "header", "div", "h1", "h2", "h3", "p", "button", "nav", "ul", "li",
    "main", "dl", "dt", "dd", "section", "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi", "i",
    "small", "sup", "span", "ol", "details", "summary", "footer", "script", *VOID, *IN_SVG,
}  # fmt: skip


class Page(HTMLParser):
    """A strict reader: elements are known and closed in order, nothing refers to elsewhere, and no script is inline."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.policy = ""
        self.ids: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._table = ""
        self.titles: list[str] = []  # of cells
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        known = dict(attributes)
        self._end_cells(tag)
        assert tag in ALLOWED
        assert not [name for name in known if name.startswith("on") or name in ("src", "style", "srcset", "action")]
        href = known.get("href") or "#"
        assert href.startswith("#") or (tag == "link" and href.startswith("data:image/svg+xml,"))
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"] or ""
        if known.get("id"):
            self.ids.append(known["id"] or "")
        if tag == "table":
            self._table = known.get("id") or "measured"
            self.tables[self._table] = []
        if tag == "tr":
            self.tables[self._table].append([])
        if tag in ("td", "th"):
            self.tables[self._table][-1].append("")
            self.titles.append(known.get("title") or "")
        if tag == "script":
            self.scripts.append((known, ""))
        if tag not in VOID | DRAWN:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    handle_startendtag = handle_starttag  # type: ignore[assignment] # in drawings

    def _end_cells(self, tag: str) -> None:
        """A cell ends where the next one begins, a row where the next one or the end of the table comes."""
        if tag in ("td", "th", "tr", "/tbody") and self.open[-1] in ("td", "th"):
            self.open.pop()
        if tag in ("tr", "/tbody") and self.open[-1] == "tr":
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        self._end_cells("/" + tag)
        if tag not in DRAWN:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open:
            assert not data.strip()
            return
        if self.open[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        self.texts[self.open[-1]][-1] += data
        if ("td" in self.open or "th" in self.open) and self.open[-1] not in ("sup", "span", *IN_SVG):
            self.tables[self._table][-1][-1] += data

    @property
    def data(self) -> Any:
        (text,) = [text for attributes, text in self.scripts if attributes.get("type") == "application/json"]
        told = json.loads(text)
        return {**told, "figures": unpacked(told["figures"]), "runs": list(map(unpacked, told["runs"]))}


def unpacked(text: str) -> Any:
    """What is compressed in the page."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def numbers(digits: list[str]) -> list[int]:
    """What is written in digits to base 64, the lowest of all numbers first."""
    return [sum((ord(text[at]) - 48) << 6 * power for power, text in enumerate(digits)) for at in range(len(digits[0]))]


def profiled(name: str) -> Any:
    """A node that takes some time for a number."""
    return cp.profile_node(name)(lambda number: sum(range(number)))


def node(name: str = "a", stage: str = "train", **known: Any) -> Node:
    """A node with five calls."""
    times = {"mean_ms": 2.0, "min_ms": 1.0, "max_ms": 4.0, "total_ms": 10.0, "self_total_ms": 10.0, "std_ms": 0.5}
    return Node(name, stage, **{"count": 5, **times, **known})


def document(*nodes: Node, **known: Any) -> Document:
    return replace(Document("A run", "statistics"), nodes=nodes, **known)


def rows_of(page: Page, table: str = "nodes") -> list[dict[str, str]]:
    head, *rows = page.tables[table]
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_what_nodes_took_stands_in_the_table_without_any_script() -> None:
    p = profiler_on(skip_first_n=1)
    for elapsed in range(1, 200):
        p.record("train", "slow", float(elapsed))
        p.record("val", "fast", elapsed / 1e4)
    with pytest.raises(ZeroDivisionError), p.profile_node("fast", stage="val"):
        raise ZeroDivisionError
    stats = {row.node_name: row for row in p.get_profiling_summary()}
    page = Page(render(View(p.snapshot()).document))
    rows = rows_of(page)
    assert [row["Node"] for row in rows] == ["slow", "fast"]
    for row in rows:
        of = stats[row["Node"]]
        for title, field in (("Mean", "mean_ms"), ("p50", "p50_ms"), ("p99.9", "p999_ms"), ("Total", "total_ms")):
            assert row[title] == format_time(getattr(of, field)).replace(" ", "")
        assert (row["Stage"], row["Count"], row["Skipped"]) == (of.stage, "198", "1")
    assert [row["Errors"] for row in rows] == ["0", "1"]
    assert rows[0]["Share"] == "100.0%"
    measured = dict(page.tables["measured"])
    assert measured["First calls of each node left out"] == "1"
    assert measured["Cost of profiling"].endswith("not subtracted from the times")


def test_what_is_not_known_is_a_dash_with_its_reason() -> None:
    nodes = (
        node("a", p50_ms=1.5, unknown={"self_total_ms": "it <was> not told"}, self_total_ms=None),
        node("b", unknown={"p50_ms": "no histogram"}),
        Node("c", "train", 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, error_count=3),
    )
    page = Page(render(document(*nodes)))
    rows = {row["Node"]: row for row in rows_of(page)}
    assert rows["a"]["Self"] == rows["b"]["p50"] == rows["c"]["Mean"] == rows["c"]["Total"] == DASH
    assert rows["c"]["Share"] == DASH
    assert {"it <was> not told", "no histogram", "no call has succeeded", "not known"} <= set(page.titles)
    listed = [text for text in page.texts["li"] if text in ("it <was> not told", "no histogram")]
    assert sorted(listed) == ["it <was> not told", "no histogram"]
    assert [row["Errors"] for row in rows.values()] == ["0", "0", "3"]


def test_columns_of_which_nothing_is_known_are_left_out_and_named() -> None:
    page = Page(render(document(node(unknown=dict.fromkeys(("p50_ms", "p99_ms"), "there are no percentiles")))))
    assert "p50" not in page.tables["nodes"][0]
    assert "Of no node known: p50, p99 (there are no percentiles)." in page.texts["p"]
    assert "Stage" in page.tables["nodes"][0]
    assert "Stage" not in Page(render(document(node(stage="")))).tables["nodes"][0]


def test_figures_beyond_times_are_columns() -> None:
    known = node(
        "known", gpu_count=3, gpu_mean_ms=0.5, launches=NodeLaunches(7, 6, 1.5, 1, 2048, 0, 0, 0),
        memory=NodeMemory(None, MemoryFigures(5, 1, 2, -4096, None, "it did not rise"), "there is no device"),
        counters={"cpu_time": CounterValue(2e6, 10_000_000, 5, "ns", False), "cycles": None}, sync_total_ms=0.25,
    )  # fmt: skip
    page = Page(render(document(known, node("other", gpu_reason="no device was in use"))))
    first, second = rows_of(page)
    assert (first["GPU mean"], first["Launches"], first["To device"]) == ("500.0µs", "7", "2.0KiB")
    assert (first["Host change"], first["CPU time"], first["Waiting"]) == ("-4.0KiB", "2.00ms", "250.0µs")
    assert (second["GPU mean"], second["Launches"], second["CPU time"]) == (DASH, DASH, DASH)
    assert "Of no node known: Host peak (it did not rise)." in page.texts["p"]
    assert "Of no node known: Device change, Device peak (there is no device)." in page.texts["p"]


def test_nothing_runs_but_our_script_and_nothing_is_fetched() -> None:
    text = render(document(node()))
    page = Page(text)
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "")
    directives = dict(part.strip().split(" ", 1) for part in page.policy.split(";"))
    assert directives.keys() == {"default-src", "style-src", "script-src", "img-src", "base-uri", "form-action"}
    assert directives["default-src"] == directives["base-uri"] == directives["form-action"] == "'none'"
    (style,) = page.texts["style"]
    (script,) = [text for attributes, text in page.scripts if "type" not in attributes]
    for name, part in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert directives[name] == f"'sha256-{digest}'"
    assert len(page.scripts) == 2
    assert len(render(document())) < 150_000  # the promise is 500 KB


def test_hostile_names_are_shown_as_themselves_everywhere() -> None:
    p = profiler_on()
    with profile() as prof:
        for name in NAMES:
            p.record(name, name, 1.0)
            with cp.record(name):
                pass
    recorded = View(prof).document
    columns = (Column("a", "</th>", "text", '"><b>'), Column("b", "&amp;", "ms"))
    section = Section("</caption><script>", columns, tuple((name, 1.0) for name in NAMES), ("<!--",))
    measured = Measurement("</td>", None, reasons=("<script>alert(1)</script>",))
    told = replace(
        View(p.snapshot(), title="</title><script>alert(1)</script>", source="<b>.stats").document,
        sections={"<i>": section}, measurement=measured, facts={"<u>": "<s>"}, timeline=recorded.timeline,
        icicle=recorded.icicle, findings=(Finding("k", "<h1>", "<p>", "</li>", 0.5),),
    )  # fmt: skip
    text = render(told, against=told)
    assert "\x00" not in text
    text.encode()
    page = Page(text)
    shown = sorted(shown_text("name", name) for name in NAMES)
    assert sorted(row[0] for row in page.tables["nodes"][1:]) == shown
    assert sorted(row[1] for row in page.tables["nodes"][1:]) == shown
    assert sorted(row[0] for row in page.tables["comparison"][2:]) == shown
    assert sorted(row[0] for row in page.tables["section-0"][1:]) == shown
    assert page.texts["title"] == ["</title><script>alert(1)</script>"]
    assert page.tables["section-0"][0] == ["</th>", "&amp;"]
    assert set(page.data["runs"][0]["names"]) == set(shown)
    assert [row[0] for row in page.data["figures"]["nodes"]["rows"]] == [row[0] for row in page.tables["nodes"][1:]]
    assert len(page.scripts) == 2


def test_names_outside_the_page_do_not_end_its_data() -> None:
    text = render(document(node("</script><!--\u2028\u2029]]>")))
    raw = text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    assert not set(raw) & set("<>&\u2028\u2029")
    figures = unpacked(json.loads(raw)["figures"])
    assert figures["nodes"]["rows"][0][0] == r"</script><!--\u2028\u2029]]>"


def test_two_runs_stand_side_by_side() -> None:
    other = document(node("same"), node("faster", mean_ms=4.0, total_ms=20.0, self_total_ms=20.0), node("gone"))
    this = document(node("same"), node("faster"), node("new", mean_ms=1.0), title="Another")
    page = Page(render(this, against=other))
    rows = {row[0]: row for row in page.tables["comparison"][2:]}
    assert list(rows) == ["new", "gone", "faster", "same"]
    groups, heads = page.tables["comparison"][:2]
    assert groups == ["Node", "Stage", "Verdict", "Distribution", "Mean", "Self", "Count"]
    assert heads == [*["Before", "Now", "Change"] * 2, "Difference", "Before", "Now", "Change"]
    assert [rows[name][10] for name in rows] == ["+10.00ms", "-10.00ms", "-10.00ms", "0.00ns"]
    assert rows["faster"][4:7] == ["4.00ms", "2.00ms", "\N{BLACK DOWN-POINTING TRIANGLE} \N{MINUS SIGN}50.0%"]
    assert rows["same"][2:7] == ["", "", "2.00ms", "2.00ms", "0.0%"]
    assert rows["gone"][2:7] == ["gone", "", "2.00ms", DASH, DASH]
    assert rows["new"][2:7] == ["new", "", DASH, "1.00ms", DASH]
    assert page.tables["measured"][0] == ["What", "Another", "A run"]
    assert [len(each) for each in page.data["figures"]["comparison"]["bins"]] == [2] * 4


def test_the_other_run_is_named_once() -> None:
    this, other = (replace(document(node("a")), source=f"/runs/{name}") for name in ("new.cprof", "old.cprof"))
    assert "beside <bdi>/runs/old.cprof</bdi>, before</p>" in render(this, against=other)
    named = render(replace(this, title="After"), against=replace(other, title="Before"))
    assert "beside <bdi>Before</bdi> (<bdi>/runs/old.cprof</bdi>), before</p>" in named


def test_a_share_stands_once_in_a_finding() -> None:
    found = (Finding("k", "46 % of the time is outside", "", "", 0.45), Finding("k", "Much is outside", "", "", 0.45))
    text = render(document(node("a"), findings=found))
    assert re.findall(r"<h3>(.*?)</h3>", text) == [
        "46 % of the time is outside ", 'Much is outside <span class="share">45 %</span>',
    ]  # fmt: skip


def test_figures_that_stay_0_have_not_changed() -> None:
    this = document(node("a", error_count=0), node("b", error_count=3), node("c", error_count=1))
    other = document(node("a", error_count=0), node("b", error_count=0), node("c", error_count=2))
    rows = {row[0]: row[-1] for row in Page(render(this, against=other)).tables["comparison"][2:]}
    assert rows["a"] == "0.0%"
    assert rows["b"] == DASH
    assert "50.0%" in rows["c"]


def test_verdicts_of_a_comparison_stand_beside_the_nodes() -> None:
    columns = (Column("node_name", "Node"), Column("stage", "Stage"), Column("verdict", "Verdict"))
    section = Section("Compared", columns, (("a", "train", "slower"), ("b", "train", None)))
    this = document(node("a"), node("b"), kind="comparison", sections={"comparison": section})
    before = document(node("a", mean_ms=1.0), node("b", mean_ms=1.0))
    text = render(this, against=before)
    assert {row[0]: row[2] for row in Page(text).tables["comparison"][2:]} == {"a": f"{UP} slower", "b": ""}
    assert text.count('class="change worse"') == 1
    assert text.count('class="text worse"') == 1
    assert "Slower: a (+100.0 % a call)." in re.sub("<[^>]+>", "", text)
    same = section._replace(rows=(("a", "train", "same"), ("b", "train", "same")))
    text = render(replace(this, sections={"comparison": same}), against=before)
    assert text.count("\N{BLACK UP-POINTING TRIANGLE} +100.0") == 2
    assert "change worse" not in text, "what may be noise has no colour"
    from_snapshots = profiler_on()
    for elapsed in (1.0, 1.1, 0.9):
        from_snapshots.record("train", "a", elapsed)
    first = from_snapshots.snapshot()
    for elapsed in (50.0, 51.0, 49.0) * 20:
        from_snapshots.record("train", "a", elapsed)
    (row,) = Page(from_snapshots.snapshot().to_html(against=first)).tables["comparison"][2:]
    assert row[2] == f"{UP} 21.0x the calls, slower"


def test_a_comparison_has_no_empty_column_and_no_reason_in_a_cell() -> None:
    columns = tuple(Column(name, name) for name in ("node_name", "stage", "verdict", "reason", "low_ms", "high_ms"))
    rows = (("a", "", "unclear", "by ranges that do not overlap", None, None), ("b", "", None, "", None, None))
    section = Section("Compared", columns, rows, ("A note.",))
    this = document(node("a", ""), node("b", ""), kind="comparison", sections={"comparison": section})
    text = render(this, against=document(node("a", ""), node("b", "")))
    page = Page(text)
    assert page.tables.keys() == {"nodes", "comparison", "measured"}, "the section is in the table of the nodes"
    groups, _, *found = page.tables["comparison"]
    assert groups == ["Node", "Verdict", "Distribution", "Mean", "Self", "Count"]
    assert [row[1] for row in found] == ["unclear", ""]
    assert "by ranges that do not overlap" in page.texts["li"]
    assert "A note." in page.texts["p"]


def test_other_numbers_of_calls_are_said() -> None:
    before = document(*(node(name, count=10) for name in "abcde"))
    now = document(node("a", count=20), node("b", count=5), *(node(name, count=11) for name in "cde"))
    text = render(now, against=before)
    verdicts = {row[0]: row[2] for row in Page(text).tables["comparison"][2:]}
    assert verdicts == {"a": "2.0x the calls", "b": "0.5x the calls", "c": "", "d": "", "e": ""}
    assert list(verdicts)[:2] == ["a", "b"]
    assert "Called more or less often: a (2.0x), b (0.5x)." in re.sub("<[^>]+>", "", text)
    longer = render(document(*(node(name, count=31) for name in "abcde")), against=before)
    assert "x the calls" not in longer
    assert "Most nodes were called 3.1 times as often as before." in longer


def test_runs_are_told_apart_by_title_or_file_or_place() -> None:
    def names(one: Document, other: Document) -> list[str]:
        return Page(render(one, against=other)).tables["measured"][0][1:]

    assert names(document(title="x"), document(title="y")) == ["x", "y"]
    assert names(document(source="/p/a.stats"), document(source="b.stats")) == ["a.stats", "b.stats"]
    assert names(document(), document()) == ["this run", "the other run"]


def test_sections_are_tables_with_units() -> None:
    columns = (
        Column("d", "Less", "ms"), Column("t", "Text"), Column("ns", "Ns", "ns"), Column("us", "Us", "us"),
        Column("b", "Bytes", "bytes"), Column("s", "Share", "share"), Column("p", "Percent", "percent"),
        Column("r", "Rate", "per_second"), Column("n", "Number", "number"), Column("c", "Count", "count"),
        Column("o", "Is", "text"),
    )  # fmt: skip
    values = (-1500.0, "a", 1500, 2.5, 2048, 0.25, 12.34, 30.0, 1234.5678, 12345, True)
    section = Section("Warm-up", columns, (values, (None,) * 11), ("A note.",))
    page = Page(render(document(sections={"warm_up": section})))
    head, row, unknown = page.tables["section-0"]
    assert head == [column.title for column in columns]
    assert row == ["-1.50s", "a", "1.50µs", "2.50µs", "2.0KiB", "25.0%", "12.3%", "30.0/s", "1234.57", "12,345", "yes"]
    assert unknown == [DASH] * 11
    assert "A note." in page.texts["p"]
    assert page.data["figures"]["section-0"]["rows"][0][:4] == [-1500.0, "a", 0.0015, 0.0025]
    assert "Warm-up" in page.texts["h2"]


def test_a_recording_is_told_in_words_too() -> None:
    with profile() as prof:
        outer()
    page = Page(prof.to_html())
    ((process, thread, spans, *_),) = page.tables["tracks-0"][1:]
    assert (thread, spans) == ("MainThread", "4")
    assert "pid" in process
    assert page.tables["tree-0"][1][:2] == ["outer", "1"]
    assert page.tables["tree-0"][2][0].startswith("\N{NO-BREAK SPACE}" * 3)
    (text,) = [text for text in page.texts["p"] if "spans" in text and "thread" in text]
    assert text.startswith("4 spans on 1 thread or stream in ")


def test_what_was_drawn_together_and_left_out_is_said() -> None:
    spans = (Span(0, "a", 0, 5000, 0, count=40), Span(0, "b", 9000, 1_000_000, 0))
    drawn = Timeline(0, 2_000_000, (Track("p", "t", 1, 2, 3),), spans, 50, 7000)
    page = Page(render(document(timeline=drawn)))
    notes = [text for text in page.texts["p"] if "Aggregated" in text or "Not drawn" in text]
    assert notes[0].startswith("Aggregated: 40 spans, each shorter than 7.00 µs, are kept as 1 mark")
    assert notes[1].startswith("Not drawn: 9 spans")
    assert page.tables["tracks-0"][1][:3] == ["rank 3: p (pid 1)", "t", "41"]
    (track,) = page.data["runs"][0]["timeline"]["tracks"]
    assert (numbers(track["gap"]), numbers(track["time"])) == ([0, 8000], [5000, 1_000_000])
    assert (track["count"], track["depth"]) == ([40, 1], 0)


def test_arguments_of_very_many_spans_have_room_or_are_left_out_and_counted() -> None:
    digits = random.Random(7)
    spans = tuple(
        Span(0, "a", 100 * at, at % 90, 0, trace_id=f"{digits.getrandbits(128):032x}", arguments=f'{{"n": {at}}}')
        for at in range(1000)
    )
    page = Page(render(document(timeline=Timeline(0, 10**6, (Track("p", "t", 1, 2),), spans, 1000))))
    details = list(map(unpacked, page.data["runs"][0]["timeline"]["details"]))
    traces = [str(span.trace_id) for span in spans]
    assert details[1] == [*(trace[:16] for trace in traces), "".join(trace[16:] for trace in traces)]
    assert (details[0], details[2]) == ([""] * 1000, [span.arguments for span in spans])
    long = tuple(span._replace(arguments=f"{digits.getrandbits(20_000):x}") for span in spans)
    text = render(document(timeline=Timeline(0, 10**6, (Track("p", "t", 1, 2),), long, 1000)))
    assert 1_800_000 < len(text) < 2_200_000
    page = Page(text)
    kept = unpacked(page.data["runs"][0]["timeline"]["details"][2])
    left_out = [span.duration_ns for span, known in zip(spans, kept, strict=True) if known is None]
    assert f"Without arguments: {len(left_out)} short spans, as a page has no room for more." in page.texts["p"]
    assert max(left_out) <= min(span.duration_ns for span, known in zip(spans, kept, strict=True) if known)


@pytest.mark.slow
def test_a_page_of_very_many_spans_is_small() -> None:
    """Names of 300 nodes in two stages; each call has a random trace id of its own, and then arguments, too.

    Times are as calls of 0 to 300 steps have them on a quiet machine: more digits of a busy one take more room.
    """
    nodes = [profiled(f"node {number}") for number in range(300)]
    digits = random.Random(7)
    with profile() as prof:
        for call in range(100_000):
            with cp.stage("train" if call % 2 else "test"):
                nodes[digits.randrange(300)](digits.randrange(300))
    shown = View(prof.recording).document
    assert shown.timeline is not None
    assert len(shown.nodes) == 600
    assert len(shown.timeline.spans) == 100_000
    spans, at = [], 0
    for span in shown.timeline.spans:
        duration = 250 + 5 * digits.randrange(300) + int(digits.expovariate(1 / 20))
        spans.append(span._replace(start_ns=at, duration_ns=duration))
        at += duration + 700 + int(digits.expovariate(1 / 20))
    timeline = shown.timeline._replace(duration_ns=at, spans=tuple(spans))
    assert len(render(replace(shown, timeline=timeline)).encode()) < 2_000_000
    told = tuple(
        span._replace(
            trace_id=f"{digits.getrandbits(128):032x}",
            arguments=json.dumps({"x": digits.random(), "of": f"{digits.getrandbits(256):x}"}),
        )
        for span in spans
    )
    assert len(render(replace(shown, timeline=timeline._replace(spans=told))).encode()) < 4_000_000


def test_what_else_is_known_stands_above_and_below() -> None:
    told = Measurement("TSC", 41.0, 3, synchronized=True, dropped=1234, internal_errors=2, reasons=("Lost <one>.",))
    facts = {"wall_clock_ms": 1500.0, "rank": 3, "process": "a & b"}
    page = Page(render(document(node(error_count=7), measurement=told, facts=facts)))
    tiles = dict(zip(page.texts["dt"], page.texts["dd"], strict=True))
    assert (tiles["Nodes"], tiles["Calls"], tiles["Errors"], tiles["Dropped"]) == ("1", "5", "7", "1,234")
    assert dict(page.tables["measured"][1:]) == {
        "Clock": "TSC",
        "Cost of profiling":
            "41.00 ns a call on this machine; 205.0 ns in 5 calls, 0.0021 % of the time in nodes; not subtracted from "
            "the times",
        "First calls of each node left out": "3", "Nodes waited for their devices": "yes", "Dropped": "1,234",
        "Internal errors of the profiler": "2", "wall clock": "1.50 s", "rank": "3", "process": "a & b",
    }  # fmt: skip
    assert "Lost <one>." in page.texts["li"]
    beside = Page(render(document(title="this"), against=document(title="that", measurement=told)))
    assert [text for text in beside.texts["h3"] if text.startswith("Of")] == ["Of "]
    assert beside.texts["bdi"].count("that") == beside.texts["bdi"].count("this") + 1


def test_the_head_tells_of_what_it_is() -> None:
    facts = {"started": "2026-11-28 18:00:00 UTC", "command": "python <app>.py", "python": "3.11.7", "rank": 3}
    text = render(document(node("a", stage="x"), node("a", stage="y"), node("b", stage="x"), facts=facts))
    assert re.findall("<li><bdi>(.*?)</bdi></li>", text) == [
        "2026-11-28 18:00:00 UTC", "python &lt;app&gt;.py", "Python 3.11.7",
    ]  # fmt: skip
    assert "<dt>Nodes</dt><dd>2 in 2 stages</dd>" in text


def test_findings_stand_below_the_nodes_each_in_a_line() -> None:
    found = tuple(Finding("k", f"finding {number}", f"text {number}", "do this", 0.1) for number in range(3))
    text = render(document(node("a"), findings=found))
    assert text.index('id="part-nodes"') < text.index('id="part-findings"') < text.index('id="part-measured"')
    assert len(re.findall(r"<li><details><summary><h3>finding \d .*</h3></summary>\n<p>text \d</p>", text)) == 3


def test_nothing_at_all_is_a_page_as_well() -> None:
    page = Page(render(document()))
    assert "No profiling data collected." in page.texts["p"]
    assert page.data["figures"]["nodes"]["rows"] == []
    with profile() as prof:
        pass
    assert "timeline" not in Page(prof.to_html()).data["runs"][0]


def test_without_jinja2_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from cprofiling.report.html import render as html

    html._template.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(ImportError, match=re.escape('pip install "cprofiling[report]"')):
        render(document())
    html._template.cache_clear()


def test_histograms_keep_their_counts_and_their_places() -> None:
    p = profiler_on()
    for elapsed in (0.0, 1e-6, 0.5, 0.51, 0.52, 3.0, 1e6):
        p.record("train", "a", elapsed)
    (histogram,) = [each.histogram for each in View(p.snapshot()).document.nodes]
    assert histogram
    filled = bins(histogram)
    assert sum(count for _, count in filled) == 7
    assert [number for number, _ in filled] == sorted({number for number, _ in filled})
    assert filled[0] == (0, 2)
    middle = dict(filled)[math.floor(16 * math.log2(0.5e6))]
    assert middle >= 1
    axis = Axis.around([1e-6, 1e6])
    assert (axis.first, axis.last) == (0, 12)
    assert (axis.x(1e-9), axis.x(1.0), axis.x(1e9)) == (0.0, 90.0, 180.0)
    assert [text for _, text in axis.ticks if text] == ["1 ns", "10 µs", "100 ms", "1000 s"]
    outline = bars(filled, axis)
    assert outline.startswith("M0 22V")
    assert outline.endswith("V22")
    assert bars([], axis) == ""
    assert lines([None, 1.0], axis) == "M90.0 0V22"
    assert (Axis.around([]).first, Axis.around([5.0]).last) == (3, 7)
