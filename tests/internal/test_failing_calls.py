"""Calls of the system that fail in whatever has files or sockets (failure scenarios D6, D7, D18)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cprofiling as cp
from calls import SWEPT, unwatched
from fakes import build

TESTS = Path(__file__).parents[1]
# The share of cases that takes a second.
CASES = {"save": 0.02, "replace": 0.02, "read": 0.03, "stages": 0.05, "live": 0.02, "serve": 0.3}
SLOW = ["recorded", "kept", "scrape", "control"]
NEEDED = {"save": "jinja2", "replace": "jinja2", "serve": "grpc", "control": "grpc", "scrape": "prometheus_client"}


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is to be preloaded so that calls fail, after what is already."""
    path = tmp_path_factory.mktemp("fakes") / "failing_calls.so"
    library = build.library(path, build.FAKES / "failing_calls.c")
    return " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(library)]))


def check(preloaded: str, share: float, kind: str) -> None:
    if kind in NEEDED:
        pytest.importorskip(NEEDED[kind])
    assert cp.__file__ is not None
    paths = os.pathsep.join([str(Path(cp.__file__).parents[1]), str(TESTS), str(TESTS / "support")])
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "isolated.failing_calls", str(share), kind],
        env=unwatched(LD_PRELOAD=preloaded, PYTHONPATH=paths),
        capture_output=True,
        text=True,
        errors="replace",  # of gRPC's
        check=False,
    )
    found = re.search(r"^(\d+) calls failed, 0 wrong$", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found
    assert int(found[1]) > 0


@pytest.mark.parametrize("kind", CASES)
def test_some_calls_fail(preloaded: str, kind: str) -> None:
    check(preloaded, CASES[kind], kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*CASES, *SLOW])
def test_each_call_may_fail(preloaded: str, kind: str) -> None:
    check(preloaded, SWEPT, kind)
