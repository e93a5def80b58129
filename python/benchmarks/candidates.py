"""Plain Python and C, which set the scale, and cprofiling itself."""

from __future__ import annotations

import contextlib
import functools
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import floor
from .harness import LOOP_ONLY, Catalogue, Workload

BARE = "nothing: an empty function"
BARE_METHOD = "nothing: an empty method"
PASS_THROUGH = "empty Python pass-through, no arguments"
PASS_THROUGH_ANY = "empty Python pass-through, any arguments"
FORWARDER = "empty C forwarder"
FORWARDER_METHOD = "empty C forwarder, as a method"
EMPTY_WITH = "empty C with"
EMPTY_WITH_NEW = "empty C with, made for each"
CLOCK_TWICE = "time.perf_counter_ns twice"

DISABLED = "cprofiling decorator, disabled"
DISABLED_BESIDE = "cprofiling decorator, disabled while another Profiler is on"
ENABLED = "cprofiling decorator, enabled"
ENABLED_P2 = "cprofiling decorator, enabled with median=p2"
ENABLED_BOUND = "cprofiling decorator of one Profiler, enabled"
DISABLED_METHOD = "cprofiling method of a PipelineProfiling, disabled"
ENABLED_METHOD = "cprofiling method of a PipelineProfiling, enabled"
DISABLED_FORWARD = "cprofiling forward of a PipelineProfiling, not decorated, disabled"
ENABLED_FORWARD = "cprofiling forward of a PipelineProfiling, not decorated, enabled"
DISABLED_WITH = "cprofiling with, disabled"
ENABLED_WITH = "cprofiling with, enabled"
ENABLED_WITH_BOUND = "cprofiling with of one Profiler, enabled"
RECORDED = "cprofiling decorator, recorded"
RECORDED_AND_ENABLED = "cprofiling decorator, recorded and enabled"
RECORD_OFF = "cprofiling record(), no recording"
RECORD_OFF_REUSED = "cprofiling record(), one object, no recording"
RECORD_ON = "cprofiling record(), recorded"

plain = Catalogue("plain")
own = Catalogue("cprofiling")


def new_function(source: str = "def node(): pass") -> Callable[..., Any]:
    """Return a new function ``node`` with a code object of its own: tools that instrument code meet only theirs."""
    namespace: dict[str, Any] = {}
    exec(compile(source, "<benchmark node>", "exec"), namespace)
    node: Callable[..., Any] = namespace["node"]
    return node


def new_method() -> Callable[..., Any]:
    """Return a new function ``node(self)``, to be a method."""
    return new_function("def node(self): pass")


@plain.add(LOOP_ONLY, baseline=LOOP_ONLY)
def loop_only() -> Workload:
    """The loop itself, which is in all figures and is subtracted from all."""
    return Workload("pass", {})


@plain.add(BARE, baseline=LOOP_ONLY)
def bare_function() -> Workload:
    """An empty function, called."""
    return Workload("f()", {"f": new_function()})


@plain.add(BARE_METHOD, baseline=LOOP_ONLY)
def bare_method() -> Workload:
    """An empty method, called on its object."""
    return Workload("o.node()", {"o": type("Bare", (), {"node": new_method()})()})


@plain.add(PASS_THROUGH, baseline=BARE)
def pass_through() -> Workload:
    """The cheapest wrapper in Python: it knows the signature, so that CPython 3.11 and later inline both calls."""
    f = new_function()

    def wrapper() -> Any:
        return f()

    return Workload("f()", {"f": wrapper})


@plain.add(PASS_THROUGH_ANY, baseline=BARE)
def pass_through_any() -> Workload:
    """The wrapper that a decorator in Python is in practice."""
    f = new_function()

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    return Workload("f()", {"f": wrapper})


@plain.add(FORWARDER, baseline=BARE)
def forwarder() -> Workload:
    """The least that a wrapper written in C costs: a vectorcall forwarder that does nothing else."""
    return Workload("f()", {"f": floor.load().Forwarder(new_function())})


@plain.add(FORWARDER_METHOD, baseline=BARE_METHOD)
def forwarder_method() -> Workload:
    """The same forwarder as an attribute of a class."""
    return Workload("o.node()", {"o": type("Forwarded", (), {"node": floor.load().Forwarder(new_method())})()})


@plain.add(EMPTY_WITH, baseline=LOOP_ONLY)
def empty_with() -> Workload:
    """The least that a ``with`` costs: a C context manager that does nothing."""
    return Workload("with c: pass", {"c": floor.load().EmptyContext()})


@plain.add(EMPTY_WITH_NEW, baseline=LOOP_ONLY)
def empty_new_with() -> Workload:
    """The same with a label that nobody reads, made anew for each block."""
    return Workload("with label('node'): pass", {"label": floor.load().EmptyContext})


@plain.add(CLOCK_TWICE, baseline=BARE)
def clock_twice() -> Workload:
    """The stop-watch that people write by hand."""
    return Workload("start = now(); f(); elapsed = now() - start", {"now": time.perf_counter_ns, "f": new_function()})


@functools.cache
def cprofiling() -> Any:
    """Return the installed package. Raises ImportError; a bare source folder of that name does not count."""
    module = importlib.import_module("cprofiling")
    if module.__file__ is None:
        raise ModuleNotFoundError("No module named 'cprofiling'", name="cprofiling")
    return module


@contextlib.contextmanager
def switched_on(owner: Any, **options: object) -> Iterator[None]:
    """Have a Profiler, a pipeline or the module's default Profiler switched on; all are off for other candidates."""
    owner.set_profiling(True, **options)
    try:
        yield
    finally:
        owner.set_profiling(False)


