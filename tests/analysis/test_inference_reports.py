"""Printed reports: inferences, what devices did, operators; and the report of all."""

from __future__ import annotations

import statistics
from fractions import Fraction
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cprofiling._internal.quantiles import median, percentile
from cprofiling._internal.tables import Figures, html_table, text_table
from cprofiling.analysis import inference_reports
from cprofiling.analysis.device_figures import CopyFigures, copy_breakdown
from cprofiling.analysis.inference_reports import Report, overview
from cprofiling.recording.result import Recording
from recordings import DEVICE, DROPPED, NODE, RECORD, STEP, Row, call, device, host, made

TRACE = {"trace_high": 1, "trace_low": 2}
HEX = "00000000000000010000000000000002"


def inference(at: int, duration: int, span: int, **more: Any) -> Row:
    return {"name": "Inference", "start": at, "end": at + duration, "kind": RECORD, "span": span, **TRACE, **more}


PIPELINE = [
    inference(0, 5_000_000, 0xA),
    inference(10_000_000, 5_001_000, 0xB),
    inference(20_000_000, 5_002_000, 0xC),
    host("warm", 30_000, 30_001, kind=NODE, span=0xD, **TRACE),
]

SUMMARY = """\
================================================
  Inference Results Summary
================================================
Inference counts                : 3
Min latency (ns)                : 5000000
Max latency (ns)                : 5002000
Mean latency (ns)               : 5001000
Median latency (ns)             : 5001000
90.0 percentile Latency (ns)    : 5001800
95.0 percentile Latency (ns)    : 5001900
97.0 percentile Latency (ns)    : 5001940
99.0 percentile Latency (ns)    : 5001980
99.9 percentile Latency (ns)    : 5001998
"""

INFERENCES = """\
┌──────────────────────────────────┬──────────────────┬───────────┬─────────┐
│ trace_id                         ┆ span_id          ┆ thread.id ┆ dur     │
╞══════════════════════════════════╪══════════════════╪═══════════╪═════════╡
│ 00000000000000010000000000000002 ┆ 000000000000000a ┆ 1         ┆ 5000000 │
│ 00000000000000010000000000000002 ┆ 000000000000000b ┆ 1         ┆ 5001000 │
│ 00000000000000010000000000000002 ┆ 000000000000000c ┆ 1         ┆ 5002000 │
└──────────────────────────────────┴──────────────────┴───────────┴─────────┘
"""


def printed(report: str, *rows: Row) -> str:
    return f"{getattr(made(rows), report)()}\n"


# --- inferences -----------------------------------------------------------------------------------------------------


def test_the_summary_to_the_character() -> None:
    assert printed("summary", *PIPELINE) == SUMMARY


def test_the_inferences_to_the_character() -> None:
    assert printed("inferences", *PIPELINE) == INFERENCES


@pytest.mark.parametrize(
    ("rows", "durations", "what"),
    [
        ([host("a", 0, 9, kind=NODE, span=1), host("b", 1, 5, kind=NODE, span=2, parent_span=1)], [9], "of nodes"),
        (
            [
                host("block", 0, 90, kind=RECORD, span=1), host("a", 0, 9, kind=NODE, span=2, parent_span=1),
                host("b", 20, 25, kind=NODE, span=3, parent_span=1), host("Step", 0, 99, kind=STEP),
            ],
            [9, 5], "of nodes",
        ),
        (
            [
                host("block", 0, 90, kind=RECORD, span=1), host("in", 5, 9, kind=RECORD, span=2, parent_span=1),
                host("aten::mm", 100, 110), host("ProfilerStep#1", 0, 200, kind=STEP),
            ],
            [90], "labelled blocks",
        ),
        (
            [host("ProfilerStep#1", 0, 100, kind=STEP), host("block", 5, 10, cat="user_annotation"), host("mm", 6, 7)],
            [100], "the steps",
        ),
        (
            [
                host("outer", 0, 50, cat="user_annotation"), host("inner", 5, 10, cat="user_annotation"),
                host("mm", 60, 70),
            ],
            [50], "annotations",
        ),
        (
            [host("linear", 0, 30), host("mm", 5, 10), host("add", 40, 50), device("gemm", 0, 90)], [30, 10],
            "in nothing",
        ),
    ],
)  # fmt: skip
def test_what_counts_without_a_span_of_that_name(rows: list[Row], durations: list[int], what: str) -> None:
    report = inference_reports.inferences(made(rows))
    assert [row[3] for row in report.rows] == [duration * 1000 for duration in durations]
    assert report.notes[0].startswith("No span is named Inference: counted are ")
    assert what in report.notes[0]
    assert inference_reports.summary(made(rows)).notes == report.notes


