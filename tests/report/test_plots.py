"""Pictures: what is drawn, where, and that nothing else of matplotlib changes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest

import cprofiling as cp
from calls import profiler_with
from hostile_names import NAMES

matplotlib: Any = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt: Any = pytest.importorskip("matplotlib.pyplot")

from cprofiling.nodes.histogram import Histogram  # noqa: E402

MS = 1_000_000
TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    plt.close("all")
    yield
    plt.close("all")


def recording_of(rows: list[tuple[str, int, int, int]], *, processes: int = 1) -> cp.Recording:
    """A recording of spans: name, start and end in ms, thread."""
    recording = cp.Recording.empty()
    for name, start, end, thread in rows:
        recording._add(name, 0, start * MS, end * MS, thread % processes, thread)
    recording._finish()
    return recording


def labels(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def drawn(axes: Any) -> bytes:
    """The picture, as it is stored."""
    buffer = BytesIO()
    axes.figure.savefig(buffer, format="png", dpi=40)
    return buffer.getvalue()


# ---- Summaries


def test_bars_are_the_totals_the_longest_first() -> None:
    profiler = profiler_with({("train", "a"): [1.0, 2.0], ("val", "b"): [30.0], ("val", "a"): [0.5]})
    axes: Any = profiler.get_profiling_summary().plot()
    assert labels(axes) == ["b", "a", "a"]
    assert [bar.get_width() for bar in axes.patches[:3]] == [30.0, 3.0, 0.5]
    assert texts(axes) == [f"1 {TIMES} 30.00 ms", f"2 {TIMES} 1.50 ms", f"1 {TIMES} 500.0 µs"]
    assert axes.get_xlabel().startswith("total time (ms)")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["val", "train"]
    assert drawn(axes).startswith(b"\x89PNG")


def test_what_is_a_nodes_own_is_told_apart() -> None:
    profiler = cp.Profiler()
    profiler.set_profiling(True)
    with profiler.profile_node("outer"), profiler.profile_node("inner"):
        time.sleep(0.01)
    axes: Any = profiler.snapshot().plot()
    outer, inner, own, all_own = (bar.get_width() for bar in axes.patches)
    assert own < 0.5 * outer
    assert inner == all_own <= outer
    assert axes.get_legend() is None


def test_of_200_nodes_the_longest_are_drawn() -> None:
    profiler = profiler_with({("train", f"node {number}"): [float(200 - number)] for number in range(200)})
    summary = profiler.get_profiling_summary()
    axes: Any
    for axes in (summary.plot(), profiler.snapshot().plot()):
        assert labels(axes) == [f"node {number}" for number in range(30)] + ["170 more"]
        assert texts(axes)[-1] == "14.54 s of their own together"
    assert len(labels(summary.plot(top=200))) == 200
    drawn(axes)


@pytest.mark.parametrize("top", [0, -1, 1001, "3", 1.0, True, None])
def test_a_number_of_rows_is_checked(top: Any) -> None:
    for plot in (cp.ProfilingSummary().plot, recording_of([]).plot):
        with pytest.raises((TypeError, ValueError), match="top must be"):
            plot(top=top)


def test_nothing_is_drawn_as_nothing() -> None:
    profiler = cp.Profiler()  # off
    with profiler.profile_node("a"):
        pass
    failing = profiler_with({})
    with pytest.raises(ValueError, match="x"), failing.profile_node("fails"):
        raise ValueError("x")
    with cp.profile() as prof:
        pass
    for axes in (
        profiler.get_profiling_summary().plot(),
        failing.get_profiling_summary().plot(),
        failing.get_profiling_summary().histogram("fails").plot(),
        Histogram("a", None, ()).plot(),
        prof.plot(),
        recording_of([]).plot(),
    ):
        assert texts(axes) == ["No profiling data collected."]
        drawn(axes)


# ---- Histograms


def test_a_wide_histogram_has_a_logarithmic_axis() -> None:
    profiler = profiler_with({("train", "a"): [0.1] * 50 + [1.0] * 30 + [10.0] * 20})
    axes: Any = profiler.snapshot().histogram("a").plot()
    assert (axes.get_xscale(), axes.get_title()) == ("log", "a: 100 samples")
    assert [text.strip().split(" ")[0] for text in texts(axes)] == ["p50", "p90", "p99"]
    (stairs,) = axes.patches
    values, edges, _ = stairs.get_data()
    assert sum(values) == 100
    assert len(values) <= 50
    assert edges[0] <= 0.1
    assert edges[-1] > 10.0
    axes.figure.canvas.draw()
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert {"100 µs", "1 ms", "10 ms"} <= set(ticks)


@pytest.mark.parametrize(
    ("times", "scale", "axis"),
    [
        ([0.9, 1.0, 1.1], "linear", "time (ms)"),
        ([1e-5, 1.1e-5], "linear", "time (ns)"),
        ([2e-3, 6e-3], "log", "time"),
        ([1e-3, 2e7], "log", "time"),
        ([0.0], "linear", "time (ns)"),
        ([0.0, 1e12], "linear", "time (s)"),
        ([5.0], "linear", "time (ms)"),
    ],
)
def test_the_axis_fits_the_times(times: list[float], scale: str, axis: str) -> None:
    axes: Any = profiler_with({("s", "a"): times}).snapshot().histogram("a").plot()
    assert (axes.get_xscale(), axes.get_xlabel()) == (scale, axis)
    values, edges, _ = axes.patches[0].get_data()
    assert sum(values) == len(times)
    assert list(edges) == sorted(edges)
    drawn(axes)


def test_each_sample_is_drawn_whatever_the_time() -> None:
    times = [1e-6 * 1.7**power for power in range(50)]
    for first in range(0, 50, 7):
        histogram = profiler_with({("s", "a"): times[first:]}).snapshot().histogram("a")
        axes: Any = histogram.plot()
        values, edges, _ = axes.patches[0].get_data()
        assert sum(values) == len(times) - first
        assert edges[-1] / edges[0] >= histogram[-1][1] / histogram[0][0] * (1 - 1e-9)
        plt.close("all")


# ---- Timelines


def bars_of(axes: Any) -> list[list[tuple[float, float]]]:
    """The begins and ends of the boxes of each level, from the top."""
    return [
        [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in collection.get_paths()]
        for collection in axes.collections
    ]


def test_what_is_inside_what_is_below_it() -> None:
    rows = [("frame", 0, 100, 1), ("infer", 10, 60, 1), ("matmul", 20, 30, 1), ("post", 60, 90, 1), ("read", 5, 50, 2)]
    axes: Any = recording_of(rows).plot()
    assert bars_of(axes) == [[(0, 100)], [(10, 60), (60, 90)], [(20, 30)], [(5, 50)]]
    assert axes.get_title() == "Timeline"
    assert axes.get_ylim() == (4, 0)
    assert labels(axes) == ["thread 1", "thread 2"]
    assert axes.get_xlabel() == "time since the first event (ms)"
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["read", "infer", "post", "frame", "matmul"]
    assert "frame" in texts(axes)


def test_spans_that_overlap_are_beside_each_other() -> None:
    axes = recording_of([("a", 0, 50, 1), ("b", 20, 80, 1), ("c", 60, 90, 1)]).plot()
    assert bars_of(axes) == [[(0, 50), (60, 90)], [(20, 80)]]


def test_what_is_finer_than_a_pixel_is_drawn_together() -> None:
    rows = [("long", 0, 80_000, 1), *(("fine", start, start + 1, 1) for start in range(0, 80_000, 4))]
    axes: Any = recording_of(rows).plot()
    assert len(bars_of(axes)[1]) <= 2000
    assert axes.get_title() == "Timeline (20,000 spans finer than 1/2000 of the width drawn together)"
    drawn(axes)


def test_depth_and_threads_have_a_limit_that_is_told() -> None:
    axes: Any = recording_of([(f"level {level}", level, 100 - level, 1) for level in range(10)]).plot()
    assert (len(bars_of(axes)), axes.get_title()) == (8, "Timeline (2 spans nested deeper than 8 not drawn)")
    wide = [("work", start, start + 1, thread) for thread in range(40) for start in range(1 + (thread > 4))]
    axes = recording_of(wide).plot()
    assert (len(labels(axes)), axes.get_title()) == (32, "Timeline (8 threads with fewer events not drawn)")


def test_of_several_processes_the_names_are_there() -> None:
    recording = cp.Recording.empty()
    recording._add("a", 0, 0, 5, 1, 1)
    recording._add("b", 4, 0, 5, 2, "stream 7", device=0, stream=7)
    recording._add("c", 6, 0, 5, 2, 1)  # a counter
    recording._name_process(1, "host", None, None)
    recording._finish()
    axes: Any = recording.plot()
    assert set(labels(axes)) == {"host thread 1", "2 stream 7"}
    assert sorted(text.get_text() for text in axes.get_legend().get_texts()) == ["a", "b"]


def test_some_names_have_colours_and_the_others_one_together() -> None:
    recording = recording_of([(f"node {number}", number * 10, number * 10 + 9 - number % 3, 1) for number in range(30)])
    for top, count in ((3, 4), (18, 19)):
        axes: Any = recording.plot(top=top)
        legend = [text.get_text() for text in axes.get_legend().get_texts()]
        assert (len(legend), legend[-1]) == (count, "others")


def test_the_profile_draws_what_it_recorded() -> None:
    with cp.profile() as prof:
        for _ in range(3):
            with cp.record("_step"), cp.profile_node("node"):
                pass
    axes: Any = prof.plot()
    legend = axes.get_legend().get_texts()
    assert sorted(text.get_text().lstrip("\N{WORD JOINER}") for text in legend) == ["_step", "node"]
    assert len(legend) == 2


# ---- What is common to all


def all_plots(names: tuple[str, ...] = ("a",)) -> list[Any]:
    profiler = profiler_with({("stage" if at % 9 else name[:30], name): [1.0 + at] for at, name in enumerate(names)})
    recording = recording_of([(name, at, at + 1, 1) for at, name in enumerate(names)])
    return [profiler.get_profiling_summary().plot, profiler.snapshot().histogram(names[0]).plot, recording.plot]


def test_axes_that_are_given_are_drawn_on_and_nothing_else_changes() -> None:
    from matplotlib.figure import Figure

    current = plt.figure()
    for plot in all_plots():
        axes = Figure().subplots()
        before = dict(matplotlib.rcParams)
        assert plot(ax=axes) is axes
        assert plt.get_fignums() == [current.number]
        assert plt.gcf() is current
        assert dict(matplotlib.rcParams) == before
        drawn(axes)
        with pytest.raises(TypeError, match="ax must be axes of matplotlib, or None, got 'x'"):
            plot(ax="x")
        made = plot()
        assert plt.get_fignums() == [current.number, made.figure.number]
        plt.close(made.figure)
        plt.figure(current.number)


@pytest.mark.parametrize("count", [1, 12_345_678_901])
def test_labels_of_bars_end_before_the_legend(count: int) -> None:
    profiler = profiler_with({})
    for stage in ("train", "val", "inference"):
        for layer in range(3):
            profiler.record(stage, f"encoder.layer{layer}.attention.projection", 7.5 + layer)
    first, *others = profiler.get_profiling_summary()
    axes: Any = cp.ProfilingSummary([replace(first, count=count), *others]).plot()
    axes.figure.canvas.draw()
    paper = axes.get_window_extent()
    ends = [text.get_window_extent().x1 for text in axes.texts]
    assert max(ends) <= paper.x1 < axes.get_legend().get_window_extent().x0


@pytest.mark.parametrize(
    "times", [[1.0] * 99 + [50.0], [1.0, 1.2, 1.4, 1.5] * 9, [50.0] * 99 + [1.0], [0.1 * 1.1**at for at in range(90)]]
)
@pytest.mark.parametrize("width", [7.0, 3.2])
def test_labels_of_percentiles_and_ticks_do_not_cross(times: list[float], width: float) -> None:
    from matplotlib.figure import Figure

    axes: Any = Figure(figsize=(width, 3.0), layout="constrained").subplots()
    profiler_with({("s", "a"): times}).snapshot().histogram("a").plot(ax=axes)
    axes.figure.canvas.draw()
    ticks = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    for labels in ([text.get_window_extent() for text in axes.texts], ticks):
        assert len(labels) >= 2
        assert not any(one.overlaps(other) for at, one in enumerate(labels) for other in labels[:at])
    first = min(text.get_window_extent().y0 for text in axes.texts)
    highest = axes.transData.transform((0, max(axes.patches[0].get_data()[0])))[1]
    assert highest <= first, "no bar reaches the labels"


def test_colours_follow_the_page() -> None:
    for plot in all_plots():
        with plt.style.context("dark_background"):
            dark = plot()
            drawn(dark)
        assert dark.figure.get_facecolor()[:3] == (0, 0, 0)
        assert dark.xaxis.label.get_color() == "white"
        assert drawn(dark) != drawn(plot())


@pytest.mark.slow
def test_names_are_drawn_as_they_are() -> None:
    from matplotlib.figure import Figure

    summary, _, recording = all_plots(NAMES)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph|.*missing from font")  # matplotlib's own font has not all letters
        for axes in (
            summary(ax=Figure(figsize=(8, 60)).subplots(), top=500),
            recording(ax=Figure().subplots(), top=18),
            *(all_plots((name,))[1](ax=Figure().subplots()) for name in NAMES[::50]),
        ):
            drawn(axes)
            legend = axes.get_legend()
            known = [*axes.get_yticklabels(), *axes.texts, axes.title, *(legend.get_texts() if legend else ())]
            for text in known:
                assert len(text.get_text()) <= 60
                assert not re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", text.get_text())
                assert not text.get_parse_math() or "$" not in text.get_text()
    summary, histogram, timeline = (plot() for plot in all_plots(("$x$", "__a")))
    assert labels(summary) == ["__a", "$x$"]
    assert histogram.get_title() == "$x$: 1 sample"
    assert [text.get_text() for text in timeline.get_legend().get_texts()] == ["$x$", "\N{WORD JOINER}__a"]
    assert not any(text.get_parse_math() for text in (*summary.get_yticklabels(), *timeline.get_legend().get_texts()))


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plots = all_plots()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for plot in plots:
        with pytest.raises(ImportError, match=r'matplotlib is needed .*pip install "cprofiling\[plot\]"'):
            plot()


def test_matplotlib_is_loaded_when_something_is_drawn_and_not_before() -> None:
    program = (
        "import sys, cprofiling as cp, cprofiling.notebook\n"
        "cp.load_ipython_extension, cp.ProfilingSummary().plot, cp.Profiler().snapshot().plot\n"
        "loaded = {'matplotlib', 'IPython', 'tqdm'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
