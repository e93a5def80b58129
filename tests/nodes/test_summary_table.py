"""The plain-text table, to the character (failure scenarios B8, F2, F3, F4, F7)."""

from __future__ import annotations

import random
import re
import unicodedata
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from calls import Index, profiler_on
from cprofiling._internal.text import shown_value
from cprofiling.nodes.stats import ExecutionStage, NodeProfilingStats, ProfilingSummary
from cprofiling.nodes.summary_table import format_profiling_table

NO_DATA = "No profiling data collected."

GOLDEN = """\
Profiling Summary (350 frames, skip_first_n=3)
Node                                     Stage        Count   Mean(ms)    Std(ms)    Min(ms)    Max(ms) Median(ms)   Total(s)
-----------------------------------------------------------------------------------------------------------------------------
Segmenter                                inference      347     900.13      12.35     850.00    1000.00     899.99    312.345
a_node_name_that_is_longer_than_forty_characters inference      347      24.50       0.25      24.00      25.00      24.50      8.502
Early                                    train            5       4.00       0.00       4.00       4.00       4.00      0.020
Late                                     train           10       2.00       0.00       2.00       2.00       2.00      0.020
Skipped                                  val              0       0.00       0.00       0.00       0.00       0.00      0.000
-----------------------------------------------------------------------------------------------------------------------------
TOTAL                                                                                                                 320.887
Average per-frame pipeline time (inference): 924.6 ms (1.1 FPS), frames: 347 (each node ran as often); self time is not known of Segmenter, a_node_name_that_is_longer_than_forty_characters
Average per-frame pipeline time (train): not known, as nodes ran from 5 (Early) to 10 (Late) times, and none is known to be around all others: give total_frames"""  # noqa: E501

GOLDEN_STATS = [
    NodeProfilingStats("Early", "train", 5, 4.0, 4.0, 0.0, 4.0, 4.0, 20.0, 4.0),
    NodeProfilingStats("Skipped", "val", 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, skipped_count=3),
    NodeProfilingStats("Segmenter", "inference", 347, 900.13, 899.99, 12.345678, 850.0, 1000.0, 312345.11, 900.0),
    NodeProfilingStats("Failing", "val", 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, error_count=2),
    NodeProfilingStats("Late", "train", 10, 2.0, 2.0, 0.0, 2.0, 2.0, 20.0, 2.0),
    NodeProfilingStats(
        "a_node_name_that_is_longer_than_forty_characters", ExecutionStage.INFERENCE,
        347, 24.5, 24.5, 0.25, 24.0, 25.0, 8501.5, 24.5,
    ),
]  # fmt: skip


class Hostile(str):
    def __str__(self) -> str:
        return "\x1b[2J"

    def __format__(self, spec: str) -> str:
        return "\x1b[2J"


def node(
    name: str = "n", stage: str = "train", count: int = 1, total_ms: float = 1.0, **more: Any
) -> NodeProfilingStats:
    return NodeProfilingStats(name, stage, count, 1.0, 1.0, 0.0, 1.0, 1.0, total_ms, 1.0, **more)


def body(table: str) -> list[str]:
    """Return the rows between the two lines of dashes."""
    lines = table.split("\n")
    return lines[3 : lines.index(lines[2], 3)]


# --- layout ---


def test_the_golden_table() -> None:
    assert format_profiling_table(GOLDEN_STATS, total_frames=350, skip_first_n=3) == GOLDEN


@pytest.mark.parametrize(
    ("total_frames", "skip_first_n", "title"),
    [
        (None, 0, "Profiling Summary"),
        (350, 3, "Profiling Summary (350 frames, skip_first_n=3)"),
        (350, 0, "Profiling Summary (350 frames)"),
        (None, 3, "Profiling Summary (skip_first_n=3)"),
        (0, 0, "Profiling Summary (0 frames)"),
        (Index(7), Index(2), "Profiling Summary (7 frames, skip_first_n=2)"),
        (2**63 - 1, 2**63 - 1, f"Profiling Summary ({2**63 - 1} frames, skip_first_n={2**63 - 1})"),
    ],
)
def test_the_title_says_what_is_known(total_frames: int | None, skip_first_n: int, title: str) -> None:
    table = format_profiling_table([node()], total_frames=total_frames, skip_first_n=skip_first_n)
    assert table.split("\n")[0] == title


def test_equal_totals_keep_their_order_and_larger_totals_come_first() -> None:
    stats = [node("a", total_ms=1.0), node("b", total_ms=2.0), node("c", total_ms=1.0), node("d", total_ms=2.0)]
    assert [row[0] for row in body(format_profiling_table(stats))] == ["b", "d", "a", "c"]
    assert [row[0] for row in body(format_profiling_table(stats[::-1]))] == ["d", "b", "c", "a"]


