"""The document that feeds every view, and what the formats make of it: every figure, every name (F3, F4)."""

from __future__ import annotations

import copy
import csv
import functools
import io
import json
import math
import os
import pickle
import platform
import stat
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
import timing_reports
from calls import profiler_on, profiler_with
from cprofiling._internal.text import shown_text
from cprofiling.nodes.buckets import histogram_of
from cprofiling.nodes.resources import CounterValue, MemoryFigures, NodeCounters, NodeLaunches, NodeMemory
from cprofiling.nodes.snapshot import Snapshot
from cprofiling.nodes.stats import NodeProfilingStats, ProfilingSummary
from cprofiling.recording.result import Recording
from cprofiling.report import from_recording as views_recorded
from cprofiling.report import tables
from cprofiling.report.csv import text_of
from cprofiling.report.document import Document, Node
from cprofiling.report.format_list import format_of
from cprofiling.views import FORMATS, View
from hostile_names import NAMES
from recorded import profile
from recordings import NODE, RECORD, device, host, made

SCHEMA = json.loads((Path(cp.__file__).parent / "schemas" / "report.schema.json").read_text(encoding="utf-8"))
QUANTILES = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms")
FULL = NodeProfilingStats(
    "full", "train", 4, 2.0, 2.0, 0.5, 1.0, 3.0, 8.0, 2.5, 2.0, 3.0, 3.0, 3.0, 3.0, 1, 2, 3, 4, 9.0, 6.0, 5.0,
    gpu_count=4, gpu_mean_ms=1.0, gpu_p50_ms=1.0, gpu_p99_ms=2.0, gpu_total_ms=4.0, gpu_reason="1 call was captured",
    counters=NodeCounters({"cycles": CounterValue(2.5, 10**30, 4, "times", estimated=True), "page_faults": None}),
    launches=NodeLaunches(1, 2, 0.5, 3, 4, 5, 6, 7),
    memory=NodeMemory(None, MemoryFigures(4, 10, 20, -30, None, "it did not rise"), "no device"),
    sync_total_ms=1.5, sync_count=8,
)  # fmt: skip


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    profiler = profiler_on(skip_first_n=1)
    for number in range(100):
        profiler.record("train", "load", 5.0 + number / 100)
        profiler.record("val", "net", 20.0)
    return profiler.snapshot()


@pytest.fixture(scope="module")
def hostile() -> Snapshot:
    return profiler_with({(name, name): [1.5] for name in NAMES}).snapshot()


@pytest.fixture(scope="module")
def recording() -> Recording:
    rows = [
        host("slow", 0, 100, kind=NODE, stage="train"),
        host("label|", 10, 40, kind=RECORD),
        host("slow", 200, 500, kind=NODE, stage="train"),
        host("slow", 600, 610, kind=NODE, stage="train", outcome=1),
        host("slow", 620, 640, kind=NODE, stage="train", outcome=2),
        host("open", 700, 800, kind=NODE, stage="train", flags=1),
        host("turns", 810, 900, kind=NODE, flags=4, suspended_ns=30_000),
        device("gemm", 50, 90, correlation=7),
    ]
    return made(rows)


def valid(document: Document) -> dict[str, Any]:
    """The document as the schema has it."""
    jsonschema = pytest.importorskip("jsonschema")
    value: dict[str, Any] = json.loads(document.to_json())
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value


# ---- the document


def test_a_node_has_the_fields_of_the_statistics() -> None:
    names = [field.name for field in fields(NodeProfilingStats)]
    assert [field.name for field in fields(Node)] == [*names, "histogram", "gpu_histogram", "source", "unknown"]


def test_summaries_and_recordings_know_file_and_line_of_functions(tmp_path: Path) -> None:
    p = profiler_on()

    class Reader:
        def read(self) -> None:
            pass

        def __call__(self) -> None:
            pass

    def make(number: int) -> Callable[[], int]:
        return lambda: number  # one function, made twice

    def other() -> None:
        pass

    reader = Reader()
    p.instrument(reader, "read", name="source: a method")
    lines: dict[str, tuple[Any, Any]] = {
        "source: a method": (reader.read, Reader.read),
        "source: an object": (p.profile_node("source: an object")(reader), Reader.__call__),
        "source: a partial": (p.profile_node("source: a partial")(functools.partial(make(1))), make(1)),
        "source: wrapped": (p.profile_node("source: wrapped")(functools.lru_cache(make(2))), make(2)),
        "source: the same": (p.profile_node("source: the same")(p.profile_node("source: the same")(other)), other),
        "source: in C": (p.profile_node("source: in C")(time.monotonic), None),
        "source: two functions": (p.profile_node("source: two functions")(make(3)), None),
    }
    p.profile_node("source: two functions")(other)
    with profile() as prof:
        for function, _ in lines.values():
            function()
        with p.profile_node("source: a block"):
            pass
    known = {
        name: None if function is None else f"{__file__}:{function.__code__.co_firstlineno}"
        for name, (_, function) in lines.items()
    } | {"source: a block": None}
    summary, trace_file = p.get_profiling_summary(), tmp_path / "trace.json"
    prof.export_chrome_trace(trace_file)
    for of in (summary, prof):
        document = View(of).document
        assert {node.node_name: node.source for node in document.nodes} == known
        valid(document)
    assert {node.node_name: node.source for node in View(cp.load_trace(trace_file)).document.nodes} == known
    for copied in (p.snapshot(), pickle.loads(pickle.dumps(summary))):
        assert {node.source for node in View(copied).document.nodes} == {None}, "it may be of another program"


