"""Profile threads and stages with a Profiler of their own.

Finds the ten handwritten digits in the principal components of images, with a pool of threads. Needs scikit-learn.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import cprofiling as cp

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]

profiler = cp.Profiler()


@profiler.profile_node(name="components")
def components(images: Floats, count: int = 20) -> Floats:
    """Return the principal components of flat images."""
    axes: Floats = np.linalg.svd(images - images.mean(axis=0), full_matrices=False)[2]
    return axes[:count]


@profiler.profile_node(name="project")
def project(images: Floats, axes: Floats) -> Floats:
    """Return the coordinates of images along the principal components."""
    points: Floats = images @ axes.T
    return points


@profiler.profile_node(name="nearest")
def nearest(points: Floats, centres: Floats) -> Labels:
    """Return the number of the nearest centre for each point."""
    found: Labels = ((points[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
    return found


def main() -> None:
    """Learn a centre for each digit, and read others in four threads."""
    images, labels = load_digits(return_X_y=True)
    profiler.set_profiling(True)
    with cp.stage("train"):  # the stage of this thread or task
        axes = components(images[:900])
        points = project(images[:900], axes)
        centres = np.array([points[labels[:900] == digit].mean(axis=0) for digit in range(10)])

    def read(batch: Floats) -> Labels:
        return nearest(project(batch, axes), centres)

    # The threads of a pool do not inherit cp.stage("test"): they take the default, which is process-wide.
    with cp.stage("test", default=True), ThreadPoolExecutor(max_workers=4) as pool:
        found = np.concatenate(list(pool.map(read, np.array_split(images[900:], 30))))
    print(f"{(found == labels[900:]).mean():.1%} of {len(found)} digits read correctly\n")
    print(profiler.format_profiling_summary("test", total_frames=30))


if __name__ == "__main__":
    main()
