"""Calls told apart by their arguments: what it costs to look at none, at two arrays, and at a batch of some."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator
from typing import Any

from .candidates import cprofiling, new_function, own
from .harness import LOOP_ONLY, Workload

BARE_OF_TWO = "nothing: an empty function of two arguments"
NO_TENSOR = "cprofiling decorator, enabled by shape, two numbers"
NUMPY = "cprofiling decorator, enabled by shape, two arrays of numpy"
TORCH = "cprofiling decorator, enabled by shape, two tensors of PyTorch"
TORCH_BATCH = "cprofiling decorator, enabled by shape, a dict of two tensors of PyTorch"

SHAPES = ((8, 3, 224, 224), (8,))


@contextlib.contextmanager
def by_shape() -> Iterator[None]:
    """Have the default Profiler switched on, and calls told apart."""
    cprofiling().set_profiling(True, by_shape=True)
    try:
        yield
    finally:
        cprofiling().set_profiling(False)


def call_with(x: Any, y: Any) -> Workload:
    """A call of a decorated function of two arguments."""
    node = cprofiling().profile_node(new_function("def node(x, y): pass"))
    return Workload("f(x, y)", {"f": node, "x": x, "y": y}, by_shape)


def arrays(library: str) -> list[Any]:
    """Return two arrays of the library."""
    return [importlib.import_module(library).zeros(shape) for shape in SHAPES]


@own.add(BARE_OF_TWO, baseline=LOOP_ONLY)
def bare() -> Workload:
    """An empty function of two arguments, which all of these call."""
    return Workload("f(x, y)", {"f": new_function("def node(x, y): pass"), "x": 1, "y": 2})


@own.add(NO_TENSOR, baseline=BARE_OF_TWO)
def numbers() -> Workload:
    """Two arguments of a class that has neither shape nor dtype."""
    return call_with(1, 2)


for name, library in ((NUMPY, "numpy"), (TORCH, "torch")):
    own.add(name, baseline=BARE_OF_TWO)(functools.partial(lambda library: call_with(*arrays(library)), library))


@own.add(TORCH_BATCH, baseline=BARE_OF_TWO)
def batch() -> Workload:
    """A batch as a dict, beside a number."""
    return call_with(dict(zip("xy", arrays("torch"), strict=True)), 2)
