"""Comparison of two records or files of tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cprofiling._internal import file_kinds
from cprofiling._internal.text import shown_text
from cprofiling.analysis.comparison import EXIT_REGRESSED, EXIT_SAME, UNSURE
from cprofiling.devices.cupti import NO_CUDA
from cprofiling.testing.gates import baseline, series
from cprofiling.testing.gates.bootstrap import Rule


class Verdicts(NamedTuple):
    """Findings on one test that fail it, and notes."""

    worse: list[str]
    notes: list[str]


def times_in(tests: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of times that can be judged."""
    return sum(len(series["rows"]) for did in tests for series in did["series"].values())


def judged(
    old: Mapping[str, Any], new: Mapping[str, Any], rules: Sequence[Rule], family: int = 1, *, strict: bool = False
) -> Verdicts:
    """Compare a test's record with an earlier one.

    Args:
        old: The earlier record.
        new: The present record.
        rules: For times; none is judged without a rule.
        family: How many times all tests have together.
        strict: Whether a time without a clear verdict is worse, too.
    """
    found = worse, notes = Verdicts([], [])

    def judge_count(what: str, before: int, now: int) -> None:
        if now > before:
            worse.append(f"{what}: {before} -> {now}")
        elif now < before:
            notes.append(f"{what}: {before} -> {now}, which is less: --cprofiling-update keeps it so")

    for what in ("native_calls", "operators"):
        before, now = old[what], new[what]
        if before is not None and now is None:
            worse.append(f"{what} cannot be judged: they were not counted, and are in the baseline")
        elif before is not None:
            for name in dict.fromkeys([*before, *now]):
                judge_count(f"{what} of {shown_text('name', name)}", before.get(name, 0), now.get(name, 0))
    reason = new.get("launches_reason")
    if old["launches"] is not None and new["launches"] is not None:
        judge_count("launches", old["launches"], new["launches"])
    elif old["launches"] is not None and reason == NO_CUDA:  # a baseline of a machine with a GPU, on one without
        notes.append(f"launches: {old['launches']} -> not known: {reason}")
    elif old["launches"] is not None:
        worse.append(f"launches cannot be judged: {reason}")
    before, now = ({(row["stage"], row["node"]): row for row in did["nodes"]} for did in (old, new))
    for key in dict.fromkeys([*before, *now]):
        node = f"node {shown_text('name', key[1])} ({shown_text('name', key[0])})"
        if key not in now:
            worse.append(f"{node}: it did not run, and is in the baseline")
        elif key not in before:
            worse.append(f"{node}: it ran, and is not in the baseline")
        else:
            for what in ("count", "error_count"):
                judge_count(f"{what} of {node}", before[key][what], now[key][what])
    _judge_times(found, series.of_test(old), series.of_test(new), rules, family, strict)
    return found


def _judge_times(
    found: Verdicts,
    old: Mapping[str, series.Series],
    new: Mapping[str, series.Series],
    rules: Sequence[Rule],
    family: int,
    strict: bool,
) -> None:
    for name, before in old.items():
        now = new.get(name)
        rows = before.rows if now is not None else ("",)
        for row in rows:
            what = f"times of {shown_text('name', name)}" + (f", node {shown_text('name', row)}" if row else "")
            if now is None or row not in now.rows:
                found.worse.append(f"{what}: they were not measured, and are in the baseline")
                continue
            for rule in rules:
                change = series.change(before, now, row, rule, family * len(rules))
                is_worse = change.verdict == "slower" or (strict and change.verdict in UNSURE)
                (found.worse if is_worse else found.notes).append(f"{what}: {change.text}")


class FileComparison(NamedTuple):
    """Comparison of two files of tests.

    Attributes:
        tests: By test, regressions and notes.
        notes: Sentences that belong to all of it.
    """

    tests: dict[str, Verdicts]
    notes: list[str]

    @property
    def exit_status(self) -> int:
        """Exit status of a gate, 3 where something is worse, else 0."""
        return EXIT_REGRESSED if any(verdicts.worse for verdicts in self.tests.values()) else EXIT_SAME

    def to_text(self) -> str:
        """Return a line for each finding."""
        lines = [
            f"{shown_text('test', test)}: {'WORSE: ' if is_worse else ''}{line}"
            for test, verdicts in self.tests.items()
            for is_worse, found in ((True, verdicts.worse), (False, verdicts.notes))
            for line in found
        ]
        return "\n".join([*(lines or [f"{len(self.tests)} tests: nothing has changed"]), *self.notes])

    def to_json(self) -> str:
        """Return all of it as JSON."""
        tests = {test: verdicts._asdict() for test, verdicts in self.tests.items()}
        return json.dumps({"tests": tests, "notes": self.notes, "exit_status": self.exit_status}, indent=2)

    def __str__(self) -> str:
        """Return Markdown."""
        return "\n".join(f"- {line}" for line in self.to_text().splitlines())


def compare_files(old: Sequence[str], new: Sequence[str], limit_pct: float) -> FileComparison | None:
    """Compare two files of tests, None if the first one is another kind.

    Raises OSError where one cannot be read; ValueError for several on a side, and, as FormatError, for one that is
    damaged, edited, or of another kind.
    """
    if file_kinds.kind_of(file_kinds.head_of(old[0])) is not file_kinds.TESTS:
        return None
    if len(old) > 1 or len(new) > 1:
        raise ValueError("files of --cprofiling-json are compared one with one")
    before, now = baseline.load(old[0]), baseline.load(new[0])
    rules, notes = [Rule("mean", limit_pct)], []
    if before["made_with"] != now["made_with"]:
        rules, notes = [], ["Times are not compared: the files are of different machines, or of different Pythons."]
    tests = {}
    for test, did in before["tests"].items():
        after = now["tests"].get(test)
        tests[test] = (
            Verdicts(["it did not run"], [])
            if after is None
            else judged(did, after, rules, times_in(before["tests"].values()))
        )
    added = [test for test in now["tests"] if test not in before["tests"]]
    tests.update({test: Verdicts([], ["it is not in the baseline"]) for test in added})
    return FileComparison(tests, notes)
