"""Profile the steps of a scikit-learn pipeline, by stage.

Needs scikit-learn.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import cprofiling as cp
from cprofiling.integrations.sklearn import profile_pipeline


def main() -> None:
    """Fit twice, predict 100 times, and print accuracy and times."""
    samples, kinds = load_breast_cancer(return_X_y=True)
    train, test, train_kinds, test_kinds = train_test_split(samples, kinds, random_state=0)
    model = Pipeline([
        ("scale", StandardScaler()),
        ("project", PCA(n_components=10, random_state=0)),
        ("classify", LogisticRegression()),
    ])  # fmt: skip
    profiler = cp.Profiler()
    profiler.set_profiling(True)
    with profile_pipeline(model, profiler=profiler):
        for strength in (0.1, 1.0):
            model.set_params(classify__C=strength).fit(train, train_kinds)
        for _ in range(100):
            model.predict(test)
    accuracy = model.score(test, test_kinds)  # not counted: the methods are the original ones again
    print(f"{accuracy:.1%} of {len(test)} tumours classified correctly\n")
    print(profiler.format_profiling_summary())


if __name__ == "__main__":
    main()
