"""Comparison of runs, with a verdict on each row.

A run is what a timing report tells of its stages, or statistics and recordings of their nodes.

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
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from cprofiling._internal import arguments
from cprofiling._internal.quantiles import interval_of
from cprofiling._internal.tables import html_table
from cprofiling._internal.text import shown_text, shown_value
from cprofiling.layers.compare.comparison_text import cells, columns, markdown, text
from cprofiling.layers.compare.stage_times import StageTimes, interval_between
from cprofiling.layers.compare.timing_file import checked_timing_report, load_timing_report, processes_of
from cprofiling.layers.compare.verdict import (
    CONFIDENCE,
    NOT_ENOUGH,
    UNJUDGED,
    can_lie_apart,
    exit_status,
    row_confidence,
    verdict_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, TypeAlias

    from _typeshed import StrOrBytesPath

    from cprofiling.layers.compare.verdict import Verdict

    Report: TypeAlias = StrOrBytesPath | Mapping[str, Any]
    Reports: TypeAlias = Report | Sequence[Report]

MIN_CHANGE_PCT = 2.0
_WIDE_PCT = 10.0  # an interval that reaches further than this is worth a note
_MANY_ROWS = 5  # enough for what most of them have in common
_RUNS_DIFFER = 0.3  # what single runs of one program may differ by, in parts of the time, where rows do not tell
_SEVERAL = "Several runs a side (--baseline, --new of cprofiling compare) tell machine and program apart."
_TOTAL = "Total"


class Run(NamedTuple):
    """One run as it is compared.

    Attributes:
        rows: The figures by name, with the keys of a stage in a timing report.
        total_ms: The time of all rows.
        name: What messages call it.
        identity: A value that tells the run from all others, which is None where nothing does.
        hosts: The machines that it ran on.
        world_size: The number of its ranks.
    """

    rows: Mapping[str, Mapping[str, Any]]
    total_ms: float
    name: str = ""
    identity: object = None
    hosts: tuple[str, ...] = ()
    world_size: int | None = None


@dataclass(frozen=True)
class StageComparison:
    """One stage in two reports, in milliseconds per call, None if unknown.

    Attributes:
        name: The stage's.
        baseline_ms: The mean of its calls in the baseline.
        new_ms: The same in the new report.
        difference_ms: The latter less the former.
        difference_pct: The difference in percent of the baseline; None also for a baseline of 0.
        interval_ms: The interval for the difference, which is as wide as the number of rows demands.
        verdict: ``slower`` or ``faster`` where all of the interval lies beyond the smallest change that counts,
            ``same`` where all of it lies within, ``unclear`` where neither is so. ``not enough samples`` or
            ``unknown`` where there is no interval.
        reason: Why there is no verdict, or what it goes by in place of an interval; empty otherwise.
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
    """Result of ``compare_timing_reports``. ``str()`` is Markdown.

    Attributes:
        stages: One row per stage, in the baseline's order; then those that are only in the new report.
        total: The row of ``total_stages_ms``: times per run, not per call.
        min_change_pct: The smallest change that counts, in percent of the baseline.
        confidence: Of all intervals together.
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
        """Whether a row is slower, or a stage is missing in the new report."""
        return any(row.verdict == "slower" or row.is_missing for row in (*self.stages, self.total))

    @property
    def has_verdict(self) -> bool:
        """Whether any row could be judged."""
        return any(row.verdict not in UNJUDGED for row in (*self.stages, self.total))

    @property
    def exit_status(self) -> int:
        """Exit status of a gate.

        3 where something ``has_regressed``, 1 where nothing could be judged, else 0.
        """
        return exit_status((row.verdict for row in (*self.stages, self.total)), has_regressed=self.has_regressed)

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

        return html_table(columns(self), cells(self), self.notes, None)


def compare_timing_reports(
    baseline: Reports, new: Reports, *, min_change_pct: float = MIN_CHANGE_PCT, confidence: float = CONFIDENCE
) -> TimingComparison:
    """Compare the times of stages in two timing reports, or several a side.

    A stage is slower (or faster) where all of the interval for the difference of the two means lies beyond the smallest
    change that counts. It is the same where all of it lies within, and unclear where neither is so. The intervals hold
    together, so that of stages that are all the same one is found slower in at most one of 40 comparisons by chance.

    Where every new call takes longer than every old one, by more than the smallest change, and chance does that in
    fewer than 1 of 1,000 comparisons, the stage is slower too. Where neither an interval nor that is possible, as of
    one call, the verdict is ``not enough samples``, or ``unknown`` of reports that tell no spread, as telefuser's.

    The interval is the wider one of B. L. Welch's (Biometrika 34, 1947) and Student's. Of one report a side it is made
    from its calls, which do not tell how runs differ. It is wider by what most rows changed by, up to twice the time,
    or, with fewer than five rows, by 30 % of the time. Of several a side it is made from the means of the runs, and of
    one against several with the spread of the latter for both.

    Args:
        baseline: A path, or a report as a dict; or a list of these: runs of the same program.
        new: The same.
        min_change_pct: The smallest change that counts, in percent of the baseline: 0 to 1e6.
        confidence: Of all intervals together: above 0, at most 0.999999.

    Raises:
        TypeError: A report is neither path nor mapping, or another argument no number.
        ValueError: An argument is out of range, or a side has no report, or the same one twice.
        OSError: A file cannot be read.
        FormatError: A report is damaged; see ``cprofiling.layers.compare.timing_file.load_timing_report``.
    """
    return compare_runs(_runs("baseline", baseline), _runs("new", new), min_change_pct, confidence)


def compare_runs(
    old: Sequence[Run], new: Sequence[Run], min_change_pct: float = MIN_CHANGE_PCT, confidence: float = CONFIDENCE
) -> TimingComparison:
    """Compare runs of any kind, as ``compare_timing_reports`` does.

    Raises ValueError for a side without runs, or with one run twice.
    """
    smallest_pct = arguments.number_between("min_change_pct", min_change_pct, 0.0, 1e6)
    level = arguments.number_between("confidence", confidence, 1e-6, 0.999999)
    for parameter, runs in (("baseline", old), ("new", new)):
        if not runs:
            raise ValueError(f"{parameter} must have at least one report, got []")
        known: list[object] = []
        for run in runs:
            if run.identity is not None and run.identity in known:
                raise ValueError(f"{parameter} must not have a report twice: that of {shown_value(run.name)}")
            known.append(run.identity)
    names = dict.fromkeys(name for run in (*old, *new) for name in run.rows)
    times = {name: (_times(old, name), _times(new, name)) for name in names}
    has_total = not _total_terms(old, new)[1]
    family = has_total + sum(before.mean_ms is not None and now.mean_ms is not None for before, now in times.values())
    common, told = _common_change(times.values()) if len(old) == len(new) == 1 else (0.0, "")
    rule = _Rule(smallest_pct, row_confidence(level, family), family, common)
    stages = tuple(_compared(name, before, now, rule) for name, (before, now) in times.items())
    total = _compared_totals(old, new, rule)
    notes = _notes(old, new, stages, rule)
    if common * 100 > smallest_pct and any(row.verdict not in UNJUDGED for row in (*stages, total)):
        notes.append(f"{told}, and only what changed by more is judged. {_SEVERAL}")
    return TimingComparison(stages, total, smallest_pct, level, tuple(notes), len(old), len(new))


class _Rule(NamedTuple):
    """Rule by which each row is judged."""

    smallest_pct: float
    confidence: float  # of its interval alone
    family: int  # rows that are judged
    common: float  # what the two runs differ by for another reason than the code, in parts of the baseline

    def widened(self, interval: tuple[float, float], baseline_ms: float) -> tuple[float, float]:
        """Return an interval, widened by the usual difference between runs."""
        return interval[0] - baseline_ms * self.common, interval[1] + baseline_ms * self.common


def _common_change(times: Iterable[tuple[StageTimes, StageTimes]]) -> tuple[float, str]:
    """Return the difference of two single runs that is not the code's.

    The calls of one run do not tell how runs differ, but its rows do, as a busier machine slows most of them down. It
    is the median of what they changed by and the median deviation from that, up to twice the time, as more is no
    machine's doing. Few rows do not tell the machine's change from their own, so that it is a fixed part of the time.
    """
    changes = [abs(now.mean_ms / old.mean_ms - 1) for old, now in times if old.mean_ms and now.mean_ms is not None]
    if len(changes) < _MANY_ROWS:
        return _RUNS_DIFFER, f"Two runs with so few rows may differ by {_RUNS_DIFFER * 100:.0f} % with the machine"
    middle = median(changes)
    common = min(middle + median(abs(change - middle) for change in changes), 1.0)
    return common, f"Most rows changed by up to {common * 100:.0f} %, as they do on a busier or less busy machine"


def _runs(parameter: str, given: Any) -> list[Run]:
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    runs = []
    for each in several:
        if hasattr(each, "keys"):
            report = checked_timing_report(each, parameter)
        elif isinstance(each, (str, bytes)) or hasattr(each, "__fspath__"):
            report = load_timing_report(each)
        else:
            raise TypeError(f"{parameter} must be a path or a report as a dict, got {shown_value(each)}")
        runs.append(run_of_report(report))
    return runs


def run_of_report(report: Mapping[str, Any]) -> Run:
    """Return the run of a checked timing report.

    Older ones of telefuser call the sum ``total_ms``.
    """
    told = report.get("total_stages_ms", report.get("total_ms"))
    total_ms = math.fsum(stage["duration_ms"] for stage in report["stages"].values()) if told is None else float(told)
    processes = processes_of(report)
    ids = frozenset(process["id"] for process in processes)
    return Run(
        report["stages"],
        total_ms,
        str(report.get("request_id", "")),
        (ids, report.get("request_id"), report.get("timestamp")) if ids else None,
        tuple(process["host"] for process in processes),
        report.get("world_size"),
    )


def _times(runs: Sequence[Run], name: str) -> StageTimes:
    return StageTimes([run.rows[name] for run in runs if name in run.rows])


def _compared(name: str, old: StageTimes, new: StageTimes, rule: _Rule) -> StageComparison:
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
    limit = old.mean_ms * rule.smallest_pct / 100
    interval = interval_between(old, new, rule.confidence)
    verdict: Verdict = NOT_ENOUGH if 1 in counts else "unknown"
    lacks = ((old.lack, "in the baseline"), (new.lack, "in the new report"))
    reason = ", ".join(f"{lack} {where}" for lack, where in lacks if lack)
    if old.lack == new.lack:
        reason = f"{old.lack} in both"
    if interval is not None:
        interval = rule.widened(interval, old.mean_ms)
        verdict, reason = verdict_of(interval, limit), ""
    counts_anyway = verdict_of(rule.widened((difference, difference), old.mean_ms), limit)
    if (
        counts_anyway in {"slower", "faster"}
        and verdict not in {"slower", "faster"}
        and _lie_apart(old, new, rule.family)
    ):
        verdict = counts_anyway
        reason = f"by ranges that do not overlap{': ' if reason else ''}{reason}"
    percent = _percent(difference, old.mean_ms)
    return StageComparison(name, old.mean_ms, new.mean_ms, difference, percent, interval, verdict, reason, *counts)


def _percent(difference: float, baseline: float) -> float | None:
    """Return a change in percent, None for a baseline of nearly 0."""
    percent = difference / baseline * 100 if baseline else math.inf
    return percent if math.isfinite(percent) else None


def _lie_apart(old: StageTimes, new: StageTimes, family: int) -> bool:
    """Tell whether chance does not explain how two runs' calls lie apart."""
    if old.range_ms is None or new.range_ms is None or old.count is None or new.count is None:
        return False
    if old.runs > 1 or new.runs > 1 or not can_lie_apart(old.count, new.count, family):
        return False
    return old.range_ms[1] < new.range_ms[0] or new.range_ms[1] < old.range_ms[0]


