"""The plain-text table of a summary, and what every presentation of it shares: checks, names, the title line."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import fields
from enum import Enum

from cprofiling.stats import NodeProfilingStats

NO_DATA = "No profiling data collected."

_INT64_MAX = 2**63 - 1
_UNITS = (("ns", 1e6), ("µs", 1e3), ("ms", 1.0), ("s", 1e-3))
_REQUIRED_FIELDS = tuple(field.name for field in fields(NodeProfilingStats)[:10])


def format_profiling_table(
    stats: Iterable[NodeProfilingStats],
    *,
    total_frames: int | None = None,
    skip_first_n: int = 0,
) -> str:
    """Return the statistics as a plain-text table, without a newline at its end.

    Rows are sorted by total time, largest first; equal totals keep their order. Times are in milliseconds with two
    decimals, totals in seconds with three. A name that is longer than its column is never cut; control characters and
    surrogates in names and stages are shown as backslash escapes. Keys that only have errors, cancellations or drops
    are left out; a key whose calls were all skipped is a row of zeros. The last line divides the summed total by the
    count of the first row, so it is the time of a frame when each node runs once per frame and none runs inside
    another.

    Args:
        stats: ``NodeProfilingStats``, or other objects that have its first ten fields as attributes.
        total_frames: Number of frames that were processed, shown in the title; 0 to 2^63-1, None if not known.
        skip_first_n: Number of first calls of each key that the statistics leave out, shown in the title when
            greater than 0; 0 to 2^63-1.

    Returns:
        The table, or ``No profiling data collected.`` if it would have no row.

    Raises:
        TypeError: ``stats`` or one of its items is of another kind, a name or stage is no str, or ``total_frames`` or
            ``skip_first_n`` is no integer (a bool is none).
        ValueError: ``total_frames`` or ``skip_first_n`` is out of range.
    """
    title = summary_title(checked_frames(total_frames), checked_count("skip_first_n", skip_first_n))
    rows = sorted_rows(row for row in checked_rows(stats) if not is_failures_only(row))
    if not rows:
        return NO_DATA
    header = (
        f"{'Node':<40} {'Stage':<12} {'Count':>5} {'Mean(ms)':>10} {'Std(ms)':>10} "
        f"{'Min(ms)':>10} {'Max(ms)':>10} {'Median(ms)':>10} {'Total(s)':>10}"
    )
    dashes = "-" * len(header)
    # A plain running sum, in row order: sum() compensates from 3.12 on, which can change the last digit shown.
    total_ms = 0.0
    for row in rows:
        total_ms += row.total_ms
    total_line = f"{'TOTAL':<{len(header) - 11}} {total_ms / 1000:>10.3f}"
    lines = [title, header, dashes, *map(_table_row, rows), dashes, total_line]
    if rows[0].count > 0:
        frame_ms = total_ms / rows[0].count
        lines.append(f"Average per-frame pipeline time: {frame_ms:.2f} ms ({frames_per_second(frame_ms):.1f} FPS)")
    return "\n".join(lines)


def summary_title(total_frames: int | None, skip_first_n: int) -> str:
    """Return the title line, with the number of frames if known and ``skip_first_n`` if not 0."""
    known = []
    if total_frames is not None:
        known.append(f"{total_frames} frames")
    if skip_first_n > 0:
        known.append(f"skip_first_n={skip_first_n}")
    return "Profiling Summary" + (f" ({', '.join(known)})" if known else "")


def checked_frames(total_frames: object) -> int | None:
    """Return ``total_frames`` as an int, or None if it is None; raises as ``checked_count``."""
    return None if total_frames is None else checked_count("total_frames", total_frames)


def checked_count(parameter: str, value: object) -> int:
    """Return ``value`` as an int from 0 to 2^63-1.

    Raises TypeError if it is a bool or has no ``__index__``, ValueError if it is out of range.
    """
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{parameter} must be an integer, got {shown_value(value)}")
    count = operator.index(value)  # type: ignore[arg-type]
    if count < 0:
        raise ValueError(f"{parameter} must be >= 0, got {_refused(count)}")
    if count > _INT64_MAX:
        raise ValueError(f"{parameter} must be <= {_INT64_MAX}, got {_refused(count)}")
    return count


def checked_rows(stats: Iterable[NodeProfilingStats]) -> list[NodeProfilingStats]:
    """Return the items of ``stats`` as a list.

    Raises TypeError if it is not iterable, or if an item is no ``NodeProfilingStats`` and lacks one of its first ten
    fields.
    """
    if not isinstance(stats, Iterable):
        raise TypeError(f"stats must be an iterable of NodeProfilingStats, got {type(stats).__name__}")
    rows = list(stats)
    for index, row in enumerate(rows):
        if isinstance(row, NodeProfilingStats):
            continue
        missing = [name for name in _REQUIRED_FIELDS if not hasattr(row, name)]
        if missing:
            raise TypeError(
                f"stats[{index}] must be a NodeProfilingStats or have its first ten fields, "
                f"got {type(row).__name__} without {', '.join(missing)}"
            )
    return rows


def sorted_rows(rows: Iterable[NodeProfilingStats]) -> list[NodeProfilingStats]:
    """Return the rows by total time, largest first; rows with equal totals keep their order."""
    return sorted(rows, key=operator.attrgetter("total_ms"), reverse=True)


def shown_value(value: object) -> str:
    """Return how an error message shows a refused value: its representation, cut to 80 characters, and its type."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 a broken __repr__ must not hide the error that is being reported
        text = "a value without repr"
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"


