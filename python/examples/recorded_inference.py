"""Analyse the recording of an inference with pandas.

Reads handwritten digits one by one. Needs scikit-learn and pandas.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

import cprofiling as cp

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]


class Reader:
    """Reads a digit by its nearest known neighbours."""

    def __init__(self, images: Floats, labels: Labels) -> None:
        """Keep the known digits."""
        self.labels = labels
        self.neighbours = NearestNeighbors(n_neighbors=5).fit(images)

    @cp.profile_node("search")
    def search(self, image: Floats) -> Labels:
        """Return the labels of the nearest neighbours."""
        found: Labels = self.labels[self.neighbours.kneighbors(image[None], return_distance=False)[0]]
        return found

    @cp.profile_node("vote")
    def vote(self, labels: Labels) -> int:
        """Return the most frequent label."""
        return int(np.bincount(labels).argmax())

    def read(self, image: Floats) -> int:
        """Return the digit."""
        return self.vote(self.search(image))


def main() -> None:
    """Read some digits, and print figures of the recording."""
    images, labels = load_digits(return_X_y=True)
    reader = Reader(images[:1500], labels[:1500])
    found = []
    with cp.profile(format=cp.RecordFormat.PandasDataFrame, operators=False) as prof:
        with prof.record("warm up", warm_up=True):  # neither this block nor its content is recorded
            reader.read(images[1500])
        for image in images[1500:1600]:
            with prof.record("Inference"):
                found.append(reader.read(image))
        prof.pause()
        found += [reader.read(image) for image in images[1600:1700]]  # not recorded
        prof.resume()
        with prof.record("Inference"):
            found.append(reader.read(images[1700]))
    print(f"{np.mean(found == labels[1500:1701]):.1%} of {len(found)} digits read correctly\n")
    print(prof.summary())
    frame = prof.to_pandas()
    print(f"\n{len(frame)} events; mean duration by name, in us:")
    print((frame.groupby("name")["dur"].mean() / 1e3).round(1).to_string())
    searches = frame[frame["name"] == "search"]
    slowest = searches.sort_values("dur").iloc[-1]
    print(f"the slowest search took {slowest['dur'] / 1e3:.0f} us; its trace is {slowest['trace_id']}")


if __name__ == "__main__":
    main()