def _compared_totals(old: Sequence[Run], new: Sequence[Run], rule: _Rule) -> StageComparison:
    sums = [run.total_ms for run in old], [run.total_ms for run in new]
    baseline_ms, new_ms = map(fmean, sums)
    difference = new_ms - baseline_ms
    percent = _percent(difference, baseline_ms)
    terms, reason = _total_terms(old, new)
    if reason:
        return StageComparison(_TOTAL, baseline_ms, new_ms, difference, percent, None, "unknown", reason)
    before, now = (StageTimes([{"duration_ms": each} for each in side]) for side in sums)
    interval = interval_between(before, now, rule.confidence) or interval_of(difference, terms, rule.confidence)
    interval = rule.widened(interval, baseline_ms)
    verdict = verdict_of(interval, baseline_ms * rule.smallest_pct / 100)
    return StageComparison(_TOTAL, baseline_ms, new_ms, difference, percent, interval, verdict)


def _total_terms(old: Sequence[Run], new: Sequence[Run]) -> tuple[list[tuple[float, int]], str]:
    """Return each sum's variance and freedom, or a reason not to judge.

    Of several reports there are none: their totals have a spread of their own.
    """
    runs = [*old, *new]
    first = runs[0].rows
    if any(run.rows.keys() != first.keys() for run in runs):
        return [], "the reports have different stages"
    if not first:
        return [], "there are no stages"
    terms = []
    for name in first:
        if len({run.rows[name].get("count") for run in runs}) > 1:
            return [], "the stages have different numbers of calls"
        for run in runs if len(runs) == 2 else ():
            sample = _times([run], name).sample
            if sample is None:
                return [], "the spread of the calls is not known for every stage"
            terms.append((sample.variance * sample.size, sample.size - 1))
    return terms, ""


