"""The plugin of pytest: gates for counts and times of pipelines, off unless a test or an option uses them.

It is no part of the package, so that it can be there in every run of pytest without the package being loaded. The rest
is in ``cprofiling.gates``. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

    from cprofiling.testing.gates.fixtures import CallCounter, NodeProfiler

MARKER = "cprofiling_limit"
FIXTURES = ("node_profiler", "call_counter")
_MARKER_HELP = (
    f"{MARKER}(native_calls=, launches=, operators=, p95_ms=, native=): the most that the call of the test may do; "
    "native names what counts as a native call: 'module:function', with wildcards if need be, or a list"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and ``cprofiling_native`` for the file of settings."""
    group = parser.getgroup("cprofiling", "gates for counts and times of pipelines (cprofiling)")
    group.addoption(
        "--cprofiling-json", metavar="FILE", help="write what tests with cprofiling's marker or fixtures did"
    )
    group.addoption("--cprofiling-compare", metavar="FILE", help="fail where a test does more than in that file")
    group.addoption(
        "--cprofiling-fail",
        metavar="METRIC:PCT%",
        action="append",
        default=[],
        help="with --cprofiling-compare, fail also where times that were measured by pairs grow by more: mean:5%%, "
        "median:5%%, p95:10%%. May be given several times",
    )
    group.addoption(
        "--cprofiling-update", action="store_true", help="write what tests did into the file of --cprofiling-compare"
    )
    group.addoption(
        "--cprofiling-strict",
        action="store_true",
        help="fail also where times are unclear, unknown or of not enough samples",
    )
    parser.addini(
        "cprofiling_native",
        "what counts as a native call in all tests with the marker or a fixture",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; begin, if there is an option."""
    config.addinivalue_line("markers", _MARKER_HELP)
    options = ("cprofiling_json", "cprofiling_compare", "cprofiling_fail", "cprofiling_update", "cprofiling_strict")
    if any(config.getoption(option) not in (None, False, []) for option in options):  # an empty path is wrong
        from cprofiling.testing.gates.plugin import Gate

        config.pluginmanager.register(Gate(config), "cprofiling-gate")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Count what a test does that uses the marker or a fixture, and fail it where that is too much."""
    if MARKER not in item.keywords and not any(name in FIXTURES for name in getattr(item, "fixturenames", ())):
        yield
        return
    from cprofiling.testing.gates.test_call import Phase

    phase = Phase(item)
    with phase:
        outcome = yield
    phase.judge(outcome)


@pytest.fixture
def node_profiler() -> Iterator[NodeProfiler]:
    """A Profiler for the nodes that run in the call of the test; see cprofiling.testing.gates.fixtures.NodeProfiler."""
    from cprofiling.testing.gates.fixtures import NodeProfiler

    profiler = NodeProfiler()
    profiler.set_profiling(True)
    with profiler:
        yield profiler
    profiler.set_profiling(False)


@pytest.fixture
def call_counter() -> Iterator[CallCounter]:
    """Begins to count calls, up to the end of the test: ``call_counter("mypkg.native:*")``; see ``count_calls``."""
    from cprofiling.testing.gates.fixtures import CallCounter

    counter = CallCounter()
    yield counter
    counter.close()
