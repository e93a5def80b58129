"""A CuvisPipeline of ten nodes that do next to nothing, with cuvis-ai-core's profiler and with ours in its place."""

from __future__ import annotations

import contextlib
import importlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from .candidates import own
from .harness import LOOP_ONLY, Workload
from .peers import module, peers

NODES = 10
SHARE = 0.1  # a call is ten nodes, and what the pipeline does around each: some 30 µs, of which ours is a small part

OFF = "CuvisPipeline of ten nodes, profiling off"
ITS_OWN = "CuvisPipeline of ten nodes, its own profiler"
OURS = "CuvisPipeline of ten nodes, cprofiling"


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


def forward(session: Callable[[Any], contextlib.AbstractContextManager[object]]) -> Workload:
    """Return a run of a pipeline in a session that is made for it."""
    pipeline = chain()
    return Workload("p.forward(batch=b)", {"p": pipeline, "b": {"x": 1}}, lambda: session(pipeline))


@contextlib.contextmanager
def profiled(pipeline: Any) -> Iterator[None]:
    """Count the nodes with the profiler that pipelines have now."""
    pipeline.set_profiling(True, reset=True)
    yield
    pipeline.set_profiling(False)


@contextlib.contextmanager
def profiled_by_cprofiling(pipeline: Any) -> Iterator[None]:
    """Count the nodes with ours."""
    drop_in = importlib.import_module("cprofiling.integrations.cuvis")
    drop_in.install()
    try:
        with profiled(pipeline):
            yield
    finally:
        drop_in.uninstall()


@peers.add(OFF, baseline=LOOP_ONLY, share=SHARE, minimum=(3, 11))
def off() -> Workload:
    """What the pipeline itself costs."""
    return forward(contextlib.nullcontext)


@peers.add(ITS_OWN, baseline=OFF, share=SHARE, minimum=(3, 11))
def its_own() -> Workload:
    """What its own profiler adds to ten nodes."""
    return forward(profiled)


@own.add(OURS, baseline=OFF, share=SHARE, minimum=(3, 11))
def ours() -> Workload:
    """What cprofiling adds to ten nodes."""
    return forward(profiled_by_cprofiling)