def test_the_document_of_a_snapshot(snapshot: Snapshot) -> None:
    document = View(snapshot, source="s.bin").document
    assert (document.kind, document.title, document.source) == ("statistics", "Node statistics", "s.bin")
    for node, row in zip(document.nodes, snapshot.stats(), strict=True):
        assert all(getattr(node, field.name) == getattr(row, field.name) for field in fields(row))
        assert type(node.stage) is str
        assert node.histogram is not None
        assert sum(count for _, _, count in node.histogram) == row.count == 99
        assert all(low < high for low, high, _ in node.histogram)
    measurement = document.measurement
    assert (measurement.skip_first_n, measurement.synchronized, measurement.dropped) == (1, False, 0)
    assert measurement.cost_ns == snapshot.stats().cost_ns
    assert "CLOCK_MONOTONIC" in (measurement.clock or "")


def test_the_document_of_a_summary_has_the_histograms_that_it_gives() -> None:
    profiler = profiler_with({("train", "n"): [1.0, 2.0, 2.0], ("inference", "n"): [3.0]})
    summary = profiler.get_profiling_summary()
    for node in View(summary).document.nodes:
        assert node.histogram == summary.histogram(node.node_name, node.stage).buckets
        assert node.gpu_histogram is None
    assert [node.histogram for node in View(copy.copy(summary)).document.nodes] == [None, None]
    assert [sum(row[2] for row in node["histogram"]) for node in json.loads(summary.to_json())["nodes"]] == [3, 1]


def test_the_document_of_a_summary_tells_what_is_unknown() -> None:
    profiler = profiler_on(skip_first_n=5)
    profiler.record("train", "n", 1.0)
    document = View(profiler.get_profiling_summary(), title="mine").document
    assert document.title == "mine"
    (node,) = document.nodes
    assert node.histogram == ()
    assert {*QUANTILES, "self_total_ms", "active_total_ms"} == set(node.unknown)
    known = ProfilingSummary([FULL], reasons=("the clock is CLOCK_BOOTTIME, as it says",), internal_errors=3)
    document = View(known).document
    assert document.measurement.clock == "CLOCK_BOOTTIME"
    assert (document.measurement.dropped, document.measurement.internal_errors) == (4, 3)
    assert document.measurement.synchronized is True
    assert document.nodes[0].unknown == {"queue_delay_ms": "1 call was captured"}
    assert View(ProfilingSummary()).document.measurement.synchronized is None


def test_documents_are_values(snapshot: Snapshot, recording: Recording) -> None:
    for of in (snapshot, snapshot.stats(), recording):
        document = View(of).document
        for other in (copy.deepcopy(document), pickle.loads(pickle.dumps(document))):
            assert (other, hash(other)) == (document, hash(document))


def test_a_report_tells_of_estimated_medians(snapshot: Snapshot) -> None:
    profiler = profiler_on(median="p2")
    for elapsed_ms in (1.0, 100.0) * 50:
        profiler.record("train", "n", elapsed_ms)
    summary = profiler.get_profiling_summary()
    for source in (summary, profiler.snapshot()):
        value = valid(View(source).document)
        assert value["measurement"]["median"] == "p2"
        assert value["nodes"][0]["median_ms"] == summary[0].median_ms != value["nodes"][0]["p50_ms"]
        assert "medians: P² estimates" in View(source).render("text")
    value = valid(View(snapshot).document)
    assert value["measurement"]["median"] == "histogram"
    assert all(node["median_ms"] == node["p50_ms"] for node in value["nodes"])
    assert "medians" not in View(snapshot).render("text")


