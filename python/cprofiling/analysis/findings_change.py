"""Rules that compare a recording with another one of the same program."""

from __future__ import annotations

from collections.abc import Iterator

from cprofiling.analysis.device_figures import copy_kind
from cprofiling.analysis.evidence import Evidence
from cprofiling.analysis.findings import Finding
from cprofiling.analysis.findings_device import started_by
from cprofiling.analysis.findings_host import LEAST_NS, longest, milliseconds, percent
from cprofiling.analysis.rows import COPIES, STEP_PREFIX, texts_of
from cprofiling.kinds import STEP

# Twice as often is another way of working, not chance.
MORE_TIMES = 2.0
MORE_COPIES = 100  # fewer additional ones are not worth a look
# What makes up a twentieth of the time.
MORE_SHARE = 0.05
# A tenth slower is more than runs of one program differ.
SLOWER_TIMES = 1.1
_MOST_NAMES = 3


class _Pair:
    """Two recordings, and how many units of the same work (steps, else outermost calls of nodes) each has."""

    def __init__(self, evidence: Evidence, baseline: Evidence) -> None:
        self.units, self.other_units = _units(evidence), _units(baseline)
        if not self.units or not self.other_units:
            self.units, self.other_units = [], []
        self.scale = len(self.units) / len(self.other_units) if self.units else 1.0

    @property
    def unit(self) -> str:
        """Words for what was made equal."""
        return f", in {len(self.units):,} steps or calls against {len(self.other_units):,}" if self.units else ""


def _units(evidence: Evidence) -> list[int]:
    steps = [
        row for row in evidence.host_rows if evidence.kinds[row] == STEP or evidence.name(row).startswith(STEP_PREFIX)
    ]
    return steps or evidence.outermost_nodes


def more_copies(evidence: Evidence, baseline: Evidence) -> Iterator[Finding]:
    """Find that a device makes many more copies than in the baseline, for the same number of steps or calls."""
    rows, before = _copies(evidence), _copies(baseline)
    pair = _Pair(evidence, baseline)
    count, expected = len(rows), len(before) * pair.scale
    if count < MORE_TIMES * expected or count - expected < MORE_COPIES:
        return
    times = f"{count / expected:.1f} times as many device copies as" if expected else "Many more device copies than"
    kinds = _by_kind(evidence, rows)
    old_kinds = {kind: len(of) for kind, of in _by_kind(baseline, before).items()}
    grown = max(kinds, key=lambda kind: len(kinds[kind]) - old_kinds.get(kind, 0) * pair.scale)
    listed = ", ".join(f"{kind} {len(of):,} against {old_kinds.get(kind, 0):,}" for kind, of in kinds.items())
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


def _copies(evidence: Evidence) -> list[int]:
    cats = texts_of(evidence.recording, *COPIES)
    return [row for row in evidence.work if evidence.cats[row] in cats]


def _by_kind(evidence: Evidence, rows: list[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(copy_kind(evidence.name(row)), []).append(row)
    return found


def more_calls(evidence: Evidence, baseline: Evidence) -> Iterator[Finding]:
    """Find operators and kernels that run at least twice as often as in the baseline, and take time for it."""
    pair = _Pair(evidence, baseline)
    now, before = _by_name(evidence), _by_name(baseline)
    found = []
    for (name, side), rows in now.items():
        expected = len(before.get((name, side), [])) * pair.scale
        time = sum(map(evidence.duration, rows))
        old = sum(map(baseline.duration, before.get((name, side), []))) * pair.scale
        if len(rows) >= MORE_TIMES * expected and time - old >= max(LEAST_NS, MORE_SHARE * evidence.wall):
            found.append((time - old, name, side, rows, len(before.get((name, side), []))))
    for extra, name, side, rows, count in sorted(found, key=lambda of: -of[0])[:_MOST_NAMES]:
        yield Finding(
            "more_calls",
            f"{name} runs {len(rows):,} times against {count:,} in the baseline",
            f"{len(rows):,} against {count:,} calls of {name!r} on the {side}{pair.unit} take "
            f"{milliseconds(extra)} more.",
            "Look at where the additional calls come from: key_averages(group_by_node=True) of both recordings.",
            {"count": len(rows), "baseline_count": count, "extra_ns": extra},
            longest(evidence, rows),
            min(extra / max(evidence.wall, 1), 1.0),
        )


def _by_name(evidence: Evidence) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    copies = set(_copies(evidence))  # which have a rule of their own
    kernels = [row for row in evidence.work if row not in copies]
    for side, rows in (("host", [*evidence.operators, *evidence.nodes]), ("device", kernels)):
        for row in rows:
            found.setdefault((evidence.name(row), side), []).append(row)
    return found


def slower(evidence: Evidence, baseline: Evidence) -> Iterator[Finding]:
    """Find that steps, or outermost calls of nodes, take longer than in the baseline."""
    pair = _Pair(evidence, baseline)
    if not pair.units:
        return
    mean = sum(map(evidence.duration, pair.units)) / len(pair.units)
    before = sum(map(baseline.duration, pair.other_units)) / len(pair.other_units)
    if mean < SLOWER_TIMES * before or mean - before < LEAST_NS:
        return
    yield Finding(
        "slower",
        f"Steps or calls take {percent(mean / max(before, 1) - 1)} longer than in the baseline",
        f"The mean of {len(pair.units):,} is {milliseconds(mean)}, that of {len(pair.other_units):,} in the baseline "
        f"{milliseconds(before)}.",
        "See what of the other findings is new; compare the tables of key_averages() of both recordings.",
        {"mean_ns": mean, "baseline_mean_ns": before},
        longest(evidence, pair.units),
        min((mean - before) / max(mean, 1), 1.0),
    )


CHANGE_RULES = (more_copies, more_calls, slower)
