"""Counting TorchFX's native calls: as many as a profile function of Python's own counts, fused and unfused."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from cprofiling.commands import main
from cprofiling.counting import count_calls
from example_runs import EXAMPLES, output_of

pytest.importorskip("torch")
ops: Any = pytest.importorskip("torchfx._ops")

# PyTorch and what it uses warn of deprecations of their own.
pytestmark = pytest.mark.filterwarnings("default")

DEPTHS = (2, 5, 10, 20)


@pytest.fixture(autouse=True)
def in_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])


def counted_otherwise(pipeline: Any) -> Counter[str]:
    """Call a pipeline; count by the interpreter's own events, for which nothing is patched."""
    counts: Counter[str] = Counter()
    ops_file = ops.__file__

    def event(frame: FrameType, kind: str, argument: Any) -> None:
        if kind == "call" and frame.f_code.co_filename == ops_file and not frame.f_code.co_name.startswith("_"):
            counts["torchfx._ops"] += 1
        elif kind == "c_call" and getattr(argument, "__module__", None) == ops._ext.__name__:
            counts["native"] += 1

    sys.setprofile(event)
    try:
        pipeline()
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.parametrize("fused", [True, False])
def test_counts_are_those_of_the_interpreter(fused: bool) -> None:
    make_pipeline = importlib.import_module("torchfx_counts").make_pipeline
    for depth in DEPTHS:
        pipeline = make_pipeline(depth, fused)
        with count_calls("torchfx._ops:*") as python, count_calls(f"{ops._ext.__name__}:*") as native:
            pipeline()
        expected = 1 if fused else depth
        otherwise = counted_otherwise(pipeline)
        assert (python.native_calls, native.native_calls) == (expected, expected)
        assert otherwise == {"torchfx._ops": expected, "native": expected}


def test_the_command_shows_one_call_at_any_depth(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["count", "--json", "--factory", "torchfx_counts:make_pipeline", "--native", "torchfx._ops:*"]
    assert main.main(command) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["depth"], row["fused"], row["native_calls"]) for row in rows] == [
        (depth, fused, 1 if fused else depth) for depth in DEPTHS for fused in (True, False)
    ]
    operators = {(row["depth"], row["fused"]): row["operators"] for row in rows}
    assert operators[20, False] == 10 * operators[2, False]
    assert operators[20, True] < 3 * DEPTHS[-1]


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output_of("torchfx_counts.py", capsys).splitlines()
    expected = [
        f"{depth} filters {how}: {calls} native calls"
        for depth in DEPTHS
        for how, calls in (("in one wave", 1), ("one by one", depth))
    ]
    assert [line.partition(",")[0] for line in lines] == expected
    assert Path("torchfx_counts.py").exists()  # where the text of the example says that the command is run