def test_the_document_of_a_recording(recording: Recording) -> None:
    document = View(recording).document
    nodes = {node.node_name: node for node in document.nodes}
    assert list(nodes) == ["label|", "slow", "open", "turns"]  # as they first ended
    slow = nodes["slow"]
    assert (slow.stage, slow.count, slow.error_count, slow.cancelled_count) == ("train", 2, 1, 1)
    assert (slow.mean_ms, slow.min_ms, slow.max_ms, slow.total_ms, slow.median_ms) == (0.2, 0.1, 0.3, 0.4, 0.2)
    assert (slow.first_ms, slow.last_ms, slow.p50_ms, slow.p99_ms) == (0.1, 0.3, 0.1, 0.3)
    assert slow.std_ms == pytest.approx(statistics.pstdev([0.1, 0.3]))
    assert slow.self_total_ms == pytest.approx(0.37)
    assert slow.histogram == histogram_of([100_000, 300_000])
    assert nodes["turns"].active_total_ms == pytest.approx(0.06)
    assert slow.active_total_ms is None
    assert (nodes["open"].count, nodes["open"].mean_ms) == (0, None)
    assert "mean_ms" in nodes["open"].unknown
    assert document.measurement.reasons[0].startswith("1 span")
    assert list(document.sections) == ["averages", "warm_up", "gaps", "what_if", "frames", "kernels", "idle_times"]
    assert [column.unit for column in document.sections["averages"].columns] == ["text", "count", *["us"] * 4]
    assert document.timeline is not None
    assert document.timeline.total_spans == 8
    assert document.icicle
    assert View(made([])).document.nodes == ()
    many = made([host(f"operator {number}", number, number + 1) for number in range(250)])
    section = View(many).document.sections["averages"]
    assert (len(section.rows), section.notes) == (200, ("50 more rows are not shown.",))


