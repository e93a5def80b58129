"""The capture window that the environment asks for, and NVTX, as the package sees them."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

import pytest

import cprofiling
from calls import IS_EMULATED, profiler_on, run_python
from cprofiling import _core
from cprofiling.devices import capture_window

pytestmark = [pytest.mark.native, pytest.mark.forks]

EXPECTED = "expected node:skip:count, both numbers whole, count from 1 to 9223372036854775807"
NO_CALL = "calls captured: there was no call of a node of that name"


def run(window: str | bytes, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run code with the variable set."""
    return run_python(code, *options, CPROFILING_CAPTURE=os.fsdecode(window))


@pytest.mark.parametrize(
    ("value", "window"),
    [
        ("node:0:1", ("node", 0, 1)),
        ("Model.forward:003:02", ("Model.forward", 3, 2)),
        (":0:1", ("", 0, 1)),
        ("a:b::5:6", ("a:b:", 5, 6)),
        ("a:1:2:3", ("a:1", 2, 3)),
        (f"\ud800 é\n:{2**63 - 1}:{2**63 - 1}", ("\ud800 é\n", 2**63 - 1, 2**63 - 1)),
    ],
)
def test_a_window_is_read_from_the_right(value: str, window: tuple[str, int, int]) -> None:
    assert capture_window.parsed(value) == window


@pytest.mark.parametrize(
    "value",
    ["", "node", "node:1", "node::", "node:0:0", "node:-1:1", "node:+1:1", "node:1:", "node: 1:1", "node:1_0:1",
     "node:1.0:1", "node:٣:1", "node:²:1", "node:0x1:1", f"node:0:{2**63}", f"node:{'9' * 5000}:1", "node:one:two"],
)  # fmt: skip
def test_what_is_no_window_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"^expected node:skip:count"):
        capture_window.parsed(value)


def test_a_name_that_no_node_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^name must be at most 4096 bytes of UTF-8"):
        capture_window.parsed(f"{'é' * 2049}:0:1")
    with pytest.raises(ValueError, match=r"^name must not contain NUL"):
        capture_window.parsed("a\0b:0:1")


def test_a_window_is_set_at_the_import() -> None:
    done = run("my:node:3:2", "from cprofiling import _core; print(_core.capture_report())")
    assert done.stdout == f"0 of 2 {NO_CALL}\n"
    assert done.stderr == f"cprofiling: CPROFILING_CAPTURE: 0 of 2 {NO_CALL}\n"
    assert done.returncode == 0


