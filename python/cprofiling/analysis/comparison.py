"""Comparison of runs row by row, with one verdict and one exit status.

A run is what a timing report tells of its stages, statistics and recordings of their nodes, or a gate of its calls.

A call's time is compared, not a stage's sum, so that runs with different numbers of calls can be. Of one run a side,
the interval is Welch's from mean, standard deviation and number of the calls. It tells of the noise from call to call
within the two runs. Two runs of one program differ by more than that (other clocks, other addresses, other neighbours).
No single run shows that. The smallest change that counts allows for it, or better, several runs a side: then their
means are the sample.

The rows of a comparison are judged together. Each gets an interval that is wide enough for all of them to hold at the
confidence that was asked for (C. E. Bonferroni's correction), so that many rows raise no more false alarms than one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from cprofiling._internal import arguments
from cprofiling._internal.quantiles import Sample, cautious_interval, fmean, interval_of, median
from cprofiling._internal.tables import Shown, code_in_cell, html_table, literal, markdown_table
from cprofiling._internal.text import plain_table, shown_text, shown_value

if TYPE_CHECKING:
    Interval: TypeAlias = tuple[float, float]
    Verdict: TypeAlias = Literal["slower", "faster", "same", "unclear", "not enough samples", "unknown"]

CONFIDENCE = 0.95
MIN_CHANGE_PCT = 2.0
NOT_ENOUGH: Final = "not enough samples"
UNJUDGED = frozenset({"unknown", NOT_ENOUGH})  # no figures tell anything
UNSURE = UNJUDGED | {"unclear"}
EXIT_SAME, EXIT_NO_VERDICT, EXIT_REGRESSED = 0, 1, 3
_SELDOM = 1000  # chance may part samples in less than one of so many comparisons
_MANY = 30  # samples a side; more make no difference
_WIDE_PCT = 10.0  # an interval that reaches further than this is worth a note
_MANY_ROWS = 5  # enough for what most of them have in common
_RUNS_DIFFER = 0.3  # what single runs of one program may differ by, in parts of the time, where rows do not tell
_SEVERAL = "Several runs a side (--baseline, --new of cprofiling compare) tell machine and program apart."
_OUTCOMES = ("missing", "slower", "faster", "same", "unclear", NOT_ENOUGH, "unknown")
_UNKNOWN = "-"
_IS_TEXT = (True, *(False,) * 6, True)  # columns of the printed tables


# ---- one row


class Spread(NamedTuple):
    """Number, least and largest of the values of a row on one side."""

    size: int
    low: float
    high: float


class Judgement(NamedTuple):
    """Verdict on a change, with the interval that it goes by."""

    verdict: Verdict
    interval: Interval | None
    by_ranges: bool = False  # whether it goes by values of the two sides that lie apart


def judged(
    difference: float,
    interval: Interval | None,
    limit: float,
    spreads: tuple[Spread | None, Spread | None],
    *,
    rows: int = 1,
    slack: float = 0.0,
) -> Judgement:
    """Return the verdict on the change of a row.

    All of the interval above the limit is slower, all of it below the negative limit faster, all of it between them
    the same. Where that decides nothing, values that lie apart, by more than the limit, do, unless chance explains it.

    Args:
        difference: The change, in the unit of interval, limit and slack.
        interval: Of the change; None if unknown.
        limit: The smallest change that counts.
        spreads: The values of the baseline and of the other side; None if unknown.
        rows: How many are judged together.
        slack: By how much two runs of the same program may differ, beyond the interval.
    """
    verdict: Verdict = NOT_ENOUGH
    if interval is not None:
        interval = interval[0] - slack, interval[1] + slack
        verdict = _verdict(*interval, limit)
    old, new = spreads
    if verdict not in {"slower", "faster"} and old is not None and new is not None:
        anyway = _verdict(difference - slack, difference + slack, limit)
        are_apart = old.high < new.low or new.high < old.low
        if anyway in {"slower", "faster"} and are_apart and can_lie_apart(old.size, new.size, rows):
            return Judgement(anyway, interval, by_ranges=True)
    return Judgement(verdict, interval)


def _verdict(low: float, high: float, limit: float) -> Verdict:
    if low > limit:
        return "slower"
    if high < -limit:
        return "faster"
    return "same" if -limit <= low and high <= limit else "unclear"


def can_lie_apart(old: int, new: int, rows: int) -> bool:
    """Tell whether there are enough samples to rule out chance.

    Of equal distributions all new samples lie above all old ones in one of ``comb(old + new, old)`` cases. With so
    many rows this must happen in fewer than 1 of 1,000 comparisons.
    """
    return rows * _SELDOM < math.comb(old + new, min(old, new, _MANY))


def row_confidence(confidence: float, rows: int) -> float:
    """Return the confidence of each row's interval for all rows together."""
    return 1 - (1 - confidence) / max(1, rows)


