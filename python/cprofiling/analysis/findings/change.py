"""Rules that compare a recording with another one of the same program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cprofiling._internal.text import counted
from cprofiling.analysis.device_figures import copy_kind
from cprofiling.analysis.evidence import Evidence
from cprofiling.analysis.findings.device import started_by
from cprofiling.analysis.findings.finding import Finding
from cprofiling.analysis.findings.host import LEAST_NS, longest, milliseconds, percent
from cprofiling.recording.columns import grouped

# Twice as often is another way of working, not chance.
MORE_TIMES = 2.0
MORE_COPIES = 100  # fewer additional ones are not worth a look
# What makes up a twentieth of the time.
MORE_SHARE = 0.05
# A tenth slower is more than runs of one program differ.
SLOWER_TIMES = 1.1
_MOST_NAMES = 3  # of each kind

_CODE, _OPERATORS, _WORK = "user's code", "operators", "device"


class _Pair:
    """Two recordings, and the units of work (steps or calls) of each.

    Attributes:
        units, other_units: The rows of the units; both have some, or neither.
        scale: How many units the recording has for one of the baseline's; 1.0 without any.
        what: What the units are.
        is_alike: Whether each unit is the same work: all are steps, or calls of one node.
    """

    def __init__(self, evidence: Evidence, baseline: Evidence) -> None:
        self.units, self.other_units, self.what = evidence.steps, baseline.steps, "steps"
        if not self.units or not self.other_units:
            self.units, self.other_units = evidence.outermost_nodes, baseline.outermost_nodes
            self.what = "calls of nodes"
        if not self.units or not self.other_units:
            self.units, self.other_units = [], []
        names = {evidence.texts[row] for row in self.units} | {baseline.texts[row] for row in self.other_units}
        if self.what != "steps" and len(names) == 1:
            self.what = f"calls of {names.pop()!r}"
        self.is_alike = bool(self.units) and self.what != "calls of nodes"
        self.scale = len(self.units) / len(self.other_units) if self.units else 1.0

    @property
    def unit(self) -> str:
        """Words for the number of units on each side."""
        count, other = len(self.units), len(self.other_units)
        noun, of, name = self.what.partition(" ")
        return f", in {counted(count, noun[:-1])}{of}{name} against {other:,}" if count else ""


def more_copies(evidence: Evidence, baseline: Evidence) -> Iterator[Finding]:
    """Find many more copies than in the baseline for the same work."""
    rows, before = evidence.copies, baseline.copies
    pair = _Pair(evidence, baseline)
    count, expected = len(rows), len(before) * pair.scale
    if count < MORE_TIMES * expected or count - expected < MORE_COPIES:
        return
    times = f"{count / expected:.1f} times as many device copies as" if expected else "Many more device copies than"
    kinds = grouped(rows, lambda row: copy_kind(evidence.texts[row]))
    old_counts = Counter(copy_kind(baseline.texts[row]) for row in before)
    grown = max(kinds, key=lambda kind: len(kinds[kind]) - old_counts[kind] * pair.scale)
    listed = ", ".join(f"{kind} {len(of):,} against {old_counts[kind]:,}" for kind, of in kinds.items())
    time, old_time = sum(map(evidence.duration, rows)), sum(map(baseline.duration, before))
    yield Finding(
        "more_copies",
        f"{times} in the baseline",
        f"The device made {count:,} copies against {len(before):,}{pair.unit} ({listed}): {milliseconds(time)} against "
        f"{milliseconds(old_time)}.{started_by(evidence, kinds[grown])}",
        f"Look at what the {grown} copies were started by, and what it does otherwise than before: other strides or "
        "memory_format, .contiguous(), .clone(), .to() of what is there already, a loop instead of one call.",
        {"count": count, "baseline_count": len(before), "time_ns": time, "baseline_time_ns": old_time},
        tuple(rows),
        min(time / max(evidence.wall, 1), 1.0),
    )


def more_calls(evidence: Evidence, baseline: Evidence) -> Iterator[Finding]:
    """Find names that run at least twice as often as in the baseline."""
    pair = _Pair(evidence, baseline)
    now, before = _by_name(evidence), _by_name(baseline)
    found = []
    for (name, side), rows in now.items():
        old_rows = before.get((name, side), [])
        extra = sum(map(evidence.duration, rows)) - sum(map(baseline.duration, old_rows)) * pair.scale
        is_more = len(rows) >= MORE_TIMES * len(old_rows) * pair.scale
        if is_more and extra >= max(LEAST_NS, MORE_SHARE * evidence.wall):
            found.append((extra, name, side, rows, len(old_rows)))
    for extra, name, side, rows, count in sorted(found, key=lambda of: -of[0])[:_MOST_NAMES]:
        yield Finding(
            "more_calls",
            f"{name} runs {counted(len(rows), 'time')} against {count:,} in the baseline",
            f"{len(rows):,} against {counted(count, 'call')} of {name!r} on the {side}{pair.unit} take "
            f"{milliseconds(extra)} more.",
            "Look at where the additional calls come from: key_averages(group_by_node=True) of both recordings.",
            {"count": len(rows), "baseline_count": count, "extra_ns": extra},
            longest(evidence, rows),
            min(extra / max(evidence.wall, 1), 1.0),
        )


def _by_name(evidence: Evidence) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    copies = set(evidence.copies)  # which have a rule of their own
    kernels = [row for row in evidence.work if row not in copies]
    for side, rows in (("host", [*evidence.operators, *sorted(evidence.code)]), ("device", kernels)):
        for row in rows:
            found.setdefault((evidence.texts[row], side), []).append(row)
    return found


def slower_calls(evidence: Evidence, baseline: Evidence) -> Iterator[Finding]:
    """Find names that take longer than in the baseline.

    What counts is their own time: of nodes and labels that is without those inside them, of operators without those
    inside them. For the same number of steps or calls it is their total, else the mean of a call.
    """
    pair, before = _Pair(evidence, baseline), _own_times(baseline)
    least = max(LEAST_NS, MORE_SHARE * evidence.wall)
    for side, names in _own_times(evidence).items():
        grown, whole = [], 0.0
        for name, times in names.items():
            old_times = before[side].get(name)
            if old_times is None:
                continue
            time, old, count, old_count = sum(times.values()), sum(old_times.values()), len(times), len(old_times)
            expected = old * (pair.scale if pair.is_alike else count / old_count)
            whole += max(time - expected, 0)
            is_slower = time * old_count >= SLOWER_TIMES * old * count
            is_more = count >= MORE_TIMES * old_count * pair.scale  # which another rule says
            if time - expected >= least and time >= SLOWER_TIMES * expected and (is_slower or not is_more):
                grown.append((time - expected, name, list(times), time, old, old_count))
        for extra, name, rows, time, old, old_count in sorted(grown, key=lambda each: -each[0])[:_MOST_NAMES]:
            mean, old_mean = time / len(rows), old / old_count
            now, then, per = (mean, old_mean, "a call") if mean >= SLOWER_TIMES * old_mean else (time, old, "in all")
            among, without, advice = _SIDES[side]
            yield Finding(
                "slower_calls",
                f"{name} takes {milliseconds(now)} {per} against {milliseconds(then)} in the baseline",
                f"{counted(len(rows), 'call')} of {name!r} took {milliseconds(time)} against {milliseconds(old)} in "
                f"{counted(old_count, 'call')}{pair.unit}{without}: {milliseconds(extra)} more, "
                f"{percent(extra / whole)} of all growth among {among}.",
                advice,
                {
                    "time_ns": time, "baseline_time_ns": old, "count": len(rows), "baseline_count": old_count,
                    "mean_ns": mean, "baseline_mean_ns": old_mean, "extra_ns": extra, "growth_share": extra / whole,
                },
                longest(evidence, rows),
                min(extra / max(evidence.wall, 1), 1.0),
            )  # fmt: skip


# Of each kind of rows: what they are, without what their own time is, and advice.
_SIDES = {
    _CODE: (
        "nodes and labels",
        ", without nodes and labels inside",
        "Look at what it does otherwise than before: other arguments (record_shapes=True), other code, waiting for "
        "something; record() blocks around its parts, in both recordings, tell which of them it is.",
    ),
    _OPERATORS: (
        "operators",
        ", without operators inside",
        "Look at what it is called with: record_shapes=True and key_averages(group_by_input_shape=True) of both "
        "recordings; other types, strides or a number of threads are reasons, too.",
    ),
    _WORK: (
        "the work of devices",
        "",
        "Look at what it is called with: larger or other shapes, another precision or memory_format; and whether the "
        "device's clock is the same, and nobody else works on it.",
    ),
}


def _own_times(evidence: Evidence) -> dict[str, dict[str, dict[int, int]]]:
    """Return the own times of rows, by name, for code, operators and devices."""
    times = evidence.host_self_times
    of_code = dict.fromkeys(sorted(evidence.code), 0)
    around = evidence.tree.nearest(of_code)
    for row in evidence.host_rows:
        if around[row] >= 0:
            of_code[around[row]] += times[row]
    found: dict[str, dict[str, dict[int, int]]] = {}
    for side, each in (
        (_CODE, of_code),
        (_OPERATORS, {row: times[row] for row in evidence.operators}),
        (_WORK, {row: evidence.duration(row) for row in evidence.work}),
    ):
        names = found[side] = {}
        for row, time in each.items():
            names.setdefault(evidence.texts[row], {})[row] = time
    return found


def slower(evidence: Evidence, baseline: Evidence) -> Iterator[Finding]:
    """Find steps or outermost calls that take longer than before."""
    pair = _Pair(evidence, baseline)
    if not pair.is_alike:
        return
    mean = sum(map(evidence.duration, pair.units)) / len(pair.units)
    before = sum(map(baseline.duration, pair.other_units)) / len(pair.other_units)
    if mean < SLOWER_TIMES * before or mean - before < LEAST_NS:
        return
    yield Finding(
        "slower",
        f"{pair.what[0].upper()}{pair.what[1:]} take {percent(mean / max(before, 1) - 1)} longer than in the baseline",
        f"The mean of {len(pair.units):,} is {milliseconds(mean)}, that of {len(pair.other_units):,} in the baseline "
        f"{milliseconds(before)}.",
        "See what of the other findings is new; compare the tables of key_averages() of both recordings.",
        {"mean_ns": mean, "baseline_mean_ns": before},
        longest(evidence, pair.units),
        min((mean - before) / max(mean, 1), 1.0),
    )
