"""The plugin of pytest: limits, fixtures, files of what tests did, and tests that fail where they do more (I9, I12)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
import cprofiling_pytest
from cprofiling.commands import main
from cprofiling.testing.counting import dispatches
from cprofiling.testing.gates import baseline, fixtures, series, verdicts
from cprofiling.testing.gates.bootstrap import Rule
from cprofiling.testing.gates.test_call import Limits, Measured, complaints, limits_of

pytest_plugins = ["pytester"]

PYTHON = str(Path(cp.__file__).parents[1])
NATIVE = """
depth = 1

def native():
    pass

def run():
    for _ in range(depth):
        native()
"""
TESTS = """
import pytest, gate_native, cprofiling as cp

@cp.profile_node("node")
def node():
    gate_native.native()

@pytest.mark.cprofiling_limit(native_calls=1, native="gate_native:native")
def test_limit():
    gate_native.run()

def test_fixtures(node_profiler, call_counter):
    calls = call_counter("gate_native:nat*")
    node()
    with call_counter("gate_native:run") as more:
        gate_native.run()
    gate_native.run()
    assert (calls.native_calls, more.native_calls) == (1 + 2 * gate_native.depth, 1)
    assert [row.node_name for row in node_profiler.get_profiling_summary()] == ["node"]

def test_unused():
    gate_native.run()
"""
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run tests in this process, with the plugin, and without PyTorch."""
    monkeypatch.setattr(dispatches, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would be taken for a file that changes within a second
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins only take time
    pytester.makepyfile(gate_native=NATIVE, test_it=TESTS)
    monkeypatch.syspath_prepend(str(pytester.path))

    def run_(*arguments: str, depth: int = 1, **files: str) -> pytest.RunResult:
        pytester.makepyfile(gate_native=NATIVE.replace("depth = 1", f"depth = {depth}"), **files)
        return pytester.runpytest_inprocess("-p", "cprofiling_pytest", "-p", "no:cacheprovider", "-q", *arguments)

    return run_


def timed_row(time: float, count: int = 20) -> series.Row:
    return series.Row([time] * count, None, [0.0] * count, [0.0] * count, [1.0] * count, [1.0] * count)


def did(**changes: Any) -> dict[str, Any]:
    return {**Measured().to_dict(), **changes}


# ---- off unless used -----------------------------------------------------------------------------


def test_it_loads_nothing_and_changes_nothing_unless_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_other():\n"
        "    print(sorted({'cprofiling', 'numpy', 'torch', 'cprofiling_pytest'} & set(sys.modules)))\n"
    )
    options = ["-p", "cprofiling_pytest", "-p", "no:cacheprovider", "-q", "-s", "-W", "error"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env={"PYTHONPATH": PYTHON, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "['cprofiling_pytest']"
    assert "cprofiling" not in "".join(done.stdout.splitlines()[1:])


def test_the_entry_point_is_the_plugin() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points.pytest11]\ncprofiling_pytest = "cprofiling_pytest"\n' in project
    assert 'py-modules = ["cprofiling_pytest"]' in project
    # Else every run of pytest under the command run would warn that it cannot be rewritten.
    assert "PYTEST_DONT_REWRITE" in (cprofiling_pytest.__doc__ or "")
    assert "PYTEST_DONT_REWRITE" in (cp.__doc__ or "")


# ---- limits --------------------------------------------------------------------------------------


def test_tests_within_their_limits_pass(run: Run) -> None:
    run().assert_outcomes(passed=3)
    run("--strict-markers", "-W", "error").assert_outcomes(passed=3)


def test_one_unfused_filter_fails_the_test_and_is_named(run: Run) -> None:
    result = run(depth=2)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["cprofiling: native_calls: 2, the limit is 1: gate_native:native 2"])