def test_what_failed_or_is_not_whole_is_left_out_and_counted() -> None:
    rows = [
        *PIPELINE[:2],
        inference(40_000_000, 1, 0x11, outcome=1), inference(50_000_000, 1, 0x12, outcome=2),
        inference(60_000_000, 1, 0x13, flags=1), inference(70_000_000, 1, 0x14, flags=2),
        inference(80_000_000, 3, 0x15, flags=4),
    ]  # fmt: skip
    report = inference_reports.inferences(made(rows))
    assert [row[3] for row in report.rows] == [5_000_000, 5_001_000, 3]
    assert report.notes == ("Left out: 4 that failed or were not recorded to their end.",)
    assert inference_reports.inferences(made(rows[:3])).notes == (
        "Left out: 1 that failed or was not recorded to its end.",
    )
    assert inference_reports.summary(made(rows)).rows[0] == ("Inference counts", 3)


def test_an_empty_recording_has_no_latency() -> None:
    recording = made([], dropping=True)
    summary = inference_reports.summary(recording)
    assert summary.rows[0] == ("Inference counts", 0)
    assert [value for _, value in summary.rows[1:]] == [None] * 9
    assert str(summary).splitlines()[4] == "Min latency (ns)                : -"
    assert str(summary).splitlines()[-2:] == ["No inferences were recorded.", DROPPED]


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=30), st.sampled_from([0, 500, 900, 950, 970, 990, 999, 1000])
)
def test_a_percentile_is_interpolated_and_rounded_down(values: list[int], permille: int) -> None:
    values.sort()
    place = Fraction(permille, 1000) * (len(values) - 1)
    below = values[place.__floor__()]
    above = values[min(place.__floor__() + 1, len(values) - 1)]
    assert percentile(values, permille) == (below + (above - below) * (place - place.__floor__())).__floor__()


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=9))
def test_a_median_is_in_the_middle(values: list[int]) -> None:
    assert median(values) == statistics.median(values)


def test_a_percentile_of_nothing_is_unknown() -> None:
    assert percentile([], 500) is None


# --- devices --------------------------------------------------------------------------------------------------------

EXECUTED = [
    host("first", 0, 100, kind=NODE, span=0xA, **TRACE),
    host("aten::mm", 5, 50),
    call("cudaLaunchKernel", 10, 12, 1), call("cudaLaunchKernel", 13, 15, 2), call("cudaMemcpyAsync", 16, 20, 3),
    device("gemm", 20, 60, correlation=1), device("gemm", 30, 80, correlation=2, stream=20, thread="0/20"),
    device("Memcpy DtoH", 80, 90, correlation=3, cat="gpu_memcpy"),
    device("Stream Sync", 80, 90, correlation=3, cat="cuda_sync"),
    host("second", 100, 200, kind=NODE, span=0xB, **TRACE),
    call("cudaLaunchKernel", 110, 112, 4), call("cudaLaunchKernel", 113, 115, 5),
    device("add", 120, 125, correlation=4, device=1, thread="1/7"), device("gemm", 130, 131, correlation=5),
    device("orphan", 300, 400),
]  # fmt: skip


