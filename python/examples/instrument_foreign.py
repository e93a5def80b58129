"""Profile the steps of a scikit-learn pipeline, object by object.

Classifies tumours, and prints how long each step learns and predicts. Needs scikit-learn.
"""

from contextlib import ExitStack

from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cprofiling as cp

METHODS = ("fit", "fit_transform", "transform", "predict")  # some call another, which self time leaves out


def main() -> None:
    """Fit once, predict 100 times, and print accuracy and times."""
    samples, kinds = load_breast_cancer(return_X_y=True)
    train, test, train_kinds, test_kinds = train_test_split(samples, kinds, random_state=0)
    model = make_pipeline(StandardScaler(), PCA(n_components=10, random_state=0), LogisticRegression())
    cp.set_profiling(True)
    with ExitStack() as instrumented:
        for name, step in model.steps:
            for method in METHODS:
                if hasattr(step, method):
                    instrumented.enter_context(cp.instrument(step, method, name=f"{name}.{method}"))
        with cp.stage("train"):
            model.fit(train, train_kinds)
        for _ in range(100):
            model.predict(test)
    accuracy = model.score(test, test_kinds)  # not counted: the methods are the original ones again
    print(f"{accuracy:.1%} of {len(test)} tumours classified correctly\n")
    print(cp.format_profiling_summary())


if __name__ == "__main__":
    main()
