"""What the options of the pytest plugin ask for: files of what tests did, and tests that fail where they do more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cprofiling import checks
from cprofiling.gates import baseline
from cprofiling.gates.bootstrap import Rule, rule_of
from cprofiling.gates.judge import judged
from cprofiling.output_path import reason

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any

    from cprofiling.gates.measured import Measured

_DESELECTED = "cprofiling_deselected"


class Gate:
    """A plugin that is registered if there is an option; under xdist in each worker, and in what controls them."""

    def __init__(self, config: pytest.Config) -> None:
        """Read options and baseline. UsageError where they make no sense, or where the baseline cannot be had."""
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._json = _path(config, "--cprofiling-json")
        self._baseline_path = _path(config, "--cprofiling-compare")
        self._updates = bool(config.getoption("cprofiling_update"))
        try:
            self._rules: tuple[Rule, ...] = tuple(map(rule_of, config.getoption("cprofiling_fail")))
        except ValueError as error:
            raise pytest.UsageError(f"--cprofiling-fail: {error}") from None
        if self._baseline_path is None and (self._rules or self._updates):
            raise pytest.UsageError("--cprofiling-fail and --cprofiling-update need --cprofiling-compare=FILE")
        self._baseline = self._loaded()
        self._seen: set[str] = set()
        self._deselected: set[str] = set()
        self._did: dict[str, dict[str, Any]] = {}
        self._passed: set[str] = set()
        self._notes: list[str] = []
        self._wrong: list[str] = []

    def _loaded(self) -> dict[str, dict[str, Any]] | None:
        """Return the tests of the baseline; None: nothing is compared."""
        path = self._baseline_path
        if path is None or (self._updates and not Path(path).exists()):
            return None
        try:
            found = baseline.load(path)
        except OSError as error:
            hint = "" if Path(path).exists() else "; --cprofiling-update makes it"
            raise pytest.UsageError(f"--cprofiling-compare: cannot read {path}: {reason(error)}{hint}") from None
        except baseline.EditedError as error:
            if self._updates:
                return None
            raise pytest.UsageError(f"--cprofiling-compare: {error}; --cprofiling-update makes it anew") from None
        except ValueError as error:
            raise pytest.UsageError(f"--cprofiling-compare: {error}") from None
        if not found["tests"] and not self._updates:
            raise pytest.UsageError(f"--cprofiling-compare: {path}: there is no test in it")
        if self._rules and not self._updates and found["made_with"] != baseline.made_here():
            told = ", ".join(found["made_with"].values())
            raise pytest.UsageError(
                f"--cprofiling-compare: {path}: times cannot be compared, as it is of another machine or Python "
                f"({told}); without --cprofiling-fail counts are"
            )
        tests: dict[str, dict[str, Any]] = found["tests"]
        return tests

    def expected(self, nodeid: str) -> dict[str, Any] | None:
        """Return what a test did before; None if that is not known."""
        return None if self._baseline is None else self._baseline.get(nodeid)

    def complaints(self, nodeid: str, measured: Measured) -> list[str]:
        """Return what a test does more than before, or why that is not known."""
        if self._baseline is None or self._updates:
            return []
        expected = self._baseline.get(nodeid)
        if expected is None:
            return [f"the test is not in {self._baseline_path}: --cprofiling-update puts it there"]
        found = judged(expected, measured.to_dict(), self._rules)
        measured.notes = found.notes
        return found.worse

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        """Send what a test did along with its report."""
        from cprofiling.gates.phase import MEASURED

        outcome = yield
        measured = item.stash.get(MEASURED, None)
        if call.when == "call" and measured is not None:
            outcome.get_result().cprofiling = {"did": measured.to_dict(), "notes": measured.notes}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather what tests did."""
        self._seen.add(report.nodeid)
        told = getattr(report, "cprofiling", None)
        if told is not None:
            self._did[report.nodeid] = told["did"]
            self._passed.update([report.nodeid] if report.passed else [])
            self._notes += [f"{report.nodeid}: {note}" for note in told["notes"]]

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note what is left out."""
        self._deselected.update(item.nodeid for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker has left out."""
        self._deselected.update(getattr(node, "workeroutput", {}).get(_DESELECTED, ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files, and fail the run where tests are missing."""
        if self._is_worker:
            session.config.workeroutput[_DESELECTED] = sorted(self._deselected)  # type: ignore[attr-defined]
            return
        if session.exitstatus not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            return
        if self._updates:
            self._write(
                self._baseline_path,
                {
                    **(self._baseline or {}),
                    **{nodeid: self._did[nodeid] for nodeid in self._did if nodeid in self._passed},
                },
            )
        elif self._baseline is not None:
            self._wrong += [f"{nodeid}: it did not run, and is in the baseline" for nodeid in self._missing()]
        self._write(self._json, self._did)
        if self._wrong:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _write(self, path: str | None, tests: dict[str, dict[str, Any]]) -> None:
        if path is None:
            return
        try:
            baseline.save(path, tests)
        except OSError as error:
            self._wrong.append(f"cannot write {path}: {reason(error)}")

    def _missing(self) -> list[str]:
        """Return the tests of the baseline that were asked for, and did not run."""
        if any(self._config.getoption(option, None) for option in ("lf", "keyword", "markexpr")):  # some on purpose
            return []
        known = self._seen | self._deselected
        return [nodeid for nodeid in self._baseline or {} if nodeid not in known and self._is_asked_for(nodeid)]

    def _is_asked_for(self, nodeid: str) -> bool:
        """Whether the arguments of the command, or all tests without any, are about a test."""
        file, _, within = nodeid.partition("::")
        path = (self._config.rootpath / file).resolve()
        for argument in self._config.args:
            asked, _, part = str(argument).partition("::")
            place = (self._config.invocation_params.dir / asked).resolve()
            is_below = place == path or place in path.parents
            if is_below and (not part or within == part or within.startswith((f"{part}::", f"{part}["))):
                return True
        return False

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what is wrong, and what is worth to be known."""
        if self._wrong or self._notes:
            terminalreporter.section("cprofiling")
        for line in self._wrong:
            terminalreporter.write_line(f"ERROR {line}", red=True)
        for line in self._notes:
            terminalreporter.write_line(line)


def _path(config: pytest.Config, option: str) -> str | None:
    """Return the absolute path that an option has: tests may change the folder."""
    given = config.getoption(option)
    if given is None:
        return None
    try:
        return str(config.invocation_params.dir / checks.path("path", given))
    except ValueError as error:
        raise pytest.UsageError(f"{option}: {error}") from None
