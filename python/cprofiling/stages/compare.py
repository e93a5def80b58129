"""Two timing reports side by side: which stages became slower, by how much, and whether the calls' noise explains it.

A call's time is compared, not a stage's sum, so that runs with different numbers of calls can be. Of one report a side,
the interval is Welch's from mean, standard deviation and number of the calls. It tells of the noise from call to call
within the two runs. Two runs of one program differ by more than that (other clocks, other addresses, other neighbours),
which no single report shows: for that there is the smallest change that counts, and, better, several reports a side,
whose means then are the sample.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from cprofiling import checks
from cprofiling.format import shown_text, shown_value
from cprofiling.stages.comparison_text import markdown, text
from cprofiling.stages.stage_times import StageTimes, interval_between, totals_of
from cprofiling.stages.student import interval_of
from cprofiling.stages.timing_file import checked_timing_report, load_timing_report, processes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal, TypeAlias

    from _typeshed import StrOrBytesPath

    Verdict: TypeAlias = Literal["faster", "slower", "same", "unclear", "unknown"]
    Report: TypeAlias = StrOrBytesPath | Mapping[str, Any]
    Reports: TypeAlias = Report | Sequence[Report]

MIN_CHANGE_PCT = 2.0
CONFIDENCE = 0.95
EXIT_SAME, EXIT_NO_VERDICT, EXIT_REGRESSED = 0, 1, 3
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
        verdict: ``slower``, ``faster``, ``same`` or ``unknown``; in reports of two runs also ``unclear``, of what would
            be the same, but for an interval that reaches beyond the smallest change that counts.
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
        baseline_runs: The reports of the baseline.
        new_runs: Those that it is compared with.
    """

    stages: tuple[StageComparison, ...]
    total: StageComparison
    min_change_pct: float
    confidence: float
    notes: tuple[str, ...]
    baseline_runs: int = 1
    new_runs: int = 1

    @property
    def has_regressed(self) -> bool:
        """Whether a stage, or the total, is slower, or a stage is missing in the new report."""
        return any(row.verdict == "slower" or row.is_missing for row in (*self.stages, self.total))

    @property
    def has_verdict(self) -> bool:
        """Whether any stage, or the total, could be judged."""
        return any(row.verdict not in {"unclear", "unknown"} for row in (*self.stages, self.total))

    @property
    def exit_status(self) -> int:
        """A gate's: 3 where something ``has_regressed``; 1 where nothing could be judged, which is no pass; else 0."""
        if self.has_regressed:
            return EXIT_REGRESSED
        return EXIT_SAME if self.has_verdict else EXIT_NO_VERDICT

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
    baseline: Reports, new: Reports, *, min_change_pct: float = MIN_CHANGE_PCT, confidence: float = CONFIDENCE
) -> TimingComparison:
    """Compare the times of stages in two timing reports, of ``cprofiling.layers`` or of telefuser, or several a side.

    A stage is slower (or faster) where the interval for the difference of the two means lies above (below) 0 and the
    difference is larger than the smallest change that counts; else it is the same. Where no interval can be made, as
    for a stage with one call, or for telefuser's reports, which tell no spread, the verdict is ``unknown``; unless both
    ranges from the shortest to the longest call are known, one of them of repeated calls, and they do not overlap.

    The interval is that of B. L. Welch (Biometrika 34, 1947) with Student's distribution: of one report a side from its
    calls, which do not tell how runs differ; of several a side from the means of the runs; of one against several with
    the spread of the latter for both. Of many stages that are all the same, one in forty is found slower by chance at
    the default confidence, if it also changes by more than ``min_change_pct``.

    Args:
        baseline: A path, or a report as a dict; or a list of these: runs of the same program.
        new: The same.
        min_change_pct: The smallest change that counts, in percent of the baseline: 0 to 1e6.
        confidence: Of the interval: above 0, at most 0.999999.

    Raises:
        TypeError: A report is neither path nor mapping, or another argument no number.
        ValueError: An argument is out of range, or a side has no report, or the same one twice.
        OSError: A file cannot be read.
        FormatError: A report is damaged; see ``cprofiling.stages.timing_file.load_timing_report``.
    """
    smallest_pct = checks.number_between("min_change_pct", min_change_pct, 0.0, 1e6)
    level = checks.number_between("confidence", confidence, 1e-6, 0.999999)
    old, current = _reports("baseline", baseline), _reports("new", new)
    stages = tuple(
        _compared(name, _times(old, name), _times(current, name), smallest_pct, level)
        for name in _names([*old, *current])
    )
    total = _compared_totals(old, current, smallest_pct, level)
    notes = tuple(_notes(old, current, stages))
    return TimingComparison(stages, total, smallest_pct, level, notes, len(old), len(current))