def test_executions_are_of_a_call_on_a_device() -> None:
    report = inference_reports.device_executions(made(EXECUTED))
    assert report.columns == ("trace_id", "span_id", "device_index", "execution_index", "Total", "Run", "IoWait")
    assert report.rows == (
        (HEX, "000000000000000a", 0, 0, 70_000, 90_000, -20_000),
        (HEX, "000000000000000b", 1, 0, 5_000, 5_000, 0),
        (HEX, "000000000000000b", 0, 1, 1_000, 1_000, 0),
    )
    assert report.notes == ()


def test_executions_without_spans_are_of_annotations_or_the_outermost_operator() -> None:
    rows = [
        host("block", 0, 100, cat="user_annotation"), host("linear", 10, 50), host("mm", 20, 40), call("l", 25, 30, 1),
        host("linear", 200, 300), host("mm", 210, 290), call("l", 220, 230, 2), call("l", 240, 250, 3),
        device("k", 30, 60, correlation=1), device("k", 230, 240, correlation=2), device("k", 250, 270, correlation=3),
    ]  # fmt: skip
    assert [row[2:] for row in inference_reports.device_executions(made(rows)).rows] == [
        (0, 0, 30_000, 30_000, 0), (0, 1, 40_000, 30_000, 10_000),
    ]  # fmt: skip
    assert inference_reports.device_executions(made(rows)).rows[0][:2] == (None, None)


def test_device_operators_are_the_longest_first() -> None:
    report = inference_reports.device_operators(made(EXECUTED))
    assert report.columns == ("name", "average_elapsed (ns)", "count")
    assert report.rows == (
        ("orphan", 100_000.0, 1), ("gemm", 91_000 / 3, 3), ("Memcpy DtoH", 10_000.0, 1), ("add", 5_000.0, 1),
    )  # fmt: skip
    text = printed("device_operators", *EXECUTED)
    assert "│ gemm        ┆ 30333.3              ┆ 3     │\n" in text


def test_external_operators_are_those_of_a_framework() -> None:
    rows = [*EXECUTED, host("aten::t", 6, 7), host("aten::add", 60, 70), host("loose", 500, 510, thread="1/2")]
    report = inference_reports.external_operators(made(rows))
    assert report.columns == ("trace_id", "span_id", "thread.id", "name", "operator_index", "dur")
    assert report.rows == (
        (HEX, "000000000000000a", 1, "aten::mm", 0, 45_000), (HEX, "000000000000000a", 1, "aten::t", 0, 1_000),
        (HEX, "000000000000000a", 1, "aten::add", 1, 10_000), (None, None, 2, "loose", 0, 10_000),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("report", "heading", "note"),
    [
        ("inferences", "trace_id ┆ span_id", "No inferences were recorded."),
        ("device_executions", "device_index ┆ execution_index", "No executions on a device were recorded."),
        ("device_operators", "average_elapsed (ns)", "No work on a device was recorded."),
        ("external_operators", "operator_index ┆ dur", "No operators were recorded."),
    ],
)  # fmt: skip
def test_reports_on_nothing_have_their_headings_and_say_so(report: str, heading: str, note: str) -> None:
    recording = made([], dropping=True)
    found: Report = getattr(inference_reports, report)(recording)
    assert found.rows == ()
    assert found.notes == (note, DROPPED)
    assert heading in str(found)
    assert str(found).endswith(f"┘\n{note}\n{DROPPED}")


def test_reports_as_dataframes() -> None:
    pandas = pytest.importorskip("pandas")
    for report in (
        inference_reports.summary(made(PIPELINE)),
        inference_reports.inferences(made(PIPELINE)),
        inference_reports.inferences(made([])),
    ):
        frame = report.to_pandas()
        assert isinstance(frame, pandas.DataFrame)
        assert list(frame.columns) == list(report.columns)
        assert [tuple(row) for row in frame.itertuples(index=False)] == list(report.rows)


