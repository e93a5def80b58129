"""The HTML table that notebooks show, read back with a parser (failure scenarios F3, F4, F7)."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cprofiling._internal.text import format_time, shown_text
from cprofiling.nodes.stats import ExecutionStage, NodeProfilingStats, ProfilingSummary
from cprofiling.nodes.summary_table import format_profiling_table
from cprofiling.notebook import summary_html
from fragments import DASH, HOSTILE_NAMES, parsed
from hostile_names import NAMES

COLUMNS = ["Node", "Stage", "Count", "Mean", "Std", "Min", "p50", "p90", "p99", "Max", "Total", "Self", "Share"]
ONES: tuple[Any, ...] = (1.0,) * 7


def node(
    name: str = "n",
    stage: str = "train",
    count: int = 1,
    mean_ms: float = 1.0,
    self_ms: float | None = -1.0,
    **more: Any,
) -> NodeProfilingStats:
    """Return a node whose calls all took ``mean_ms``; its self time is its total unless one is given."""
    total_ms = count * mean_ms
    own_ms = total_ms if self_ms == -1.0 else self_ms
    stats = NodeProfilingStats(name, stage, count, mean_ms, mean_ms, 0.0, mean_ms, mean_ms, total_ms, mean_ms)
    return replace(stats, self_total_ms=own_ms, **more)


def per_frame(html: str) -> list[str]:
    prefix = "Average per-frame pipeline time "
    return [item.removeprefix(prefix) for item in parsed(html).items if item.startswith(prefix)]


# --- the table ---


def test_every_figure_stands_in_its_column() -> None:
    stats = NodeProfilingStats(
        "blur", ExecutionStage.VAL, 7, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0,
        13, 14, 15, 16, 17.0, 1.5, 19.0,
    )  # fmt: skip
    fragment = parsed(summary_html([stats]))
    assert fragment.head == [*COLUMNS, "Errors", "Cancelled", "Skipped", "Dropped"]
    assert [cell.text for cell in fragment.rows[1]] == [
        "blur", "val", "7", "1.00 ms", "3.00 ms", "4.00 ms", "8.00 ms", "9.00 ms", "11.00 ms", "5.00 ms",
        "6.00 ms", "1.50 ms", "100.0 %", "13", "14", "15", "16",
    ]  # fmt: skip
    assert all(cell.attributes.get("title") for cell in fragment.rows[0])


def test_a_column_of_events_is_there_when_there_was_one() -> None:
    assert parsed(summary_html([node(), node()])).head == COLUMNS
    for label in ("Error", "Cancelled", "Skipped", "Dropped"):
        events: dict[str, Any] = {f"{label.lower()}_count": 2}
        fragment = parsed(summary_html([node(), node(**events)]))
        heading = "Errors" if label == "Error" else label
        assert fragment.head == [*COLUMNS, heading]
        assert fragment.column(heading) == ["0", "2"]


def test_rows_are_sorted_by_total_and_keys_with_errors_only_are_there() -> None:
    stats = [node("a"), node("failing", count=0, error_count=2), node("b", mean_ms=2.0), node("c")]
    fragment = parsed(summary_html(stats))
    assert fragment.column("Node") == ["b", "a", "c", "failing"]
    assert fragment.column("Errors") == ["0", "0", "0", "2"]


def test_the_caption_is_the_title_of_the_text_table() -> None:
    html = summary_html([node()], total_frames=350, skip_first_n=3)
    assert parsed(html).texts["caption"] == "Profiling Summary (350 frames, skip_first_n=3)"


def test_objects_with_the_first_ten_fields_are_rows() -> None:
    ten = ("node_name", "stage", "count", "mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms")
    other = SimpleNamespace(**{name: getattr(node("other", count=4), name) for name in ten})
    html = summary_html([other])  # type: ignore[list-item]
    assert "frames: 4 (calls of other)" in html
    fragment = parsed(html)
    assert fragment.column("Node") == ["other"]
    assert fragment.column("Total") == ["4.00 ms"]
    assert fragment.column("Self") == fragment.column("p50") == [DASH]


# --- units ---


@pytest.mark.parametrize(
    ("time_ms", "shown"),
    [
        (0.0, "0.00 ns"), (1e-6, "1.00 ns"), (9.999e-6, "10.00 ns"), (99.99e-6, "99.99 ns"), (99.996e-6, "100.0 ns"),
        (999.9e-6, "999.9 ns"), (999.96e-6, "1.00 µs"), (1e-3, "1.00 µs"), (12.345e-3, "12.35 µs"),
        (123.45678e-3, "123.5 µs"), (999.94e-3, "999.9 µs"), (999.96e-3, "1.00 ms"), (1, "1.00 ms"),
        (16.666, "16.67 ms"), (999.94, "999.9 ms"), (999.96, "1.00 s"), (60_000.0, "60.00 s"), (1e6, "1000.0 s"),
        (1e12, "1000000000.0 s"),
    ],
)  # fmt: skip
def test_the_unit_fits_the_time(time_ms: float, shown: str) -> None:
    assert format_time(time_ms) == shown


def test_each_cell_has_its_own_unit() -> None:
    stats = NodeProfilingStats("n", "s", 2, 0.5, 0.5, 999.9e-6, 1e-3, 999.0, 1000.0, 1.0)
    fragment = parsed(summary_html([stats]))
    shown = [fragment.column(label)[0] for label in ("Mean", "Std", "Min", "Max", "Total")]
    assert shown == ["500.0 µs", "999.9 ns", "1.00 µs", "999.0 ms", "1.00 s"]


# --- what is not known ---


def test_unknown_times_are_dashes_that_say_why() -> None:
    fragment = parsed(summary_html([NodeProfilingStats("n", "s", 1, *ONES)], reasons=["merged", 'no "p" & q']))
    for label in ("p50", "p90", "p99", "Self"):
        assert fragment.column(label) == [DASH]
        assert fragment.titles(label) == ['not known for this node; merged; no "p" & q']
    assert fragment.titles("Mean") == [None]


def test_a_key_without_samples_has_no_times() -> None:
    fragment = parsed(summary_html([node(), node(count=0, self_ms=0.0, p50_ms=0.0, skipped_count=3)]))
    for label in COLUMNS[3:]:
        assert fragment.column(label)[1] == DASH
        assert fragment.titles(label)[1] == "no samples"
    assert fragment.column("Count") == ["1", "0"]
    assert fragment.column("Skipped") == ["0", "3"]


@pytest.mark.parametrize("nothing", [[], (), ProfilingSummary()], ids=["list", "tuple", "summary"])
def test_nothing_collected_is_a_paragraph(nothing: list[NodeProfilingStats]) -> None:
    assert summary_html(nothing) == "<p>No profiling data collected.</p>"
    fragment = parsed(summary_html(nothing, internal_errors=1, reasons=["<off>"]))
    assert fragment.items == ["No profiling data collected.", "Internal errors of the profiler: 1", "<off>"]


# --- share of the time ---


def test_nested_nodes_share_the_time_by_self_time() -> None:
    stats = [node("outer", count=10, mean_ms=10.0, self_ms=25.0), node("inner", count=30, mean_ms=2.5)]
    fragment = parsed(summary_html(stats))
    assert fragment.column("Share") == ["25.0 %", "75.0 %"]
    assert fragment.styles == ["width:25.0%", "width:75.0%"]


def test_without_self_time_the_total_is_shared() -> None:
    fragment = parsed(summary_html([node(mean_ms=3.0, self_ms=None), node(mean_ms=1.0), node(count=0)]))
    assert fragment.column("Share") == ["75.0 %", "25.0 %", DASH]


def test_there_is_no_share_of_nothing() -> None:
    fragment = parsed(summary_html([node(mean_ms=0.0)]))
    assert fragment.column("Share") == [DASH]
    assert fragment.titles("Share") == ["the times of all rows add up to 0"]
    assert fragment.column("Mean") == ["0.00 ns"]


# --- time per frame ---


def test_frames_are_those_of_the_text_table() -> None:
    stats = [
        node("frame", count=100, mean_ms=10.0, self_ms=400.0),
        node("tile", count=300, mean_ms=2.0, self_ms=300.0),
        node("leaf", count=600, mean_ms=0.5),
        node("a", "val", count=10, self_ms=None),
        node("b", ExecutionStage.VAL, count=10),
        node("a", "test", count=0, error_count=1),
        node("a", "va\n", count=1),
        node("b", "va\n", count=2),
    ]
    lines = [
        "(train): 10.00 ms (100.0 FPS), frames: 100 (calls of frame, in which all others ran)",
        "(val): 2.00 ms (500.0 FPS), frames: 10 (each node ran as often); self time is not known of a",
        r"(va\n): not known, as nodes ran from 1 (a) to 2 (b) times, and none is known to be around all others: "
        "give total_frames",
    ]
    assert per_frame(summary_html(stats)) == lines
    assert format_profiling_table(stats).split("\n")[-3:] == [
        f"Average per-frame pipeline time {line}" for line in lines
    ]
    assert per_frame(summary_html(stats[:3], total_frames=200)) == ["(train): 5.00 ms (200.0 FPS), frames: 200 (given)"]


FRAME = node("frame", count=100, mean_ms=10.0, self_ms=100.0)
WALK = node("walk", count=1000, mean_ms=5.0, self_ms=900.0)  # calls itself
IN_FRAME = "(train): 10.00 ms (100.0 FPS), frames: 100 (calls of frame, in which all others ran)"


@pytest.mark.parametrize(
    ("stats", "line"),
    [
        (
            [
                node("frame", count=7, mean_ms=10.0, self_ms=28.0, skipped_count=3),
                node("tile", count=57, mean_ms=1.0, skipped_count=3),
            ],
            "(train): 10.00 ms (100.0 FPS), frames: 10 (calls of frame, in which all others ran)",
        ),
        (
            [
                node("frame", count=7, mean_ms=10.0, self_ms=42.7, skipped_count=3),
                node("rare", count=2, mean_ms=7.8, skipped_count=3),
            ],
            "(train): 10.00 ms (100.0 FPS), frames: 10 (calls of frame, in which all others ran)",
        ),
        ([node("rare", count=10, mean_ms=100.0), node("always", count=100, mean_ms=0.01)], "(train): not known"),
        ([WALK], "(train): 900.0 µs (1111.1 FPS), frames: 1000 (calls of walk)"),
        ([WALK, FRAME], IN_FRAME),
        ([WALK, node("leaf", count=10, mean_ms=10.0)], "(train): not known"),
        (
            [
                node("tile", count=300, mean_ms=2.0, self_ms=1.0),
                node("frame", count=100, mean_ms=6.0, self_ms=0.0),
                node("leaf", count=300, mean_ms=599.0 / 300),
            ],
            "(train): 6.00 ms (166.7 FPS), frames: 100 (calls of frame, in which all others ran)",
        ),
    ],
)
def test_frames_are_the_calls_of_the_node_around_all_others(stats: list[NodeProfilingStats], line: str) -> None:
    (found,) = per_frame(summary_html(stats))
    assert found.startswith(line)


def test_without_samples_there_is_no_time_per_frame() -> None:
    for total_frames in (None, 0, 5):
        assert per_frame(summary_html([node(count=0, skipped_count=1)], total_frames=total_frames)) == []
    html = summary_html([node(count=2, mean_ms=0.0)], total_frames=0)
    assert per_frame(html) == ["(train): 0.00 ns (0.0 FPS), frames: 2 (calls of n)"]


# --- notes ---


def test_what_one_must_know_stands_below_the_table() -> None:
    html = summary_html([node()], skip_first_n=3, reasons=["no CUDA", "<b>"], internal_errors=2, cost_ns=48.25)
    assert parsed(html).items[1:] == [
        "First calls of each node left out (skip_first_n): 3",
        "Cost of profiling, not subtracted from the times: 48.25 ns a call",
        "Internal errors of the profiler: 2",
        "no CUDA",
        "<b>",
    ]
    assert parsed(summary_html([node()], cost_ns=0.0)).items[1].endswith(" the times: 0.00 ns a call")
    assert len(parsed(summary_html([node()])).items) == 1


# --- safety ---


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
def test_names_are_data(name: str) -> None:
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    stats = [node(name, name, count=2), NodeProfilingStats(name, "s", 1, *ONES)]
    html = summary_html(stats, reasons=[name])
    fragment = parsed(html)
    assert fragment.column("Node") == [shown, shown]
    assert fragment.column("Stage") == [shown, "s"]
    assert fragment.titles("Self") == [None, f"not known for this node; {shown}"]
    assert fragment.items[-1] == shown
    assert per_frame(html)[0].startswith(f"({shown}): 1.00 ms (1000.0 FPS), frames: 2 (calls of {shown})")
    assert fragment.tags == parsed(summary_html([node(count=2), stats[1]], reasons=["r"])).tags


def test_nothing_is_scripted_or_loaded() -> None:
    html = summary_html([node(error_count=1)], skip_first_n=1, reasons=["r"], internal_errors=1, cost_ns=1.0)
    assert not re.search(r"script|url\(|@import|https?:|src=|href=|\bon\w+=", html)
    assert parsed(html).tags.count("style") == 1


def test_the_style_applies_to_the_fragment_only_and_follows_the_page() -> None:
    style = parsed(summary_html([node()])).texts["style"]
    assert "@media (prefers-color-scheme: dark)" in style
    assert "currentColor" in style
    assert re.findall(r"@keyframes (\S+)", style) == re.findall(r"animation: (\S+)", style) == ["cprofiling-fade"]
    plain = re.sub(r"@keyframes[^{]*\{([^{}]*\{[^{}]*\})*\s*\}", "", re.sub(r"@media[^{]*\{", "", style))
    selectors = re.findall(r"([^{}]+)\{", plain)
    assert len(selectors) > 5
    for selector in ",".join(selectors).split(","):
        assert selector.strip().startswith(".cprofiling-")


def test_the_arguments_are_checked_as_for_the_text_table() -> None:
    for stats in ([], [node()]):
        with pytest.raises(ValueError, match=r"^skip_first_n must be >= 0, got -1$"):
            summary_html(stats, skip_first_n=-1)
        with pytest.raises(TypeError, match=r"^total_frames must be an integer, got 1\.0 \(float\)$"):
            summary_html(stats, total_frames=1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^stats\[0\] must be"):
        summary_html([3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"^stage must be a str, got 3 \(int\)$"):
        summary_html([node(stage=3)])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^reasons must be a str, got 3 \(int\)$"):
        summary_html([node()], reasons=[3])  # type: ignore[list-item]


def test_500_hostile_names_show_as_themselves() -> None:
    fragment = parsed(summary_html([node(name, stage=name) for name in NAMES]))
    assert fragment.column("Node") == fragment.column("Stage") == [shown_text("name", name) for name in NAMES]