def _reports(parameter: str, given: Any) -> list[dict[str, Any]]:
    """Return the reports of one side."""
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    if not several:
        raise ValueError(f"{parameter} must have at least one report, got {shown_value(given)}")
    reports = [_report(parameter, each) for each in several]
    known: list[object] = []
    for report in reports:
        identity = _identity(report)
        if identity is not None and identity in known:
            raise ValueError(f"{parameter} must not have a report twice: that of {shown_value(report['request_id'])}")
        known.append(identity)
    return reports


def _report(parameter: str, report: Any) -> dict[str, Any]:
    if hasattr(report, "keys"):
        return checked_timing_report(report, parameter)
    if not isinstance(report, (str, bytes)) and not hasattr(report, "__fspath__"):
        raise TypeError(f"{parameter} must be a path or a report as a dict, got {shown_value(report)}")
    return load_timing_report(report)


def _identity(report: dict[str, Any]) -> object:
    """Return what tells a report from all others; None: nothing does."""
    ids = frozenset(process["id"] for process in processes_of(report))
    return (ids, report.get("request_id"), report.get("timestamp")) if ids else None


def _names(reports: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for report in reports for name in report["stages"]))


def _times(reports: list[dict[str, Any]], name: str) -> StageTimes:
    return StageTimes([report["stages"][name] for report in reports if name in report["stages"]])


def _compared(name: str, old: StageTimes, new: StageTimes, smallest_pct: float, confidence: float) -> StageComparison:
    counts = (old.count, new.count)
    if old.mean_ms is None or new.mean_ms is None:
        reason = " and ".join(
            f"{'not' if not times.is_there else 'no completed call'} in the {where}"
            for times, where in ((old, "baseline"), (new, "new report"))
            if times.mean_ms is None
        )
        is_missing = old.mean_ms is not None
        return StageComparison(
            name, old.mean_ms, new.mean_ms, None, None, None, "unknown", reason, *counts, is_missing=is_missing
        )
    difference = new.mean_ms - old.mean_ms
    interval = interval_between(old, new, confidence)
    if interval is not None:
        verdict, reason = _verdict(difference, interval, old.mean_ms, smallest_pct), ""
    else:
        verdict, reason = _verdict_by_ranges(old, new, difference, smallest_pct)
    percent = _percent(difference, old.mean_ms)
    return StageComparison(name, old.mean_ms, new.mean_ms, difference, percent, interval, verdict, reason, *counts)


def _percent(difference: float, baseline: float) -> float | None:
    """Return a change in percent; None where the baseline is 0, or so near to it that there is none."""
    percent = difference / baseline * 100 if baseline else math.inf
    return percent if math.isfinite(percent) else None


def _verdict(difference: float, interval: tuple[float, float], baseline: float, smallest_pct: float) -> Verdict:
    is_noise = interval[0] <= 0 <= interval[1]
    if is_noise or abs(difference) <= baseline * smallest_pct / 100:
        return "same"
    return "slower" if difference > 0 else "faster"