# --- text -----------------------------------------------------------------------------------------------------------


def test_tables_escape_cut_and_end() -> None:
    rows = [("a\nb", 1, None), ("n" * 81, 2.25, -3), ("n" * 80, 4, True)]
    lines = text_table(("name", "a number", "x"), rows, 2).splitlines()
    assert lines[3] == f"│ {'a' + chr(92) + 'nb':<80} ┆ 1        ┆ -  │"
    assert lines[4] == f"│ {'n' * 77}... ┆ 2.2      ┆ -3 │"
    assert lines[-1] == "1 more row is not shown."
    assert "n" * 80 + " ┆ 4" in text_table(("name", "a number", "x"), rows, -1)
    assert "n" * 80 + " ┆ 4" in text_table(("name", "a number", "x"), rows, None)
    assert text_table(("a",), [("x",)] * 1500).splitlines()[-1] == "1,400 more rows are not shown."
    for limit in (1.5, "1", True):
        with pytest.raises(TypeError, match=r"row_limit must be an integer or None, got "):
            text_table(("name", "a number", "x"), rows, limit)  # type: ignore[arg-type]
    assert text_table(("a", "b"), []).splitlines() == ["┌───┬───┐", "│ a ┆ b │", "╞═══╪═══╡", "└───┴───┘"]


# --- all of it ------------------------------------------------------------------------------------------------------


def test_the_overview_has_everything() -> None:
    text = overview(made(EXECUTED), row_limit=1)
    titles = [
        "Recording of 15 events on 4 threads and streams",
        "Averages, by self_device_time_total", "Self CUDA time total: 206.000us", "Inference Results Summary",
        "Device operators",
        "3 more rows are not shown.", "Copies", "Idle time of streams", "Findings",
    ]  # fmt: skip
    places = [text.index(title) for title in titles]
    assert places == sorted(places)


def test_the_overview_has_all_rows_on_demand() -> None:
    text = overview(made(EXECUTED), row_limit=None)
    assert "more rows are not shown" not in text
    assert text == overview(made(EXECUTED), row_limit=-1)
    with pytest.raises(TypeError, match=r"row_limit must be an integer or None, got 1.5 \(float\)"):
        overview(made([]), row_limit=1.5)  # type: ignore[arg-type]


def test_the_overview_of_the_host_has_nothing_of_devices() -> None:
    text = overview(made(PIPELINE))
    assert "Averages, by self_cpu_time_total" in text
    assert "Device" not in text
    assert "Findings\nNothing found" in text
    assert overview(made(PIPELINE), made(PIPELINE)) == text


def test_the_overview_of_nothing_is_labelled() -> None:
    text = overview(made([], dropping=True))
    for label in ("Recording of 0 events", "No events were recorded.", "Findings"):
        assert label in text
    assert "Inference" not in text
    assert text.count(DROPPED) == 2


def test_the_overview_sums_inferences_up_where_there_are_some() -> None:
    def has_summary(*rows: Row) -> bool:
        return "Inference Results Summary" in overview(made(rows))

    assert has_summary(host("a", 0, 9, kind=NODE, span=1), host("a", 10, 19, kind=NODE, span=2))
    assert not has_summary(host("a", 0, 9, kind=NODE, span=1))
    assert has_summary(host("Inference", 0, 9, cat="user_annotation"))
    assert not has_summary(host("aten::mm", 0, 9), host("block", 10, 20, kind=RECORD, span=1))
    assert not has_summary(host("ProfilerStep#1", 0, 9, kind=STEP))


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        ([host("a", 0, 9)], "Recording of 1 event on 1 thread"),
        ([device("k", 0, 9)], "Recording of 1 event on 1 stream"),
        ([host("a", 0, 9), host("b", 0, 9, thread="1/2")], "Recording of 2 events on 2 threads"),
        ([host("a", 0, 9), device("k", 0, 9)], "Recording of 2 events on 2 threads and streams"),
    ],
)
def test_one_is_no_plural(rows: list[Row], first: str) -> None:
    assert overview(made(rows)).splitlines()[0] == first