LIMITED = """
import math, pytest, cprofiling as cp
pytestmark = pytest.mark.cprofiling_limit(native="math:*")

@pytest.fixture
def prepared():
    math.sin(1.0)
    with cp.profile_node("in setup"):
        pass
    yield
    math.sin(1.0)

@pytest.mark.cprofiling_limit(native_calls={"math:sin": 1, "math:cos": 0}, operators=0, launches=0, p95_ms=1000)
def test_call_phase(node_profiler, prepared):
    math.sin(1.0)
    with cp.profile_node("node"):
        pass
    assert [row.node_name for row in node_profiler.get_profiling_summary()] == ["node"]

@pytest.mark.cprofiling_limit(native_calls={"math:sin": 0}, p95_ms={"node": 0, "other": 1})
def test_beyond():
    math.sin(1.0)
    with cp.profile_node("node"):
        pass

@pytest.mark.cprofiling_limit(p95_ms=1)
def test_no_node():
    pass

@pytest.mark.cprofiling_limit(native_calls=0)
def test_fails_itself():
    math.sin(1.0)
    raise KeyError("own")

@pytest.mark.cprofiling_limit(nativ_calls=1)
def test_wrong():
    pass

@pytest.mark.cprofiling_limit(native="math:none")
def test_no_function():
    pass
"""


def test_the_marker_is_about_the_call_phase_and_everything_that_is_too_much_is_named(run: Run) -> None:
    result = run("test_limited.py", test_limited=LIMITED)
    result.assert_outcomes(passed=1, failed=5)
    result.stdout.fnmatch_lines(
        [
            "cprofiling: native_calls of math:sin: 1, the limit is 0",
            "p95_ms of node: * ms, the limit is 0 ms",
            "p95_ms of other cannot be judged: the node did not run",
            "cprofiling: p95_ms cannot be judged: no node ran *",
            "*KeyError: 'own'",
            "*cprofiling_limit takes native_calls, *got 'nativ_calls'*",
            "*patterns must take a function each, 'math:none' (str) takes none*",
        ]
    )


