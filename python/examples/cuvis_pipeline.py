"""Profile a pipeline of cuvis-ai-core in training and prediction.

Ten nodes learn the handwritten digits, and read unseen ones. Needs cuvis-ai-core, pytorch-lightning,
torch and scikit-learn.
"""

import contextlib
import io
import logging
import tempfile
import warnings
from typing import Any, ClassVar

import torch
from loguru import logger
from sklearn.datasets import load_digits

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of these packages about each other
    import pytorch_lightning as lightning
    from cuvis_ai_core.node.node import Node
    from cuvis_ai_core.pipeline.pipeline import CuvisPipeline
    from cuvis_ai_core.training.config import TrainingConfig
    from cuvis_ai_core.training.predictor import Predictor
    from cuvis_ai_core.training.trainers import GradientTrainer
from cuvis_ai_schemas.enums import ExecutionStage, NodeCategory, NodeTag
from cuvis_ai_schemas.pipeline import PortSpec
from torch.utils.data import DataLoader, TensorDataset

from cprofiling.integrations import cuvis

BATCH = 100
SHOWN = 1200
NUMBERS = PortSpec(dtype=torch.float32, shape=(-1, -1))
DIGITS = PortSpec(dtype=torch.int64, shape=(-1,))
ONE_NUMBER = PortSpec(dtype=torch.float32, shape=())


class Step(Node):  # type: ignore[misc]
    """A node that turns numbers into numbers."""

    _category = NodeCategory.TRANSFORM
    _tags = frozenset({NodeTag.IMAGE})
    INPUT_SPECS: ClassVar[dict[str, PortSpec]] = {"pixels": NUMBERS}
    OUTPUT_SPECS: ClassVar[dict[str, PortSpec]] = {"pixels": NUMBERS}

    def __init__(self, module: torch.nn.Module, **options: Any) -> None:
        """Wrap a module of torch."""
        super().__init__(module=module, **options)
        self.module = module

    def forward(self, pixels: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        return {"pixels": self.module(pixels)}


class Loss(Step):
    """The loss of the scores, in training and validation only."""

    INPUT_SPECS: ClassVar[dict[str, PortSpec]] = {"pixels": NUMBERS, "digit": DIGITS}
    OUTPUT_SPECS: ClassVar[dict[str, PortSpec]] = {"loss": ONE_NUMBER}
    EXECUTION_STAGES = frozenset({ExecutionStage.TRAIN, ExecutionStage.VAL})

    def forward(self, pixels: torch.Tensor, **more: Any) -> dict[str, torch.Tensor]:
        return {"loss": self.module(pixels, more["digit"])}


class Reading(Step):
    """The digit with the highest score."""

    OUTPUT_SPECS: ClassVar[dict[str, PortSpec]] = {"read": DIGITS}

    def forward(self, pixels: torch.Tensor, **_: Any) -> dict[str, torch.Tensor]:
        return {"read": pixels.argmax(1)}


class Digits(lightning.LightningDataModule):  # type: ignore[misc]
    """The handwritten digits of scikit-learn."""

    def __init__(self) -> None:
        """Read them from the package's file."""
        super().__init__()
        images, labels = load_digits(return_X_y=True)
        self.all = TensorDataset(torch.tensor(images, dtype=torch.float32), torch.tensor(labels, dtype=torch.int64))

    def loader(self, begin: int, end: int) -> Any:
        """Return some of them, batch by batch."""
        pairs = (self.all[number] for number in range(begin, end))
        rows = [{"pixels": pixels, "digit": digit} for pixels, digit in pairs]
        return DataLoader(rows, batch_size=BATCH)  # type: ignore[arg-type]

    def train_dataloader(self) -> Any:
        return self.loader(0, SHOWN)

    def val_dataloader(self) -> Any:
        return self.loader(SHOWN, SHOWN + 200)

    def predict_dataloader(self) -> Any:
        return self.loader(SHOWN + 200, len(self.all))


def build() -> tuple[CuvisPipeline, Loss]:
    """Connect ten nodes."""
    layers = torch.nn.Sequential(
        torch.nn.BatchNorm1d(64),
        torch.nn.Linear(64, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 10),
    )
    steps = [Step(layer, name=type(layer).__name__) for layer in layers]
    loss, reading = Loss(torch.nn.CrossEntropyLoss()), Reading(torch.nn.Identity())
    pipeline = CuvisPipeline("digits")
    for left, right in zip(steps, [*steps[1:], loss], strict=True):
        pipeline.connect(left.outputs.pixels, right.inputs.pixels)
    pipeline.connect(steps[-1].outputs.pixels, reading.inputs.pixels)
    return pipeline, loss


def train(pipeline: CuvisPipeline, loss: Loss, data: Digits) -> None:
    """Train on the first digits, five epochs."""
    config = TrainingConfig(max_epochs=5, accelerator="cpu", enable_progress_bar=False, num_sanity_val_steps=0)
    config.optimizer.lr = 0.01
    unseen = contextlib.redirect_stdout(io.StringIO())  # the trainer prints a table where rich is installed
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), unseen:
        config.default_root_dir = folder
        warnings.simplefilter("ignore")  # about the number of workers, and the like
        GradientTrainer(pipeline, data, [loss], training_config=config).fit()


def main() -> None:
    """Train, read unseen digits, and print the times of the nodes."""
    logger.remove()
    for name in ("lightning", "lightning_fabric", "pytorch_lightning", "lightning.fabric", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the layers are small
    cuvis.install()
    data = Digits()
    pipeline, loss = build()
    pipeline.set_profiling(True, skip_first_n=1)
    train(pipeline, loss, data)
    outputs = Predictor(pipeline, data).predict(collect_outputs=True, collect_ports={"read"})
    if outputs is None:
        raise SystemExit("there are no outputs")
    read = torch.cat([batch["Reading", "read"] for batch in outputs])
    truth = data.all.tensors[1][SHOWN + 200 :]
    print(f"{(read == truth).float().mean():.1%} of {len(truth)} digits read correctly\n")
    for stage in (ExecutionStage.TRAIN, ExecutionStage.VAL, ExecutionStage.INFERENCE):
        print(pipeline.format_profiling_summary(stage), end="\n\n")
    profiler = cuvis.profiler_of(pipeline)
    if profiler is None:
        raise SystemExit("the pipeline is not profiled by cprofiling")
    slowest = max(profiler.get_profiling_summary("inference"), key=lambda stats: stats.total_ms)
    print(f"{slowest.node_name}: 99 % of batches in {slowest.p99_ms:.3f} ms, the first in {slowest.first_ms:.3f} ms")


if __name__ == "__main__":
    main()