def exit_status(verdicts: Iterable[Verdict], *, has_regressed: bool = False) -> int:
    """Return the exit status, 3 for slower, 1 for no verdict, else 0."""
    found = set(verdicts)
    if has_regressed or "slower" in found:
        return EXIT_REGRESSED
    return EXIT_SAME if found - UNJUDGED else EXIT_NO_VERDICT


# ---- runs


class RowTimes(NamedTuple):
    """Times of a row in one run, in milliseconds per call, None if unknown.

    ``mean_ms`` is None only where no call succeeded, ``std_ms`` a population's.
    """

    mean_ms: float | None
    calls: int | None = None
    min_ms: float | None = None
    max_ms: float | None = None
    std_ms: float | None = None
    error_count: int = 0

    @classmethod
    def of(cls, told: Mapping[str, Any], total_ms: float) -> RowTimes:
        """Take up figures of these names, unless they are missing."""
        count, mean_ms = told.get("count"), told.get("mean_ms")
        if mean_ms is None:
            mean_ms = total_ms / (count or 1)
        spread = (told.get("min_ms"), told.get("max_ms"), told.get("std_ms"))
        return cls(None if count == 0 else float(mean_ms), count, *spread, told.get("error_count") or 0)


class Run(NamedTuple):
    """One run as it is compared.

    Attributes:
        rows: The times by name.
        total_ms: The time of all rows.
        name: What messages call it.
        identity: A value that tells the run from all others, or None.
        hosts: The machines that it ran on.
        world_size: The number of its ranks.
    """

    rows: Mapping[str, RowTimes]
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
            ``unknown`` without an interval.
        reason: Why no verdict is given, or its basis in place of an interval; empty otherwise.
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


def outcome(row: StageComparison) -> str:
    """Return the verdict on a row, or that it is missing."""
    return "missing" if row.is_missing else row.verdict


def _cells(row: StageComparison) -> tuple[str, ...]:
    counts = [_UNKNOWN if count is None else str(count) for count in (row.baseline_count, row.new_count)]
    return (
        row.name,
        "" if counts == [_UNKNOWN] * 2 else " / ".join(counts),
        _ms(row.baseline_ms),
        _ms(row.new_ms),
        _ms(row.difference_ms, "+"),
        _UNKNOWN if row.difference_pct is None else f"{row.difference_pct:+.1f} %",
        _UNKNOWN if row.interval_ms is None else " to ".join(_ms(bound, "+") for bound in row.interval_ms),
        f"{outcome(row)} ({row.reason})" if row.reason else outcome(row),
    )


def _ms(value: float | None, sign: str = "") -> str:
    """Format milliseconds with three decimals, small ones with three digits."""
    if value is None:
        return _UNKNOWN
    return format(value, f"{sign}.3f" if abs(value) >= 0.1 or value == 0 else f"{sign}.3g")