def test_patterns_may_come_from_the_settings(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ncprofiling_native =\n    math:sin\n    math:cos\n")
    pytester.makepyfile(
        test_settings="import math, pytest\n"
        "@pytest.mark.cprofiling_limit(native_calls=1)\n"
        "def test_settings():\n    math.sin(1); math.cos(1)\n"
    )
    run("test_settings.py").stdout.fnmatch_lines(
        ["cprofiling: native_calls: 2, the limit is 1: math:cos 1, math:sin 1"]
    )


class Mark:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs


def test_nearer_markers_go_before_others() -> None:
    marks = [Mark(native_calls=1), Mark(native_calls=5, launches=3, native=["a:b", "c:d"], p95_ms=2)]
    assert limits_of(marks, ["e:f"]) == Limits(1, None, 3, 2.0, ("e:f", "a:b", "c:d"))
    assert limits_of([], []) == Limits()


@pytest.mark.parametrize(
    ("mark", "error"),
    [
        (Mark(1), TypeError),
        (Mark(), TypeError),
        (Mark(calls=1), TypeError),
        (Mark(native_calls=-1), ValueError),
        (Mark(native_calls=1.5), TypeError),
        (Mark(operators={"aten::mm": True}), TypeError),
        (Mark(launches="3"), TypeError),
        (Mark(p95_ms="3"), TypeError),
        (Mark(p95_ms={"node": -1}), ValueError),
        (Mark(native="math"), ValueError),
        (Mark(native=5), TypeError),
        (Mark(native_calls={1: 2}), TypeError),
        (Mark(native_calls={"sin": 2}), ValueError),
        (Mark(operators={"mm": 2}), ValueError),
    ],
)
def test_what_a_marker_says_is_checked(mark: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        limits_of([mark], [])


NO_CUDA = "no CUDA in the process"
MANY = {f"a:f{number:02}": 20 - number for number in range(15)}
FIRST = ", ".join(f"{name} {count}" for name, count in [*MANY.items()][:12])


@pytest.mark.parametrize(
    ("limits", "measured", "expected"),
    [
        (Limits(native_calls=1), Measured(), ["native_calls cannot be judged: nothing is named as native: native=..."]),
        (Limits(operators=1), Measured(), ["operators cannot be judged: they were not counted"]),
        (Limits(launches=1), Measured(launches_reason="taken"), ["launches cannot be judged: taken"]),
        (Limits(launches=1), Measured(launches_reason=NO_CUDA), []),
        (Limits(launches=1), Measured(launches=1), []),
        (Limits(launches=1), Measured(launches=2), ["launches: 2, the limit is 1"]),
        (Limits(1), Measured(MANY), [f"native_calls: 195, the limit is 1: {FIRST} and 3 more"]),
        (Limits(1), Measured({**dict.fromkeys(MANY, 0), "a:g": 2}), ["native_calls: 2, the limit is 1: a:g 2"]),
        (Limits({"a:g": 0}), Measured(MANY), ["native_calls of a:g cannot be judged: it is not among what is counted"]),
        (Limits({"a:f00": 2}), Measured(MANY), ["native_calls of a:f00: 20, the limit is 2"]),
        (Limits(operators={"aten::add": 0}), Measured(operators={"aten::mm": 1}), []),
    ],
)
def test_the_limits_exceeded_and_those_that_cannot_be_judged(
    limits: Limits, measured: Measured, expected: list[str]
) -> None:
    assert complaints(limits, measured) == expected


def test_a_node_is_judged_by_its_slowest_stage() -> None:
    rows = [node(p95_ms=9.0), node(stage="val"), node(stage="test", count=0, p95_ms=99.0)]
    for most in (5, {"n": 5}):
        assert complaints(Limits(p95_ms=most), Measured(nodes=rows)) == ["p95_ms of n: 9.000 ms, the limit is 5 ms"]


# ---- fixtures ------------------------------------------------------------------------------------


def test_a_callable_is_compared_or_timed_by_the_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = fixtures.NodeProfiler()
    some = series.Series(True, {})
    monkeypatch.setattr(series, "measured", lambda function, repeat, warmup: some)
    profiler.pairs(len)  # type: ignore[arg-type]
    profiler.pairs(len, name="other")  # type: ignore[arg-type]
    assert profiler.series == {"len": some, "other": some}
    with pytest.raises(ValueError, match="twice"):
        profiler.pairs(len)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name must be a str"):
        profiler.pairs(len, name=1)  # type: ignore[arg-type]
    found = profiler.compare(lambda: 1, lambda: 2, pairs=2, warmup=0)
    assert profiler.comparisons == [found]


TIMED = """
import gate_native, pytest, cprofiling as cp

@pytest.mark.cprofiling_limit(native_calls=2, native="gate_native:native")
def test_timed(node_profiler, call_counter):
    calls = call_counter("gate_native:*")
    with call_counter("gate_native:native") as ended:
        gate_native.run()
    node_profiler.pairs(gate_native.run, repeat=20)
    node_profiler.compare(gate_native.run, gate_native.run, pairs=2)
    with pytest.raises(ZeroDivisionError):
        node_profiler.pairs(lambda: 1 // 0, name="fails")
    gate_native.run()
    assert (calls.native_calls, ended.native_calls) == (4, 1)
"""


def test_what_is_timed_is_not_counted(run: Run) -> None:
    """How often that is called depends on how much times spread."""
    run("test_timed.py", test_timed=TIMED).assert_outcomes(passed=1)


IN_SETUP = """
import gate_native, pytest

@pytest.fixture
def prepared(call_counter):
    calls = call_counter("gate_native:native")
    gate_native.run()
    return calls

profilers = []

@pytest.mark.cprofiling_limit(native_calls=2)
def test_setup(prepared, call_counter, node_profiler):
    profilers.append(node_profiler)
    gate_native.run()
    with call_counter("gate_native:native"):
        gate_native.run()
    assert prepared.native_calls == 3

def test_nothing_stays():
    assert not hasattr(gate_native.native, "__wrapped__")
    assert [profiler.profiling_enabled for profiler in profilers] == [False]
"""


def test_calls_of_the_setup_are_none_of_the_test_s(run: Run, pytester: pytest.Pytester) -> None:
    run("test_setup.py", "--cprofiling-json=now.json", test_setup=IN_SETUP).assert_outcomes(passed=2)
    [test] = json.loads((pytester.path / "now.json").read_text())["tests"].values()
    assert test["native_calls"] == {"gate_native:native": 2}


UNSURE = """
import pytest
from cprofiling.testing.gates.pairs import PairedComparison, PairedTimes

@pytest.mark.parametrize("verdict", ["unclear", "unknown", "not enough samples", "same", "slower"])
def test_unsure(node_profiler, verdict):
    interval, reason = ((90.0, 110.0), "") if verdict == "slower" else (None, "so it is")
    times = PairedTimes("", 20, 1.0, 2.0, 100.0, interval, verdict, reason)
    node_profiler.comparisons.append(PairedComparison(times, (), "mean", 5.0, 0.95, "cpu"))
"""


def test_what_is_slower_fails_and_what_is_not_sure_where_that_is_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run("test_unsure.py", test_unsure=UNSURE)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["cprofiling: (call): slower: mean 1.000 -> 2.000 ms (cpu), +100.0 % *"])
    result = run("test_unsure.py", "--cprofiling-strict")
    result.assert_outcomes(passed=1, failed=4)
    result.stdout.fnmatch_lines(["cprofiling: (call): not enough samples: so it is"])
    timed = "def test_timed(node_profiler):\n    node_profiler.pairs(len, name='work')\n"
    for count, verdict in ((20, "unknown: it takes less than"), (6, "not enough samples: 6 times, 20 are needed")):
        row = timed_row(0.01 if count == 20 else 1.0, count)
        monkeypatch.setattr(series, "measured", lambda *_, row=row: series.Series(False, {"": row}))
        file = ("test_timed.py", "--cprofiling-compare=base.json")
        run(*file, "--cprofiling-update", test_timed=timed)
        result = run(*file, "--cprofiling-fail=mean:5%")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines([f"test_timed.py::test_timed: times of work: {verdict}*"])
        result = run(*file, "--cprofiling-fail=mean:5%", "--cprofiling-strict")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f"cprofiling: times of work: {verdict}*"])


