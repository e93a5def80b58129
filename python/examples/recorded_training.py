"""Record some steps of a training by a schedule.

Teaches a linear classifier the handwritten digits, batch by batch. Needs scikit-learn. Give it a folder to keep the
traces in: ``python recorded_training.py FOLDER``; Perfetto, chrome://tracing and TensorBoard show them.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import cprofiling as cp

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]

BATCH = 32


@cp.profile_node("load batch")
def load_batch(images: Floats, labels: Labels, number: int) -> tuple[Floats, Labels]:
    """Return a shuffled batch."""
    rows = np.arange(number, len(images), len(images) // BATCH)
    return images[rows], labels[rows]


@cp.profile_node("standardise")
def standardise(images: Floats, mean: Floats, spread: Floats) -> Floats:
    """Return pixels with mean 0 and spread 1."""
    scaled: Floats = (images - mean) / spread
    return scaled


@cp.profile_node("learn")
def learn(model: SGDClassifier, images: Floats, labels: Labels) -> None:
    """Take one step down the gradient."""
    model.partial_fit(images, labels, classes=np.arange(10))


def batches(images: Floats, labels: Labels) -> Iterator[tuple[Floats, Labels]]:
    """Yield all batches."""
    for number in range(len(images) // BATCH):
        yield load_batch(images, labels, number)


def main(folder: Path) -> None:
    """Train, record two cycles of three steps, and print their tables."""
    images, labels = load_digits(return_X_y=True)
    mean, spread = images.mean(axis=0), images.std(axis=0) + 1.0
    model = SGDClassifier(random_state=0)
    schedule = cp.schedule(skip_first=5, wait=2, warmup=1, active=3, repeat=2)
    print(schedule)
    to_tensorboard = cp.tensorboard_trace_handler(folder, worker_name="trainer")

    def cycle_is_ready(prof: cp.profile) -> None:
        print(prof.key_averages().table(sort_by="self_cpu_time_total"))
        to_tensorboard(prof)

    with (
        cp.stage("train"),
        cp.profile(schedule=schedule, on_trace_ready=cycle_is_ready, record_shapes=True, operators=False) as prof,
    ):
        for batch, truth in batches(images, labels):
            scaled = standardise(batch, mean, spread)
            with cp.record("update"):
                learn(model, scaled, truth)
            prof.step()
    right = (model.predict((images - mean) / spread) == labels).mean()
    print(f"{right:.1%} of {len(labels)} digits read correctly")
    for path in sorted(folder.glob("*.json")):
        recording = cp.load_trace(path)
        learned = [event for event in recording.events() if event.name == "learn"]
        print(f"a trace of {len(recording)} events: learn took {sum(event.dur for event in learned) / 1e6:.2f} ms")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as name:
            main(Path(name))
