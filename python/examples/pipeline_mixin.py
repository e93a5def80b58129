"""Profile a pipeline class with the mixin, and nodes inside other nodes.

Classifies wines by their chemistry, and prints the time of each node. Needs scikit-learn.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

import cprofiling as cp

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]


class NearestNeighbours(cp.PipelineProfiling):
    """Labels each sample like most of its nearest neighbours."""

    def __init__(self, known: Floats, labels: Labels, neighbours: int = 7) -> None:
        self.mean, self.deviation = known.mean(axis=0), known.std(axis=0)
        self.known, self.labels = self.standardise(known), labels
        self.neighbours = neighbours

    def forward(self, samples: Floats) -> Labels:
        """Return the label of each sample; nodes inside count for the pipeline."""
        return self.vote(self.search(self.standardise(samples)))

    @cp.profile_node(name="standardise")
    def standardise(self, samples: Floats) -> Floats:
        scaled: Floats = (samples - self.mean) / self.deviation
        return scaled

    @cp.profile_node(name="search")
    def search(self, samples: Floats) -> Labels:
        with cp.profile_node("distances"):  # a block; its time is no self time of "search"
            squares = ((samples[:, None, :] - self.known) ** 2).sum(axis=2)
        nearest: Labels = np.argpartition(squares, self.neighbours)[:, : self.neighbours]
        return nearest

    @cp.profile_node(name="vote")
    def vote(self, nearest: Labels) -> Labels:
        return np.array([np.bincount(votes).argmax() for votes in self.labels[nearest]])


def main() -> None:
    """Classify unseen wines 200 times, and print accuracy and times."""
    samples, labels = load_wine(return_X_y=True)
    known, unseen, known_labels, unseen_labels = train_test_split(samples, labels, random_state=0)
    pipeline = NearestNeighbours(known, known_labels)
    pipeline.set_profiling(True, skip_first_n=1)  # the first calls warm up caches
    found = [pipeline.forward(unseen) for _ in range(200)]
    print(f"{(found[-1] == unseen_labels).sum()} of {len(unseen)} wines classified correctly\n")
    print(pipeline.format_profiling_summary(total_frames=len(found)), end="\n\n")
    for row in pipeline.get_profiling_summary():
        print(f"{row.node_name}: {row.total_ms:.2f} ms, of its own {row.self_total_ms:.2f} ms")


if __name__ == "__main__":
    main()