def test_the_more_times_there_are_the_more_samples_a_verdict_needs() -> None:
    """8 and 8 times that lie apart are slower among 12 times of all tests, and not among 13."""

    def series_of(time: float, rows: int) -> dict[str, Any]:
        named = {str(number): timed_row(time, 8) for number in range(rows)}
        return did(series={"work": series.Series(False, named).to_dict()})

    for rows, is_slower in ((12, True), (13, False)):
        old, new = series_of(1.0, rows), series_of(9.0, rows)
        assert verdicts.times_in([old]) == rows
        found = verdicts.judged(old, new, [Rule("mean", 5)], rows)
        assert (len(found.worse), len(found.notes)) == ((rows, 0) if is_slower else (0, rows))


# ---- baselines -----------------------------------------------------------------------------------


def test_a_baseline_is_made_compared_with_and_made_anew(run: Run, pytester: pytest.Pytester) -> None:
    file = ("--cprofiling-compare=base.json",)
    assert run(*file).ret == pytest.ExitCode.USAGE_ERROR
    run(*file, "--cprofiling-update").assert_outcomes(passed=3)
    known = json.loads((pytester.path / "base.json").read_text())
    assert list(known["tests"]) == ["test_it.py::test_fixtures", "test_it.py::test_limit"]
    assert known["tests"]["test_it.py::test_fixtures"]["native_calls"] == {
        "gate_native:native": 3,
        "gate_native:run": 1,
    }
    assert known["tests"]["test_it.py::test_fixtures"]["nodes"][0]["count"] == 1
    run(*file, "--cprofiling-json=now.json").assert_outcomes(passed=3)
    assert json.loads((pytester.path / "now.json").read_text())["tests"].keys() == known["tests"].keys()
    result = run(*file, depth=2)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "native_calls of gate_native:native: 1 -> 2",
            "cprofiling: native_calls of gate_native:native: 3 -> 5",
        ]
    )
    result = run(*file, depth=0)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        ["*native_calls of gate_native:native: 1 -> 0, which is less: --cprofiling-update keeps it so"]
    )
    run(*file, "--cprofiling-update", "-k", "limit", depth=0).assert_outcomes(passed=1, deselected=2)
    run(*file, depth=0).assert_outcomes(passed=3)
    assert run(*file, "test_it.py::test_limit").ret == pytest.ExitCode.TESTS_FAILED