def _verdict_by_ranges(old: StageTimes, new: StageTimes, difference: float, smallest_pct: float) -> tuple[Verdict, str]:
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
    old: list[dict[str, Any]], new: list[dict[str, Any]], smallest_pct: float, confidence: float
) -> StageComparison:
    sums = totals_of(old), totals_of(new)
    baseline_ms, new_ms = map(fmean, sums)
    difference = new_ms - baseline_ms
    percent = _percent(difference, baseline_ms)
    terms, reason = _total_terms(old, new)
    if reason:
        return StageComparison(_TOTAL, baseline_ms, new_ms, difference, percent, None, "unknown", reason)
    runs = [StageTimes([{"duration_ms": each} for each in side]) for side in sums]
    interval = interval_between(runs[0], runs[1], confidence) or interval_of(difference, terms, confidence)
    verdict = _verdict(difference, interval, baseline_ms, smallest_pct)
    return StageComparison(_TOTAL, baseline_ms, new_ms, difference, percent, interval, verdict)


def _total_terms(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> tuple[list[tuple[float, int]], str]:
    """Return variance and degrees of freedom of each stage's sum, or why the totals cannot be judged.

    Of several reports there are none: their totals have a spread of their own.
    """
    reports = [*old, *new]
    first = reports[0]["stages"]
    if any(report["stages"].keys() != first.keys() for report in reports):
        return [], "the reports have different stages"
    if not first:
        return [], "there are no stages"
    terms = []
    for name in first:
        if len({report["stages"][name].get("count") for report in reports}) > 1:
            return [], "the stages have different numbers of calls"
        for report in reports if len(reports) == 2 else ():
            sample = _times([report], name).sample
            if sample is None:
                return [], "the spread of the calls is not known for every stage"
            terms.append((sample.variance * sample.size, sample.size - 1))
    return terms, ""


def _notes(old: list[dict[str, Any]], new: list[dict[str, Any]], stages: tuple[StageComparison, ...]) -> list[str]:
    notes = _notes_on_origin(old, new)
    wide = [row.name for row in stages if row.verdict == "same" and _is_wide(row)]
    for names, sentence in (
        ([row.name for row in stages if row.is_missing], "Missing in the new report"),
        ([row.name for row in stages if _is_added(row)], "Without times in the baseline"),
        (
            [row.name for row in stages if _failures(new, row.name) > _failures(old, row.name)],
            "More calls failed than in the baseline",
        ),
        (wide, f"Times spread so much that a change of {_WIDE_PCT:g} % could be hidden; more calls or runs tell more"),
    ):
        if names:
            notes.append(f"{sentence}: {_listed(names)}.")
    return notes


def _is_added(row: StageComparison) -> bool:
    return row.baseline_ms is None and row.new_ms is not None


def _failures(reports: list[dict[str, Any]], name: str) -> float:
    """Return how many calls of a stage have failed, on average of the reports."""
    return fmean(float(report["stages"].get(name, {}).get("error_count", 0)) for report in reports)


def _is_wide(row: StageComparison) -> bool:
    return (
        row.interval_ms is not None
        and row.baseline_ms is not None
        and max(map(abs, row.interval_ms)) > row.baseline_ms * _WIDE_PCT / 100
    )


def _notes_on_origin(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    """Say where the two come from, if that makes them hard to compare."""
    reports = [*old, *new]
    hosts = [
        list(dict.fromkeys(process["host"] for report in side for process in processes_of(report)))
        for side in (old, new)
    ]
    sizes = dict.fromkeys(report["world_size"] for report in reports if "world_size" in report)
    identities = [set(map(_identity, side)) - {None} for side in (old, new)]
    notes = []
    if all(hosts) and set(hosts[0]) != set(hosts[1]):
        named = "; ".join(", ".join(map(_shown, side)) for side in hosts)
        notes.append(f"The reports are from different machines: {named}.")
    if len(sizes) > 1:
        notes.append(f"The reports are of different numbers of ranks: {', '.join(map(str, sizes))}.")
    if identities[0] & identities[1]:
        notes.append("A report is on both sides.")
    return notes


def _listed(names: list[str]) -> str:
    shown = [_shown(name) for name in names[:10]]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _shown(name: str) -> str:
    return shown_text("name", name)