def test_wide_values_are_never_cut() -> None:
    stats = [NodeProfilingStats("n" * 41, "s" * 13, 10**6, 1e12, 2e12, 3e12, 4e12, 5e12, 1e18, 7e12)]
    (row,) = body(format_profiling_table(stats))
    assert row == (
        f"{'n' * 41} {'s' * 13} 1000000 1000000000000.00 3000000000000.00 4000000000000.00 "
        "5000000000000.00 2000000000000.00 1000000000000000.000"
    )


def average(*rows: NodeProfilingStats, **options: Any) -> list[str]:
    """Return what is said of frames below the table."""
    lines = format_profiling_table(rows, **options).split("\n")
    [total] = [at for at, line in enumerate(lines) if line.startswith("TOTAL ")]
    return [line.removeprefix("Average per-frame pipeline time") for line in lines[total + 1 :]]


def test_nodes_of_one_stage_that_ran_as_often_side_by_side_are_a_frame() -> None:
    table = format_profiling_table([node(count=4, total_ms=30.0), node(count=4, total_ms=10.0)])
    assert table.endswith(f"\n{'TOTAL':<114} {'0.040':>10}\nAverage per-frame pipeline time: 10.00 ms (100.0 FPS)")
    sides = [node(name, count=4, total_ms=20.0, self_total_ms=20.0) for name in "ab"]
    assert average(*sides) == average(*sides, total_frames=1) == [": 10.00 ms (100.0 FPS)"]


def test_stages_have_frames_of_their_own() -> None:
    """As in the demo, whose three stages had 32, 22 and 31 ms, and 49 ms together."""
    stages = (("train", 357, 32.0), ("val", 117, 22.0), ("inference", 117, 31.0))
    rows = [
        node(name, stage, count, count * each_ms / 2, self_total_ms=count * each_ms / 2, skipped_count=3)
        for name in "ab"
        for stage, count, each_ms in stages
    ]
    assert average(*rows, total_frames=600) == [
        " (train): 32.00 ms (31.2 FPS), frames: 360 (each node ran as often)",
        " (inference): 31.00 ms (32.3 FPS), frames: 120 (each node ran as often)",
        " (val): 22.00 ms (45.5 FPS), frames: 120 (each node ran as often)",
    ]


def test_time_inside_another_node_is_no_more_time_of_a_frame() -> None:
    inner = node("in", count=9, total_ms=72.0, self_total_ms=72.0)
    outer: dict[str, Any] = {"count": 9, "total_ms": 90.0}
    assert average(node("out", self_total_ms=18.0, **outer), inner) == [
        " (train): 10.00 ms (100.0 FPS), frames: 9 (calls of out, in which all others ran)"
    ]
    beside = node("beside", count=9, total_ms=9.0, self_total_ms=9.0)
    assert average(node("out", self_total_ms=18.0, **outer), inner, beside) == [
        " (train): 11.00 ms (90.9 FPS), frames: 9 (each node ran as often)"
    ]


def test_where_frames_are_not_known_there_is_no_figure() -> None:
    rows = [node("a", count=4, total_ms=30.0), node("b", count=1000, total_ms=10.0)]
    why = "nodes ran from 4 (a) to 1,000 (b) times, and none is known to be around all others: give total_frames"
    assert average(*rows) == [f" (train): not known, as {why}"]
    assert average(*rows, total_frames=8) == [
        " (train): 5.00 ms (200.0 FPS), frames: 8 (given); self time is not known of a, b"
    ]


def test_calls_without_a_sample_count_as_frames() -> None:
    row = node("n", count=4, total_ms=8.0, skipped_count=1, error_count=3, cancelled_count=2)
    assert average(row, node("of another", "val", count=3))[0] == (
        " (train): 2.00 ms (500.0 FPS), frames: 10 (calls of n, failed calls included)"
    )
    outer = node("outer", count=9, total_ms=90.0, self_total_ms=18.0, skipped_count=1)
    inner = node("inner", count=20, total_ms=80.0, self_total_ms=80.0)
    assert average(outer, inner) == [
        " (train): 10.00 ms (100.0 FPS), frames: 10 (calls of outer, in which all others ran)"
    ]


def test_a_total_of_zero_is_zero_frames_per_second() -> None:
    assert format_profiling_table([node(total_ms=0.0)]).endswith("\nAverage per-frame pipeline time: 0.00 ms (0.0 FPS)")


