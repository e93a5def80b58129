"""Comparisons of timing reports as Markdown and as text tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cprofiling._internal.text import shown_text

if TYPE_CHECKING:
    from cprofiling.layers.compare.timing_reports import StageComparison, TimingComparison

# What means nothing inside the backticks of Markdown, and in HTML.
_PLAIN = re.compile(r"[\w.:/()*=+,-](?:[\w.:/()*=+, -]*[\w.:/()*=+,-])?")
# What may begin or end emphasis outside of them: an underscore but between letters, and each asterisk.
_EMPHASIS = re.compile(r"\*|(?<![^\W_])_|_(?![^\W_])")
_UNKNOWN = "-"
_KINDS = ("missing", "slower", "faster", "same", "unclear", "not enough samples", "unknown")


def columns(comparison: TimingComparison) -> tuple[str, ...]:
    """Return the headings."""
    interval = f"{comparison.confidence * 100:.6g} % interval (ms)"
    return ("Stage", "Calls", "Baseline (ms)", "New (ms)", "Difference (ms)", "Difference (%)", interval, "Verdict")


def cells(comparison: TimingComparison) -> list[tuple[str, ...]]:
    """Return the rows as texts, the total last."""
    return [_cells(row) for row in (*comparison.stages, comparison.total)]


def markdown(comparison: TimingComparison) -> str:
    """Return the comparison in GitHub's Markdown, with names escaped."""
    rows = cells(comparison)
    shown = [shown_text("name", row[0]) for row in rows[:-1]]
    names = [f"`{name}`" if _PLAIN.fullmatch(name) else f"<code>{literal(name)}</code>" for name in shown]
    names.append("**Total**")
    lines = ["### Timing comparison", "", f"**{headline(comparison)}**", ""]
    lines.append(f"| {' | '.join(columns(comparison))} |")
    lines.append(f"|---|{'--:|' * 6}---|")
    for name, row in zip(names, rows, strict=True):
        verdict = f"**{row[-1]}**" if row[-1].startswith(("slower", "missing")) else row[-1]
        lines.append(f"| {' | '.join((name, *row[1:-1], verdict))} |")
    notes = [*comparison.notes, _legend(comparison)]
    return "\n".join([*lines, "", *(f"- {literal(note)}" for note in notes)])


def text(comparison: TimingComparison) -> str:
    """Return the comparison as a table of plain text."""
    table = [columns(comparison), *((shown_text("name", row[0]), *row[1:]) for row in cells(comparison))]
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if place in (0, len(row) - 1) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    lines = [headline(comparison), "", lines[0], rule, *lines[1:-1], rule, lines[-1], ""]
    return "\n".join([*lines, *(shown_text("note", note) for note in comparison.notes), _legend(comparison)])


def headline(comparison: TimingComparison) -> str:
    """Return what came out in one line."""
    verdicts = [_verdict(row) for row in comparison.stages]
    counts = [(verdicts.count(kind), kind) for kind in _KINDS]
    told = ", ".join(f"{count} {kind}" for count, kind in counts if count) or "none"
    if comparison.has_regressed:
        return f"Slower than the baseline (stages: {told})"
    if not comparison.has_verdict:
        return f"No verdict (stages: {told})"
    return f"{'Not found slower' if 'unclear' in verdicts else 'Not slower'} (stages: {told})"


def _cells(row: StageComparison) -> tuple[str, ...]:
    interval = _UNKNOWN if row.interval_ms is None else " to ".join(f"{_ms(bound, '+')}" for bound in row.interval_ms)
    counts = f"{_known(row.baseline_count)} / {_known(row.new_count)}"
    return (
        row.name,
        "" if row.baseline_count is None and row.new_count is None else counts,
        _ms(row.baseline_ms),
        _ms(row.new_ms),
        _ms(row.difference_ms, "+"),
        _UNKNOWN if row.difference_pct is None else f"{row.difference_pct:+.1f}",
        interval,
        f"{_verdict(row)} ({row.reason})" if row.reason else _verdict(row),
    )


def _verdict(row: StageComparison) -> str:
    return "missing" if row.is_missing else row.verdict


def _known(count: int | None) -> str:
    return _UNKNOWN if count is None else str(count)


def _ms(value: float | None, sign: str = "") -> str:
    """Format milliseconds with three decimals, small ones with three digits."""
    if value is None:
        return _UNKNOWN
    return format(value, f"{sign}.3f" if abs(value) >= 0.1 or value == 0 else f"{sign}.3g")


def _legend(comparison: TimingComparison) -> str:
    runs = (comparison.baseline_runs, comparison.new_runs)
    sample = "the calls of one run each" if runs == (1, 1) else f"{runs[0]} and {runs[1]} runs"
    return (
        f"Times are means per call, the total is per run. A change counts where all of its interval (from the spread "
        f"of {sample}, for all rows together) lies beyond {comparison.min_change_pct:g} % of the baseline, and is "
        "unclear where a part does."
    )


def in_cell(name: str) -> str:
    """Return a name for a table cell, escaped where it has Markdown signs."""
    shown = shown_text("name", name)
    return shown if _PLAIN.fullmatch(shown) and not _EMPHASIS.search(shown) else literal(shown)


def literal(text: str) -> str:
    """Escape text for Markdown and HTML."""
    signs = shown_text("text", text)
    return "".join(f"&#{ord(sign)};" if sign in "\\`*_{}[]<>#|~&@$!" else sign for sign in signs)