def test_a_recording_tells_its_process_and_clock() -> None:
    with cp.profile() as prof, cp.record("x"):
        pass
    document = View(prof).document
    assert str(os.getpid()) in str(document.facts["process"])
    assert document.measurement.clock is not None
    started = datetime.strptime(str(document.facts["started"]), "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=timezone.utc)
    assert abs((datetime.now(timezone.utc) - started).total_seconds()) < 60
    assert str(document.facts["command"]).startswith(Path(sys.orig_argv[0]).name)
    assert document.facts["python"] == platform.python_version()
    assert f"cprofiling {cp.__version__}" in str(document.facts["packages"]).split(", ")
    foreign = made([host("x", 0, 1)])
    assert View(foreign).document.facts == {}


def test_a_recording_of_a_program_that_changed_what_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setitem(sys.modules, "cupy", object())
    for arguments in ([Path("/usr/app"), 3], None):
        monkeypatch.setattr(sys, "orig_argv", arguments)
        with cp.profile() as prof, cp.record("x"):
            pass
        facts = View(prof).document.facts
        assert facts["command"] == ("app 3" if arguments else "")
        assert "jax" not in str(facts["packages"])


def test_a_recording_of_somebody_else_may_say_anything_of_itself() -> None:
    class Odd(Recording):
        @property
        def facts(self) -> dict[str, str]:
            return {
                "cprofiling": '{"process": {"pid": 1}, "clock": 3, "program": {"python": 3, "packages": []}}',
                "distributedInfo": '{"rank": 1}',
                "x": "{",
            }

    recording = Odd.empty()
    recording._finish()
    document = View(recording).document
    assert (document.facts, document.measurement.clock) == ({}, None)


def test_the_document_of_a_timing_report() -> None:
    document = View(timing_reports.OURS).document
    vae, dit = document.nodes
    assert (vae.node_name, vae.stage, vae.count, vae.mean_ms, vae.total_ms) == ("vae", "", 4, 12.5, 50.0)
    assert (vae.error_count, vae.std_ms) == (1, 0.5)
    assert set(vae.unknown) == set(QUANTILES)
    assert document.facts["process 0"] == "here, pid 7"
    assert document.sections["ranks"].rows == (("dit", 0, 3.5, 2, 1.75, 1.5, 2.0, 0.25),)
    assert document.sections["memory"].rows == (("vae", *(int(each * 2**20) for each in (10, 12, 20, 24.5))),)
    merged = View(timing_reports.MERGED).document.nodes[0]
    assert (merged.count, merged.mean_ms, merged.total_ms) == (None, None, 3.5)
    assert {"count", "mean_ms"} <= set(merged.unknown)
    assert View(timing_reports.PEERS).document.measurement.clock is None
    assert dit.node_name == "dit"


@pytest.mark.parametrize("of", [None, 1, [FULL], "path", object()])
def test_what_has_no_document(of: object) -> None:
    with pytest.raises(TypeError, match="of must be a summary, a snapshot, a recording or a timing report, got"):
        View(of)
    if of is not None:
        with pytest.raises(TypeError, match=r"^against must be a summary, "):
            ProfilingSummary().to_html(against=of)  # type: ignore[arg-type]


def test_a_dict_that_is_no_timing_report() -> None:
    with pytest.raises(cp.FormatError, match=r"the timing report: \$"):
        View({"stages": 3}).render("md")


# ---- JSON


def test_every_kind_of_document_is_of_the_schema(snapshot: Snapshot, recording: Recording) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for of in (snapshot, recording, ProfilingSummary([FULL]), ProfilingSummary(), made([])):
        value = valid(View(of).document)
        assert (value["schema"], value["version"]) == ("cprofiling.report", 1)
    for report in (timing_reports.OURS, timing_reports.PEERS, timing_reports.MERGED):
        valid(View(report).document)
    valid(View(snapshot, against=snapshot).compared)
    node = valid(View(ProfilingSummary([FULL])).document)["nodes"][0]
    assert node["counters"]["cycles"]["total"] == 10**30
    assert node["memory"]["host"]["change"] == -30
    assert set(node) == {field.name for field in fields(Node)} == set(SCHEMA["$defs"]["node"]["properties"])
    value = View(snapshot).document.to_dict()
    for key in ("schema", "nodes", "measurement"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({name: part for name, part in value.items() if name != key}, SCHEMA)
    value["nodes"][0]["mean_ms"] = "1"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, SCHEMA)


def test_json_is_ascii_and_has_all_names(hostile: Snapshot) -> None:
    text = hostile.to_json(indent=1)
    assert text.isascii()
    assert text.count("\n") > 500
    nodes = valid(View(hostile).document)["nodes"]
    # JSON counts in UTF-16: two surrogates may be one character there.
    names = [name.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") for name in NAMES]
    assert [node["node_name"] for node in nodes] == [node["stage"] for node in nodes] == names
    assert len(names) - len({*names} & {*NAMES}) < 10


def test_figures_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        ProfilingSummary([replace(FULL, mean_ms=math.nan)]).to_json()


# ---- CSV


def rows_of_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_has_every_name_and_no_formula(hostile: Snapshot) -> None:
    rows = rows_of_csv(hostile.to_csv())
    assert [text_of(row["node_name"]) for row in rows] == [text_of(row["stage"]) for row in rows] == list(NAMES)
    assert not [row for row in rows if row["node_name"].startswith(("=", "+", "-", "@", "\t", "\r"))]
    hostile.to_csv().encode()  # UTF-8, surrogates or not
    plain = [name for name in NAMES if not name.startswith(tuple("=+-@'\t\r")) and "\\ud" not in name]
    assert {name for name in plain if name.isascii()} <= {row["node_name"] for row in rows}


def test_csv_is_read_by_others(hostile: Snapshot, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    hostile.save(tmp_path / "all.csv")
    data = (tmp_path / "all.csv").read_bytes()
    frame = pandas.read_csv(io.BytesIO(data), keep_default_na=False, encoding="utf-8", lineterminator="\n")
    assert [text_of(name) for name in frame["node_name"]] == list(NAMES)
    names = polars.read_csv(io.BytesIO(data), infer_schema_length=None)["node_name"]
    assert [text_of(name) for name in names] == list(NAMES)


@pytest.mark.parametrize("name", ["\\", "\\ud800", "\\\\ud800", "\\\ud800", "\\\\\udcff", "\ud800\\ud800", "'=1", "''"])
def test_what_looks_as_if_it_were_escaped_comes_back(name: str) -> None:
    (row,) = rows_of_csv(ProfilingSummary([replace(FULL, node_name=name)]).to_csv())
    assert text_of(row["node_name"]) == name
    row["node_name"].encode()


def test_csv_has_exact_figures_and_empty_fields() -> None:
    (row,) = rows_of_csv(ProfilingSummary([replace(FULL, mean_ms=0.1 + 0.2)]).to_csv())
    assert float(row["mean_ms"]) == 0.1 + 0.2
    assert (row["count"], row["queue_delay_ms"], row["gpu_reason"]) == ("4", "", "1 call was captured")
    assert row["counter_cycles_total"] == str(10**30)
    assert row["counter_cycles_estimated"] == "True"
    assert (row["counter_page_faults_mean"], row["launches_fills"], row["memory_host_change"]) == ("", "7", "-30")
    assert (row["memory_device_calls"], row["memory_reason"]) == ("", "no device")
    plain = rows_of_csv(ProfilingSummary([NodeProfilingStats("a", "b", 0, 0, 0, 0, 0, 0, 0, 0)]).to_csv())
    assert not [name for name in plain[0] if name.startswith(("memory", "launches", "counter"))]
    assert ProfilingSummary().to_csv().count("\n") == 1


def test_csv_of_a_recording_has_its_events(recording: Recording) -> None:
    rows = rows_of_csv(recording.to_csv())
    assert len(rows) == len(recording) == 8
    assert [int(row["row"]) for row in rows] == list(range(8))
    first = [rows[0][name] for name in ("name", "dur", "outcome", "device_index")]
    assert first == ["slow", "100000", "success", ""]
    assert {row["kind"] for row in rows} == {"node", "record", "device"}


# ---- Markdown and text


def markdown_rows(text: str) -> list[list[str]]:
    """The cells of the first table, as a reader of Markdown shows them."""
    markdown_it = pytest.importorskip("markdown_it")
    tokens = markdown_it.MarkdownIt("commonmark").enable("table").parse(text)
    end = next(place for place, token in enumerate(tokens) if token.type == "table_close")
    rows: list[list[str]] = []
    for token in tokens[:end]:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows:
            rows[-1].append("".join(child.content for child in token.children or ()))
    return rows[1:]


def test_markdown_survives_every_name(hostile: Snapshot) -> None:
    rows = markdown_rows(hostile.to_markdown())
    shown = [shown_text("name", name).replace("\ufffd", "?") for name in NAMES]
    assert [row[0].replace("\ufffd", "?") for row in rows] == shown
    assert [row[1].replace("\ufffd", "?") for row in rows] == shown
    assert {len(row) for row in rows} == {len(rows[0])}


def test_the_text_has_a_line_for_each_name(hostile: Snapshot) -> None:
    text = View(hostile).render("text")
    lines = text.splitlines()
    first = lines.index(next(line for line in lines if set(line) == {"-"})) + 1
    names = {line.split("  ")[0] for line in lines[first : first + len(NAMES)]}
    assert {"</script>", "\\ud800", "\\x1b[2J"} <= names
    assert {character for character in text if character < " "} == {"\n"}


def test_columns_are_those_that_any_node_has_something_for(snapshot: Snapshot) -> None:
    header = snapshot.to_markdown().splitlines()[2]
    assert header == "| Node | Stage | Count | Mean | Std | Min | p50 | p90 | p99 | p99.9 | Max | Total | Skipped |"
    timing = View(timing_reports.OURS).render("md")
    assert "| Node | Count | Mean | Std | Min | Max | Total | Errors |" in timing
    assert "## Ranks" in timing
    assert "- wall clock: 1.00 s" in timing
    unsampled = replace(FULL, count=0, mean_ms=0.0, node_name="unsampled")
    rows = markdown_rows(ProfilingSummary([unsampled, FULL]).to_markdown())
    assert [row[:4] for row in rows] == [["unsampled", "train", "0", "-"], ["full", "train", "4", "2.00 ms"]]
    assert View(ProfilingSummary()).render("md").startswith("# Node statistics\n\nNo profiling data collected.\n")


def test_findings_and_what_is_known_beyond_times_are_told(recording: Recording) -> None:
    rows = [
        host("copy", 0, 10_000),
        *(device("Memcpy HtoD", 10 * at, 10 * at + 9, cat="gpu_memcpy") for at in range(900)),
    ]
    text = made([*rows, host("node", 0, 10_000, kind=NODE)]).to_markdown()
    assert "## Findings" in text
    assert " Advice: " in text
    text = View(ProfilingSummary([FULL])).render("text")
    parts = ("Launches", "Waiting for devices", "1 call was captured", "nodes waited for their devices: yes")
    assert [part for part in (*parts, "IPC") if part in text] == [*parts]
    assert "internal errors of the profiler: 2" in View(ProfilingSummary([FULL], internal_errors=2)).render("text")


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "ms", "-"), (1.5, "ms", "1.50 ms"), (-1.5, "us", "-1.50 µs"), (2500, "ns", "2.50 µs"),
        (2048, "bytes", "2.0 KiB"), (0.25, "share", "25.0 %"), (12.5, "percent", "12.5 %"),
        (1234567, "count", "1,234,567"), (59.94, "per_second", "59.9/s"), (0.125, "number", "0.125"),
        (True, "number", "yes"), (False, "text", "no"), ("a\nb", "text", "a\\nb"),
    ],
)  # fmt: skip
def test_figures_as_people_read_them(value: Any, unit: Any, shown: str) -> None:
    assert tables.shown(value, unit) == shown


