"""Two timing reports side by side: which stages became slower, by how much, and whether the calls' noise explains it.

A call's time is compared, not a stage's sum, so that runs with different numbers of calls can be. The interval is
Welch's, from mean, standard deviation and number of calls. It tells of the noise from call to call within the two
runs. Two runs of one program differ by more than that (other clocks, other addresses, other neighbours), which no
single report shows; the smallest change that counts is there for that.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cprofiling.format import shown_text, shown_value
from cprofiling.stages.comparison_text import markdown, text
from cprofiling.stages.student import Sample, interval_of, welch_interval
from cprofiling.stages.timing_file import checked_timing_report, load_timing_report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal, TypeAlias

    from _typeshed import StrOrBytesPath

    Verdict: TypeAlias = Literal["faster", "slower", "same", "unknown"]
    Report: TypeAlias = StrOrBytesPath | Mapping[str, Any]

MIN_CHANGE_PCT = 2.0
CONFIDENCE = 0.95
EXIT_SAME, EXIT_NOTHING_COMPARED, EXIT_REGRESSED = 0, 1, 3
_WIDE_PCT = 10.0  # an interval that reaches further than this is worth a note
_TOTAL = "Total"


@dataclass(frozen=True)
class StageComparison:
    """One stage in two reports. Times are milliseconds per call; None is what is not known.

    Attributes:
        name: The stage's.
        baseline_ms: The mean of its calls in the baseline.
        new_ms: The same in the new report.
        difference_ms: The latter less the former.
        difference_pct: The difference in percent of the baseline; None also for a baseline of 0.
        interval_ms: The interval for the difference.
        verdict: ``slower``, ``faster``, ``same`` or ``unknown``.
        reason: Why the verdict is ``unknown``, or what it goes by in place of an interval; empty otherwise.
        baseline_count: The calls in the baseline.
        new_count: The same in the new report.
        is_missing: Whether the baseline has times and the new report has none.
    """

    name: str
    baseline_ms: float | None
    new_ms: float | None
    difference_ms: float | None = None
    difference_pct: float | None = None
    interval_ms: tuple[float, float] | None = None
    verdict: Verdict = "unknown"
    reason: str = ""
    baseline_count: int | None = None
    new_count: int | None = None
    is_missing: bool = False


@dataclass(frozen=True)
class TimingComparison:
    """What ``compare_timing_reports`` found out. ``str()`` is Markdown, as for a pull request.

    Attributes:
        stages: One row per stage, in the baseline's order; then those that are only in the new report.
        total: The row of ``total_stages_ms``: times per run, not per call.
        min_change_pct: The smallest change that counts, in percent of the baseline.
        confidence: Of the intervals.
        notes: Sentences that belong to the figures.
    """

    stages: tuple[StageComparison, ...]
    total: StageComparison
    min_change_pct: float
    confidence: float
    notes: tuple[str, ...]

    @property
    def has_regressed(self) -> bool:
        """Whether a stage, or the total, is slower, or a stage is missing in the new report."""
        return any(row.verdict == "slower" or row.is_missing for row in (*self.stages, self.total))

    @property
    def exit_status(self) -> int:
        """A gate's: 3 where something ``has_regressed``; 1 where no stage has times in both reports; else 0."""
        if self.has_regressed:
            return EXIT_REGRESSED
        is_compared = any(row.difference_ms is not None for row in self.stages)
        return EXIT_SAME if is_compared else EXIT_NOTHING_COMPARED

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as what JSON can say."""
        return {**asdict(self), "has_regressed": self.has_regressed, "exit_status": self.exit_status}

    def to_json(self) -> str:
        """Return ``to_dict()`` as JSON, in ASCII."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def to_text(self) -> str:
        """Return a table for terminals, with the notes below."""
        return text(self)

    def __str__(self) -> str:
        return markdown(self)

    def _repr_html_(self) -> str:
        from cprofiling.analysis.html_table import html_table
        from cprofiling.stages.comparison_text import cells, columns

        return html_table(columns(self), cells(self), self.notes, None)