def test_there_is_no_average_when_the_first_row_has_no_sample() -> None:
    assert average(node(count=0, total_ms=0.0, skipped_count=2)) == []
    skipped = node("skipped", count=0, total_ms=0.0, skipped_count=2)
    assert average(skipped, node(count=2)) == [" (train): 500.0 µs (2000.0 FPS), frames: 2 (calls of n)"]


def test_which_median_the_column_has_is_told_where_there_is_another_one() -> None:
    profiler = profiler_on(median="p2")
    for time_ms in (10, 0.8, 0.8, 0.9, 17, 0.7, 0.8, 0.9, 1, 16):
        profiler.record("train", "n", time_ms)
        profiler.record("train", "even", 1.0)
    profiler.record("train", "exact", 1)
    profiler.record("train", "exact", 9)  # of few samples both are exact
    [line] = [line for line in profiler.format_profiling_summary().split("\n") if "Median(ms) is" in line]
    assert line == "Median(ms) is the P² estimate; p50_ms, within 1 %, is: n (train) 0.90 ms"
    row = profiler.get_profiling_summary().node("n")
    assert (round(row.median_ms, 3), round(row.p50_ms or 0, 3)) == (1.795, 0.897)
    assert profiler.format_profiling_summary().startswith("Profiling Summary (median=p2)\n")
    names = ", ".join(f"n{number} (s) 2.00 ms" for number in range(4))
    rows = [node(f"n{number}", "s", 9, p50_ms=2.0) for number in range(6)]
    assert format_profiling_table(rows, median="p2").endswith(
        f"\nMedian(ms) is the P² estimate; p50_ms, within 1 %, is: {names} and 2 more"
    )
    assert format_profiling_table(rows[:4], median="p2").endswith(f" is: {names}")
    assert "P²" not in format_profiling_table(rows)  # as of recordings, whose medians are exact


# --- which rows there are ---


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ({}, True),
        ({"skipped_count": 3}, True),
        ({"skipped_count": 3, "error_count": 1}, True),
        ({"error_count": 1}, False),
        ({"cancelled_count": 1}, False),
        ({"dropped_count": 1}, False),
        ({"error_count": 1, "cancelled_count": 2, "dropped_count": 3}, False),
        ({"count": 1, "error_count": 1}, True),
    ],
)
def test_a_key_without_samples_is_a_row_unless_it_only_failed(counts: dict[str, int], shown: bool) -> None:
    stats = [node("other"), node("key", **{"count": 0, "total_ms": 0.0, **counts})]  # type: ignore[arg-type]
    names = [row.split()[0] for row in body(format_profiling_table(stats))]
    assert names == (["other", "key"] if shown else ["other"])


@pytest.mark.parametrize("stats", [[], (), ProfilingSummary(), [node(count=0, total_ms=0.0, error_count=1)]])
def test_without_a_row_there_is_no_table(stats: list[NodeProfilingStats]) -> None:
    assert format_profiling_table(stats) == NO_DATA
    assert format_profiling_table(stats, total_frames=5, skip_first_n=2) == NO_DATA


# --- names ---


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("a\r\tb", r"a\r\tb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x00\x07\x7f\x85\x9f", r"\x00\x07\x7f\x85\x9f"),
        ("\ud800", r"\ud800"),
        ("\udfff!", r"\udfff!"),
        ("C:\\new", "C:\\new"),
        ("Größe 節点 👩\u200d🔬 e\u0301", "Größe 節点 👩\u200d🔬 e\u0301"),
        ("{node} %s", "{node} %s"),
        ("", ""),
        (Hostile("plain"), "plain"),
    ],
)
def test_names_and_stages_are_shown_escaped(name: str, shown: str) -> None:
    (row,) = body(format_profiling_table([node(name, "train")]))
    assert row.startswith(f"{shown:<40} train        ")
    (row,) = body(format_profiling_table([node("n", name)]))
    assert row.startswith(f"{'n':<40} {shown:<12}     1 ")


TURNING = {"BN": "", **dict.fromkeys(("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"), "turns")}
MARKS = "\u061c\u200e\u200f"  # of which Unicode's class is that of letters


def test_exactly_what_breaks_or_turns_a_line_is_escaped() -> None:
    for code in range(0x11000):
        character = chr(code)
        shown = body(format_profiling_table([node(f"<{character}>")]))[0].split(" train ")[0].rstrip(" ")
        turns = TURNING.get(unicodedata.bidirectional(character)) or character in MARKS
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or turns:
            assert shown == f"<{character.encode('unicode_escape').decode()}>"
        else:
            assert shown == f"<{character}>"


# --- other objects, and what is refused ---


