"""A CuvisPipeline of ten nodes that do next to nothing, with cuvis-ai-core's profiler and with ours in its place."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from .harness import SEED, collector_off
from .peers import module

NODES = 10
CALLS, WARM_UP_CALLS = 150, 60  # of a pipeline, some 30 µs each
PASSES_A_ROUND = 6

ITS_OWN = "a node of a CuvisPipeline: what its own profiler adds (ns)"
OURS = "a node of a CuvisPipeline: what cprofiling adds in its place (ns)"


def chain() -> Any:
    """Return a pipeline of ten nodes, each of which hands on what it is given."""
    specs = module("cuvis_ai_schemas.pipeline")
    enums = module("cuvis_ai_schemas.enums")
    spec = specs.PortSpec(dtype=int, shape=())
    members = {
        "INPUT_SPECS": {"x": spec},
        "OUTPUT_SPECS": {"x": spec},
        "_category": enums.NodeCategory.TRANSFORM,
        "_tags": frozenset({enums.NodeTag.TABULAR}),
        "forward": lambda self, x, **_: {"x": x},
    }
    kind = type("Same", (module("cuvis_ai_core.node.node").Node,), members)
    pipeline = module("cuvis_ai_core.pipeline.pipeline").CuvisPipeline("benchmark", strict_runtime_io_validation=False)
    nodes = [kind(name=f"node {number}") for number in range(NODES)]
    for left, right in itertools.pairwise(nodes):
        pipeline.connect(left.outputs.x, right.inputs.x)
    return pipeline


def pipelines() -> dict[str, Any]:
    """Return three equal pipelines: one that is off, and one for each of the two profilers."""
    made = {"off": chain(), ITS_OWN: chain(), OURS: chain()}
    made[ITS_OWN].set_profiling(True)
    with in_its_place():
        made[OURS].set_profiling(True)
    return made


@contextlib.contextmanager
def in_its_place() -> Iterator[None]:
    """Have pipelines profiled by cprofiling."""
    drop_in = importlib.import_module("cprofiling.integrations.cuvis")
    drop_in.install()
    try:
        yield
    finally:
        drop_in.uninstall()


def node_ns(pipeline: Any) -> float:
    """Return what a node takes, in ns of this thread's CPU time."""
    batch, forward = {"x": 1}, pipeline.forward
    for _ in range(WARM_UP_CALLS):
        forward(batch=batch)
    start = time.thread_time_ns()
    for _ in range(CALLS):
        forward(batch=batch)
    return (time.thread_time_ns() - start) / CALLS / NODES


def added_to_nodes(rounds: int) -> dict[str, float]:
    """Return what each of the two adds to a node: the median of differences within a pass over the three pipelines.

    They are small parts of what a node takes, which changes with the machine's speed: what is subtracted was measured
    a few ms before or after.
    """
    if sys.version_info < (3, 11):
        raise RuntimeError("needs CPython 3.11 or later")
    made = pipelines()
    added: dict[str, list[float]] = {ITS_OWN: [], OURS: []}
    order = random.Random(SEED)
    with collector_off():
        for _ in range(rounds * PASSES_A_ROUND):
            times: dict[str, float] = {}
            for name in order.sample(list(made), len(made)):
                with in_its_place() if name == OURS else contextlib.nullcontext():
                    times[name] = node_ns(made[name])
            for name, values in added.items():
                values.append(times[name] - times["off"])
    return {name: statistics.median(values) for name, values in added.items()}


MEASURES: dict[Callable[[int], dict[str, float]], tuple[str, ...]] = {added_to_nodes: (ITS_OWN, OURS)}
