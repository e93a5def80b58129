"""A torch DataLoader with four worker processes that cut, turn and scale images."""

from __future__ import annotations

import cProfile
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import cprofiling as cp

from .pairs import BARE, Variant

WORKERS, SAMPLES, BATCH, SIDE = 4, 1024, 32, 64


def read(number: int) -> torch.Tensor:
    """Make an image as if it were read."""
    return torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(number))


def cut(image: torch.Tensor) -> torch.Tensor:
    """Keep the middle."""
    return image[:, 16:-16, 16:-16]


def turn(image: torch.Tensor) -> torch.Tensor:
    """Mirror it."""
    return image.flip(2)


def scale(image: torch.Tensor) -> torch.Tensor:
    """Bring it to mean 0 and deviation 1."""
    return (image - image.mean()) / image.std()


class Images(Dataset[torch.Tensor]):
    """Images that pass four functions."""

    def __init__(self, steps: list[Any]) -> None:
        """Keep the functions."""
        self.steps = steps

    def __len__(self) -> int:
        """Return how many there are."""
        return SAMPLES

    def __getitem__(self, number: int) -> torch.Tensor:
        """Pass one image through all."""
        image = self.steps[0](number)
        for step in self.steps[1:]:
            image = step(image)
        return image  # type: ignore[no-any-return]


def profile_worker(_: int) -> None:
    """Have cProfile look at a worker, as its users do."""
    cProfile.Profile().enable()


def variants() -> dict[str, Variant]:
    """Return the ways to run it."""
    torch.set_num_threads(1)
    steps = [read, cut, turn, scale]
    profiler = cp.Profiler()
    profiler.set_profiling(True)
    nodes = [profiler.profile_node(step.__name__)(step) for step in steps]

    def load(functions: list[Any], **options: Any) -> Variant:
        batches = DataLoader(Images(functions), BATCH, num_workers=WORKERS, persistent_workers=True, **options)
        return Variant(lambda: sum(len(batch) for batch in batches))

    return {
        BARE: load(steps),
        "cprofiling": load(nodes),
        "cProfile in each worker": load(steps, worker_init_fn=profile_worker),
    }