def compare_timing_reports(
    baseline: Report, new: Report, *, min_change_pct: float = MIN_CHANGE_PCT, confidence: float = CONFIDENCE
) -> TimingComparison:
    """Compare the times of stages in two timing reports, of ``cprofiling.layers`` or of telefuser.

    A stage is slower (or faster) where the interval for the difference of the two means lies above (below) 0 and the
    difference is larger than the smallest change that counts; else it is the same. Where no interval can be made, as
    for a stage with one call, or for telefuser's reports, which tell no spread, the verdict is ``unknown``; unless both
    ranges from the shortest to the longest call are known, one of them of repeated calls, and they do not overlap.

    The interval is that of B. L. Welch (Biometrika 34, 1947) with Student's distribution, from mean, standard deviation
    and count; see the module for what it does not tell. Of many stages that are all the same, one in forty is found
    slower by chance at the default confidence, if it also changes by more than ``min_change_pct``.

    Args:
        baseline: A path, or a report as a dict.
        new: The same.
        min_change_pct: The smallest change that counts, in percent of the baseline: 0 to 1e6.
        confidence: Of the interval: above 0, at most 0.999999.

    Raises:
        TypeError: A report is neither path nor mapping, or another argument no number.
        ValueError: An argument is out of range.
        OSError: A file cannot be read.
        FormatError: A report is damaged; see ``cprofiling.stages.timing_file.load_timing_report``.
    """
    smallest_pct = _checked_number("min_change_pct", min_change_pct, 0.0, 1e6)
    level = _checked_number("confidence", confidence, 1e-6, 0.999999)
    old, current = _report("baseline", baseline), _report("new", new)
    stages = tuple(
        _compared(name, _Stage(old["stages"].get(name)), _Stage(current["stages"].get(name)), smallest_pct, level)
        for name in dict.fromkeys((*old["stages"], *current["stages"]))
    )
    total = _compared_totals(old, current, smallest_pct, level)
    return TimingComparison(stages, total, smallest_pct, level, tuple(_notes(old, current, stages)))