def _notes(old: Sequence[Run], new: Sequence[Run], stages: tuple[StageComparison, ...], rule: _Rule) -> list[str]:
    notes = _notes_on_origin(old, new)
    wide = [row.name for row in stages if row.verdict == "unclear" and _is_wide(row, rule)]
    for names, sentence in (
        ([row.name for row in stages if row.is_missing], "Missing in the new report"),
        (
            [row.name for row in stages if row.baseline_ms is None and row.new_ms is not None],
            "Without times in the baseline",
        ),
        (
            [row.name for row in stages if _failures(new, row.name) > _failures(old, row.name)],
            "More calls failed than in the baseline",
        ),
        (wide, f"Times spread so much that a change of {_WIDE_PCT:g} % could be hidden; more calls or runs tell more"),
    ):
        if names:
            named = ", ".join(shown_text("name", name) for name in names[:10])
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            notes.append(f"{sentence}: {named}{more}.")
    return notes


def _failures(runs: Sequence[Run], name: str) -> float:
    """Return how many calls of a stage have failed, on average of the reports."""
    return fmean(float(run.rows.get(name, {}).get("error_count", 0)) for run in runs)


def _is_wide(row: StageComparison, rule: _Rule) -> bool:
    """Tell whether the spread of the calls alone could hide much."""
    if row.interval_ms is None or row.baseline_ms is None:
        return False
    anyway, limit = row.baseline_ms * rule.common, row.baseline_ms * rule.smallest_pct / 100
    low, high = row.interval_ms[0] + anyway, row.interval_ms[1] - anyway
    return max(-low, high) > row.baseline_ms * _WIDE_PCT / 100 and verdict_of((low, high), limit) == "unclear"


def _notes_on_origin(old: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """Say where the two come from, if that makes them hard to compare."""
    hosts = [list(dict.fromkeys(host for run in side for host in run.hosts)) for side in (old, new)]
    sizes = dict.fromkeys(run.world_size for run in (*old, *new) if run.world_size is not None)
    identities = [{run.identity for run in side} - {None} for side in (old, new)]
    notes = []
    if all(hosts) and set(hosts[0]) != set(hosts[1]):
        named = "; ".join(", ".join(shown_text("host", host) for host in side) for side in hosts)
        notes.append(f"The reports are from different machines: {named}.")
    if len(sizes) > 1:
        notes.append(f"The reports are of different numbers of ranks: {', '.join(map(str, sizes))}.")
    if identities[0] & identities[1]:
        notes.append("A report is on both sides.")
    return notes
