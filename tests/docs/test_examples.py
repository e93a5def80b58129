"""Each example runs without a warning, and prints the right counts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cprofiling
from example_runs import EXAMPLES, counts_in

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cprofiling.__file__).parents[1])}
WITH_TESTS = {
    "async_nodes.py",
    "cuvis_pipeline.py",
    "diffusers_components.py",  # in test_diffusers.py
    "insight.py",
    "instrument_foreign.py",
    "lightning_profiler.py",  # in test_lightning.py
    "pipeline_mixin.py",
    "recorded_inference.py",
    "recorded_training.py",
    "remote_control.py",
    "sklearn_pipeline.py",  # in test_sklearn_pipeline.py
    "threads_and_stages.py",
    "torch_modules.py",  # in test_torch_modules.py
    "torchfx_counts.py",  # in test_torchfx_counts.py
    "torchfx_plan.py",  # in test_torchfx.py
}


def output_of(name: str) -> str:
    """Run an example and return its output."""
    pytest.importorskip("sklearn")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == WITH_TESTS


def test_pipeline_mixin() -> None:
    output = output_of("pipeline_mixin.py")
    right = re.match(r"(\d+) of 45 wines classified correctly\n\nProfiling Summary \(200 frames", output)
    assert right is not None
    assert int(right[1]) >= 40
    nodes = ("standardise", "search", "distances", "vote")
    assert counts_in(output) == {("inference", node): 199 for node in nodes}
    times = {
        node: (float(total), float(own))
        for node, total, own in re.findall(r"^(\w+): ([\d.]+) ms, of its own ([\d.]+) ms$", output, re.MULTILINE)
    }
    assert set(times) == set(nodes)
    assert times["search"][0] - times["search"][1] == pytest.approx(times["distances"][0], abs=0.02)
    assert all(times[node][0] == times[node][1] for node in nodes if node != "search")


@pytest.mark.slow
def test_insight() -> None:
    output = output_of("insight.py")
    right = re.match(r"([\d.]+)% of 400 digits read correctly\n", output)
    assert right is not None
    assert float(right[1]) >= 90
    titles = re.findall(r"^(.+)\n┌", output, re.MULTILINE)
    faster = "What if a node were faster"
    assert titles == ["Warm-up", "Gaps between nodes", "Frames per second", faster, faster]
    for nodes in (
        ("standardise", "neighbours"),
        ("neighbours", "prototypes"),
        ("prototypes", "vote"),
        ("vote", "(end)"),
    ):
        assert re.search(rf"^│ {nodes[0]} +┆ {re.escape(nodes[1])} +┆", output, re.MULTILINE)
    assert len(re.findall(r"^│ \w+ +┆ inference ┆ 100 +┆ [a-z -]+ ┆ (?:\d+|-) +┆ [\d.]+ +┆", output, re.MULTILINE)) == 4
    skipped = re.search(
        r"^neighbours with skip_first_n=(\d+): [\d.]+ ms on average of (\d+) calls$", output, re.MULTILINE
    )
    assert skipped is not None
    assert int(skipped[1]) + int(skipped[2]) == 100


@pytest.mark.slow
def test_async_nodes() -> None:
    output = output_of("async_nodes.py")
    lines = re.findall(r"^(\S+): (\d+) numbers, sum -?[\d.]+$", output, re.MULTILINE)
    sizes = {name: int(count) for name, count in lines}
    assert sizes["iris.csv"] == 150 * 5 + 2
    assert sizes["digits.csv.gz"] == 1797 * 65
    assert counts_in(output) == {("inference", node): len(sizes) for node in ("table", "read", "unpack", "numbers")}
    times = re.findall(r"^(\w+): ([\d.]+) ms in (\d+) calls, ([\d.]+) ms running$", output, re.MULTILINE)
    assert {"read", "numbers"} <= {node for node, *_ in times}
    for _, total, count, active in times:
        assert int(count) == len(sizes)
        assert float(active) <= float(total) + 0.01


@pytest.mark.slow
def test_threads_and_stages() -> None:
    output = output_of("threads_and_stages.py")
    right = re.match(r"([\d.]+)% of 897 digits read correctly\n\nProfiling Summary \(30 frames\)\n", output)
    assert right is not None
    assert float(right[1]) > 80
    assert counts_in(output) == {("test", "project"): 30, ("test", "nearest"): 30}


@pytest.mark.slow
def test_instrument_foreign() -> None:
    output = output_of("instrument_foreign.py")
    right = re.match(r"([\d.]+)% of 143 tumours classified correctly\n\nProfiling Summary\n", output)
    assert right is not None
    assert float(right[1]) > 90
    found = counts_in(output)
    steps = ("standardscaler.transform", "pca.transform", "logisticregression.predict")
    assert {key: count for key, count in found.items() if key[0] == "inference"} == {
        ("inference", step): 100 for step in steps
    }
    assert {("train", f"{step}.fit_transform") for step in ("standardscaler", "pca")} <= set(found)
    assert found["train", "logisticregression.fit"] == 1


@pytest.mark.slow
def test_recorded_training() -> None:
    output = output_of("recorded_training.py")
    assert output.startswith("schedule(wait=2, warmup=1, active=3, repeat=2, skip_first=5)\n  steps 0 to 4: skipped\n")
    tables = output.split("# of Calls")[1:]
    assert len(tables) == 2
    for table in tables:
        rows = {line[:17].strip(): line.split()[-1] for line in table.splitlines() if line.endswith("3  ")}
        assert next(iter(rows)) == "learn"
        assert set(rows.values()) == {"3"}
        assert {"ProfilerStep*", "update"} <= set(rows)
    right = re.search(r"^([\d.]+)% of 1797 digits read correctly$", output, re.MULTILINE)
    assert right is not None
    assert float(right[1]) > 90
    assert len(re.findall(r"^a trace of 15 events: learn took [\d.]+ ms$", output, re.MULTILINE)) == 2


@pytest.mark.slow
def test_recorded_inference() -> None:
    pytest.importorskip("pandas")
    output = output_of("recorded_inference.py")
    right = re.match(r"([\d.]+)% of 201 digits read correctly\n", output)
    assert right is not None
    assert float(right[1]) > 90
    figures = {key.strip(): value for key, value in re.findall(r"^(.+?) *: (\d+)$", output, re.MULTILINE)}
    assert figures["Inference counts"] == "101"
    assert int(figures["Min latency (ns)"]) <= int(figures["Median latency (ns)"]) <= int(figures["Max latency (ns)"])
    assert "\n303 events; mean duration by name, in us:\n" in output
    assert re.search(r"the slowest search took \d+ us; its trace is [0-9a-f]{32}$", output.strip())


@pytest.mark.slow
def test_cuvis_pipeline() -> None:
    for package in ("torch", "cuvis_ai_core", "pytorch_lightning", "loguru"):
        pytest.importorskip(package)
    output = output_of("cuvis_pipeline.py")
    right = re.match(r"([\d.]+)% of 397 digits read correctly\n\n", output)
    assert right is not None
    assert float(right[1]) > 80
    steps = {
        f"{kind}{number}" for kind, number in (("Linear", ""), ("Linear", "-1"), ("Linear", "-2"), ("Linear", "-3"))
    }
    steps |= {"BatchNorm1d", "ReLU", "ReLU-1", "ReLU-2", "Reading"}
    tables = output.split("Profiling Summary (skip_first_n=1)\n")[1:]
    assert len(tables) == 3
    for table, stage, batches in zip(tables, ("train", "val", "inference"), (60, 10, 4), strict=True):
        nodes = steps if stage == "inference" else {*steps, "Loss"}
        assert counts_in(table) == {(stage, node): batches - 1 for node in nodes}
    assert re.search(r"^\S+: 99 % of batches in [\d.]+ ms, the first in [\d.]+ ms$", output, re.MULTILINE)


@pytest.mark.slow
def test_remote_control() -> None:
    for name in ("grpc", "grpc_health", "grpc_reflection"):
        pytest.importorskip(name)
    output = output_of("remote_control.py")
    assert output.startswith("before: off, 0 nodes\n")
    rows = {
        node: int(count) for node, count in re.findall(r"^(\w+): ([1-9]\d*) calls of [\d.]+ ms$", output, re.MULTILINE)
    }
    assert set(rows) == {"project", "nearest"}
    assert output.endswith("after: off\n")
