"""The peers, each used the way its own documentation or its own code uses it."""

from __future__ import annotations

import contextlib
import cProfile
import importlib
import io
import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from .candidates import BARE, new_function
from .harness import LOOP_ONLY, Catalogue, Workload

CUVIS_RECORD = "cuvis-ai-core PipelineProfiler"
CUVIS_PIPELINE = "cuvis-ai-core CuvisPipeline's timer"
RECORD_FUNCTION = "torch record_function, profiler off"
RECORD_FUNCTION_ON = "torch record_function, profiler on"
FAST = "torch _RecordFunctionFast, profiler off"
FAST_REUSED = "torch _RecordFunctionFast, one object, profiler off"
FAST_ON = "torch _RecordFunctionFast, profiler on"
FAST_ON_REUSED = "torch _RecordFunctionFast, one object, profiler on"
LOG_EVENT = "VizTracer log_event"
TPROF = "tprof"

STAGE = "inference"
FEW = 0.1

peers = Catalogue("peers")


def module(name: str) -> Any:
    """Import a peer's module, untyped: none of them has to be installed."""
    return importlib.import_module(name)


@peers.add(CUVIS_RECORD, baseline=BARE, minimum=(3, 11))
def cuvis_record() -> Workload:
    """The two clock readings and the record that CuvisPipeline.forward puts around a node, written in line."""
    profiler = module("cuvis_ai_core.pipeline.profiling").PipelineProfiler()
    return Workload(
        "start = now(); f(); record(stage, node.name, (now() - start) / 1_000_000)",
        {
            "now": time.perf_counter_ns,
            "f": new_function(),
            "record": profiler.record,
            "stage": STAGE,
            "node": SimpleNamespace(name="node"),
        },
    )


@peers.add(CUVIS_PIPELINE, baseline=BARE, minimum=(3, 11))
def cuvis_pipeline() -> Workload:
    """The lines of CuvisPipeline.forward around a node, with the pipeline's own two timer methods."""
    pipeline = module("cuvis_ai_core.pipeline.pipeline").CuvisPipeline("benchmark")
    pipeline.set_profiling(True)
    return Workload(
        "start = p._start_profiling_timer(node, inputs) if p._profiling_enabled else None; f()\n"
        "if start is not None: p._stop_profiling_timer(start, node, inputs, stage)",
        {"p": pipeline, "f": new_function(), "node": SimpleNamespace(name="node"), "inputs": {}, "stage": STAGE},
    )


def torch_session() -> Any:
    """Return torch's profiler for the CPU: a context manager that records while it is open, and logs nothing."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    profiler = module("torch.profiler")
    return profiler.profile(activities=[profiler.ProfilerActivity.CPU])


def record_function() -> Any:
    """Return torch's ``record_function``."""
    return module("torch.profiler").record_function


def record_function_fast() -> Any:
    """Return torch's ``_RecordFunctionFast``, which its own compiled code uses."""
    return module("torch")._C._profiler._RecordFunctionFast


@peers.add(RECORD_FUNCTION, baseline=LOOP_ONLY)
def torch_record_function() -> Workload:
    """A label while nobody records."""
    return Workload("with label('node'): pass", {"label": record_function()})


@peers.add(RECORD_FUNCTION_ON, baseline=LOOP_ONLY, share=FEW)
def torch_record_function_on() -> Workload:
    """A label while torch's profiler records."""
    return Workload("with label('node'): pass", {"label": record_function()}, torch_session)


@peers.add(FAST, baseline=LOOP_ONLY)
def torch_fast() -> Workload:
    """The label that torch's compiled code uses, made for each call as it does, while nobody records."""
    return Workload("with label('node'): pass", {"label": record_function_fast()})


@peers.add(FAST_REUSED, baseline=LOOP_ONLY)
def torch_fast_reused() -> Workload:
    """The same, made once."""
    return Workload("with c: pass", {"c": record_function_fast()("node")})


@peers.add(FAST_ON, baseline=LOOP_ONLY, share=FEW)
def torch_fast_on() -> Workload:
    """The same, made for each call, while torch's profiler records."""
    return Workload("with label('node'): pass", {"label": record_function_fast()}, torch_session)


@peers.add(FAST_ON_REUSED, baseline=LOOP_ONLY, share=FEW)
def torch_fast_on_reused() -> Workload:
    """The same, made once."""
    return Workload("with c: pass", {"c": record_function_fast()("node")}, torch_session)


