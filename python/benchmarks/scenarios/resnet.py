"""A ResNet-18 on the CPU with every module a node.

The network is that of He et al., Deep Residual Learning for Image Recognition (2015), table 1.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import nn

import cprofiling as cp
from cprofiling.integrations.torch import profile_modules

from ..peers import torch_session
from .pairs import BARE, Variant


class Block(nn.Module):
    """Two convolutions of 3 x 3 and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """Make the layers; the way around has one where the shape changes."""
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        changes = stride != 1 or inputs != outputs
        around = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.around = nn.Sequential(*around) if changes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the convolutions find to the input."""
        found = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(found + self.around(x))  # type: ignore[no-any-return]


def resnet18() -> nn.Sequential:
    """Return the network with random weights, as a classifier of 1,000 kinds."""
    stem = [nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    blocks = [
        Block(inputs, outputs, stride)
        for inputs, outputs, first in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        for inputs, stride in [(inputs, first), (outputs, 1)]
    ]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)).eval()


def with_ranges(model: nn.Module) -> nn.Module:
    """Have each module in a range of torch.profiler, by hooks."""
    open_ranges: list[torch.profiler.record_function] = []

    def enter(module: nn.Module, _: object) -> None:
        open_ranges.append(torch.profiler.record_function(type(module).__name__))
        open_ranges[-1].__enter__()  # type: ignore[no-untyped-call]

    def leave(*_: object) -> None:
        open_ranges.pop().__exit__(None, None, None)

    for module in model.modules():
        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)
    return model


def with_lightning(model: nn.Module) -> nn.Module:
    """Have each module timed by Lightning's SimpleProfiler, by hooks."""
    profiler = importlib.import_module("pytorch_lightning.profilers").SimpleProfiler()
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: profiler.start(name))
        module.register_forward_hook(lambda *_, name=name: profiler.stop(name))
    return model


def with_hooks(model: nn.Module) -> nn.Module:
    """Have each module counted by our hooks."""
    profile_modules(model, names=[name for name, _ in model.named_modules()], profiler=enabled_profiler())
    return model


def with_methods(model: nn.Module) -> nn.Module:
    """Have each module counted by its method ``forward``."""
    profiler = enabled_profiler()
    for name, module in model.named_modules():
        profiler.instrument(module, "forward", name=name or "model")
    return model


def enabled_profiler() -> cp.Profiler:
    """Return a Profiler that is switched on."""
    profiler = cp.Profiler()
    profiler.set_profiling(True)
    return profiler


def variants() -> dict[str, Variant]:
    """Return the ways to run it; all have the very same weights, so that none finds more of them in caches."""
    torch.set_num_threads(1)
    image = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    weights = resnet18().state_dict()

    def forward(change: Callable[[nn.Module], nn.Module]) -> Variant:
        model = resnet18()
        model.load_state_dict(weights, assign=True)
        change(model)

        def work() -> None:
            with torch.no_grad():
                model(image)

        return Variant(work)

    return {
        BARE: forward(lambda model: model),
        "cprofiling": forward(with_methods),
        "cprofiling's profile_modules(), by hooks": forward(with_hooks),
        "torch.profiler": forward(with_ranges)._replace(session=torch_session),
        "Lightning's SimpleProfiler": forward(with_lightning),
    }