def checked_text(parameter: str, value: object) -> str:
    """Return a name or stage as a plain str; an enum stands for its value.

    Raises TypeError, naming ``parameter``, for anything but a str.
    """
    text = value.value if isinstance(value, Enum) else value
    if not isinstance(text, str):
        raise TypeError(f"{parameter} must be a str, got {shown_value(value)}")
    # The characters themselves: a subclass may have other ideas of how it is shown.
    return str.__str__(text)


def shown_text(parameter: str, value: object) -> str:
    r"""Return a name or stage as text that can be printed, without a line break, and encoded.

    Control characters and surrogates become backslash escapes such as ``\n``, ``\x1b`` and ``\ud800``; a backslash
    stays as it is. Raises as ``checked_text``.
    """
    text = checked_text(parameter, value)
    # Most names end here: neither control characters nor surrogates are printable.
    return text if text.isprintable() else "".join(map(_shown_character, text))


def shown_names(names: Iterable[str]) -> str:
    """Return names in quotes, each as ``shown_text``: the first ten by the alphabet, and how many more there are."""
    ordered = sorted(set(names))
    more = f" and {len(ordered) - 10} more" if len(ordered) > 10 else ""
    return ", ".join(f"'{shown_text('name', name)}'" for name in ordered[:10]) + more


def shown_lines(text: str) -> str:
    """Return a text as ``shown_text`` does, with its line breaks."""
    return "\n".join(shown_text("text", line) for line in text.split("\n"))


def frames_per_second(frame_ms: float) -> float:
    """Return the frames per second for a time per frame in milliseconds; 0.0 if the time is 0."""
    return 1000.0 / frame_ms if frame_ms > 0 else 0.0


def format_time(time_ms: float) -> str:
    """Return a time in ms with the unit (ns, µs, ms or s) that shows it as 1 to 999.9, with three to four digits."""
    for unit, per_ms in _UNITS:
        value = float(time_ms) * per_ms
        number = f"{value:.2f}"
        if float(number) >= 100:
            number = f"{value:.1f}"
        text = f"{number} {unit}"
        # Decided on the rounded number, so that 999.96 ns is 1.00 µs and never 1000.0 ns.
        if float(number) < 1000:
            break
    return text


def _refused(value: int) -> str:
    """Return a refused int as text; Python does not convert one of thousands of digits."""
    return str(value) if value.bit_length() <= 128 else f"an integer of {value.bit_length()} bits"


def _shown_character(character: str) -> str:
    """Return a control character (Unicode's category Cc) or surrogate as an escape, any other one as it is."""
    if character < " " or "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff":
        return character.encode("unicode_escape").decode("ascii")
    return character


def _table_row(row: NodeProfilingStats) -> str:
    return (
        f"{shown_text('node_name', row.node_name):<40} {shown_text('stage', row.stage):<12} {row.count:>5} "
        f"{row.mean_ms:>10.2f} {row.std_ms:>10.2f} {row.min_ms:>10.2f} {row.max_ms:>10.2f} {row.median_ms:>10.2f} "
        f"{row.total_ms / 1000:>10.3f}"
    )


def is_failures_only(row: NodeProfilingStats) -> bool:
    """Tell whether a key has no sample and no skipped call, but errors, cancellations or drops."""
    if row.count > 0 or getattr(row, "skipped_count", 0) > 0:
        return False
    return any(getattr(row, name, 0) > 0 for name in ("error_count", "cancelled_count", "dropped_count"))
