"""Calls of the driver and of CUPTI that fail, one by one (failure scenarios H1, H2, H3)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cprofiling as cp
from calls import SWEPT, unwatched

TESTS = Path(__file__).parents[1]


def check(libraries: dict[str, str], share: float, library: str) -> None:
    assert cp.__file__ is not None
    paths = os.pathsep.join([str(Path(cp.__file__).parents[1]), str(TESTS), str(TESTS / "support")])
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "isolated.failing_devices", str(share), library],
        env=unwatched(PYTHONPATH=paths, **libraries),
        capture_output=True,
        text=True,
        check=False,
        cwd=TESTS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^[1-9]\d* calls failed, 0 wrong$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("library", ["driver", "cupti"])
def test_some_calls_fail(libraries: dict[str, str], library: str) -> None:
    check(libraries, 0.01, library)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["driver", "cupti"])
def test_each_call_may_fail(libraries: dict[str, str], library: str) -> None:
    check(libraries, SWEPT, library)
