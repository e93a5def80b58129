"""Pictures by matplotlib, never shown, saved or closed here."""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any

from cprofiling._internal import arguments
from cprofiling._internal.optional import imported
from cprofiling._internal.row_kinds import COUNTER, DEVICE, INSTANT, KINDS
from cprofiling._internal.text import counted, format_time, shown_text, shown_value
from cprofiling.nodes.buckets import edge_ms, number_of
from cprofiling.nodes.summary_table import NO_DATA, own_ms, sorted_rows
from cprofiling.recording.columns import column, grouped
from cprofiling.recording.tree import host_tree, self_times
from cprofiling.report.timeline import timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

    from cprofiling.nodes.histogram import Histogram
    from cprofiling.nodes.stats import ProfilingSummary
    from cprofiling.recording.result import Recording

_LONGEST = 40  # characters of a name that are drawn
_LONGEST_IN_LEGEND = 24
_MOST_BARS = 1000
_MOST_COLOURS = 18
_COLUMNS = 2000  # of a timeline: finer spans are drawn together
_MOST_LANES = 32
_MOST_LEVELS = 8
_OTHERS = (0.6, 0.6, 0.6)
_INSIDE = "\nthe stronger part is the node's own, without nodes inside"
_BINS = 50
_GAP = 3  # points between a bar and its label
_PERCENTILES = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))
_STEPS = (((1, 2, 3, 4, 5, 6, 8), 0.079), ((1, 2, 5), 0.3))  # of a decade's ticks, with the least distance in decades
_WIDE = 2.0  # how many times the least time the longest must be for a logarithmic axis
_NS_PER_MS = 1e6


def plot_summary(summary: ProfilingSummary, ax: Axes | None, *, top: int) -> Axes:
    """Draw a summary as bars."""
    limit = arguments.index_between("top", top, 1, _MOST_BARS)
    rows = sorted_rows(row for row in summary if row.count > 0)
    shown, rest = rows[:limit], rows[limit:]
    axes = _axes(ax, (8.0, 1.2 + 0.32 * max(len(shown) + bool(rest), 2)))
    axes.set_title("Total time of each node")
    if not shown:
        return _without_data(axes)
    stages = [shown_text("stage", row.stage) for row in shown]
    known_stages = list(dict.fromkeys(stages))
    colours = {stage: f"C{number % 10}" for number, stage in enumerate(known_stages)}
    faces = [colours[stage] for stage in stages]
    longest_ms = shown[0].total_ms or 1.0
    per_unit, unit = _unit_of(longest_ms)
    axes.barh(range(len(shown)), [row.total_ms * per_unit for row in shown], color=faces, alpha=0.35, linewidth=0)
    own = [min(own_ms(row), row.total_ms) * per_unit for row in shown]
    axes.barh(range(len(shown)), own, color=faces, linewidth=0)
    names = [_shortened(row.node_name) for row in shown]
    labels = [(row.total_ms, f"{row.count:,} \N{MULTIPLICATION SIGN} {format_time(row.mean_ms)}") for row in shown]
    if rest:  # without a bar, which might be longer than all others
        names.append(f"{len(rest):,} more")
        labels.append((0.0, f"{format_time(math.fsum(map(own_ms, rest)))} of their own together"))
    told = [
        axes.annotate(
            label, (total_ms * per_unit, place), (_GAP, 0), textcoords="offset points", va="center", fontsize="small",
            in_layout=False,
        )
        for place, (total_ms, label) in enumerate(labels)
    ]  # fmt: skip
    axes.set_yticks(range(len(names)))
    _plainly(axes.set_yticklabels(names))
    axes.set_ylim(len(names) - 0.4, -0.6)
    has_inside = any(part < row.total_ms * per_unit for part, row in zip(own, shown, strict=True))
    axes.set_xlabel(f"total time ({unit})" + (_INSIDE if has_inside else ""))
    axes.spines[["top", "right"]].set_visible(False)
    if len(known_stages) > 1:
        _legend(axes, [(stage, colours[stage]) for stage in known_stages[:_MOST_COLOURS]], title="Stage")
    width = _final_width(axes)  # as wide as it takes for the labels to end inside
    rooms = [max(width - text.get_window_extent().width - 2 * _GAP, width / 4) for text in told]
    ends = [total_ms * width / room for (total_ms, _), room in zip(labels, rooms, strict=True)]
    axes.set_xlim(0, max(*ends, longest_ms * 1.02) * per_unit)
    return axes


