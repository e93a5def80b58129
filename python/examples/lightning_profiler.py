"""Profile the actions of PyTorch Lightning's Trainer, stage by stage.

Teaches a network the handwritten digits. Needs pytorch-lightning and scikit-learn.
"""

import logging

import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import cprofiling as cp
from cprofiling.integrations.lightning import Profiler

SHOWN = ("run_training_batch", "[LightningModule]Reader.optimizer_step", "read")


class Reader(pl.LightningModule):  # type: ignore[misc]
    """Reads digits by two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    @cp.profile_node("read")  # counts in the Profiler and stage of the action
    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return a score for each digit."""
        return self.layers(pixels)  # type: ignore[no-any-return]

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """Return the loss."""
        pixels, digits = batch
        return torch.nn.functional.cross_entropy(self(pixels), digits)

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        """Log the accuracy."""
        pixels, digits = batch
        self.log("right", (self(pixels).argmax(1) == digits).float().mean())

    test_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    """Train, validate and test, and print the times of the network."""
    for name in ("pytorch_lightning", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    pl.seed_everything(0)
    torch.set_num_threads(1)  # more threads slow such small batches down
    pixels, digits = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(digits))
    train, val, test = torch.utils.data.random_split(data, [1200, 300, 297])
    profiler = Profiler(skip_first_n=1)
    trainer = pl.Trainer(
        profiler=profiler, max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    model = Reader()
    trainer.fit(model, DataLoader(train, batch_size=100, shuffle=True), DataLoader(val, batch_size=100))
    (result,) = trainer.test(model, DataLoader(test, batch_size=100), verbose=False)
    print(f"{result['right']:.1%} of {len(test)} digits read correctly\n")
    nodes = profiler.profiler.get_profiling_summary()
    print(cp.format_profiling_table([node for node in nodes if node.node_name in SHOWN], skip_first_n=1))


if __name__ == "__main__":
    main()