def test_any_object_with_the_ten_fields_is_a_row() -> None:
    ten = ("node_name", "stage", "count", "mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms")
    others = [SimpleNamespace(**{name: getattr(stats, name) for name in ten}) for stats in GOLDEN_STATS]
    del others[3]
    last = "\nAverage per-frame pipeline time"
    expected = f"{GOLDEN.partition(last)[0]}{last}: 924.75 ms (1.1 FPS)"  # as cuvis-ai-core has it, whose rows are such
    assert format_profiling_table(others, total_frames=350, skip_first_n=3) == expected  # type: ignore[arg-type]
    others[0].count = 0
    del others[2].last_ms
    with pytest.raises(TypeError, match=r"^stats\[2\] must be .*, got SimpleNamespace without last_ms$"):
        format_profiling_table(others)  # type: ignore[arg-type]


@pytest.mark.parametrize("item", [None, 3, "abc", {"node_name": "n"}, (1, 2), NodeProfilingStats])
def test_an_item_of_another_kind_is_refused(item: object) -> None:
    with pytest.raises(TypeError, match=rf"^stats\[1\] .* got {type(item).__name__} without node_name, stage"):
        format_profiling_table([node(), item])  # type: ignore[list-item]


@pytest.mark.parametrize("stats", [None, 3, 1.5, node()])
def test_what_is_not_iterable_is_refused(stats: object) -> None:
    message = f"^stats must be an iterable of NodeProfilingStats, got {type(stats).__name__}$"
    with pytest.raises(TypeError, match=message):
        format_profiling_table(stats)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 3, b"bytes", ["list"], Enum("Number", {"ONE": 1}).ONE])  # type: ignore[attr-defined]
def test_a_name_or_stage_that_is_no_str_is_refused(value: str) -> None:
    with pytest.raises(TypeError, match=f"^node_name must be a str, got {re.escape(shown_value(value))}$"):
        format_profiling_table([node(name=value)])
    with pytest.raises(TypeError, match=f"^stage must be a str, got {re.escape(shown_value(value))}$"):
        format_profiling_table([node(stage=value)])


@pytest.mark.parametrize("parameter", ["total_frames", "skip_first_n"])
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        *((value, TypeError, f"an integer, got {re.escape(shown_value(value))}") for value in (True, 1.0, "3", [3])),
        (-1, ValueError, ">= 0, got -1"),
        (Index(-5), ValueError, ">= 0, got -5"),
        (2**63, ValueError, "<= 9223372036854775807, got 9223372036854775808"),
        (10**5000, ValueError, "<= 9223372036854775807, got an integer of 16610 bits"),
        (-(10**5000), ValueError, ">= 0, got an integer of 16610 bits"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_numbers_that_cannot_be(parameter: str, value: Any, error: type[Exception], message: str) -> None:
    for stats in ([], [node()]):
        with pytest.raises(error, match=f"^{parameter} must be {message}$"):
            format_profiling_table(stats, **{parameter: value})
    if parameter == "total_frames":
        with pytest.raises(error, match=f"^{parameter} must be {message}$"):
            profiler_on().format_profiling_summary(total_frames=value)


# --- the same table as cuvis-ai-core's ---


@pytest.fixture(scope="module")
def cuvis() -> Any:
    return pytest.importorskip("cuvis_ai_core.pipeline.profiling")


@pytest.mark.parametrize("seed", range(40))
def test_tables_equal_those_of_cuvis(cuvis: Any, seed: int) -> None:
    dice = random.Random(seed)
    skip = dice.choice([0, 0, 1, 3])
    profiler = cuvis.PipelineProfiler(skip_first_n=skip)
    stages = ["train", "val", "inference"]
    keys = [(dice.choice(stages), "node" * dice.randint(1, 12)) for _ in range(dice.randint(0, 8))]
    for _ in range(dice.randint(0, 60) if keys else 0):
        profiler.record(*dice.choice(keys), dice.choice([0.0, dice.expovariate(0.01), 10 ** dice.uniform(-6, 6)]))
    theirs = profiler.snapshot()
    ours = [NodeProfilingStats(**vars(stats), skipped_count=skip, self_total_ms=stats.total_ms) for stats in theirs]
    is_right = len({(stats.stage, stats.count) for stats in theirs}) <= 1
    for frames in (None, 0, 350):
        expected = cuvis.format_profiling_table(theirs, total_frames=frames, skip_first_n=skip)
        table = format_profiling_table(ours, total_frames=frames, skip_first_n=skip)
        assert table == expected if is_right else table.startswith(expected.partition("Average")[0])
        assert format_profiling_table(theirs, total_frames=frames, skip_first_n=skip) == expected