def default_profiler_on() -> contextlib.AbstractContextManager[None]:
    """Have the default Profiler switched on."""
    return switched_on(cprofiling())


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Have a recording run; what it recorded is thrown away, as only making it is to be measured."""
    session = cprofiling().profile(operators=False)
    session.start()
    try:
        yield
    finally:
        session.stop()


@contextlib.contextmanager
def recording_and_default_profiler_on() -> Iterator[None]:
    """Have both."""
    with default_profiler_on(), recording():
        yield


def pipeline() -> Any:
    """Return a pipeline that has the mixin, with one decorated method ``node``."""
    methods = {"node": cprofiling().profile_node(new_method())}
    return type("Pipeline", (cprofiling().PipelineProfiling,), methods)()


@own.add(DISABLED, baseline=BARE)
def disabled_decorator() -> Workload:
    """A decorated function while its Profiler, the default one, is off."""
    return Workload("f()", {"f": cprofiling().profile_node(new_function())})


@own.add(DISABLED_BESIDE, baseline=BARE)
def disabled_beside_decorator() -> Workload:
    """A decorated function while its Profiler, the default one, is off, but another one is on."""
    other = cprofiling().Profiler()
    return Workload("f()", {"f": cprofiling().profile_node(new_function())}, functools.partial(switched_on, other))


@own.add(ENABLED, baseline=BARE)
def enabled_decorator() -> Workload:
    """A decorated function, recorded by the default Profiler, which is found at each call."""
    return Workload("f()", {"f": cprofiling().profile_node(new_function())}, default_profiler_on)


@own.add(ENABLED_P2, baseline=BARE)
def enabled_p2_decorator() -> Workload:
    """The same, with medians estimated by P²."""
    node = cprofiling().profile_node(new_function())
    return Workload("f()", {"f": node}, lambda: switched_on(cprofiling(), median="p2"))


@own.add(ENABLED_BOUND, baseline=BARE)
def enabled_bound_decorator() -> Workload:
    """A function decorated for one given Profiler."""
    profiler = cprofiling().Profiler()
    return Workload("f()", {"f": profiler.profile_node(new_function())}, functools.partial(switched_on, profiler))


@own.add(DISABLED_METHOD, baseline=BARE_METHOD)
def disabled_method() -> Workload:
    """A decorated method of a pipeline whose profiling is off."""
    return Workload("o.node()", {"o": pipeline()})


@own.add(ENABLED_METHOD, baseline=BARE_METHOD)
def enabled_method() -> Workload:
    """A decorated method, recorded by its pipeline's own Profiler."""
    instance = pipeline()
    return Workload("o.node()", {"o": instance}, functools.partial(switched_on, instance))


def forwarding() -> Any:
    """Return a pipeline whose method ``forward`` is no node."""
    return type("Pipeline", (cprofiling().PipelineProfiling,), {"forward": new_method()})()


@own.add(DISABLED_FORWARD, baseline=BARE_METHOD)
def disabled_forward() -> Workload:
    """The method that every pipeline has, whose profiling is off."""
    return Workload("o.forward()", {"o": forwarding()})


@own.add(ENABLED_FORWARD, baseline=BARE_METHOD)
def enabled_forward() -> Workload:
    """The same, on: nodes inside it count in the pipeline's own Profiler."""
    instance = forwarding()
    return Workload("o.forward()", {"o": instance}, functools.partial(switched_on, instance))


@own.add(DISABLED_WITH, baseline=LOOP_ONLY)
def disabled_with() -> Workload:
    """A labelled block while the default Profiler is off."""
    return Workload("with c: pass", {"c": cprofiling().profile_node("node")})


@own.add(ENABLED_WITH, baseline=LOOP_ONLY)
def enabled_with() -> Workload:
    """A labelled block, recorded by the default Profiler."""
    return Workload("with c: pass", {"c": cprofiling().profile_node("node")}, default_profiler_on)


@own.add(ENABLED_WITH_BOUND, baseline=LOOP_ONLY)
def enabled_bound_with() -> Workload:
    """A labelled block of one given Profiler."""
    profiler = cprofiling().Profiler()
    return Workload("with c: pass", {"c": profiler.profile_node("node")}, functools.partial(switched_on, profiler))


@own.add(RECORDED, baseline=BARE)
def recorded_decorator() -> Workload:
    """A decorated function while a recording runs and its Profiler is off."""
    return Workload("f()", {"f": cprofiling().profile_node(new_function())}, recording)


@own.add(RECORDED_AND_ENABLED, baseline=BARE)
def recorded_and_enabled_decorator() -> Workload:
    """A decorated function while a recording runs and the default Profiler is on."""
    return Workload("f()", {"f": cprofiling().profile_node(new_function())}, recording_and_default_profiler_on)


@own.add(RECORD_OFF, baseline=LOOP_ONLY)
def record_off() -> Workload:
    """A label, made for each block as programs do, while no recording runs."""
    return Workload("with label('node'): pass", {"label": cprofiling().record})


@own.add(RECORD_OFF_REUSED, baseline=LOOP_ONLY)
def record_off_reused() -> Workload:
    """The same, made once."""
    return Workload("with c: pass", {"c": cprofiling().record("node")})


@own.add(RECORD_ON, baseline=LOOP_ONLY)
def record_on() -> Workload:
    """A label, made for each block, while a recording runs."""
    return Workload("with label('node'): pass", {"label": cprofiling().record}, recording)
