"""What became worse from one file of what tests did to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cprofiling._internal.text import shown_text
from cprofiling.devices.cupti import NO_CUDA
from cprofiling.layers.compare.verdict import UNSURE
from cprofiling.testing.gates import baseline, series

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from cprofiling.testing.gates.bootstrap import Rule

_COUNTS = ("native_calls", "operators")


class Verdicts(NamedTuple):
    """Of one test: what is worse, or cannot be judged, which is no pass; and what else is worth to be known."""

    worse: list[str]
    notes: list[str]


def times_in(tests: Iterable[Mapping[str, Any]]) -> int:
    """Return how many times tests have that can be judged, each of which may raise a false alarm."""
    return sum(len(series["rows"]) for did in tests for series in did["series"].values())


def judged(
    old: Mapping[str, Any], new: Mapping[str, Any], rules: Sequence[Rule], family: int = 1, *, strict: bool = False
) -> Verdicts:
    """Compare what a test did with what it did before.

    Args:
        old: What it did before.
        new: What it did now.
        rules: For times, none of which are judged without.
        family: How many times all tests have together.
        strict: Whether a time without a clear verdict is worse, too.
    """
    found = Verdicts([], [])
    for what in _COUNTS:
        _judge_counts(found, what, old[what], new[what])
    _judge_launches(found, old, new)
    _judge_nodes(found, old["nodes"], new["nodes"])
    _judge_times(found, dict(baseline.series_of(old)), dict(baseline.series_of(new)), rules, family, strict)
    return found


def _judge_counts(found: Verdicts, what: str, old: Mapping[str, int] | None, new: Mapping[str, int] | None) -> None:
    if old is None:
        return
    if new is None:
        found.worse.append(f"{what} cannot be judged: they were not counted, and are in the baseline")
        return
    for name in dict.fromkeys([*old, *new]):
        _judge_count(found, f"{what} of {_shown(name)}", old.get(name, 0), new.get(name, 0))


def _judge_count(found: Verdicts, what: str, old: int, new: int) -> None:
    if new > old:
        found.worse.append(f"{what}: {old} -> {new}")
    elif new < old:
        found.notes.append(f"{what}: {old} -> {new}, which is less: --cprofiling-update keeps it so")


def _judge_launches(found: Verdicts, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    reason = new.get("launches_reason")
    if old["launches"] is None:
        return
    if new["launches"] is not None:
        _judge_count(found, "launches", old["launches"], new["launches"])
    elif reason == NO_CUDA:  # as where a baseline of a machine with a GPU is used on one without
        found.notes.append(f"launches: {old['launches']} -> not known: {reason}")
    else:
        found.worse.append(f"launches cannot be judged: {reason}")


def _judge_nodes(found: Verdicts, old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> None:
    before, now = ({(row["stage"], row["node"]): row for row in rows} for rows in (old, new))
    for key in dict.fromkeys([*before, *now]):
        name = f"node {_shown(key[1])} ({_shown(key[0])})"
        if key not in now:
            found.worse.append(f"{name}: it did not run, and is in the baseline")
        elif key not in before:
            found.worse.append(f"{name}: it ran, and is not in the baseline")
        else:
            for what in ("count", "error_count"):
                _judge_count(found, f"{what} of {name}", before[key][what], now[key][what])


def _judge_times(
    found: Verdicts,
    old: Mapping[str, series.Series],
    new: Mapping[str, series.Series],
    rules: Sequence[Rule],
    family: int,
    strict: bool,
) -> None:
    for name, before in old.items():
        if name not in new:
            found.worse.append(f"times of {_shown(name)}: they were not measured, and are in the baseline")
            continue
        for row in before.rows:
            what = f"times of {_shown(name)}" + (f", node {_shown(row)}" if row else "")
            if row not in new[name].rows:
                found.worse.append(f"{what}: they were not measured, and are in the baseline")
                continue
            for rule in rules:
                change = series.change(before, new[name], row, rule, family * len(rules))
                is_worse = change.verdict == "slower" or (strict and change.verdict in UNSURE)
                (found.worse if is_worse else found.notes).append(f"{what}: {change.text}")


def _shown(name: str) -> str:
    return shown_text("name", name)
