"""Two files of what tests did, compared: ``cprofiling compare`` for what ``--cprofiling-json`` has written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from cprofiling._internal import file_kinds
from cprofiling._internal.text import shown_text
from cprofiling.layers.compare.verdict import EXIT_REGRESSED, EXIT_SAME
from cprofiling.testing.gates import baseline
from cprofiling.testing.gates.bootstrap import Rule
from cprofiling.testing.gates.verdicts import Verdicts, judged, times_in

if TYPE_CHECKING:
    from collections.abc import Sequence


class FileComparison(NamedTuple):
    """What became of the tests of a file in another one.

    Attributes:
        tests: By test, what is worse, and what else is worth to be known.
        notes: Sentences that belong to all of it.
    """

    tests: dict[str, Verdicts]
    notes: list[str]

    @property
    def exit_status(self) -> int:
        """Return a gate's: 3 where something is worse, else 0."""
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
    """Compare two files; None if the first one is no such file.

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
