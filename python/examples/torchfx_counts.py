"""Count the native calls of TorchFX, which are the same in each run.

Needs torchfx.

Filters that follow each other in a wave are one call of TorchFX's native code, however many they are; applied one by
one they are as many calls. ``cprofiling count --factory torchfx_counts:make_pipeline --native 'torchfx._ops:*'``, run
in this folder, prints a table of it.
"""

from collections.abc import Callable

import torch
from torchfx import Wave
from torchfx.filter import LoButterworth

import cprofiling as cp
from cprofiling.counting import count_calls, count_dispatches

RATE, DEPTHS = 44_100, (2, 5, 10, 20)


def make_pipeline(depth: int, fused: bool) -> Callable[[], torch.Tensor]:
    """Return a callable that filters noise, in one wave or one by one."""
    noise = torch.randn(1, RATE, dtype=torch.float64)
    filters = [LoButterworth(1000 + 100 * place, order=2, fs=RATE) for place in range(depth)]

    @cp.profile_node("in one wave")
    def together() -> torch.Tensor:
        wave = Wave(noise, RATE)
        for each in filters:
            wave |= each
        samples: torch.Tensor = wave.ys  # the plan runs here
        return samples

    @cp.profile_node("one by one")
    def one_by_one() -> torch.Tensor:
        samples = noise
        for each in filters:
            samples = each(samples)
        return samples

    return together if fused else one_by_one


def main() -> None:
    """Count the calls of each depth, by node."""
    cp.set_profiling(True)
    for depth in DEPTHS:
        pipelines = [make_pipeline(depth, fused) for fused in (True, False)]
        with count_calls("torchfx._ops:*_forward") as calls, count_dispatches() as dispatches:
            for pipeline in pipelines:
                pipeline()
        for node, functions in calls.by_node.items():
            operators = sum(dispatches.by_node[node].values())
            print(f"{depth} filters {node}: {sum(functions.values())} native calls, {operators} operators")


if __name__ == "__main__":
    main()