def test_bad_values_are_one_warning_and_nothing_else() -> None:  # G12
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    import cprofiling\n"
        "print(*[f'{w.category.__name__} {w.lineno} {w.message}' for w in caught], sep='\\n')\n"
        "print(cprofiling._core.capture_report())\n"
    )
    for value in (b"", b"node:1", b"a:0:1\xff", b"$(rm -rf /)", b"\x1b[31m:x:1", b"long " * 200_000):
        window = value[: 120 * 1024]  # what a system takes at most
        done = run(window, code)
        text = os.fsdecode(window)
        shown = ascii(text) if len(text) <= 80 else f"{text[:80]!a}..."
        assert done.stdout == (
            f"RuntimeWarning 4 CPROFILING_CAPTURE={shown} is not used, nothing is captured: {EXPECTED}\nNone\n"
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_program_with_warnings_as_errors_runs_on() -> None:  # G12
    done = run("node", "import cprofiling; print('on')", "-W", "error")
    message = f"cprofiling: CPROFILING_CAPTURE='node' is not used, nothing is captured: {EXPECTED}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "on\n", message)


def test_a_locked_up_interpreter_ignores_the_variable() -> None:  # G12
    folder = str(Path(cprofiling.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {folder!r}); from cprofiling import _core; print(_core.capture_report())"
    for window in ("node:0:1", "nonsense"):
        done = run(window, code, "-E")
        assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")


def test_without_the_variable_nothing_is_loaded() -> None:  # G11
    code = (
        "import sys, cprofiling\n"
        "print('cprofiling.devices.capture_window' in sys.modules, cprofiling._core.capture_report())"
    )
    assert run_python(code).stdout == "False None\n"


def test_a_forked_child_has_no_window_and_says_nothing() -> None:  # D1
    code = (
        "import os, sys\n"
        "from cprofiling import _core\n"
        "if os.fork() == 0:\n"
        "    print(_core.capture_report(), flush=True)\n"
        "    sys.exit()\n"
        "print(os.WEXITSTATUS(os.wait()[1]))\n"
    )
    done = run("node:0:1", code)
    assert done.stdout == "None\n0\n"
    assert done.stderr.count("there was no call") == 1


def test_a_window_that_got_its_calls_is_no_news() -> None:
    report = "2 of 2 calls captured after 1 that was passed by"
    code = (
        "from cprofiling import _core; import cprofiling.devices.capture_window\n"
        f"_core.capture_report = lambda: '{report}'"
    )
    done = run("node:0:2", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    told = run("node:0:2", f"{code.removesuffix(chr(39))}; cuProfilerStart answered 201'")
    assert told.stderr.endswith("passed by; cuProfilerStart answered 201\n")


def test_a_window_that_is_over_tells_which_calls_it_had() -> None:
    code = (
        "import cprofiling as cp\n"
        "from cprofiling import _core\n"
        "cp.set_profiling(True)\n"
        "node = cp.profile_node('node')(lambda: None)\n"
        "for _ in range(5):\n"
        "    node()\n"
        "print(_core.capture_report().partition(';')[0])\n"
    )
    assert run("node:1:2", code).stdout == "2 of 2 calls captured after 1 that was passed by\n"
    assert run("node:7:2", code).stdout == "0 of 2 calls captured after 5 of 7 that were to be passed by\n"


def test_commands_tell_nothing_of_a_window(tmp_path: Path) -> None:
    """Neither those that only look, nor one that becomes a tool, whose program is the one that tells."""
    for arguments in (["nsys", "--node", "a", "--", "app"], ["report", str(tmp_path / "none.json")]):
        code = f"import sys; from cprofiling.commands import main as cli; sys.exit(cli.main({arguments!r}))"
        assert "CPROFILING_CAPTURE: " not in run("node:0:1", code).stderr
    ours = (
        "import os; from cprofiling.commands import main as cli\n"
        "cli.leave_no_trace(); print(os.environ.get('CPROFILING_CAPTURE_OWNER'))"
    )
    assert run("node:0:1", ours).stdout == "None\n"
    assert run("nonsense", ours).stdout == "None\n"
    child = f"import cprofiling, subprocess, sys; subprocess.run([sys.executable, '-c', {ours!r}])"
    assert run("node:0:1", child).stdout != "None\n"


def test_other_processes_tell_only_of_calls_that_they_had() -> None:
    child = "from cprofiling import _core; print(_core.capture_report())"
    report = "0 of 1 calls captured after 1 that was passed by"
    telling = f"from cprofiling import _core; _core.capture_report = lambda: '{report}'"
    for window, code, told in (
        ("node:0:1", child, []),
        ("nonsense", child, []),
        ("node:1:1", telling, ["after 1 that was passed by"]),
    ):
        program = f"import subprocess, sys, cprofiling; subprocess.run([sys.executable, '-c', {code!r}])"
        lines = run(window, program).stderr.splitlines()
        ours = [line for line in lines if "CPROFILING_CAPTURE" in line]
        assert len(ours) == 1 + len(told)
        assert all(word in lines[0] for word in told)


def test_there_is_one_window_in_a_process() -> None:
    code = (
        "import warnings\n"
        "from cprofiling import _core; from cprofiling.devices import capture_window as capture\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    capture.start('two:0:2', 'OTHER')\n"
        "print(*[w.message for w in caught])\n"
    )
    done = run("one:0:1", code)
    assert done.stdout == "OTHER='two:0:2' is not used, nothing is captured: set_capture: there is one already\n"
    assert done.stderr == f"cprofiling: CPROFILING_CAPTURE: 0 of 1 {NO_CALL}\n"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((None, 0, 1), TypeError, "name must be a str"),
        (("a\0", 0, 1), ValueError, "name must not contain NUL"),
        (("a", -1, 1), ValueError, "skip must be >= 0, got -1"),
        (("a", 0, True), TypeError, "count must be an integer"),
        (("a", 0, 0), RuntimeError, "value out of range"),
        (("a", 0), TypeError, "takes"),
    ],
)
def test_the_core_checks_what_it_is_given(arguments: tuple[object, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message if message != "takes" else None):
        _core.set_capture(*arguments)  # type: ignore[arg-type]
    assert _core.capture_report() is None


def test_nvtx_says_why_there_are_no_ranges() -> None:
    is_heard, reason = _core.nvtx_status()
    assert is_heard is ("NVTX_INJECTION64_PATH" in os.environ and reason is None)
    assert reason == ("built without NVTX's headers" if _core.BUILT_WITH.endswith("without NVTX") else None)


def test_the_clock_tells_its_figures() -> None:
    tick_ps, read_ps = _core.clock_figures()
    assert 100 <= tick_ps <= (1_000_000 if IS_EMULATED else 100_000)  # the emulator's clock is in microseconds
    assert read_ps > 0
    name, reason = _core.clock()
    assert (name != "CLOCK_MONOTONIC") == (reason is None)


def test_the_clock_is_the_processors_counter() -> None:
    _core.clock_figures()  # this chooses the clock
    name, reason = _core.clock()
    assert name == {"x86_64": "TSC", "aarch64": "CNTVCT"}[platform.machine()] or (reason and "TSC" in reason)
    profiler = profiler_on()
    before = time.monotonic_ns()
    with profiler.profile_node("node"):
        start = time.monotonic_ns()
        time.sleep(0.02)
        end = time.monotonic_ns()
    after = time.monotonic_ns()
    [row] = profiler.get_profiling_summary()
    assert (end - start) * 0.999 < row.total_ms * 1e6 < (after - before) * 1.001
