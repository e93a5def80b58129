"""A scikit-learn Pipeline of three steps that predicts batch by batch, and learns once in a pass."""

from __future__ import annotations

import contextlib
import cProfile
import importlib
import io
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
    """Return the ways to run it."""
    samples, kinds = load_breast_cancer(return_X_y=True)

    def learn(model: Pipeline) -> Variant:
        def work() -> None:
            model.fit(samples, kinds)
            for _ in range(PREDICTIONS):
                model.predict(samples)

        return Variant(work)

    def pipeline(*, verbose: bool = False) -> Pipeline:
        steps = [("scale", StandardScaler()), ("project", PCA(n_components=10)), ("classify", LogisticRegression())]
        return Pipeline(steps, verbose=verbose)

    profiler = cp.Profiler()
    profiler.set_profiling(True)
    ours = pipeline()
    profile_pipeline(ours, profiler=profiler)
    return {
        BARE: learn(pipeline()),
        "cprofiling": learn(ours),
        "cProfile": learn(pipeline())._replace(session=cProfile.Profile),
        "VizTracer": learn(pipeline())._replace(session=viztracer),
        "verbose=True (fit only)": learn(pipeline(verbose=True))._replace(session=unseen),
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


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Keep what is printed off the terminal."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
