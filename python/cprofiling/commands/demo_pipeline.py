"""Demo, a pipeline that learns scikit-learn's digits and profiles itself.

A frame is one batch of digits. Rounds of training and validation take four fifths of the frames; inference, on digits
never trained on, takes the last fifth.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

from cprofiling import ExecutionStage, PipelineProfiling, ProfilingSummary, profile_node, stage

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]

TRAIN, VAL, INFERENCE = ExecutionStage.TRAIN, ExecutionStage.VAL, ExecutionStage.INFERENCE
ROUNDS = 5
DIGITS = 10
WHITE = 16.0  # the largest value of a pixel in the data set
SIDE = 32  # pixels of an enlarged digit
CELL = 8  # pixels of the side of a cell, which has one histogram of gradients
BINS = 9  # directions of a histogram
MAX_TURN = 10.0  # degrees
MAX_SHIFT = 2.0  # pixels of an enlarged digit
BAR_WIDTH = 30  # characters


class Digits(NamedTuple):
    """Images of digits, as (number, height, width), with labels 0 to 9."""

    images: Floats
    labels: Labels


class DigitsPipeline(PipelineProfiling):
    """Reads handwritten digits by gradients and a linear classifier.

    It learns batch by batch from histograms of oriented gradients, as in N. Dalal and B. Triggs, "Histograms of
    Oriented Gradients for Human Detection", 2005, without their overlapping blocks.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, DIGITS])
        self.scaler = StandardScaler()
        self.classifier = SGDClassifier(loss="log_loss", alpha=1e-3, random_state=seed)

    def forward(self, source: Iterator[Digits], *, learns: bool) -> float:
        """Process the next batch and return the fraction read correctly, 0 to 1.

        learns: learn from the batch before reading it.
        """
        digits = self.load_batch(source)
        images = self.enlarge(self.normalise(digits.images))
        if learns:
            images = self.augment(images)
        features = self.standardise(self.describe(images), learns=learns)
        if learns:
            self.learn(features, digits.labels)
        return self.evaluate(self.decide(self.score(features)), digits.labels)

    @profile_node(name="load batch")
    def load_batch(self, source: Iterator[Digits]) -> Digits:
        """Take the next batch."""
        return next(source)

    @profile_node(name="normalise")
    def normalise(self, images: Floats) -> Floats:
        """Scale pixels to 0 to 1."""
        return images / WHITE

    @profile_node(name="enlarge")
    def enlarge(self, images: Floats) -> Floats:
        """Enlarge images by cubic splines, so that strokes have directions."""
        factor = SIDE / images.shape[1]
        enlarged: Floats = ndimage.zoom(images, (1, factor, factor), order=3)
        return enlarged

    @profile_node(name="augment")
    def augment(self, images: Floats) -> Floats:
        """Turn and shift each digit a little, at random."""
        turns = np.deg2rad(self.rng.uniform(-MAX_TURN, MAX_TURN, len(images)))
        shifts = self.rng.uniform(-MAX_SHIFT, MAX_SHIFT, (len(images), 2))
        return np.stack([turned(*values) for values in zip(images, turns, shifts, strict=True)])

    @profile_node(name="describe (gradients)")
    def describe(self, images: Floats) -> Floats:
        """Return each image's edge strengths by direction and cell."""
        rows, columns = np.gradient(images, axis=(1, 2))
        directions = (np.arctan2(rows, columns) % np.pi * (BINS / np.pi)).astype(np.intp) % BINS
        steps = np.arange(SIDE) // CELL
        cells = steps[:, None] * (SIDE // CELL) + steps
        count = (SIDE // CELL) ** 2
        places = (np.arange(len(images))[:, None, None] * count + cells) * BINS + directions
        sums = np.bincount(places.ravel(), np.hypot(rows, columns).ravel(), len(images) * count * BINS)
        histograms = sums.reshape(len(images), count, BINS)
        lengths = np.linalg.norm(histograms, axis=2, keepdims=True)
        features: Floats = (histograms / (lengths + 0.1)).reshape(len(images), -1)
        return features

    @profile_node(name="standardise")
    def standardise(self, features: Floats, *, learns: bool) -> Floats:
        """Scale each feature to mean 0 and variance 1 over the training batches."""
        if learns:
            self.scaler.partial_fit(features)
        scaled: Floats = self.scaler.transform(features)
        return scaled

    @profile_node(name="learn")
    def learn(self, features: Floats, labels: Labels) -> None:
        """Take one step of stochastic gradient descent for each digit."""
        self.classifier.partial_fit(features, labels, classes=np.arange(DIGITS))

    @profile_node(name="score")
    def score(self, features: Floats) -> Floats:
        """Return how well each digit fits each class."""
        scores: Floats = self.classifier.decision_function(features)
        return scores

    @profile_node(name="decide")
    def decide(self, scores: Floats) -> Labels:
        """Return the class that fits best."""
        decisions: Labels = scores.argmax(axis=1)
        return decisions

    @profile_node(name="evaluate")
    def evaluate(self, decisions: Labels, labels: Labels) -> float:
        """Return the fraction of right decisions."""
        return float((decisions == labels).mean())


def turned(image: Floats, turn: float, shift: Floats) -> Floats:
    """Return an image turned by ``turn`` radians and shifted by pixels."""
    sine, cosine = np.sin(turn), np.cos(turn)
    matrix = np.array([[cosine, -sine], [sine, cosine]])
    centre = (np.array(image.shape) - 1) / 2
    moved: Floats = ndimage.affine_transform(image, matrix, offset=centre - matrix @ centre + shift, order=1)
    return moved


def split_digits(rng: np.random.Generator) -> dict[ExecutionStage, Digits]:
    """Load the digits, three fifths for training, a fifth for each other use."""
    images, labels = load_digits().images, load_digits().target
    order = rng.permutation(len(labels))
    parts = np.split(order, [len(order) * 3 // 5, len(order) * 4 // 5])
    return {name: Digits(images[part], labels[part]) for name, part in zip((TRAIN, VAL, INFERENCE), parts, strict=True)}


def batches(digits: Digits, batch_size: int, rng: np.random.Generator) -> Iterator[Digits]:
    """Yield batches without end, each digit once before any repeats."""
    order = np.empty(0, dtype=np.intp)
    while True:
        while len(order) < batch_size:
            order = np.concatenate([order, rng.permutation(len(digits.labels))])
        taken, order = order[:batch_size], order[batch_size:]
        yield Digits(digits.images[taken], digits.labels[taken])


def schedule(frames: int) -> list[tuple[ExecutionStage, int]]:
    """Return the stages in order with their numbers of frames.

    frames: at least 25.
    """
    fifth = frames // 5
    parts = []
    for number in range(ROUNDS):
        for name, share in ((TRAIN, frames - 2 * fifth), (VAL, fifth)):
            parts.append((name, share * (number + 1) // ROUNDS - share * number // ROUNDS))
    return [*parts, (INFERENCE, fifth)]


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[str], None]]:
    """Give a function that counts a frame, with a label, in a line on stderr.

    The line is removed at the end. Nothing is shown unless stderr is a terminal.
    """
    line, done = "", 0

    def draw(text: str) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            print(f"\r{text}", end="", file=sys.stderr, flush=True)

    def advance(label: str) -> None:
        nonlocal line, done
        done += 1
        filled = BAR_WIDTH * done // total
        line = f"{label:<10}[{'#' * filled:<{BAR_WIDTH}}] {done}/{total} frames"
        draw(line)

    try:
        yield advance
    finally:
        draw(" " * len(line))
        draw("")


def run_demo(*, frames: int, batch_size: int, skip_first_n: int, seed: int) -> str:
    """Run the pipeline, and return the report.

    A terminal shows a progress bar.

    frames: batches in all stages, at least 25. batch_size: digits in a batch, at least 1. skip_first_n: first calls of
    each node to leave out. seed: of all randomness, 0 to 2^32-1.
    """
    rng = np.random.default_rng(seed)
    sources = {name: batches(digits, batch_size, rng) for name, digits in split_digits(rng).items()}
    pipeline = DigitsPipeline(seed)
    pipeline.set_profiling(True, skip_first_n=skip_first_n)
    accuracies: dict[ExecutionStage, list[float]] = {TRAIN: [], VAL: [], INFERENCE: []}
    with progress_bar(frames) as advance:
        for name, count in schedule(frames):
            accuracies[name].append(run_stage(pipeline, name, sources[name], count, advance))
    summary = pipeline.get_profiling_summary()
    table = pipeline.format_profiling_summary(total_frames=frames)
    return "\n".join([*accuracy_lines(accuracies), "", *cost_lines(summary), "", table])


def run_stage(
    pipeline: DigitsPipeline, name: ExecutionStage, source: Iterator[Digits], count: int, advance: Callable[[str], None]
) -> float:
    """Process ``count`` frames in one stage, and return the accuracy."""
    right = 0.0
    with stage(name):
        for _ in range(count):
            right += pipeline.forward(source, learns=name is TRAIN)
            advance(name.value)
    return right / count


def accuracy_lines(accuracies: dict[ExecutionStage, list[float]]) -> list[str]:
    """Return the accuracy of each round, and of inference."""
    lines = [f"{'Accuracy':<12}{'train':>8}{'val':>8}{'inference':>12}"]
    for number, pair in enumerate(zip(accuracies[TRAIN], accuracies[VAL], strict=True), start=1):
        lines.append(f"{f'round {number}':<12}{pair[0]:>8.4f}{pair[1]:>8.4f}")
    lines[-1] += f"{accuracies[INFERENCE][0]:>12.4f}"
    return lines


def cost_lines(summary: ProfilingSummary) -> list[str]:
    """Return the cost of profiling, and remarks on the figures."""
    lines = []
    calls = sum(row.count + row.skipped_count for row in summary)
    if summary.cost_ns is not None:
        cost = f"{calls} calls of {summary.cost_ns:.0f} ns each as measured here"
        lines.append(f"Cost of profiling: {cost}, {calls * summary.cost_ns / 1e6:.2f} ms in all")
    return [*lines, *(f"Note: {reason}" for reason in summary.reasons)]