def test_what_is_drawn_is_made_for_those_that_draw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = made([host("a", 0, 5, kind=NODE), host("b", 6, 9, kind=RECORD)])
    drawn: list[str] = []

    def noted(name: str) -> Callable[[Recording], object]:
        drawing: Callable[[Recording], object] = getattr(views_recorded, name)

        def draw(of: Recording) -> object:
            drawn.append(name)
            return drawing(of)

        return draw

    for name in ("timeline", "icicle"):
        monkeypatch.setattr(views_recorded, name, noted(name))
    for against in (None, recording):
        for kind in ("text", "md"):
            View(recording, against=against).render(kind)
    View(recording).render("csv")
    assert drawn == []
    view = View(recording)
    view.render("md")
    assert json.loads(view.render("json"))["timeline"]["total_spans"] == 2
    view.render("json")
    assert drawn == ["timeline", "icicle"]
    assert replace(view.document, timeline=None, icicle=()) == view.tables
    assert View(recording).document == view.document


# ---- Arrow and Parquet


def test_arrow_has_all_fields_and_nulls() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    empty = NodeProfilingStats("a\ud800b", cp.ExecutionStage.VAL, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    table = pyarrow.RecordBatchReader.from_stream(ProfilingSummary([FULL, empty])).read_all()
    table.validate(full=True)
    scalars = [field for field in fields(NodeProfilingStats) if field.name not in ("counters", "launches", "memory")]
    types = {"str": "string", "int": "int64", "float": "double"}
    for field in scalars:
        assert str(table.schema.field(field.name).type) == types[str(field.type).removesuffix(" | None")]
        expected = [getattr(FULL, field.name), getattr(empty, field.name)]
        assert table[field.name].to_pylist()[0] == expected[0]
        assert (table[field.name].to_pylist()[1] is None) is (expected[1] is None)
    assert table["node_name"].to_pylist() == ["full", "a\ufffdb"]
    assert table["stage"].to_pylist() == ["train", "val"]
    assert table["counter_cycles_total"].to_pylist() == [1e30, None]
    assert table["counter_page_faults_mean"].null_count == 2
    assert table["launches_kernel_ms"].to_pylist() == [0.5, None]
    assert table["memory_host_peak_reason"].to_pylist() == ["it did not rise", None]


def test_arrow_is_taken_by_libraries(snapshot: Snapshot, hostile: Snapshot) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    assert pyarrow.table(snapshot)["count"].to_pylist() == [99, 99]
    assert pyarrow.table(snapshot) == pyarrow.table(snapshot)  # each time a stream of its own
    assert polars.DataFrame(snapshot)["node_name"].to_list() == ["load", "net"]
    assert snapshot.to_polars().equals(polars.DataFrame(snapshot))
    frame = snapshot.to_pandas()
    assert frame["count"].dtype == "int64"
    assert frame["mean_ms"].tolist() == [row.mean_ms for row in snapshot.stats()]
    assert bool(frame["gpu_mean_ms"].isna().all())
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert pandas.DataFrame.from_arrow(snapshot)["stage"].tolist() == ["train", "val"]
    nullable = ProfilingSummary([FULL, NodeProfilingStats("a", "b", 0, 0, 0, 0, 0, 0, 0, 0)]).to_pandas()
    assert nullable["launches_kernels"].dtype == "Int64"
    without_surrogates = [name.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for name in NAMES]
    names = pyarrow.table(hostile)["node_name"].to_pylist()
    assert len(names) == len(without_surrogates) == 500
    assert [name for name in names if "\ufffd" not in name] == [
        name for name in NAMES if "\ufffd" not in name and not any("\ud800" <= each <= "\udfff" for each in name)
    ]


def test_an_arrow_stream_of_nothing() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.RecordBatchReader.from_stream(ProfilingSummary()).read_all()
    assert (table.num_rows, table.schema.names[0]) == (0, "node_name")
    table.validate(full=True)


def test_parquet(snapshot: Snapshot, recording: Recording, hostile: Snapshot, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    snapshot.to_parquet(tmp_path / "s.parquet")
    table = parquet.read_table(tmp_path / "s.parquet")
    assert table["count"].to_pylist() == [99, 99]
    about = json.loads(table.schema.metadata[b"cprofiling"])
    assert (about["schema"], about["nodes"], about["measurement"]["skip_first_n"]) == ("cprofiling.report", [], 1)
    recording.save(tmp_path / "r.pq")
    assert parquet.read_table(tmp_path / "r.pq")["name"].to_pylist()[0] == "slow"
    hostile.to_parquet(tmp_path / "h.parquet")
    assert parquet.read_table(tmp_path / "h.parquet").num_rows == 500
    View(timing_reports.OURS).write(tmp_path / "t.parquet")
    assert parquet.read_table(tmp_path / "t.parquet")["total_ms"].to_pylist() == [50.0, 14.0]


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("pyarrow.parquet", "parquet", lambda snapshot, path: snapshot.to_parquet(path / "x.parquet")),
        ("pandas", "pandas", lambda snapshot, _: snapshot.to_pandas()),
        ("polars", "polars", lambda snapshot, _: snapshot.to_polars()),
        ("prometheus_client", "prometheus", lambda snapshot, path: snapshot.save(path / "x.prom")),
    ],
)
def test_a_missing_package_is_named(
    package: str,
    extra: str,
    use: Callable[[Snapshot, Path], object],
    snapshot: Snapshot,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'pip install "cprofiling\[{extra}\]"'):
        use(snapshot, tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- two runs


def run_of(*times: tuple[str, str, float]) -> Snapshot:
    samples = {(stage, name): [mean + number / 1000 for number in range(50)] for stage, name, mean in times}
    return profiler_with(samples).snapshot()


def test_two_runs_are_compared() -> None:
    pytest.importorskip("jinja2")
    before = run_of(("train", "a", 5.0), ("train", "b|", 5.0), ("train", "gone", 1.0))
    after = run_of(("train", "a", 8.0), ("train", "b|", 5.0), ("train", "new", 1.0))
    document = View(after, against=before).compared
    assert document.kind == "comparison"
    section = document.sections["comparison"]
    names = [column.name for column in section.columns]
    rows: dict[Any, dict[str, Any]] = {row[0]: dict(zip(names, row, strict=True)) for row in section.rows}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "a": "slower", "b|": "unclear", "gone": "missing", "new": "unknown",
    }  # fmt: skip
    assert rows["a"]["difference_ms"] == pytest.approx(3.0)
    assert rows["a"]["stage"] == "train"
    assert rows["a"]["low_ms"] < 3.0 < rows["a"]["high_ms"]
    valid(document)
    assert " slower</bdi>" in after.to_html(against=before)
    text = View(after, against=before).render("text")
    assert text.startswith("Slower than the baseline (nodes: 1 missing, 1 slower, 1 unclear, 1 unknown)\n")
    assert text.splitlines()[2].split()[:2] == ["Node", "Calls"]
    markdown = View(after, against=View(before)).render("md")
    assert "| `a` | 50 / 50 |" in markdown
    assert "| <code>b&#124;</code> |" in markdown