def test_only_tests_that_pass_come_into_a_baseline(run: Run, pytester: pytest.Pytester) -> None:
    def tests_in(name: str) -> list[str]:
        return list(json.loads((pytester.path / name).read_text())["tests"])

    update = ("--cprofiling-compare=base.json", "--cprofiling-update")
    run(*update, "--cprofiling-json=now.json", depth=2)
    assert tests_in("base.json") == ["test_it.py::test_fixtures"]
    assert len(tests_in("now.json")) == 2
    fixture = "import pytest\n@pytest.fixture\ndef fails():\n    yield\n    assert 0\n"
    run(*update, "test_part.py", test_part=f"{fixture}def test_part(node_profiler, fails):\n    pass\n")
    assert tests_in("base.json") == ["test_it.py::test_fixtures"]
    failing = TESTS.replace("gate_native.run()\n\ndef test_fixtures", "assert 0\n\ndef test_fixtures")
    run("--cprofiling-json=now.json", "test_it.py", test_it=failing).assert_outcomes(passed=2, failed=1)
    assert tests_in("now.json") == ["test_it.py::test_fixtures"]


def test_an_update_leaves_out_what_is_gone_if_the_run_was_whole(run: Run, pytester: pytest.Pytester) -> None:
    def known() -> list[str]:
        return [name.rpartition("_")[2] for name in json.loads((pytester.path / "base.json").read_text())["tests"]]

    update = ("--cprofiling-compare=base.json", "--cprofiling-update")
    run(*update)
    gone = TESTS.replace("def test_limit", "def no_limit")
    failing = gone.replace("def test_unused():", "def test_unused():\n    assert 0\n")
    for arguments, file in ((["-k", "fixtures"], gone), ([], failing), (["--collect-only"], gone)):
        run(*update, *arguments, test_it=file)
        assert known() == ["fixtures", "limit"]
    run(*update, test_it=gone).assert_outcomes(passed=2)
    assert known() == ["fixtures"]
    run(update[0], test_it=gone).assert_outcomes(passed=2)