def test_one_event_that_was_dropped() -> None:
    class Dropping(Recording):
        dropped = 1

    recording = Dropping.empty()
    recording._finish()
    assert inference_reports.summary(recording).notes[-1] == (
        "Dropped: 1 event is missing from these figures, as there was no room for it."
    )


def test_reports_are_short_in_a_shell_and_tables_in_a_notebook() -> None:
    found: list[tuple[Any, str]] = [
        (inference_reports.summary(made(PIPELINE)), "<Summary: 3 inferences>"),
        (inference_reports.inferences(made(PIPELINE)), "<Report of trace_id, span_id, thread.id, dur: 3 rows>"),
        (copy_breakdown(made([device("Memcpy DtoH", 0, 9, cat="gpu_memcpy")])), "<Figures of CopyFigures: 1 row>"),
    ]
    for report, shown in found:
        assert repr(report) == shown
        html = report._repr_html_()
        assert html.startswith('<div class="cprofiling-table">')
        ET.fromstring(html)
        assert html.count("<tr>") == 1 + len(report.rows if isinstance(report, Report) else report)
    assert '<td class="cprofiling-text">Min latency (ns)</td><td>5000000</td>' in found[0][0]._repr_html_()
    assert "<td>\N{EN DASH}</td>" in found[2][0]._repr_html_()
    for empty, shown, note in (
        (inference_reports.summary(made([])), "<Summary, empty>", "No inferences were recorded."),
        (
            inference_reports.device_operators(made([])),
            "<Report of name, average_elapsed (ns), count, empty>",
            "No work",
        ),
        (copy_breakdown(made([])), "<Figures of CopyFigures, empty>", "No such work"),
        (Figures(CopyFigures), "<Figures of CopyFigures, empty>", "There is nothing in it."),
    ):
        assert repr(empty) == shown
        assert f"<p>{note}" in empty._repr_html_()


def test_html_is_escaped_and_ends() -> None:
    html = html_table(("<a>", "b"), [("x<y>\n\x1b", 2.25)] * 102, ["n & m"])
    ET.fromstring(html)
    assert '<th scope="col" class="cprofiling-text">&lt;a&gt;</th><th scope="col">b</th>' in html
    assert '<td class="cprofiling-text">x&lt;y&gt;\n\\x1b</td><td>2.2</td>' in html
    assert html.count("<tr>") == 101
    assert html.partition('<tbody class="cprofiling-more">')[2].partition("</tbody>")[0].count("<tr>") == 80
    assert "<details><summary>Show 80 more rows</summary></details>" in html
    assert "<p>2 more rows are not shown.</p>\n<p>n &amp; m</p>" in html
    assert "1 more row is not shown." in html_table(("a",), [(1,)] * 101, [])
    assert html_table(("a",), [(1,)] * 102, [], None).count("<tr>") == 103
    assert "<details>" not in html_table(("a",), [(1,)] * 20, [])


def test_waits_for_a_device_are_no_executions() -> None:
    rows = [host("a", 0, 9, kind=NODE, span=1), host("x", 1, 2, kind=DEVICE, cat="cuda_sync", thread="0/7")]
    assert inference_reports.device_executions(made(rows)).rows == ()


def test_deep_recordings_are_no_trouble() -> None:
    depth = 5000
    frames = [host("x.py(1): f", at, 3 * depth - at, cat="python_function") for at in range(depth)]
    rows = [*frames, call("cudaLaunchKernel", depth, depth + 1, 1), device("k", depth, depth + 5, correlation=1)]
    rows.append(host("block", -1, 4 * depth, cat="user_annotation"))
    assert inference_reports.device_executions(made(rows)).rows == ((None, None, 0, 0, 5000, 5000, 0),)
    assert "Findings" in overview(made(rows))