def _checked_number(parameter: str, value: Any, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{parameter} must be a number, got {shown_value(value)}")
    if not least <= value <= most:
        raise ValueError(f"{parameter} must be from {least:g} to {most:.10g}, got {shown_value(value)}")
    return float(value)


def _report(parameter: str, report: Any) -> dict[str, Any]:
    if hasattr(report, "keys"):
        return checked_timing_report(report, parameter)
    if not isinstance(report, (str, bytes)) and not hasattr(report, "__fspath__"):
        raise TypeError(f"{parameter} must be a path or a report as a dict, got {shown_value(report)}")
    return load_timing_report(report)


class _Stage:
    """What a report tells of a stage; None: it is not there.

    A report without counts has the time of the last call only.
    """

    def __init__(self, figures: dict[str, Any] | None) -> None:
        told = figures or {}
        self.is_there = figures is not None
        self.count: int | None = told.get("count")
        self.total_ms: float = told.get("duration_ms", 0.0)
        self.std_ms: float | None = told.get("std_ms")
        self.mean_ms = self._mean(told)
        self.range_ms = self._range(told)

    def _mean(self, told: dict[str, Any]) -> float | None:
        if not self.is_there or self.count == 0:
            return None
        mean = told.get("mean_ms")
        return float(mean) if mean is not None else self.total_ms / (self.count or 1)

    def _range(self, told: dict[str, Any]) -> tuple[float, float] | None:
        if self.count == 1 and self.mean_ms is not None:
            return self.mean_ms, self.mean_ms
        least, most = told.get("min_ms"), told.get("max_ms")
        return None if not self.count or least is None or most is None else (least, most)

    @property
    def sample(self) -> Sample | None:
        """The sample; None without repeated calls of known spread. The report's spread is that of a population."""
        if self.count is None or self.count < 2 or self.std_ms is None or self.mean_ms is None:
            return None
        return Sample(self.count, self.mean_ms, self.std_ms**2 * (self.count / (self.count - 1)))

    @property
    def lack(self) -> str:
        """Why there is no sample, if there is none."""
        return "" if self.sample is not None else "only one call" if self.count == 1 else "no spread known"


def _compared(name: str, old: _Stage, new: _Stage, smallest_pct: float, confidence: float) -> StageComparison:
    counts = (old.count, new.count)
    if old.mean_ms is None or new.mean_ms is None:
        reason = " and ".join(
            f"{'not' if not stage.is_there else 'no completed call'} in the {where}"
            for stage, where in ((old, "baseline"), (new, "new report"))
            if stage.mean_ms is None
        )
        is_missing = old.mean_ms is not None
        return StageComparison(
            name, old.mean_ms, new.mean_ms, None, None, None, "unknown", reason, *counts, is_missing=is_missing
        )
    difference = new.mean_ms - old.mean_ms
    first, second = old.sample, new.sample
    interval = None if first is None or second is None else welch_interval(first, second, confidence)
    if interval is not None:
        verdict, reason = _verdict(difference, interval, old.mean_ms, smallest_pct), ""
    else:
        verdict, reason = _verdict_by_ranges(old, new, difference, smallest_pct)
    percent = difference / old.mean_ms * 100 if old.mean_ms else None
    return StageComparison(
        name, old.mean_ms, new.mean_ms, difference, _finite(percent), interval, verdict, reason, *counts
    )


def _finite(value: float | None) -> float | None:
    """Return a ratio, or None where the baseline is so near to 0 that there is none."""
    return value if value is not None and math.isfinite(value) else None


def _verdict(difference: float, interval: tuple[float, float], baseline: float, smallest_pct: float) -> Verdict:
    is_noise = interval[0] <= 0 <= interval[1]
    if is_noise or abs(difference) <= baseline * smallest_pct / 100:
        return "same"
    return "slower" if difference > 0 else "faster"


def _verdict_by_ranges(old: _Stage, new: _Stage, difference: float, smallest_pct: float) -> tuple[Verdict, str]:
    """Judge a stage without an interval."""
    reason = _lacks(old.lack, new.lack)
    if old.range_ms is None or new.range_ms is None or max(old.count or 0, new.count or 0) < 2:
        return "unknown", reason
    low, high = sorted((old.range_ms, new.range_ms))
    if low[1] >= high[0]:
        return "unknown", reason
    verdict = _verdict(difference, (difference, difference), old.mean_ms or 0.0, smallest_pct)
    return verdict, f"by ranges that do not overlap: {reason}"


def _lacks(old: str, new: str) -> str:
    if old == new:
        return f"{old} in both"
    named = ((old, "in the baseline"), (new, "in the new report"))
    return ", ".join(f"{lack} {where}" for lack, where in named if lack)


def _compared_totals(
    old: dict[str, Any], new: dict[str, Any], smallest_pct: float, confidence: float
) -> StageComparison:
    baseline_ms, new_ms = _total_ms(old), _total_ms(new)
    difference = new_ms - baseline_ms
    percent = _finite(difference / baseline_ms * 100) if baseline_ms else None
    terms, reason = _total_terms(old["stages"], new["stages"])
    if reason:
        return StageComparison(_TOTAL, baseline_ms, new_ms, difference, percent, None, "unknown", reason)
    interval = interval_of(difference, terms, confidence)
    verdict = _verdict(difference, interval, baseline_ms, smallest_pct)
    return StageComparison(_TOTAL, baseline_ms, new_ms, difference, percent, interval, verdict)


def _total_ms(report: dict[str, Any]) -> float:
    """The sum of the stages as the report tells it; older ones of telefuser call it ``total_ms``."""
    told = report.get("total_stages_ms", report.get("total_ms"))
    return float(told) if told is not None else math.fsum(stage["duration_ms"] for stage in report["stages"].values())


def _total_terms(old: dict[str, Any], new: dict[str, Any]) -> tuple[list[tuple[float, int]], str]:
    """Return variance and degrees of freedom of each stage's sum, or why the totals cannot be judged."""
    if old.keys() != new.keys():
        return [], "the reports have different stages"
    terms = []
    for name, figures in old.items():
        stages = _Stage(figures), _Stage(new[name])
        if stages[0].count != stages[1].count:
            return [], "the stages have different numbers of calls"
        for stage in stages:
            sample = stage.sample
            if sample is None:
                return [], "the spread of the calls is not known for every stage"
            terms.append((sample.variance * sample.size, sample.size - 1))
    return terms, "" if terms else "there are no stages"


def _notes(old: dict[str, Any], new: dict[str, Any], stages: tuple[StageComparison, ...]) -> list[str]:
    notes = [*_notes_on_origin(old, new)]
    missing = [row.name for row in stages if row.is_missing]
    if missing:
        notes.append(f"Missing in the new report: {_listed(missing)}.")
    added = [row.name for row in stages if row.baseline_ms is None and row.new_ms is not None]
    if added:
        notes.append(f"Without times in the baseline: {_listed(added)}.")
    failed = [
        name for name, stage in new["stages"].items()
        if stage.get("error_count", 0) > old["stages"].get(name, {}).get("error_count", 0)
    ]  # fmt: skip
    if failed:
        notes.append(f"More calls failed than in the baseline: {_listed(failed)}.")
    wide = [row.name for row in stages if row.verdict == "same" and _is_wide(row)]
    if wide:
        notes.append(
            f"Calls spread so much that a change of {_WIDE_PCT:g} % could be hidden; more calls tell more: "
            f"{_listed(wide)}."
        )
    return notes


def _is_wide(row: StageComparison) -> bool:
    return (
        row.interval_ms is not None
        and row.baseline_ms is not None
        and max(map(abs, row.interval_ms)) > row.baseline_ms * _WIDE_PCT / 100
    )


def _notes_on_origin(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Say where the two come from, if that makes them hard to compare."""
    processes = [report.get("process", {}) for report in (old, new)]
    hosts = [process.get("host") for process in processes]
    sizes = [report.get("world_size") for report in (old, new)]
    requests = [(report.get("request_id"), report.get("timestamp")) for report in (old, new)]
    notes = []
    if None not in hosts and hosts[0] != hosts[1]:
        notes.append(f"The reports are from different machines: {_shown(hosts[0])} and {_shown(hosts[1])}.")
    if None not in sizes and sizes[0] != sizes[1]:
        notes.append(f"The reports are of different numbers of ranks: {sizes[0]} and {sizes[1]}.")
    if processes[0] and processes[0] == processes[1] and requests[0] == requests[1]:
        notes.append("Both are the same report.")
    return notes


def _listed(names: list[str]) -> str:
    shown = [_shown(name) for name in names[:10]]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _shown(name: str) -> str:
    return shown_text("name", name)