@dataclass(frozen=True)
class TimingComparison:
    """Result of ``compare_timing_reports``. ``str()`` is Markdown.

    Attributes:
        stages: One row per stage, in the baseline's order; then stages of the new report only.
        total: The row of ``total_stages_ms``: times per run, not per call.
        min_change_pct: The smallest change that counts, in percent of the baseline.
        confidence: Of all intervals together.
        notes: Sentences that belong to the figures.
        baseline_runs: The reports of the baseline.
        new_runs: The runs compared with it.
        row_kind: What a row is, ``stage`` or ``node``.
    """

    stages: tuple[StageComparison, ...]
    total: StageComparison
    min_change_pct: float
    confidence: float
    notes: tuple[str, ...]
    baseline_runs: int = 1
    new_runs: int = 1
    row_kind: Literal["stage", "node"] = "stage"

    @property
    def has_regressed(self) -> bool:
        """Whether a row is slower, or a stage is missing in the new report."""
        return self.exit_status == EXIT_REGRESSED

    @property
    def has_verdict(self) -> bool:
        """Whether any row could be judged."""
        return any(row.verdict not in UNJUDGED for row in (*self.stages, self.total))

    @property
    def exit_status(self) -> int:
        """Exit status of a gate.

        3 where something ``has_regressed``, 1 where nothing could be judged, else 0.
        """
        rows = (*self.stages, self.total)
        return exit_status((row.verdict for row in rows), has_regressed=any(row.is_missing for row in rows))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as what JSON can say."""
        return {**asdict(self), "has_regressed": self.has_regressed, "exit_status": self.exit_status}

    def to_json(self) -> str:
        """Return ``to_dict()`` as JSON, in ASCII."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def to_text(self) -> str:
        """Return a table for terminals, with the notes below."""
        head, *rows = self._cells()
        table = plain_table([head, *((shown_text("name", name), *rest) for name, *rest in rows)], _IS_TEXT)
        lines = table.split("\n")
        lines.insert(-1, lines[1])
        return "\n".join([self._headline, "", *lines, "", *(shown_text("note", note) for note in self._notes)])

    def __str__(self) -> str:
        head, *rows, (_, *total) = self._cells()
        lines = [head, *([code_in_cell(name), *rest] for name, *rest in rows), ["**Total**", *total]]
        table = [(*cells, f"**{last}**" if last.startswith(("slower", "missing")) else last) for *cells, last in lines]
        notes = [f"- {literal(note)}" for note in self._notes]
        heading = ["### Timing comparison", "", f"**{self._headline}**", ""]
        return "\n".join([*heading, markdown_table(table, _IS_TEXT), "", *notes])

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        shown = [[cell if left else Shown(cell) for cell, left in zip(row, _IS_TEXT, strict=True)] for row in rows]
        return html_table(head, shown, self.notes, None)

    def _cells(self) -> list[tuple[str, ...]]:
        """Return the headings and the rows as texts, the total last."""
        interval = f"{self.confidence * 100:.6g} % interval (ms)"
        times = ("Baseline (ms)", "New (ms)", "Difference (ms)", "Change", interval)
        return [(self.row_kind.capitalize(), "Calls", *times, "Verdict"), *map(_cells, (*self.stages, self.total))]

    @property
    def _headline(self) -> str:
        found = [outcome(row) for row in self.stages]
        counts = [f"{found.count(each)} {each}" for each in _OUTCOMES if each in found]
        told = f"({self.row_kind}s: {', '.join(counts) or 'none'})"
        if self.has_regressed:
            return f"Slower than the baseline {told}"
        if not self.has_verdict:
            return f"No verdict {told}"
        return f"{'Not found slower' if 'unclear' in found else 'Not slower'} {told}"

    @property
    def _notes(self) -> tuple[str, ...]:
        runs = (self.baseline_runs, self.new_runs)
        sample = "the calls of one run each" if runs == (1, 1) else f"{runs[0]} and {runs[1]} runs"
        return (
            *self.notes,
            f"Times are means per call, the total is per run. A change counts where all of its interval (from the "
            f"spread of {sample}, for all rows together) lies beyond {self.min_change_pct:g} % of the baseline, and is "
            "unclear where a part does.",
        )


# ---- the comparison