def test_an_update_on_another_machine_keeps_counts_and_no_times(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = timed_row(1.0)
    before = did(native_calls={"f": 1}, series={"s": series.Series(True, {"": row}).to_dict()})
    with monkeypatch.context() as patch:
        patch.setattr(baseline, "made_here", lambda: {"machine": "other"})
        baseline.save(str(pytester.path / "base.json"), {"test_other.py::test_other": before})
    run("test_it.py", "--cprofiling-compare=base.json", "--cprofiling-update").assert_outcomes(passed=3)
    after = baseline.load(str(pytester.path / "base.json"))
    assert after["made_with"] == baseline.made_here()
    assert after["tests"]["test_other.py::test_other"] == {**before, "series": {}}


@pytest.mark.slow
def test_tests_that_are_missing_or_new_fail_the_run(run: Run) -> None:
    file = "--cprofiling-compare=base.json"
    run(file, "--cprofiling-update")
    renamed = TESTS.replace("test_limit", "test_renamed")
    result = run(file, test_it=renamed)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*the test is not in *base.json*", "ERROR test_it.py::test_limit: it did not run*"])
    gone = TESTS.replace("def test_limit", "def no_limit")
    assert run(file, test_it=gone).ret == pytest.ExitCode.TESTS_FAILED
    for asked_otherwise in (["-k", "fixtures"], ["test_it.py::test_fixtures"], ["--lf", "-p", "cacheprovider"]):
        assert run(file, *asked_otherwise, test_it=gone).ret == 0
    assert run(file, "test_it.py", test_it=gone).ret == pytest.ExitCode.TESTS_FAILED
    unmarked = re.sub("@pytest.mark.cprofiling_limit.*", "", TESTS)
    result = run(file, test_it=unmarked)
    result.assert_outcomes(passed=3)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR test_it.py::test_limit: it did not run, or is not counted any more*"])
    for left_out in ("--ignore=test_it.py", "--ignore-glob=*_it.py", "--ignore=.", "--collect-only", "--setup-plan"):
        assert run(file, left_out, "test_other.py", ".", test_it=gone, test_other="def test_other(): pass").ret == 0
    result = run(file, "-x", test_it=gone.replace("call_counter):", "call_counter):\n    assert 0"))
    assert "it did not run" not in str(result.stdout)
    skipped = TESTS.replace("@pytest.mark.cprofiling_limit", "@pytest.mark.skip\n@pytest.mark.cprofiling_limit")
    run(file, "test_it.py", test_it=skipped).assert_outcomes(passed=2, skipped=1)
    assert run(file, "-x", "test_it.py", test_it="import nothing").ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.replace('"gate_native:native": 1', '"gate_native:native": 9', 1), "was edited"),
        (lambda text: text[:-20], "Expecting|Unterminated|Invalid"),
        (lambda text: text.replace('"cprofiling gate"', '"other"'), "no file of cprofiling's gates"),
        (lambda text: "[]", "no file of cprofiling's gates"),
        (lambda text: text.replace('"schema_version": 2', '"schema_version": 3'), "reads version 2, got 3"),
        (lambda text: text.replace('"schema_version": 2', '"schema_version": 1'), "reads version 2, got 1"),
    ],
)
def test_a_damaged_edited_or_foreign_baseline_is_an_error(
    run: Run, pytester: pytest.Pytester, damage: Callable[[str], str], message: str
) -> None:
    path = pytester.path / "base.json"
    run("--cprofiling-compare=base.json", "--cprofiling-update")
    path.write_text(damage(path.read_text()))
    result = run("--cprofiling-compare=base.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.re_match_lines([rf"ERROR: --cprofiling-compare: .*base.json: .*({message})"])
    result = run("--cprofiling-compare=base.json", "--cprofiling-update")
    assert result.ret == (0 if message in ("was edited", "reads version 2, got 1") else pytest.ExitCode.USAGE_ERROR)


def test_an_empty_baseline_and_one_of_another_machine_are_errors(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(pytester.path / "base.json")
    baseline.save(path, {})
    run("--cprofiling-compare=base.json").stderr.fnmatch_lines(["*there is no test in it"])
    run("--cprofiling-compare=base.json", "--cprofiling-update")
    with monkeypatch.context() as patch:
        patch.setattr(baseline, "made_here", lambda: {"machine": "other", "python": "CPython 3.99"})
        run("--cprofiling-compare=base.json").assert_outcomes(passed=3)
        result = run("--cprofiling-compare=base.json", "--cprofiling-fail=mean:5%")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*times cannot be compared, as it is of another machine or Python (*)*"])
    run("--cprofiling-compare=base.json", "--cprofiling-fail=mean:5%").assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cprofiling-update"], "need --cprofiling-compare"),
        (["--cprofiling-fail=mean:5%"], "need --cprofiling-compare"),
        (["--cprofiling-compare=a", "--cprofiling-fail=mean"], "METRIC:PERCENT%"),
        (["--cprofiling-compare="], "must not be empty"),
        (
            ["--cprofiling-compare=a", "--cprofiling-json=./a"],
            "--cprofiling-compare are both */a",
        ),
        (["--cprofiling-compare=."], "cannot read * Is a directory"),
    ],
)
def test_wrong_options(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}*"])


def test_a_file_that_cannot_be_written_fails_the_run(run: Run) -> None:
    result = run("--cprofiling-json=missing/now.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR cannot write *now.json: No such file or directory"])


def test_times_of_pairs_are_judged_where_that_is_asked(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = "def test_timed(node_profiler):\n    node_profiler.pairs(len, name='work')\n"

    def takes(time: float) -> None:
        row = timed_row(time)
        monkeypatch.setattr(series, "measured", lambda *_: series.Series(False, {"": row, "node": row}))

    file = ("test_timed.py", "--cprofiling-compare=base.json")
    takes(10.0)
    run(*file, "--cprofiling-update", test_timed=timed)
    result = run(*file, "--cprofiling-fail=mean:5%")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["test_timed.py::test_timed: times of work, node node: same: mean +0.0 % *"])
    takes(11.0)
    run(*file).assert_outcomes(passed=1)
    result = run(*file, "--cprofiling-fail=mean:5%", "--cprofiling-fail=p95:20%")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["cprofiling: times of work: slower: mean +10.0 % *"])


