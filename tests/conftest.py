"""What all tests need: the built package, and a default Profiler that no test finds as another left it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import cprofiling

# The folder cprofiling/ of a checkout holds the C core: imported in place of the package, it is an empty namespace.
assert cprofiling.__file__ is not None, "the package is not installed or built: see README.md, Developing"


@pytest.fixture(autouse=True)
def fresh_default_profiler() -> Iterator[None]:
    """Have the default Profiler off and empty before each test."""
    cprofiling.set_profiling(False, reset=True)
    yield
    cprofiling.set_profiling(False, reset=True)