def compare_runs(
    old: Sequence[Run],
    new: Sequence[Run],
    min_change_pct: float = MIN_CHANGE_PCT,
    confidence: float = CONFIDENCE,
    row_kind: Literal["stage", "node"] = "stage",
) -> TimingComparison:
    """Compare runs of any kind.

    Args:
        old: The runs of the baseline.
        new: The runs that are judged.
        min_change_pct: The smallest change that counts, in percent of the baseline: 0 to 1e6.
        confidence: Of all intervals together: above 0, at most 0.999999.
        row_kind: What a row is called.

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
    sides = {name: (_side(old, name), _side(new, name)) for name in names}
    terms, no_total = _total_terms(old, new)
    family = (not no_total) + sum(None not in (before.mean_ms, now.mean_ms) for before, now in sides.values())
    common, told = _common_change(sides.values()) if len(old) == len(new) == 1 else (0.0, "")
    rule = _Rule(smallest_pct, row_confidence(level, family), family, common)
    stages = tuple(
        _compared(name, before, now, rule, _interval(before, now, rule.confidence))
        for name, (before, now) in sides.items()
    )
    before, now = (_Side([RowTimes(run.total_ms) for run in side]) for side in (old, new))
    interval = None
    if not no_total:
        difference = fmean(run.total_ms for run in new) - fmean(run.total_ms for run in old)
        interval = _interval(before, now, rule.confidence) or interval_of(difference, terms, rule.confidence)
    total = _compared("Total", before, now, rule, interval, no_total)
    notes = _notes(old, new, stages, rule)
    if common * 100 > smallest_pct and any(row.verdict not in UNJUDGED for row in (*stages, total)):
        notes.append(f"{told}: only what changed by more is judged. {_SEVERAL}")
    return TimingComparison(stages, total, smallest_pct, level, tuple(notes), len(old), len(new), row_kind)


class _Rule(NamedTuple):
    """Rule by which each row is judged."""

    smallest_pct: float
    confidence: float  # of its interval alone
    family: int  # rows that are judged
    common: float  # what the two runs differ by for another reason than the code, in parts of the baseline


class _Side:
    """Times of a row in the runs of one side.

    Attributes:
        is_there: Whether any run has the row.
        runs: How many runs have times of it.
        count: The calls in all runs; None if one does not say.
        mean_ms: The time of a call, where each run counts the same; None: no call has succeeded.
        sample: The means of the runs, or of one run its calls; None if their spread is not known.
        spread: Of one run the calls; None if that is not known, and of several.
        lack: Reason for having no sample, or an empty text.
    """

    def __init__(self, rows: Sequence[RowTimes]) -> None:
        self.is_there = bool(rows)
        counts = [row.calls for row in rows if row.calls is not None]
        self.count = sum(counts) if rows and len(counts) == len(rows) else None
        means = [row.mean_ms for row in rows if row.mean_ms is not None]
        self.runs = len(means)
        self.mean_ms = fmean(means) if means else None
        self.sample = None
        if len(means) > 1:
            middle = fmean(means)
            variance = math.fsum((mean_ms - middle) ** 2 for mean_ms in means) / (len(means) - 1)
            self.sample = Sample(len(means), middle, variance)
        self.spread: Spread | None = None
        if len(means) == 1:
            mean, calls, low, high, deviation, _ = next(row for row in rows if row.mean_ms is not None)
            if calls == 1:
                low = high = mean
            if self.count is not None and low is not None and high is not None:
                self.spread = Spread(self.count, low, high)
            if calls is not None and calls >= 2 and deviation is not None:
                self.sample = Sample(calls, means[0], deviation**2 * (calls / (calls - 1)))
        self.lack = "" if self.sample is not None else "only one call" if self.count == 1 else "no spread known"


def _side(runs: Sequence[Run], name: str) -> _Side:
    return _Side([run.rows[name] for run in runs if name in run.rows])


def _interval(old: _Side, new: _Side, confidence: float) -> Interval | None:
    """Return the interval for the difference of a call's time, if any.

    Of one run against several the spread from run to run is taken to be the same, as calls do not tell it.
    """
    several, one = (old, new) if old.runs >= new.runs else (new, old)
    if several.sample is not None and several.runs > 1 and one.runs == 1:
        difference = (new.mean_ms or 0.0) - (old.mean_ms or 0.0)
        terms = [(several.sample.variance * (1 + 1 / several.runs), several.runs - 1)]
        return interval_of(difference, terms, confidence)
    if old.sample is None or new.sample is None:
        return None
    return cautious_interval(old.sample, new.sample, confidence)


def _common_change(sides: Iterable[tuple[_Side, _Side]]) -> tuple[float, str]:
    """Return the difference of two single runs that is not the code's.

    The calls of one run do not tell how runs differ, but its rows do, as a busier machine slows most of them down. It
    is the median of what they changed by and the median deviation from that, up to twice the time, as more is no
    machine's doing. Few rows do not tell the machine's change from their own, so that it is a fixed part of the time.
    """
    changes = [abs(now.mean_ms / old.mean_ms - 1) for old, now in sides if old.mean_ms and now.mean_ms is not None]
    if len(changes) < _MANY_ROWS:
        return _RUNS_DIFFER, f"Two runs with so few rows may differ by {_RUNS_DIFFER * 100:.0f} % with the machine"
    middle = median(changes)
    common = min(middle + median(abs(change - middle) for change in changes), 1.0)
    return common, f"Most rows changed by up to {common * 100:.0f} %, as on a busier or less busy machine"


def _total_terms(old: Sequence[Run], new: Sequence[Run]) -> tuple[list[tuple[float, int]], str]:
    """Return each sum's variance and freedom, or a reason not to judge.

    Of several runs there are none: their totals have a spread of their own.
    """
    runs = [*old, *new]
    first = runs[0].rows
    if any(run.rows.keys() != first.keys() for run in runs):
        return [], "the reports have different stages"
    if not first:
        return [], "there are no stages"
    terms = []
    for name in first:
        if len({run.rows[name].calls for run in runs}) > 1:
            return [], "the rows have different numbers of calls"
        for run in runs if len(runs) == 2 else ():
            sample = _side([run], name).sample
            if sample is None:
                return [], "the spread of the calls is not known for every row"
            terms.append((sample.variance * sample.size, sample.size - 1))
    return terms, ""


def _compared(
    name: str, old: _Side, new: _Side, rule: _Rule, interval: Interval | None, lack: str = ""
) -> StageComparison:
    counts = (old.count, new.count)
    sides = ((old, "baseline"), (new, "new report"))
    if old.mean_ms is None or new.mean_ms is None:
        reason = " and ".join(
            f"{'no completed call' if side.is_there else 'not'} in the {where}"
            for side, where in sides
            if side.mean_ms is None
        )
        is_missing = old.mean_ms is not None
        means = (old.mean_ms, new.mean_ms)
        return StageComparison(name, *means, None, None, None, "unknown", reason, *counts, is_missing=is_missing)
    difference = new.mean_ms - old.mean_ms
    limit, slack = old.mean_ms * rule.smallest_pct / 100, old.mean_ms * rule.common
    verdict, interval, by_ranges = judged(
        difference, interval, limit, (old.spread, new.spread), rows=rule.family, slack=slack
    )
    reason = ""
    if interval is None:
        lacks = ", ".join(f"{side.lack} in the {where}" for side, where in sides if side.lack)
        reason = lack or (f"{old.lack} in both" if old.lack == new.lack else lacks)
        if not by_ranges and 1 not in counts:
            verdict = "unknown"
    if by_ranges:
        reason = f"by ranges that do not overlap{': ' if reason else ''}{reason}"
    percent = difference / old.mean_ms * 100 if old.mean_ms else math.inf
    known_pct = percent if math.isfinite(percent) else None  # a baseline of nearly 0 has none
    return StageComparison(name, old.mean_ms, new.mean_ms, difference, known_pct, interval, verdict, reason, *counts)


def _notes(old: Sequence[Run], new: Sequence[Run], stages: tuple[StageComparison, ...], rule: _Rule) -> list[str]:
    notes = []
    hosts = [list(dict.fromkeys(host for run in side for host in run.hosts)) for side in (old, new)]
    if all(hosts) and set(hosts[0]) != set(hosts[1]):
        named = "; ".join(", ".join(shown_text("host", host) for host in side) for side in hosts)
        notes.append(f"The reports are from different machines: {named}.")
    sizes = dict.fromkeys(run.world_size for run in (*old, *new) if run.world_size is not None)
    if len(sizes) > 1:
        notes.append(f"The reports are of different numbers of ranks: {', '.join(map(str, sizes))}.")
    if {run.identity for run in old} & {run.identity for run in new} - {None}:
        notes.append("A report is on both sides.")
    wide = f"Times spread so much that a change of {_WIDE_PCT:g} % could be hidden; more calls or runs tell more"
    for sentence, rows in {
        "Missing in the new report": [row for row in stages if row.is_missing],
        "Without times in the baseline": [row for row in stages if row.baseline_ms is None and row.new_ms is not None],
        "More calls failed than in the baseline": [
            row for row in stages if _failures(new, row.name) > _failures(old, row.name)
        ],
        wide: [row for row in stages if row.verdict == "unclear" and _is_wide(row, rule)],
    }.items():
        if rows:
            named = ", ".join(shown_text("name", row.name) for row in rows[:10])
            more = f" and {len(rows) - 10} more" if len(rows) > 10 else ""
            notes.append(f"{sentence}: {named}{more}.")
    return notes


def _failures(runs: Sequence[Run], name: str) -> float:
    """Return how many calls of a row have failed, on average of the runs."""
    return fmean(float(run.rows[name].error_count if name in run.rows else 0) for run in runs)


def _is_wide(row: StageComparison, rule: _Rule) -> bool:
    """Tell whether the spread of the calls alone could hide much."""
    if row.interval_ms is None or row.baseline_ms is None:
        return False
    anyway, limit = row.baseline_ms * rule.common, row.baseline_ms * rule.smallest_pct / 100
    low, high = row.interval_ms[0] + anyway, row.interval_ms[1] - anyway
    return max(-low, high) > row.baseline_ms * _WIDE_PCT / 100 and _verdict(low, high, limit) == "unclear"