@pytest.mark.slow
def test_it_works_under_xdist(run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xdist")
    monkeypatch.setenv("PYTHONPATH", PYTHON)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those of other packages take seconds in each worker

    def distributed(*arguments: str) -> pytest.RunResult:
        command = ("-p", "xdist", "-p", "cprofiling_pytest", "-p", "no:cacheprovider", "-q", "-n", "2", *arguments)
        return pytester.runpytest_subprocess(*command)

    distributed("--cprofiling-compare=base.json", "--cprofiling-update", "--cprofiling-json=now.json")
    assert len(json.loads((pytester.path / "now.json").read_text())["tests"]) == 2
    pytester.makepyfile(gate_native=NATIVE.replace("depth = 1", "depth = 2"))
    result = distributed("--cprofiling-compare=base.json")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*native_calls of gate_native:native: 3 -> 5"])
    pytester.makepyfile(
        gate_native=NATIVE, test_it="import pytest\npytestmark = pytest.mark.xdist_group('g')\n" + TESTS
    )
    result = distributed("--cprofiling-compare=base.json", "--dist=loadgroup", "--deselect=test_it.py::test_limit")
    assert result.ret == 0
    result.assert_outcomes(passed=2)


# ---- judging -------------------------------------------------------------------------------------


def node(**changes: Any) -> dict[str, Any]:
    return {"node": "n", "stage": "train", "count": 2, "error_count": 0, "mean_ms": 1.0, "p95_ms": 1.0, **changes}


def test_more_is_worse_and_less_is_a_note() -> None:
    old = did(native_calls={"a": 1, "gone": 1}, operators={"aten::mm": 1}, launches=2, nodes=[node(), node(node="m")])
    new = did(
        native_calls={"a": 1, "b": 1}, operators=None, launches=3, nodes=[node(count=3, error_count=1), node(node="x")]
    )
    worse, notes = verdicts.judged(old, new, [])
    assert worse == [
        "native_calls of b: 0 -> 1",
        "operators cannot be judged: they were not counted, and are in the baseline",
        "launches: 2 -> 3",
        "count of node n (train): 2 -> 3",
        "error_count of node n (train): 0 -> 1",
        "node m (train): it did not run, and is in the baseline",
        "node x (train): it ran, and is not in the baseline",
    ]
    assert notes == ["native_calls of gone: 1 -> 0, which is less: --cprofiling-update keeps it so"]
    without = did(launches_reason="no CUDA in the process")
    assert verdicts.judged(did(launches=1), without, []) == ([], ["launches: 1 -> not known: no CUDA in the process"])
    assert verdicts.judged(did(launches=1), did(launches_reason="why"), []) == (["launches cannot be judged: why"], [])
    assert verdicts.judged(did(), did(operators={"aten::mm": 1}, launches=1), []) == ([], [])


def test_times_that_are_missing_are_no_pass() -> None:
    row = timed_row(1.0)
    told = series.Series(True, {"": row, "node": row}).to_dict()
    rules = [Rule("mean", 5)]
    missing = verdicts.judged(did(series={"work": told}), did(), rules)
    assert missing.worse == ["times of work: they were not measured, and are in the baseline"]
    less = {**told, "rows": {"": told["rows"][""]}}
    partly = verdicts.judged(did(series={"work": told}), did(series={"work": less}), rules)
    assert partly.worse == ["times of work, node node: they were not measured, and are in the baseline"]
    assert len(partly.notes) == 1


# ---- files ---------------------------------------------------------------------------------------


def saved(path: Path, change: Callable[[dict[str, Any]], object]) -> str:
    """Write a file that has something wrong in it, but the right digest."""
    value = {
        "kind": baseline.KIND,
        "schema_version": baseline.SCHEMA_VERSION,
        "made_with": {"machine": "m"},
        "tests": {"t": did(nodes=[node()])},
    }
    row = series.Row([1.0], None, None, [0], [1.0], [1])._asdict()
    value["tests"]["t"]["series"] = {"s": {"computes": True, "rows": {"": row}}}  # type: ignore[index]
    change(value)
    path.write_text(json.dumps({**value, "digest": baseline._digest(value)}))
    return str(path)


def set_at(*keys: Any) -> Callable[[dict[str, Any]], object]:
    *path, last, new = keys

    def change(value: dict[str, Any]) -> None:
        at: Any = value
        for key in path:
            at = at[key]
        at[last] = new

    return change


ROW = ("tests", "t", "series", "s", "rows", "")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (set_at("made_with", {"machine": 1}), r"\$\.made_with"),
        (set_at("tests", []), r"\$\.tests"),
        (set_at("tests", "t", "native_calls", {"a": -1}), r"\$\.tests\.t\.native_calls"),
        (set_at("tests", "t", "launches", 2**63), r"\$\.tests\.t\.launches"),
        (set_at("tests", "t", "nodes", 0, "count", True), r"\$\.tests\.t\.nodes\[0\]"),
        (set_at("tests", "t", "series", "s", 1), r"\$\.tests\.t\.series\.s"),
        (set_at(*ROW, "in_line_ms", [1.0, 2.0]), r"\$\.tests\.t\.series\.s"),
        (set_at(*ROW, "more", []), r"\$\.tests\.t\.series\.s"),
        (set_at(*ROW, "wall_ms", []), r"\$\.tests\.t\.series\.s"),
        (set_at(*ROW, "wall_ms", ["1"]), r"\$\.tests\.t\.series\.s"),
    ],
)
def test_files_that_make_no_sense_are_refused_at_their_place(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], place: str
) -> None:
    path = saved(tmp_path / "file.json", change)
    with pytest.raises(cp.FormatError, match=rf"file\.json: {place}.*(must be|must have|no such key)"):
        baseline.load(path)
    assert baseline.load(saved(tmp_path / "right.json", lambda value: None))["tests"]["t"]["nodes"][0]["count"] == 2


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    baseline.save(str(path), {"t": did()})
    data = path.read_bytes()
    assert baseline.load(str(path))["tests"] == {"t": did()}
    for length in range(len(data) - 2):
        path.write_bytes(data[:length])
        with pytest.raises(cp.FormatError):
            baseline.load(str(path))