@peers.add(TPROF, baseline=BARE, minimum=(3, 12))
def tprof() -> Workload:
    """A function that tprof watches; it keeps every sample."""
    function = new_function()
    profile = module("tprof").tprof

    @contextlib.contextmanager
    def session() -> Iterator[None]:
        with contextlib.redirect_stderr(io.StringIO()), profile(function):
            yield

    return Workload("f()", {"f": function}, session)


@peers.add("NVTX annotate, no tool attached", baseline=LOOP_ONLY)
def nvtx_annotate() -> Workload:
    """A range while no NVTX tool is attached."""
    return Workload("with annotate('node'): pass", {"annotate": module("nvtx").annotate})


@peers.add("NVTX push_range and pop_range, no tool attached", baseline=BARE)
def nvtx_ranges() -> Workload:
    """A range by NVTX's two plain functions while no NVTX tool is attached."""
    nvtx = module("nvtx")
    names = {"push": nvtx.push_range, "f": new_function(), "pop": nvtx.pop_range}
    return Workload("push('node'); f(); pop()", names)


@peers.add("prometheus-client Histogram.time()", baseline=LOOP_ONLY)
def prometheus() -> Workload:
    """A histogram's timer."""
    client = module("prometheus_client")
    histogram = client.Histogram("node_seconds", "Time of a node.", registry=client.CollectorRegistry())
    return Workload("with histogram.time(): pass", {"histogram": histogram})


@peers.add("OpenTelemetry histogram.record", baseline=BARE)
def otel_histogram() -> Workload:
    """Two clock readings and a histogram of the SDK, with an in-memory reader."""
    metrics = module("opentelemetry.sdk.metrics")
    reader = module("opentelemetry.sdk.metrics.export").InMemoryMetricReader()
    meter = metrics.MeterProvider(metric_readers=[reader]).get_meter("benchmark")
    return Workload(
        "start = now(); f(); record((now() - start) / 1_000_000, labels)",
        {
            "now": time.perf_counter_ns,
            "f": new_function(),
            "record": meter.create_histogram("node_ms").record,
            "labels": {"node": "node", "stage": STAGE},
        },
    )


@peers.add("OpenTelemetry span, nothing exported", baseline=LOOP_ONLY, share=FEW)
def otel_span() -> Workload:
    """A recording span of the SDK, without a processor that would export it."""
    tracer = module("opentelemetry.sdk.trace").TracerProvider().get_tracer("benchmark")
    return Workload("with span('node'): pass", {"span": tracer.start_as_current_span})


def viztracer_sessions(tracer: Any) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Return what makes sessions in which VizTracer traces into its ring of entries, which is empty afterwards."""

    @contextlib.contextmanager
    def session() -> Iterator[None]:
        tracer.start()
        try:
            yield
        finally:
            tracer.stop()
            tracer.clear()

    return session


@peers.add("VizTracer", baseline=BARE)
def viztracer() -> Workload:
    """A function while VizTracer traces."""
    tracer = module("viztracer").VizTracer(verbose=0)
    return Workload("f()", {"f": new_function()}, viztracer_sessions(tracer))


@peers.add(LOG_EVENT, baseline=LOOP_ONLY, share=FEW)
def viztracer_log_event() -> Workload:
    """A label while VizTracer records nothing but labels."""
    tracer = module("viztracer").VizTracer(verbose=0, log_sparse=True)
    return Workload("with label('node'): pass", {"label": tracer.log_event}, viztracer_sessions(tracer))


@peers.add("cProfile", baseline=BARE)
def c_profile() -> Workload:
    """A function while cProfile is on."""
    profile = cProfile.Profile()
    return Workload("f()", {"f": new_function()}, lambda: profile)


def lightning_profilers() -> Any:
    """Return the profilers of Lightning, under the name of either of its packages."""
    try:
        return module("lightning.pytorch.profilers")
    except ModuleNotFoundError:
        return module("pytorch_lightning.profilers")


@peers.add("Lightning SimpleProfiler", baseline=LOOP_ONLY)
def lightning() -> Workload:
    """A block under Lightning's SimpleProfiler; it keeps every sample."""
    profiler = lightning_profilers().SimpleProfiler()

    @contextlib.contextmanager
    def session() -> Iterator[None]:
        try:
            yield
        finally:
            profiler.recorded_durations.clear()

    return Workload("with profile('node'): pass", {"profile": profiler.profile}, session)
