"""Steps of scikit-learn's pipelines as nodes: told apart at fit and at predict, without a change of anything else."""

from __future__ import annotations

import concurrent.futures
import copy
import pickle
import re
from typing import Any

import pytest

import cprofiling as cp
from calls import outcomes, profiler_on, stages
from example_runs import counts_in, output_of

sklearn: Any = pytest.importorskip("sklearn")

import numpy as np  # noqa: E402 it comes with scikit-learn
from sklearn.base import BaseEstimator, TransformerMixin, clone  # noqa: E402
from sklearn.cluster import KMeans  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.linear_model import LogisticRegression, SGDClassifier  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import FeatureUnion, Pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from cprofiling.integrations import sklearn as integration  # noqa: E402
from cprofiling.integrations.sklearn import profile_pipeline  # noqa: E402

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 5))
Y = (X[:, 0] + X[:, 1] > 0).astype(int)


class Halve(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer whose ``fit_transform`` is the one that calls ``fit`` and ``transform``."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def fit(self, X: Any, y: Any = None) -> Halve:
        self.fitted_ = True
        return self

    def transform(self, X: Any) -> Any:
        if self.fails:
            raise ValueError("on purpose")
        return X / 2


def model() -> Any:
    return Pipeline([("halve", Halve()), ("scale", StandardScaler()), ("classify", LogisticRegression())])


def methods_in_classes() -> list[Any]:
    """What stands in the classes of the steps, and of pipelines, for the methods that are replaced."""
    kinds = (Pipeline, Halve, StandardScaler, LogisticRegression)
    return [{name: vars(kind).get(name) for name in integration._METHODS} for kind in kinds]


@pytest.fixture(autouse=True)
def nothing_stays() -> Any:
    """After each test the classes are as before."""
    before = methods_in_classes()
    yield
    assert methods_in_classes() == before


def test_steps_count_once_at_fit_and_at_predict(p: cp.Profiler) -> None:
    plain = model().fit(X, Y)
    with profile_pipeline(profiled := model(), profiler=p) as handle:
        assert handle.names == ("halve", "scale", "classify")
        assert profiled.fit(X, Y) is profiled
        for _ in range(3):
            assert (profiled.predict(X) == plain.predict(X)).all()
    assert stages(p) == {
        **dict.fromkeys([("halve", "train"), ("scale", "train"), ("classify", "train")], 1),
        **dict.fromkeys([("halve", "inference"), ("scale", "inference"), ("classify", "inference")], 3),
    }
    profiled.fit(X, Y).predict(X)
    assert stages(p)["scale", "inference"] == 3
    assert vars(profiled).keys() == vars(plain).keys()
    assert vars(profiled["scale"]).keys() == vars(plain["scale"]).keys()


def test_the_default_profiler_counts_too_and_objects_are_as_before_afterwards() -> None:
    profiled = model()
    cp.set_profiling(True)
    with profile_pipeline(profiled):
        profiled.fit(X, Y)
        profiled.predict(X)
    names = ("halve", "scale", "classify")
    assert stages(cp.default_profiler) == {(name, stage): 1 for stage in ("train", "inference") for name in names}
    for used in (profiled, profiled[0], X):
        cp.profile_node("afterwards")(id)(used)
    assert stages(cp.default_profiler)["afterwards", "inference"] == 3


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba", "decision_function", "score"])
def test_what_the_last_step_is_asked_for(p: cp.Profiler, method: str) -> None:
    plain, profiled = model().fit(X, Y), model().fit(X, Y)
    arguments = (X, Y) if method == "score" else (X,)
    with profile_pipeline(profiled, profiler=p), cp.stage("test"):
        result = getattr(profiled, method)(*arguments)
    assert np.array_equal(result, getattr(plain, method)(*arguments))
    assert stages(p) == dict.fromkeys([("halve", "test"), ("scale", "test"), ("classify", "test")], 1)


def test_pipelines_that_transform_and_that_cluster(p: cp.Profiler) -> None:
    transforming = Pipeline([("scale", StandardScaler()), ("nothing", "passthrough"), ("project", PCA(2))])
    with profile_pipeline(transforming, profiler=p):
        transforming.inverse_transform(transforming.fit_transform(X))
    assert stages(p) == {
        ("scale", "train"): 1, ("project", "train"): 1, ("project", "inference"): 1, ("scale", "inference"): 1,
    }  # fmt: skip
    other = profiler_on()
    clustering = Pipeline([("scale", StandardScaler()), ("cluster", KMeans(2, n_init=1, random_state=0))])
    with profile_pipeline(clustering, profiler=other):
        clustering.fit_predict(X)
    assert stages(other) == {("scale", "train"): 1, ("cluster", "train"): 1}


def test_a_pipeline_as_a_step_is_one_step(p: cp.Profiler) -> None:
    both = Pipeline([("inner", model()[:2]), ("union", FeatureUnion([("a", PCA(1)), ("b", Halve())]))])
    with profile_pipeline(both, profiler=p), profile_pipeline(both["inner"], profiler=p):
        both.fit(X).transform(X)
    names = ("inner", "union", "halve", "scale")
    assert stages(p) == {(name, stage): 1 for name in names for stage in ("train", "inference")}


def test_exceptions_pass_through_and_count(p: cp.Profiler) -> None:
    with profile_pipeline(profiled := model().set_params(halve__fails=True), profiler=p):
        with pytest.raises(ValueError, match="on purpose"):
            profiled.fit(X, Y)
        profiled.set_params(halve__fails=False).fit(X, Y)
    assert outcomes(p, "halve") == (1, 1, 0, 0, 0)
    assert cp.get_profiling_summary() == []
    with cp.profile_node("after", profiler=p):  # the stage train has ended
        pass
    assert ("after", "inference") in stages(p)


def test_clones_copies_and_pickles_do_not_count(p: cp.Profiler) -> None:
    with profile_pipeline(profiled := model(), profiler=p):
        text = repr(profiled)
        parameters = profiled.get_params()
        for made in (clone(profiled), copy.deepcopy(profiled), pickle.loads(pickle.dumps(profiled))):
            assert made.fit(X, Y).score(X, Y) > 0.8
        assert cross_val_score(profiled, X, Y, cv=3).mean() > 0.5
        search = GridSearchCV(profiled, {"classify__C": [0.1, 1.0]}, cv=2, refit=False).fit(X, Y)
        assert repr(clone(profiled)) == text
        assert b"cprofiling" not in pickle.dumps(profiled.fit(X, Y))
    assert search.best_params_["classify__C"] in {0.1, 1.0}
    assert repr(profiled) == text
    assert profiled.get_params().keys() == parameters.keys()
    assert stages(p) == dict.fromkeys([("halve", "train"), ("scale", "train"), ("classify", "train")], 1)


def test_steps_that_are_replaced(p: cp.Profiler) -> None:
    with profile_pipeline(profiled := model(), profiler=p):
        old = profiled["scale"]
        profiled.fit(X, Y)
        profiled.set_params(scale=PCA(2), halve="passthrough").fit(X, Y).predict(X)
        old.transform(X)
    assert stages(p) == {
        ("halve", "train"): 1, ("scale", "train"): 2, ("classify", "train"): 2, ("scale", "inference"): 1,
        ("classify", "inference"): 1,
    }  # fmt: skip


def test_methods_that_parameters_give_and_take(p: cp.Profiler) -> None:
    """A step has some methods only with the right parameters, and a pipeline those that its last step has."""
    profiled = Pipeline([("scale", StandardScaler()), ("classify", SGDClassifier(loss="log_loss"))]).fit(X, Y)
    with profile_pipeline(profiled, profiler=p):
        profiled.predict_proba(X)
        profiled.set_params(classify__loss="hinge")
        assert not hasattr(profiled, "predict_proba")
        with pytest.raises(AttributeError, match="predict_proba"):
            profiled.predict_proba(X)
        profiled.set_params(classify__loss="log_loss").predict_proba(X)
    assert stages(p)["classify", "inference"] == 2


def test_methods_that_cannot_be_replaced(p: cp.Profiler) -> None:
    """They are not counted, and keep nothing else from being so."""

    class Odd(Halve):
        @property
        def predict_proba(self) -> Any:
            return lambda X: X

        @property
        def decision_function(self) -> Any:
            raise RuntimeError("not yet")

    profiled = Pipeline([("scale", StandardScaler()), ("odd", Odd())])
    with profile_pipeline(profiled, profiler=p):
        assert profiled.fit(X).predict_proba(X).shape == X.shape
        profiled.transform(X)
    assert stages(p) == {
        ("scale", "train"): 1, ("odd", "train"): 1, ("scale", "inference"): 2, ("odd", "inference"): 1,
    }  # fmt: skip


def test_with_a_memory_what_was_fitted_is_counted_at_predict(p: cp.Profiler, tmp_path: Any) -> None:
    profiled = model().set_params(memory=str(tmp_path))
    with profile_pipeline(profiled, profiler=p):
        for _ in range(2):
            profiled.fit(X, Y).predict(X)
    counted = stages(p)
    assert counted["classify", "train"] == counted["classify", "inference"] == 2
    assert counted["scale", "inference"] == counted["halve", "inference"] == 2


@pytest.mark.parametrize("steps", [[("only", "text")], 3, [1, 2], [("a", Halve(), 3)]])
def test_a_pipeline_that_is_wrong_says_so_itself(p: cp.Profiler, steps: Any) -> None:
    plain, profiled = model(), model()
    with profile_pipeline(profiled, profiler=p):
        plain.steps = profiled.steps = steps
        with pytest.raises((TypeError, ValueError)) as theirs:
            plain.fit(X, Y)
        with pytest.raises(theirs.type, match=f"^{re.escape(str(theirs.value))}$") as ours:
            profiled.fit(X, Y)
    assert [entry.name for entry in ours.traceback[2:]] == [entry.name for entry in theirs.traceback[1:]]


def test_others_may_instrument_the_same_methods(p: cp.Profiler) -> None:
    mine = profiler_on()
    profiled = model().fit(X, Y)
    below = cp.instrument(profiled["scale"], "transform", name="below", profiler=mine)
    handle = profile_pipeline(profiled, profiler=p)
    above = cp.instrument(profiled["scale"], "transform", name="above", profiler=profiler_on())
    fit_above = cp.instrument(profiled, "fit", name="fit", profiler=mine)
    profiled.predict(X)
    handle.remove()
    profiled.predict(X)
    profiled.fit(X, Y)
    fit_above.remove()
    above.remove()
    profiled.predict(X)
    below.remove()
    profiled.predict(X)
    assert stages(mine) == {("below", "inference"): 4, ("fit", "inference"): 1}
    assert stages(p)["scale", "inference"] == 1


def test_a_method_that_a_step_holds_itself(p: cp.Profiler) -> None:
    profiled = model().fit(X, Y)
    profiled["halve"].transform = lambda X: X * 2
    with profile_pipeline(profiled, profiler=p):
        assert pickle.dumps(profiled["scale"])
        profiled.predict(X)
    assert stages(p)["halve", "inference"] == 1
    assert profiled["halve"].transform(2) == 4
    assert type(profiled["halve"].transform) is type(lambda: None)


def test_threads_predict_at_once(p: cp.Profiler) -> None:
    profiled = model().fit(X, Y)
    expected = profiled.predict(X)
    with profile_pipeline(profiled, profiler=p), concurrent.futures.ThreadPoolExecutor(4) as executor:
        assert all((result == expected).all() for result in executor.map(profiled.predict, [X] * 40))
    assert stages(p) == {(name, "inference"): 40 for name in ("halve", "scale", "classify")}


def test_again_and_again_and_twice(p: cp.Profiler) -> None:
    profiled = model().fit(X, Y)
    for _ in range(20):
        handle = profile_pipeline(profiled, profiler=p)
        handle.remove()
        handle.remove()
    other = profiler_on()
    with (
        profile_pipeline(profiled, profiler=p),
        profile_pipeline(profiled, profiler=other),
        profile_pipeline(profiled, profiler=p),
    ):
        profiled.predict(X)
    assert stages(p) == stages(other) == {(name, "inference"): 1 for name in ("halve", "scale", "classify")}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"pipeline": LogisticRegression()}, "pipeline must be a sklearn.pipeline.Pipeline, got LogisticRegression()"),
        ({"pipeline": None}, "pipeline must be a sklearn.pipeline.Pipeline, got None"),
        ({"profiler": 3}, "profiler"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        profile_pipeline(**{"pipeline": model(), **arguments})


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    output = output_of("sklearn_pipeline.py", capsys)
    right = re.match(r"([\d.]+)% of 143 tumours classified correctly\n", output)
    assert right is not None
    assert float(right[1]) > 90
    steps = ("scale", "project", "classify")
    assert counts_in(output) == {
        (stage, step): count for stage, count in (("train", 2), ("inference", 100)) for step in steps
    }