# ---- the command compare -------------------------------------------------------------------------


def test_files_of_what_tests_did_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = str(tmp_path / "old.json"), str(tmp_path / "new.json")
    row = timed_row(1.0)
    timed = {"work": series.Series(True, {"": row}).to_dict()}
    baseline.save(old, {"a": did(native_calls={"f": 1}, series=timed), "gone": did()})
    baseline.save(new, {"a": did(native_calls={"f": 2}, series=timed), "added": did()})
    assert main.main(["compare", old, new]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a: WORSE: native_calls of f: 1 -> 2"
    assert lines[1].startswith("a: times of work: same: mean +0.0 %")
    assert lines[2:] == ["gone: WORSE: it did not run", "added: it is not in the baseline"]
    assert main.main(["compare", "--format", "json", old, new]) == 3
    assert json.loads(capsys.readouterr().out)["tests"]["gone"] == {"worse": ["it did not run"], "notes": []}
    assert main.main(["compare", "--format", "md", new, new]) == 0
    assert capsys.readouterr().out.startswith("- a: times of work: same")


def test_files_of_different_machines_are_compared_by_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = str(tmp_path / "old.json"), str(tmp_path / "new.json")
    row = timed_row(1.0)
    timed = did(series={"work": series.Series(True, {"": row}).to_dict()})
    baseline.save(old, {"a": timed})
    with monkeypatch.context() as patch:
        patch.setattr(baseline, "made_here", lambda: {"machine": "other"})
        baseline.save(new, {"a": timed})
    assert main.main(["compare", old, new]) == 0
    assert capsys.readouterr().out.startswith("1 tests: nothing has changed\nTimes are not compared")
    assert main.main(["compare", old, new, "--new", old]) == 1
    assert "one with one" in capsys.readouterr().err
