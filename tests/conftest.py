"""What tests need: the built package, a default Profiler that none finds as another left it, and one of their own."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import cprofiling
from calls import profiler_on
from fakes import build

# The folder cprofiling/ of a checkout holds the C core: imported in place of the package, it is an empty namespace.
assert cprofiling.__file__ is not None, "the package is not installed or built: see README.md, Developing"

# A shell that runs the tests in the background has interrupts ignored, in the processes that they start, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

running: list[pytest.Item] = []


def check_fork() -> None:
    """Fail a test that forks without its mark: under the sanitizers its child may wait for ever."""
    for item in running:
        if item.get_closest_marker("native") and not item.get_closest_marker("forks"):
            raise AssertionError(f"{item.nodeid} forks: mark it with pytest.mark.forks")


if hasattr(os, "fork"):
    os.register_at_fork(before=check_fork)


def pytest_configure(config: pytest.Config) -> None:
    """Ignore what is warned of without need from some CPython on."""
    if sys.version_info >= (3, 14):  # which borrows references, and hypothesis counts them
        config.addinivalue_line("filterwarnings", "ignore:It looks like .register_random. was passed")
    if sys.version_info >= (3, 15):  # which counts the threads of numpy and others before they end for a fork
        config.addinivalue_line("filterwarnings", "ignore:This process .* is multi-threaded:DeprecationWarning")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember the test that runs."""
    running[:] = [item]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say each reason to skip tests once: a line for each package that is missing."""
    reasons = Counter(reason_of(report) for report in terminalreporter.getreports("skipped"))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"SKIPPED [{count}] {reason}")


def reason_of(report: pytest.TestReport) -> str:
    """Return why a test was skipped, in the same words for all tests that a package is missing for."""
    assert isinstance(report.longrepr, tuple)
    reason = report.longrepr[2].removeprefix("Skipped: ")
    return re.sub(r"^could not import '(\w+).*", r"\1 is not installed", reason)


@pytest.fixture(autouse=True, scope="session")
def nothing_stays_frozen() -> Iterator[None]:
    """Show the collector everything again at the end: Hypothesis looks there for who refers to a generator of trio."""
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def quick_collections(nothing_stays_frozen: None) -> None:
    """Have the garbage collector look at nothing that is older than a file of tests: many of them collect in a loop."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fresh_default_profiler() -> Iterator[None]:
    """Have the default Profiler off and empty before each test."""
    cprofiling.set_profiling(False, reset=True)
    yield
    cprofiling.set_profiling(False, reset=True)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """PyTorch works in one thread: several that have as little to do as in tests wait for each other."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which a driver of CUDA and a CUPTI are found that are fakes."""
    return build.fake_cuda_and_cupti(tmp_path_factory.mktemp("fakes"))


@pytest.fixture
def p() -> Iterator[cprofiling.Profiler]:
    """A Profiler of the test's own, on; nothing may be left open or go wrong inside."""
    profiler = profiler_on()
    yield profiler
    profiler.set_profiling(True, reset=True)
    profiler.profile_node("after all")(int.__add__)(1, 2)
    summary = profiler.get_profiling_summary()
    assert summary.internal_errors == 0
    assert summary[-1].self_total_ms == summary[-1].total_ms


@pytest.fixture
def fresh_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No stage was used, nothing is set, and files go to a folder of the test's own."""
    from cprofiling import layers
    from cprofiling._internal import environment
    from cprofiling.layers import output_folder

    monkeypatch.chdir(tmp_path)
    for variable in (environment.PIPELINE, environment.OUTPUT_DIR, environment.TIMING_REPORT, environment.NAMES):
        monkeypatch.delenv(variable, raising=False)
    output_folder.forget()
    layers.reset_timing_registry("test")
    yield
    layers.enable_profiler_for_names("")
    layers.reset_timing_registry()
    output_folder.forget()
