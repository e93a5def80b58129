"""Profile the steps of scikit-learn pipelines as nodes.

``with profile_pipeline(model, profiler=p): model.fit(x, y)`` counts ``fit``, ``fit_transform`` and ``fit_predict`` of
the pipeline in stage ``train``, all else in the stage in force. A step is one node, under its name in the pipeline, its
own inner calls included. Results, parameters, clones and pickles are the same as without.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cprofiling import _core
from cprofiling._internal.text import shown_value
from cprofiling.integrations.handle import Profiled
from cprofiling.nodes.decorators import NodeSite
from cprofiling.nodes.instrumentation import surround

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from cprofiling.nodes.instrumentation import Instrumentation

__all__ = ["Profiled", "profile_pipeline"]

_LEARNING = ("fit", "fit_transform", "fit_predict")
_METHODS = (
    *_LEARNING, "transform", "predict", "predict_proba", "predict_log_proba", "decision_function", "score",
    "score_samples", "inverse_transform",
)  # fmt: skip


class _Inside(threading.local):
    """Steps at work in this thread, by id, with their Profilers' ids."""

    def __init__(self) -> None:
        self.steps: set[tuple[int, int]] = set()


_inside = _Inside()


def profile_pipeline(pipeline: Pipeline, *, profiler: _core.Profiler | None = None) -> Profiled:
    """Count calls of a pipeline's steps until the handle is removed.

    Replaced steps (``set_params``) are found when the pipeline next learns. Clones are not counted: those of
    ``GridSearchCV``, nor, with ``memory``, those in which transformers learn.

    profiler: the Profiler that counts; default: as for ``profile_node``.

    Raises TypeError unless given a Pipeline and a valid profiler.
    """
    from sklearn.pipeline import Pipeline

    if not isinstance(pipeline, Pipeline):
        raise TypeError(f"pipeline must be a sklearn.pipeline.Pipeline, got {shown_value(pipeline)}")
    NodeSite("", None, profiler)  # checks it
    steps = _Steps(profiler)
    steps.find(pipeline)
    learning = [name for name in _LEARNING if hasattr(pipeline, name)]
    handles = [surround(pipeline, name, functools.partial(_learning, steps)) for name in learning]
    return Profiled((name for name, _ in pipeline.steps), [steps.remove, *(handle.remove for handle in handles)])


def _learning(steps: _Steps, below: Callable[..., Any]) -> Callable[..., Any]:
    """Return a learning method that counts as training, then updates steps."""

    @functools.wraps(below)
    def learn(pipeline: Pipeline, /, *args: Any, **kwargs: Any) -> Any:
        if steps.is_removed:
            return below(pipeline, *args, **kwargs)
        steps.find(pipeline)
        with _core.stage("train"):
            result = below(pipeline, *args, **kwargs)
        steps.find(pipeline)
        return result

    return learn


class _Steps:
    """The nodes of a pipeline's steps."""

    def __init__(self, profiler: _core.Profiler | None) -> None:
        self._profiler = profiler
        self._finding = threading.RLock()  # finalizers may remove
        self._handles: dict[tuple[int, str], Instrumentation] = {}  # by step and method; they keep the steps alive
        self.is_removed = False

    def find(self, pipeline: Pipeline) -> None:
        """Make nodes of the present steps, and restore removed ones."""
        with self._finding, contextlib.suppress(TypeError, ValueError):  # the pipeline itself reports errors
            steps = dict(pipeline.steps)
            present = {id(step) for step in steps.values()}
            for key in [key for key in self._handles if key[0] not in present]:
                self._handles.pop(key).remove()
            for name, step in steps.items():
                self._add(NodeSite(name, None, self._profiler), step)

    def _add(self, site: NodeSite, step: Any) -> None:
        for method in _METHODS:
            key = id(step), method
            with contextlib.suppress(Exception):  # what cannot be had, or replaced, is not counted
                if key not in self._handles and not self.is_removed and callable(getattr(step, method)):
                    self._handles[key] = surround(step, method, functools.partial(self._counting, site, key[0]))

    def _counting(self, site: NodeSite, step: int, below: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step's method that counts, unless the step itself calls it."""
        key = step, id(self._profiler)

        @functools.wraps(below)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.is_removed or key in _inside.steps:
                return below(*args, **kwargs)
            _inside.steps.add(key)
            try:
                with site:
                    return below(*args, **kwargs)
            finally:
                _inside.steps.discard(key)

        return call

    def remove(self) -> None:
        """Count nothing more, and put the methods back."""
        with self._finding:
            self.is_removed = True
            while self._handles:
                self._handles.popitem()[1].remove()