def test_what_a_wide_interval_may_hide_is_not_called_the_same() -> None:
    before, after = (
        profiler_with({("train", "wide"): times}).snapshot() for times in ([1.0, 9.0, 2.0, 8.0], [3.0, 12.0, 1.0, 14.0])
    )
    view = View(after, against=before)
    (row,) = view.comparison.stages
    assert row.verdict == "unclear"
    assert row.difference_pct is not None
    assert row.difference_pct > 40
    section = view.compared.sections["comparison"]
    assert section.rows[0][-2] == "unclear"
    note = "Times spread so much that a change of 10 % could be hidden; more calls or runs tell more: wide."
    assert section.notes[-2] == note
    text = view.render("text")
    assert text.startswith("Not found slower (nodes: 1 unclear)\n")
    assert note in text
    steady = run_of(*(("train", f"steady {number}", 5.0) for number in range(5)))
    both = Snapshot.merge([before, steady]), Snapshot.merge([after, steady])
    text = View(both[1], against=both[0]).render("text")
    assert text.startswith("Not found slower (nodes: 5 same, 1 unclear)\n")


def test_nodes_of_several_stages_are_told_apart() -> None:
    run = run_of(("train", "a", 1.0), ("val", "a", 2.0))
    assert {row.name for row in View(run, against=run).comparison.stages} == {"a (train)", "a (val)"}
    alike = run_of(("c", "a (b)", 1.0), ("b) (c", "a", 2.0))
    found = View(alike, against=alike).comparison.stages
    assert [row.verdict for row in found] == ["unclear", "unclear"]
    assert len({row.name for row in found}) == 2
    rows = View(alike, against=alike).compared.sections["comparison"].rows
    assert [row[:2] for row in rows] == [("a (b)", "c"), ("a", "b) (c")]


