"""Find the warm-up, the gaps, and the gain of a faster node.

Reads handwritten digits in a pipeline with two branches: neighbours, which are sorted at first use, and prototypes.
Needs scikit-learn.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.neighbors import KDTree

import cprofiling as cp

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]

EDGES = [("standardise", "neighbours"), ("standardise", "prototypes"), ("neighbours", "vote"), ("prototypes", "vote")]
BATCH = 4  # images of a frame


class Reader(cp.PipelineProfiling):
    """Reads digits by their neighbours, and by the mean image of each."""

    def __init__(self, images: Floats, labels: Labels) -> None:
        self.images, self.labels = images, labels
        self.tree: KDTree | None = None
        self.means = np.array([images[labels == digit].mean(axis=0) for digit in range(10)])
        self.profiler.set_graph(EDGES)  # the edges between nodes

    def forward(self, images: Floats) -> Labels:
        """Return the digit of each image."""
        standard = self.standardise(images)
        return self.vote(self.neighbours(standard), self.prototypes(standard))

    @cp.profile_node("standardise")
    def standardise(self, images: Floats) -> Floats:
        scaled: Floats = images * (16 / images.max())
        return scaled

    @cp.profile_node("neighbours")
    def neighbours(self, images: Floats) -> Labels:
        if self.tree is None:  # the first call is cold
            self.tree = KDTree(self.images)
        found: Labels = self.labels[self.tree.query(images, k=5, return_distance=False)]
        return found

    @cp.profile_node("prototypes")
    def prototypes(self, images: Floats) -> Labels:
        nearest: Labels = ((images[:, None] - self.means) ** 2).sum(axis=2).argmin(axis=1)
        return nearest

    @cp.profile_node("vote")
    def vote(self, near: Labels, alike: Labels) -> Labels:
        return np.array([np.bincount([*digits, digit]).argmax() for digits, digit in zip(near, alike, strict=True)])


def main() -> None:
    """Read unseen digits, and print insights of the recording."""
    images, labels = load_digits(return_X_y=True)
    reader = Reader(images[:1000], labels[:1000])
    reader.set_profiling(True)
    batches = images[1000:1400].reshape(-1, BATCH, images.shape[1])
    with cp.profile(operators=False) as prof:
        found = []
        for batch in batches:
            with cp.record("frame"):  # forward is no node: the label marks a frame
                found.append(reader.forward(batch))
    print(
        f"{np.mean(np.concatenate(found) == labels[1000:1400]):.1%} of {labels[1000:1400].size} digits read correctly\n"
    )

    warm_up = prof.warm_up()
    print(warm_up)
    cold = warm_up.skip_first_n or 0
    print(f"\n{prof.gaps(skip_first_n=cold)}")
    print(f"\n{prof.frames_per_second((len(found) - cold) * BATCH, skip_first_n=cold)}")
    print(f"\nOne after the other:\n{prof.what_if(factor=2, skip_first_n=cold)}")
    both = prof.what_if(factor=2, skip_first_n=cold, edges=reader.profiler.graph)
    print(f"\nBranches at the same time:\n{both}")
    best = both[0]
    print(f"\n{best.node} twice as fast is worth {best.gain_ms:.3f} ms a frame, {both[-1].node} the least")

    reader.set_profiling(True, reset=True, skip_first_n=cold)
    for batch in batches:
        reader.forward(batch)
    [row] = (row for row in reader.get_profiling_summary() if row.node_name == "neighbours")
    print(f"neighbours with skip_first_n={cold}: {row.mean_ms:.3f} ms on average of {row.count} calls")


if __name__ == "__main__":
    main()