def plot_histogram(histogram: Histogram, ax: Axes | None) -> Axes:
    """Draw a histogram with percentiles."""
    axes = _axes(ax, (7.0, 3.2))
    count = histogram.count
    _plainly([axes.set_title(f"{_shortened(histogram.title())}: {count:,} {'sample' if count == 1 else 'samples'}")])
    if not histogram.buckets:
        return _without_data(axes)
    edges, counts = _bins_of(histogram)
    per_unit, unit = _unit_of(edges[-1])
    is_wide = edges[0] > 0 and edges[-1] > edges[0] * _WIDE
    edges = [edge if is_wide else edge * per_unit for edge in edges]
    axes.stairs(counts, edges, fill=True, color="C0", alpha=0.8)
    if is_wide:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

        def tick(time_ms: float, _: int) -> str:
            number, unit = format_time(time_ms).split(" ")
            return f"{float(number):g} {unit}"

        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(tick))
        axes.set_xlim(edges[0], edges[-1])
        most = int(_final_width(axes) / _text_width("000 µs  ", axes, "medium"))  # labels side by side
        decades = math.log10(edges[-1] / edges[0])
        steps = next((steps for steps, apart in _STEPS if apart * most >= decades), (1,))
        axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=max(most, 2) if steps == (1,) else 30))
    axes.set_xlabel("time" if is_wide else f"time ({unit})")
    axes.set_ylabel("samples")
    axes.locator_params(axis="y", integer=True)
    axes.margins(y=0.4)  # for the labels
    width = _final_width(axes)
    to_axes = (axes.transData + axes.transAxes.inverted()).transform
    paper = {"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 1}  # over the lines of other labels
    for height, (fraction, label) in zip((0.80, 0.89, 0.98), _PERCENTILES, strict=True):
        time_ms = histogram.quantile(fraction) or 0.0
        place = time_ms * (1.0 if is_wide else per_unit)
        axes.axvline(place, ymax=height, color="C3", linewidth=1, linestyle="--")
        text = f"{label} {format_time(time_ms)}"
        is_left = to_axes((place, 0.0))[0] * width > _text_width(f"{text}  ", axes, "small")
        axes.annotate(
            text, (place, height), (-_GAP if is_left else _GAP, 0), axes.get_xaxis_transform(), "offset points",
            ha="right" if is_left else "left", va="top", fontsize="small", bbox=paper,
        )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _bins_of(histogram: Histogram) -> tuple[list[float], list[int]]:
    """Return the edges in ms and counts of bins, each some buckets wide.

    They are as many buckets wide as it takes for at most 50 of them, none narrower than a nanosecond.
    """
    numbers = []
    for lower_ms, *_ in histogram.buckets:
        number = number_of(int(lower_ms * _NS_PER_MS))
        while edge_ms(number) < lower_ms * (1 - 1e-9):
            number += 1
        numbers.append(number)
    first, last = numbers[0], numbers[-1]
    step = 1
    while last // step - first // step >= _BINS or edge_ms(first + step) - edge_ms(first) < 1 / _NS_PER_MS:
        step *= 2
    counts = [0] * (last // step - first // step + 1)
    for number, (*_, count) in zip(numbers, histogram.buckets, strict=True):
        counts[number // step - first // step] += count
    return [edge_ms((first // step + place) * step) for place in range(len(counts) + 1)], counts


def plot_recording(recording: Recording, ax: Axes | None, *, top: int) -> Axes:
    """Draw a recording as a timeline."""
    names = arguments.index_between("top", top, 1, _MOST_COLOURS)
    found = timeline(recording, columns=_COLUMNS, most_tracks=len(recording.tracks), most_depth=_MOST_LEVELS)
    tracks = grouped((span for span in found.spans if span.kind != KINDS[INSTANT]), lambda span: span.track)
    shown = sorted(sorted(tracks, key=lambda track: -sum(span.count for span in tracks[track]))[:_MOST_LANES])
    spans = [span for track in shown for span in tracks[track]]
    merged = sum(span.count for span in spans if span.count > 1)
    too_deep = found.total_spans - sum(span.count for span in found.spans)
    notes = [
        note
        for count, note in (
            (merged, f"{counted(merged, 'span')} finer than 1/{_COLUMNS} of the width drawn together"),
            (too_deep, f"{counted(too_deep, 'span')} nested deeper than {_MOST_LEVELS} not drawn"),
            (len(tracks) - len(shown), f"{counted(len(tracks) - len(shown), 'thread')} with fewer events not drawn"),
        )
        if count
    ]
    depths = {track: 1 + max(span.depth for span in tracks[track]) for track in shown}
    ranked = _by_own_time(recording, {span.name for span in spans})
    axes = _axes(ax, (11.0, 1.3 + 0.28 * max(sum(depths.values()), 3, 0.75 * min(names + 1, len(ranked)))))
    axes.set_title("Timeline" + (f" ({'; '.join(notes)})" if notes else ""), fontsize="medium")
    if not spans:
        return _without_data(axes)
    import matplotlib as mpl

    shades = mpl.colormaps["tab20"](range(20))  # strong ones first, without greys
    palette = [shades[place] for place in (*range(0, 20, 2), *range(1, 20, 2)) if place not in (14, 15)]
    colours = dict(zip(ranked[:names], palette, strict=False))
    per_unit, unit = _unit_of(found.duration_ns / _NS_PER_MS)
    per_ns = per_unit / _NS_PER_MS
    width = found.duration_ns * per_ns
    bottom = 0
    ticks = []
    named: list[Any] = []  # boxes with their names
    has_processes = len({track.pid for track in found.tracks}) > 1
    for number in shown:
        track = found.tracks[number]
        thread = f"thread {track.thread}" if track.thread == str(track.tid) and track.thread.isdigit() else track.thread
        ticks.append((bottom + depths[number] / 2, f"{track.process} {thread}" if has_processes else thread))
        for level, boxes in grouped(tracks[number], lambda span: span.depth).items():
            place = bottom + level
            places = [(box.start_ns * per_ns, box.duration_ns * per_ns) for box in boxes]
            faces = [colours.get(box.name, _OTHERS) for box in boxes]
            axes.broken_barh(places, (place + 0.05, 0.9), facecolors=faces, edgecolors="face", linewidth=0.2)
            named += zip(places, repeat(place), map(_shortened, (box.name for box in boxes)), faces)
        bottom += depths[number]
        axes.axhline(bottom, color="0.7", linewidth=0.6)
    axes.set_yticks([place for place, _ in ticks])
    _plainly(axes.set_yticklabels([_shortened(title) for _, title in ticks]))
    axes.set_ylim(bottom, 0)
    axes.set_xlim(0, width or 1.0)
    axes.set_xlabel(f"time since the first event ({unit})")
    _legend(axes, [*colours.items(), *([("others", _OTHERS)] if len(ranked) > names else [])])
    axes.spines[["top", "right"]].set_visible(False)
    pixels = _final_width(axes) / (width or 1.0)
    for (start, length), place, text, face in named:
        if length * pixels > _text_width(f"{text} ", axes, "x-small"):
            light = 0.3 * face[0] + 0.59 * face[1] + 0.11 * face[2] > 0.55
            _plainly([
                axes.text(
                    start + length / 2, place + 0.5, text, ha="center", va="center", fontsize="x-small",
                    clip_on=True, color="black" if light else "white", in_layout=False,
                )
            ])  # fmt: skip
    return axes


def _by_own_time(recording: Recording, drawn: set[str]) -> list[str]:
    """Return the names drawn, the longest time of their own first."""
    kinds, starts, ends, names = (column(recording, name) for name in ("kind", "start_ns", "end_ns", "name"))
    own = self_times(recording, host_tree(recording, merging=False))
    times: Counter[str] = Counter()
    for row, kind in enumerate(kinds):
        if kind not in (INSTANT, COUNTER):
            times[recording.strings[names[row]]] += ends[row] - starts[row] if kind == DEVICE else max(own[row], 0)
    return [name for name, _ in times.most_common() if name in drawn]


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return the axes given, or those of a new figure."""
    imported("matplotlib", install="cprofiling[plot]")
    import matplotlib.axes

    if ax is None:
        import matplotlib.pyplot as plt

        return plt.subplots(figsize=size, layout="constrained")[1]
    if not isinstance(ax, matplotlib.axes.Axes):
        raise TypeError(f"ax must be axes of matplotlib, or None, got {shown_value(ax)}")
    return ax


def _final_width(axes: Axes) -> float:
    """Return the width of axes in pixels, once everything has found its place."""
    root: Any = axes.figure.figure  # of a subfigure, too
    root.draw_without_rendering()
    return axes.bbox.width


def _text_width(text: str, axes: Axes, size: str) -> float:
    """Return about how many pixels wide a text is, at most."""
    from matplotlib.font_manager import FontProperties

    letter = 0.65 * FontProperties(size=size).get_size_in_points() * axes.figure.dpi / 72
    return letter * sum(map(_width, text))


def _without_data(axes: Axes) -> Axes:
    axes.text(0.5, 0.5, NO_DATA, transform=axes.transAxes, ha="center", va="center")
    axes.set_xticks([])
    axes.set_yticks([])
    return axes


def _legend(axes: Axes, known: Iterable[tuple[str, Any]], title: str | None = None) -> None:
    from matplotlib.patches import Patch

    handles = []
    for label, colour in known:
        shown = _shortened(label, _LONGEST_IN_LEGEND)
        if shown.startswith("_"):  # which matplotlib would leave out
            shown = f"\N{WORD JOINER}{shown}"
        handles.append(Patch(facecolor=colour, label=shown))
    legend = axes.legend(handles=handles, title=title, loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize="small")
    _plainly(legend.get_texts())


def _plainly(texts: Iterable[Text]) -> None:
    """Draw names as they are, dollar signs included."""
    for text in texts:
        text.set_parse_math(False)


def _shortened(name: str, longest: int = _LONGEST) -> str:
    """Return a printable name without its middle if it is too long."""
    shown = shown_text("name", name)
    if sum(map(_width, shown)) <= longest:
        return shown
    half = longest // 2
    return f"{_beginning(shown, half)}\N{HORIZONTAL ELLIPSIS}{_beginning(shown[::-1], half - 1)[::-1]}"


def _beginning(text: str, width: int) -> str:
    """Return the first characters up to a width."""
    return text[: next(place for place, wide in enumerate(accumulate(map(_width, text))) if wide > width)]


def _width(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _unit_of(time_ms: float) -> tuple[float, str]:
    """Return how many of a fitting unit are in a ms, and its name."""
    units = ((1e-6, 1e6, "ns"), (1e-3, 1e3, "µs"), (1.0, 1.0, "ms"), (1e3, 1e-3, "s"))
    place = bisect_left([least for least, *_ in units], time_ms * (1 + 1e-9)) - 1
    return units[max(place, 0)][1:]
