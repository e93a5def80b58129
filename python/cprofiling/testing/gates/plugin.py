"""Files of counts and times, and failures, by options of the plugin."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cprofiling._internal import arguments
from cprofiling.recording.output_names import reason
from cprofiling.testing.gates import baseline
from cprofiling.testing.gates.bootstrap import Rule, rule_of
from cprofiling.testing.gates.test_call import MEASURED
from cprofiling.testing.gates.verdicts import judged, times_in

if TYPE_CHECKING:
    from cprofiling.testing.gates.test_call import Measured

_DESELECTED = "cprofiling_deselected"
_GONE = "it did not run, or is not counted any more, and is in the baseline"
_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
_CHOOSING = ("lf", "keyword", "markexpr")  # options with which some tests do not run on purpose
_RUNNING_NOTHING = ("collectonly", "setuponly", "setupplan")


class Gate:
    """Plugin for the options, in each xdist worker and its controller."""

    def __init__(self, config: pytest.Config) -> None:
        """Read options and baseline. Raises UsageError for wrong ones."""
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._json = _path(config, "--cprofiling-json")
        self._baseline_path = _path(config, "--cprofiling-compare")
        self._updates = bool(config.getoption("cprofiling_update"))
        self.is_strict = bool(config.getoption("cprofiling_strict"))
        try:
            self._rules: tuple[Rule, ...] = tuple(map(rule_of, config.getoption("cprofiling_fail")))
        except ValueError as error:
            raise pytest.UsageError(f"--cprofiling-fail: {error}") from None
        if self._baseline_path is None and (self._rules or self._updates):
            raise pytest.UsageError("--cprofiling-fail and --cprofiling-update need --cprofiling-compare=FILE")
        if self._json is not None and self._json == self._baseline_path:
            raise pytest.UsageError(f"--cprofiling-json and --cprofiling-compare are both {self._json}")
        self._seen: set[str] = set()
        self._deselected: set[str] = set()
        self._did: dict[str, dict[str, Any]] = {}
        self._passed: set[str] = set()
        self._failed: set[str] = set()
        self._notes: list[str] = []
        self._wrong: list[str] = []
        self._baseline = self._loaded()

    def _loaded(self) -> dict[str, dict[str, Any]] | None:
        """Return the tests of the baseline, None if nothing is compared."""
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
        tests: dict[str, dict[str, Any]] = found["tests"]
        if found["made_with"] != baseline.made_here():
            if self._updates:
                for did in tests.values():
                    did["series"] = {}  # else they would be told as those of this machine
            elif self._rules:
                raise pytest.UsageError(
                    f"--cprofiling-compare: {path}: times cannot be compared, as it is of another machine or Python "
                    f"({', '.join(found['made_with'].values())}); without --cprofiling-fail counts are"
                )
        return tests

    def expected(self, nodeid: str) -> dict[str, Any] | None:
        """Return the record of a test in the baseline, if any."""
        return None if self._baseline is None else self._baseline.get(name_of(self._config, nodeid))

    def complaints(self, nodeid: str, measured: Measured) -> list[str]:
        """Return what a test does more than before, or why that is not known."""
        if self._baseline is None or self._updates:
            return []
        expected = self.expected(nodeid)
        if expected is None:
            return [f"the test is not in {self._baseline_path}: --cprofiling-update puts it there"]
        family = times_in(self._baseline.values())
        found = judged(expected, measured.to_dict(), self._rules, family, strict=self.is_strict)
        measured.notes = found.notes
        return found.worse

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        """Send what a test did along with its report."""
        outcome = yield
        measured = item.stash.get(MEASURED, None)
        if call.when == "call" and measured is not None:
            outcome.get_result().cprofiling = {"did": measured.to_dict(), "notes": measured.notes}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather what tests did."""
        name = name_of(self._config, report.nodeid)
        self._seen.add(name)
        if report.failed:  # one report of it, as of a subtest
            self._failed.add(name)
        elif report.when == "call" and report.passed:
            self._passed.add(name)
        told = getattr(report, "cprofiling", None)
        if told is not None:
            self._did[name] = told["did"]
            self._notes += [f"{name}: {note}" for note in told["notes"]]

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note omitted tests."""
        self._deselected.update(name_of(self._config, item.nodeid) for item in items)

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
        if session.exitstatus not in _ENDED or any(self._config.getoption(option) for option in _RUNNING_NOTHING):
            return
        if self._updates:
            self._write(self._baseline_path, self._updated(is_whole=session.testsfailed == 0))
        elif not session.shouldfail:  # as with -x
            self._wrong += [f"{name}: {_GONE}" for name in self._missing()]
        self._write(self._json, self._did)
        if self._wrong:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _updated(self, *, is_whole: bool) -> dict[str, dict[str, Any]]:
        """Return the baseline with the tests that passed in this run."""
        gone = set(self._missing()) if is_whole else set()
        kept = {name: did for name, did in (self._baseline or {}).items() if name not in gone}
        return {**kept, **{name: did for name, did in self._did.items() if name in self._passed - self._failed}}

    def _write(self, path: str | None, tests: dict[str, dict[str, Any]]) -> None:
        if path is None:
            return
        try:
            baseline.save(path, tests)
        except OSError as error:
            self._wrong.append(f"cannot write {path}: {reason(error)}")

    def _missing(self) -> list[str]:
        """Return the tests of the baseline that should have run and did not."""
        if any(self._config.getoption(option, None) for option in _CHOOSING):
            return []
        known = (self._seen - (self._passed - self._did.keys())) | self._deselected
        return [nodeid for nodeid in self._baseline or {} if nodeid not in known and self._is_asked_for(nodeid)]

    def _is_asked_for(self, nodeid: str) -> bool:
        """Tell whether the arguments of the command select a test."""
        file, _, within = nodeid.partition("::")
        path = (self._config.rootpath / file).resolve()
        folder, option = self._config.invocation_params.dir, self._config.getoption
        places = (path, *path.parents)
        if not {(folder / each).resolve() for each in option("ignore") or ()}.isdisjoint(places):
            return False
        globs = [str(folder / each) for each in option("ignore_glob") or ()]
        if any(fnmatch(str(place), glob) for place in places for glob in globs):
            return False
        for argument in self._config.args:
            asked, _, part = str(argument).partition("::")
            is_below = (folder / asked).resolve() in places
            if is_below and (not part or within == part or within.startswith((f"{part}::", f"{part}["))):
                return True
        return False

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write failures and notes."""
        if self._wrong or self._notes:
            terminalreporter.section("cprofiling")
        for line in self._wrong:
            terminalreporter.write_line(f"ERROR {line}", red=True)
        for line in self._notes:
            terminalreporter.write_line(line)


def name_of(config: pytest.Config, nodeid: str) -> str:
    """Return a test's id without the group of ``--dist=loadgroup``."""
    is_grouped = config.getoption("loadgroup", False) or config.getoption("dist", None) == "loadgroup"
    group = nodeid.rfind("@")
    return nodeid[:group] if is_grouped and group > nodeid.rfind("]") else nodeid


def _path(config: pytest.Config, option: str) -> str | None:
    """Return the absolute path in an option."""
    given = config.getoption(option)
    if given is None:
        return None
    try:
        return str(config.invocation_params.dir / arguments.path("path", given))
    except ValueError as error:
        raise pytest.UsageError(f"{option}: {error}") from None
