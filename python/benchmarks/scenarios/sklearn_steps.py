"""A scikit-learn Pipeline of three steps that predicts batch by batch, and learns once in a pass."""

from __future__ import annotations

import contextlib
import cProfile
import importlib
from collections.abc import Iterator

from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import cprofiling as cp
from cprofiling.integrations.sklearn import profile_pipeline

from .pairs import BARE, Variant

PREDICTIONS = 60


def variants() -> dict[str, Variant]:
    """Return the ways to run it; all with one thread, as several wait for each other.

    ``verbose=True`` of a Pipeline is none of them: it tells the times of learning only.
    """
    importlib.import_module("threadpoolctl").threadpool_limits(1)
    samples, kinds = load_breast_cancer(return_X_y=True)

    def learn(model: Pipeline) -> Variant:
        def work() -> None:
            model.fit(samples, kinds)
            for _ in range(PREDICTIONS):
                model.predict(samples)

        return Variant(work)

    def pipeline() -> Pipeline:
        steps = [("scale", StandardScaler()), ("project", PCA(n_components=10)), ("classify", LogisticRegression())]
        return Pipeline(steps)

    profiler = cp.Profiler()
    profiler.set_profiling(True)
    ours = pipeline()
    profile_pipeline(ours, profiler=profiler)
    return {
        BARE: learn(pipeline()),
        "cprofiling": learn(ours),
        "cProfile": learn(pipeline())._replace(session=cProfile.Profile),
        "VizTracer": learn(pipeline())._replace(session=viztracer),
    }


@contextlib.contextmanager
def viztracer() -> Iterator[None]:
    """Trace all functions."""
    tracer = importlib.import_module("viztracer").VizTracer(verbose=0)
    tracer.start()
    try:
        yield
    finally:
        tracer.stop()
        tracer.clear()