def test_hostile_names_are_compared(hostile: Snapshot) -> None:
    rows = View(hostile, against=hostile).compared.sections["comparison"].rows
    assert [row[0] for row in rows] == list(NAMES)


def test_recordings_and_timing_reports_are_compared(recording: Recording) -> None:
    assert View(recording).render("text") == recording.overview()
    text = View(recording, against=recording).render("text")
    assert text.index("slow (train)") < text.index("Averages, by") < text.index("Findings")
    assert View(made([]), against=made([])).render("text").startswith("Recording of 0 events")
    report = View(timing_reports.OURS, against=timing_reports.MERGED).compared
    verdicts = {row[0]: row[-2] for row in report.sections["comparison"].rows}
    assert set(verdicts) == {"vae", "dit"}
    assert "Stage" in View(timing_reports.OURS, against=timing_reports.PEERS).render("text")


# ---- all formats


def test_formats_that_do_not_fit(snapshot: Snapshot, recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^chrome is a format of recordings, not of a summary$"):
        View(snapshot).write(tmp_path / "x", "chrome")
    with pytest.raises(ValueError, match="compared as text, html, md, json, not as"):
        View(recording, against=recording).write(tmp_path / "x", "chrome")
    with pytest.raises(ValueError, match="format must be one of"):
        View(recording).render("chrome")
    summary = snapshot.stats()
    for of, what in ((recording, "a recording"), (timing_reports.OURS, "a timing report"), (summary, "a summary")):
        with pytest.raises(ValueError, match=f"prom is a format of snapshots of statistics, not of {what}"):
            View(of).render("prom")
    for kind in ("csv", "parquet", "prom"):
        with pytest.raises(ValueError, match=f"compared as text, html, md, json, not as {kind}"):
            View(snapshot, against=snapshot).write(tmp_path / "x", kind)
    with pytest.raises(ValueError, match="against must be of the same kind, got a summary with a recording"):
        View(snapshot, against=recording)
    with pytest.raises(ValueError, match=r"format must be one of 'text', .*, got 'xml'"):
        snapshot.save(tmp_path / "x", "xml")
    assert list(tmp_path.iterdir()) == []


def test_files_have_the_format_of_their_names(snapshot: Snapshot, recording: Recording, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    os.umask(os.umask(0))
    assert {format_of(f"a.b{suffix}") for suffix in (".txt", ".HTML", ".md", ".json", ".csv", ".pq", ".prom")} | {
        format_of("t.json.gz")
    } == set(FORMATS)
    for name in ("s.md", "s.json", "s.csv", "s.txt"):
        snapshot.save(tmp_path / name)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert (tmp_path / name).read_text(encoding="utf-8") == View(snapshot).render(format_of(name))
    with cp.profile() as prof, cp.record("of a profile that has ended"):
        pass
    assert json.loads(prof.to_json())["kind"] == "recording"
    prof.save(tmp_path / "p.csv")
    assert '"of a profile that has ended"' in (tmp_path / "p.csv").read_text(encoding="utf-8")
    recording.save(tmp_path / "r.html", against=recording)
    assert b"label|" in (tmp_path / "r.html").read_bytes()
    recording.save(tmp_path / "r.json.gz")
    assert len(cp.load_trace(tmp_path / "r.json.gz")) == len(recording)
    snapshot.save(str(tmp_path / "s.dat"), "md")
    assert (tmp_path / "s.dat").read_text(encoding="utf-8").startswith("# Node statistics")
    with pytest.raises(ValueError, match=r"path must end in one of \.txt, .*, \.pq, \.prom, got"):
        snapshot.save(tmp_path / "s.doc")
    with pytest.raises(ValueError, match=r"path must end in one of \.txt, .*, \.pq, \.json\.gz, got"):
        recording.save(tmp_path / "s.doc")
    with pytest.raises(ValueError, match=r"\.pftrace files are not written: .* which Perfetto opens"):
        recording.save(tmp_path / "s.pftrace")
    with pytest.raises(IsADirectoryError) as raised:
        snapshot.save(tmp_path)
    assert raised.value.filename == str(tmp_path)
    with pytest.raises(TypeError, match="path must be a path, got 3"):
        snapshot.save(3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=r"nowhere"):
        snapshot.save(tmp_path / "nowhere" / "s.md")


def test_prometheus_text(hostile: Snapshot) -> None:
    """As the collector has it; every name is a label that a parser gives back, with surrogates as escapes."""
    parser = pytest.importorskip("prometheus_client.parser")
    text = View(hostile).render("prom")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    calls = families["cprofiling_node_calls"].samples
    assert {sample.labels["node"] for sample in calls} >= {
        name for name in NAMES if name.isascii() and "\r" not in name
    }
