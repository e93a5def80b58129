"""Recordings with stacks in which only this package could import something: prints what was, as JSON.

Run by test_operators.py, as what is imported once is not imported again.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from types import SimpleNamespace
from typing import Any

import torch

import cprofiling as cp
from cprofiling.recording.torch_operators import collect

imported: list[str] = []
runs: list[bool] = []  # begun and not ended


def note(event: str, arguments: Any) -> None:
    """Note an import amid a run of PyTorch's profiler, with the line of this package that asked for it."""
    if event == "import" and runs:
        frames = [frame for frame in traceback.extract_stack() if "cprofiling" in frame.filename]
        imported.append(f"{arguments[0]} by {frames[-1].filename}:{frames[-1].lineno}" if frames else arguments[0])


def watch(run: Any) -> None:
    """Have it noted when a run begins and ends."""
    start, end = run.start, run.end

    def started(self: Any) -> None:
        start(self)
        runs.append(True)

    def ended(self: Any) -> None:
        runs.clear()
        end(self)

    run.start, run.end = started, ended


@cp.profile_node("node")
def node(x: Any) -> Any:
    return torch.neg(x)


@cp.profile_node("generator")
def generator(x: Any) -> Any:
    yield node(x)


def work() -> None:
    """Do what programs do: nodes, labels, threads, stages."""
    x = torch.ones(3)
    with cp.record("label"), cp.stage("train"):
        list(generator(x))
    thread = threading.Thread(target=node, args=(x,))
    thread.start()
    thread.join()


def by_layers() -> None:
    """Record stages as the environment says."""
    from cprofiling.layers import ProfilingContext

    with ProfilingContext("stage", capture_memory=True):
        work()


def by_harness() -> None:
    """Record a stage alone."""
    from cprofiling.harness import HarnessConfig, StageBenchHarness

    tensor = {"shape": [2], "dtype": "float32", "device": "cpu"}
    signature = {"stage_name": "alone", "input_signatures": {"x": tensor}}
    config = HarnessConfig(output_dir=sys.argv[1])
    StageBenchHarness("alone", signature, SimpleNamespace(process=node), config).profile()


def by_hand() -> None:
    """Record with a pause."""
    cp.set_profiling(True, synchronize_cuda=True)
    with cp.profile(with_stack=True, record_shapes=True, profile_memory=True) as prof:
        work()
        prof.pause()
        prof.resume()
        work()


def by_schedule() -> None:
    """Record by a schedule."""
    schedule = cp.schedule(wait=1, warmup=1, active=1)
    with cp.profile(with_stack=True, schedule=schedule) as prof:
        for _ in range(4):
            work()
            prof.step()


WAYS = {way.__name__: way for way in (by_layers, by_harness, by_hand, by_schedule)}

if __name__ == "__main__":
    os.environ["CPROFILING_OUTPUT_DIR"] = sys.argv[1]
    sys.addaudithook(note)
    watch(collect._Run)
    WAYS[sys.argv[2]]()
    print(json.dumps(imported))
