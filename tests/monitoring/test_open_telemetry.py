"""Statistics and recordings for OpenTelemetry, as its SDK exports them to a receiver of our own (scenario F4)."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import NEVER, profiler_on
from cprofiling.monitoring.node_totals import DEFAULT_BOUNDS
from cprofiling.monitoring.open_telemetry import _samples
from cprofiling.nodes.buckets import number_of
from gpu_snapshots import GPU_MS, gpu_snapshot
from hostile_names import NAMES, exported
from recorded import profile
from recordings import NODE, RECORD, host, made

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cprofiling.export import OpenTelemetryMetrics, export_spans, open_telemetry_spans

NOTHING: Any = 3  # that it could be
DURATION = "cprofiling.node.duration"


class Receiver(ThreadingHTTPServer):
    """Takes what an OTLP exporter sends, and parses it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.metrics: list[Any] = []
        self.traces: list[Any] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = self.server
        assert isinstance(receiver, Receiver)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        known: dict[str, tuple[Any, list[Any]]] = {
            "/v1/metrics": (ExportMetricsServiceRequest, receiver.metrics),
            "/v1/traces": (ExportTraceServiceRequest, receiver.traces),
        }
        kind, kept = known[self.path]
        kept.append(kind.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 its name is the base class's
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Metrics:
    """An SDK that collects when it is told to, and what it has collected."""

    def __init__(self, profiler: Any, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])
        self.metrics = OpenTelemetryMetrics(profiler, meter_provider=self.provider, **options)

    def points(self) -> dict[str, dict[tuple[str, ...], Any]]:
        """Of each instrument the points, by their attributes' values."""
        data = self.reader.get_metrics_data()
        found: dict[str, dict[tuple[str, ...], Any]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "cprofiling"
                for metric in scope.metrics:
                    of = found.setdefault(metric.name, {})
                    of.update(
                        {tuple(map(str, (each.attributes or {}).values())): each for each in metric.data.data_points}
                    )
        return found

    def point(self, name: str = DURATION) -> Any:
        [point] = self.points()[name].values()
        return point


def run_nodes(profiler: cp.Profiler) -> None:
    """Nodes of several lengths, outcomes and stages."""

    @profiler.profile_node("work")
    def work(number: int) -> int:
        if number % 50 == 49:
            raise ValueError
        return sum(range(number * 20))

    @profiler.profile_node("cancelled")
    async def cancelled() -> None:
        raise asyncio.CancelledError

    for stage in ("train", "val"):
        with cp.stage(stage):
            for number in range(400):
                try:
                    work(number)
                except ValueError:
                    continue
            with pytest.raises(asyncio.CancelledError):
                asyncio.run(cancelled())


# ---- statistics ----------------------------------------------------------------------------------


def test_an_otlp_receiver_gets_the_snapshots_counts_and_sums(receiver: Receiver) -> None:
    profiler = profiler_on(skip_first_n=3)
    run_nodes(profiler)
    exporter = OTLPMetricExporter(f"{receiver.address}/v1/metrics")
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=NEVER * 1e3)
    provider = MeterProvider([reader])
    metrics = OpenTelemetryMetrics({"main": profiler}, meter_provider=provider)
    assert provider.force_flush()
    run_nodes(profiler)
    provider.shutdown()
    assert metrics.pending == 0
    assert len(receiver.metrics) >= 2
    by_instrument = {
        metric.name: metric
        for resource in receiver.metrics[-1].resource_metrics for scope in resource.scope_metrics
        for metric in scope.metrics
    }  # fmt: skip
    assert {name: metric.unit for name, metric in by_instrument.items()} == {
        DURATION: "s",
        **{f"cprofiling.node.{name}": "{call}" for name in ("calls", "errors", "cancelled", "skipped", "dropped")},
    }
    rows: dict[tuple[str, ...], Any] = {(row.node_name, str(row.stage)): row for row in profiler.snapshot().stats()}
    points = by_instrument[DURATION].histogram.data_points
    assert {key_of(point)[:2] for point in points} == {("work", "train"), ("work", "val")}
    for point in points:
        row = rows[key_of(point)[:2]]
        assert key_of(point)[2] == "main"
        assert point.count == row.count == 781
        assert point.sum == pytest.approx(row.total_ms / 1e3, rel=1e-12)
        assert tuple(point.explicit_bounds) == DEFAULT_BOUNDS
        assert point.min == pytest.approx(row.min_ms / 1e3, rel=0.017)
        assert point.max == pytest.approx(row.max_ms / 1e3, rel=0.017)
    shown = {
        name: {key_of(point)[:2]: point.as_int for point in metric.sum.data_points}
        for name, metric in by_instrument.items() if name != DURATION
    }  # fmt: skip
    assert shown["cprofiling.node.calls"] == {
        key: row.count + row.error_count + row.cancelled_count + row.skipped_count for key, row in rows.items()
    }
    assert shown["cprofiling.node.errors"] == {key: row.error_count for key, row in rows.items()}
    assert shown["cprofiling.node.cancelled"] == {key: row.cancelled_count for key, row in rows.items()}
    assert shown["cprofiling.node.skipped"] == {key: row.skipped_count for key, row in rows.items()}
    assert set(shown["cprofiling.node.dropped"].values()) == {0}
    assert all(metric.sum.is_monotonic for name, metric in by_instrument.items() if name != DURATION)


def key_of(point: Any) -> tuple[str, ...]:
    attributes = {each.key: each.value.string_value for each in point.attributes}
    return tuple(attributes[name] for name in ("node", "stage", "pipeline") if name in attributes)


def test_each_sample_is_in_its_bucket() -> None:
    profiler = profiler_on()
    times = [10 ** (power / 25) for power in range(-170, 60)]  # seconds, from 0.16 us to 219 s
    for seconds in times:
        profiler.record("train", "work", seconds * 1e3)
    point = Metrics(profiler).point()
    edges = [0.0, *DEFAULT_BOUNDS, math.inf]
    assert list(point.bucket_counts) == [
        sum(low <= each < high for each in times) for low, high in itertools.pairwise(edges)
    ]
    assert point.sum == pytest.approx(sum(times), rel=1e-9)


def test_the_boundaries_are_advice() -> None:
    profiler = profiler_on()
    profiler.record("train", "work", 150.0)
    point = Metrics(profiler, boundaries=(0.1, 0.2)).point()
    assert point.explicit_bounds == (pytest.approx(0.1, rel=0.008), pytest.approx(0.2, rel=0.008))
    assert list(point.bucket_counts) == [0, 1, 0]


@pytest.mark.parametrize(
    ("count", "total_s", "groups"),
    [
        (3, 3.1e-6, {640: 3}),  # one bucket, from 1.024 us on
        (5, 2.0, {700: 2, 1900: 3}),
        (1, 0.0, {0: 1}),
        (4, 1e6, {3071: 4}),  # beyond the last bucket
        (4, 1e-12, {900: 4}),  # less than the buckets say, if that could be
        (7, 0.07, {}),  # the histogram lost all,
        (7, 0.07, {number_of(10_000_000): 4}),  # or some
        (10**15, 3e15 * 1.5e-6, {672: 10**15, 700: 2 * 10**15}),
    ],
)
def test_samples_have_the_count_and_the_sum(count: int, total_s: float, groups: dict[int, int]) -> None:
    made_up = list(_samples(max(count, sum(groups.values())), total_s, groups))
    assert sum(times for _, times in made_up) == max(count, sum(groups.values()))
    if total_s not in {1e-12, 3e15 * 1.5e-6}:
        assert sum(value * times for value, times in made_up) == pytest.approx(total_s, rel=1e-9)
    assert all(value >= 0 and times > 0 for value, times in made_up)


def test_what_was_counted_before_a_reset_stays() -> None:
    profiler = profiler_on()
    sdk = Metrics(profiler)
    for count in (5, 3, 8):  # fewer and more than before
        for _ in range(count):
            profiler.record("train", "work", 2.0)
        sdk.points()
        profiler.reset_profiling()
    points = sdk.points()
    [point], [calls] = points[DURATION].values(), points["cprofiling.node.calls"].values()
    assert (point.count, calls.value) == (16, 16)
    assert point.sum == pytest.approx(0.032)


def test_more_samples_than_a_collection_takes_wait() -> None:
    profiler = profiler_on()
    sdk = Metrics(profiler, max_samples=50)
    for _ in range(100):
        profiler.record("train", "often", 1.0)
    for _ in range(10):
        profiler.record("train", "seldom", 3.0)
    found = [(sdk.points()[DURATION], sdk.metrics.pending) for _ in range(3)]
    assert [pending for _, pending in found] == [60, 10, 0]
    assert [{node: point.count for (node, _), point in points.items()} for points, _ in found] == [
        {"often": 40, "seldom": 10}, {"often": 90, "seldom": 10}, {"often": 100, "seldom": 10},
    ]  # fmt: skip
    for _ in range(5):
        profiler.record("train", "often", 1.0)
    point = sdk.points()[DURATION]["often", "train"]
    assert (point.count, point.sum) == (105, pytest.approx(0.105))


def test_two_readers_both_see_all() -> None:
    readers = [InMemoryMetricReader(), InMemoryMetricReader()]
    provider = MeterProvider(readers)
    profiler = profiler_on()
    metrics = OpenTelemetryMetrics(profiler, meter_provider=provider)
    for _ in range(3):
        profiler.record("train", "work", 1.0)
        for reader in readers:
            reader.collect()
    counts: list[list[Any]] = []
    for reader in readers:
        data = reader.get_metrics_data()
        assert data is not None
        found = {each.name: each for each in data.resource_metrics[0].scope_metrics[0].metrics}
        counts.append([found[name].data.data_points[0] for name in (DURATION, "cprofiling.node.calls")])
    assert [(duration.count, calls.value) for duration, calls in counts] == [(3, 3), (3, 3)]
    assert metrics.pending == 0


def test_gpu_times_are_a_histogram_of_their_own(tmp_path: Path) -> None:
    snapshot = gpu_snapshot(tmp_path)
    points = Metrics(lambda: snapshot).points()
    assert {node: point.count for (node, _), point in points[DURATION].items()} == {"gpu": len(GPU_MS), "host": 1}
    [(names, point)] = points["cprofiling.node.gpu.duration"].items()
    assert (names, point.count, point.sum) == (("gpu", "inference"), len(GPU_MS), pytest.approx(sum(GPU_MS) / 1e3))


def test_merged_snapshots_that_grow_are_one_series() -> None:
    profilers = [profiler_on() for _ in range(3)]
    for profiler in profilers:
        profiler.record("train", "work", 1.0)
    joined = profilers[:1]
    sdk = Metrics(lambda: cp.Snapshot.merge(profiler.snapshot() for profiler in joined))
    assert sdk.point().count == 1
    joined = profilers
    assert sdk.point().count == 3
    profilers[0].record("train", "work", 1.0)
    assert sdk.point().count == 4


def test_hostile_names_and_too_many(receiver: Receiver) -> None:
    profiler = profiler_on()
    for name in NAMES:
        profiler.record(name, name, 1.0)
    exporter = OTLPMetricExporter(f"{receiver.address}/v1/metrics")
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=NEVER * 1e3)])
    OpenTelemetryMetrics(profiler, meter_provider=provider, max_nodes=300)
    provider.shutdown()
    [request] = receiver.metrics
    points = [
        point for metric in request.resource_metrics[0].scope_metrics[0].metrics if metric.name == DURATION
        for point in metric.histogram.data_points
    ]  # fmt: skip
    shown = [*map(exported, NAMES[:300])]
    assert sum(point.count for point in points) == len(NAMES)
    assert {(name, name) for name in shown} < {key_of(point) for point in points}
    assert ("__overflow__", "__overflow__") in {key_of(point) for point in points}


def test_a_source_that_fails_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    profiler, broken = profiler_on(), True
    profiler.record("train", "work", 1.0)

    def read() -> cp.Snapshot:
        if broken:
            raise OSError("gone")
        return profiler.snapshot()

    sdk = Metrics({"bad": read, "good": profiler})
    for _ in range(2):
        assert list(sdk.points()[DURATION]) == [("work", "train", "good")]
    assert caplog.messages == ["statistics of 'bad' cannot be read for OpenTelemetry: gone"]
    assert caplog.records[0].levelno == logging.WARNING
    broken = False
    assert len(sdk.points()[DURATION]) == 2
    broken = True
    sdk.points()
    assert len(caplog.messages) == 2
    OpenTelemetryMetrics(read, meter_provider=sdk.provider)
    sdk.points()
    assert caplog.messages[-1] == "statistics cannot be read for OpenTelemetry: gone"


def test_several_for_one_provider_are_all_asked() -> None:
    first, second = profiler_on(), profiler_on()
    first.record("train", "first", 1.0)
    second.record("train", "second", 1.0)
    sdk = Metrics(first)
    more = OpenTelemetryMetrics(second, meter_provider=sdk.provider)
    assert {node: point.count for (node, _), point in sdk.points()[DURATION].items()} == {"first": 1, "second": 1}
    sdk.metrics.stop()
    sdk.metrics.stop()
    for profiler in (first, second):
        profiler.record("train", "later", 1.0)
    assert {key[0]: point.value for key, point in sdk.points()["cprofiling.node.calls"].items()} == {
        "second": 1, "later": 1,
    }  # fmt: skip
    assert (sdk.metrics.pending, more.pending) == (0, 0)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_begins_anew() -> None:
    profiler = profiler_on()
    sdk = Metrics(profiler, max_samples=1)
    for _ in range(3):
        profiler.record("train", "work", 1.0)
    sdk.points()
    assert sdk.metrics.pending == 2
    with sdk.metrics._lock:  # as another thread may have it
        child = os.fork()
        if child == 0:
            profiler.record("train", "child", 1.0)
            points = sdk.points()["cprofiling.node.calls"]
            counted = {key: each.value for key, each in points.items() if key[0] == "child"}
            os._exit(0 if (counted, sdk.metrics.pending) == ({("child", "train"): 1}, 0) else 1)
    assert os.waitpid(child, 0)[1] == 0
    sdk.points()
    assert sdk.metrics.pending == 1


def test_without_an_sdk_nothing_happens() -> None:
    code = (
        "import sys, cprofiling as cp\n"
        "sys.modules['opentelemetry.sdk'] = None\n"
        "from cprofiling.export import OpenTelemetryMetrics, open_telemetry_spans\n"
        "def read(): raise AssertionError\n"
        "metrics = OpenTelemetryMetrics(read)\n"
        "assert metrics.pending == 0\n"
        "assert 'opentelemetry.metrics' in sys.modules\n"
        "try: open_telemetry_spans(cp.Recording.empty())\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert "opentelemetry.sdk.trace is needed for this" in done.stdout
    assert done.stdout.endswith('pip install "opentelemetry-sdk"\n')


def test_the_global_provider_may_come_later() -> None:
    code = (
        "import cprofiling as cp\n"
        "from opentelemetry import metrics\n"
        "from opentelemetry.sdk.metrics import MeterProvider\n"
        "from opentelemetry.sdk.metrics.export import InMemoryMetricReader\n"
        "from cprofiling.export import OpenTelemetryMetrics\n"
        "p = cp.Profiler()\n"
        "p.set_profiling(True)\n"
        "p.record('train', 'work', 1.0)\n"
        "OpenTelemetryMetrics(p)\n"
        "reader = InMemoryMetricReader()\n"
        "metrics.set_meter_provider(MeterProvider([reader]))\n"
        "[scope] = reader.get_metrics_data().resource_metrics[0].scope_metrics\n"
        "print(*sorted(each.name for each in scope.metrics), scope.metrics[0].data.data_points[0].count)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert "cprofiling.node.duration" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"profiler": 3}, TypeError, "profiler must be a Profiler, a pipeline, or a callable"),
        ({"boundaries": (2, 1)}, ValueError, "boundaries must rise"),
        ({"max_nodes": 0}, ValueError, "max_nodes must be >= 1, got 0"),
        ({"max_samples": 0}, ValueError, "max_samples must be >= 1, got 0"),
        ({"max_samples": "1"}, TypeError, "max_samples must be an integer"),
        ({"meter_provider": 3}, TypeError, "meter_provider must be a MeterProvider, got 3"),
    ],
)
def test_wrong_arguments_of_metrics(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        OpenTelemetryMetrics(**{"profiler": cp.Profiler(), **arguments})


def test_without_the_api_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(ImportError, match=r'pip install "cprofiling\[otel\]"'):
        OpenTelemetryMetrics(cp.Profiler())


# ---- recordings ----------------------------------------------------------------------------------


def recorded() -> cp.profile:
    """Nodes in each other, in threads and tasks, that end in every way."""

    @cp.profile_node("leaf")
    def leaf(number: int) -> None:
        if number == 3:
            raise ValueError

    @cp.profile_node("task")
    async def task(number: int) -> None:
        await asyncio.sleep(0)
        leaf(number)
        if number == 2:
            raise asyncio.CancelledError

    async def tasks() -> None:
        await asyncio.gather(*map(task, range(5)), return_exceptions=True)

    def work() -> None:
        with cp.stage("train"), cp.record("label"), cp.profile_node("block"):
            leaf(0)

    with profile() as prof:
        thread = threading.Thread(target=work, name="worker")
        thread.start()
        thread.join()
        asyncio.run(tasks())
        prof.pause()
        prof.resume()
        unfinished = cp.record("unfinished")
        unfinished.__enter__()
        leaf(1)
    unfinished.__exit__(None, None, None)
    return prof


def test_an_otlp_receiver_gets_the_recordings_spans(receiver: Receiver) -> None:
    prof = recorded()
    exporter: Any = OTLPSpanExporter(f"{receiver.address}/v1/traces")
    assert export_spans(prof, exporter, resource=Resource({"service.name": "tests"})) == len(prof.events())
    exporter.shutdown()
    [request] = receiver.traces
    [resource] = request.resource_spans
    assert [(each.key, each.value.string_value) for each in resource.resource.attributes] == [("service.name", "tests")]
    [scope] = resource.scope_spans
    assert scope.scope.name == "cprofiling"
    events = prof.events()
    assert len(events) == 15
    for span, event in zip(scope.spans, events, strict=True):
        assert (span.trace_id.hex(), span.span_id.hex()) == (event.trace_id, event.span_id)
        assert span.parent_span_id.hex() == (event.parent_span_id or "")
        assert (span.name, span.start_time_unix_nano, span.end_time_unix_nano) == (event.name, event.start, event.end)
        assert span.status.code == (2 if event.outcome == "error" else 0)
        known = {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
        expected = {"thread.id": event.thread_id, "thread.name": event.thread_name, "stage": event.stage}
        expected |= {"node": event.name} if event.kind == "node" else {}
        outcome = "unfinished" if event.unfinished else event.outcome
        expected |= {"outcome": outcome} if outcome != "success" else {}
        assert known == {name: value for name, value in expected.items() if value}
    outcomes = {each.value.string_value for span in scope.spans for each in span.attributes if each.key == "outcome"}
    assert outcomes == {"error", "cancelled", "unfinished"}
    by_id = {span.span_id: span.name for span in scope.spans}
    parents = [(span.name, by_id.get(span.parent_span_id)) for span in scope.spans]
    assert {("leaf", "block"), ("block", "label"), ("label", None), ("leaf", "task"), ("task", None)} <= set(parents)


def test_an_exporter_gets_batches_and_its_failures_are_no_spans() -> None:
    class Exporter(SpanExporter):  # type: ignore[misc]
        def __init__(self) -> None:
            self.batches: list[int] = []

        def export(self, spans: Any) -> SpanExportResult:
            self.batches.append(len(spans))
            return SpanExportResult.FAILURE if len(self.batches) == 2 else SpanExportResult.SUCCESS

    exporter = Exporter()
    rows = [host(str(number), number, number + 1, kind=NODE, span=number + 1, trace_low=1) for number in range(1100)]
    assert export_spans(made(rows), exporter) == 1100 - 512
    assert exporter.batches == [512, 512, 76]


def test_a_processor_of_the_program_takes_spans_too() -> None:
    kept = InMemorySpanExporter()
    processor = SimpleSpanProcessor(kept)
    prof = recorded()
    assert export_spans(prof.recording, processor) == len(prof.events())
    assert [span.name for span in kept.get_finished_spans()] == [event.name for event in prof.events()]


def test_the_resource_is_that_of_the_global_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry import trace

    provider = TracerProvider(resource=Resource({"service.name": "global"}))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    [span] = open_telemetry_spans(made([host("a", 1, 2, kind=NODE, span=1, trace_low=1)]))
    assert span.resource is provider.resource


def test_hostile_names_of_spans(receiver: Receiver) -> None:
    rows = [
        host(name, 1, 2, kind=NODE, stage=name, span=place + 1, trace_low=1, flags=4 if place else 2)
        for place, name in enumerate(NAMES)
    ]
    assert export_spans(made(rows), OTLPSpanExporter(f"{receiver.address}/v1/traces")) == len(NAMES)
    [request] = receiver.traces
    spans = request.resource_spans[0].scope_spans[0].spans
    shown = [*map(exported, NAMES)]
    assert {(span.span_id.hex(), span.name) for span in spans} == {
        (f"{place + 1:016x}", name) for place, name in enumerate(shown)
    }
    assert {each.value.string_value for span in spans for each in span.attributes if each.key == "outcome"} == {"cut"}


def test_what_has_no_ids_is_no_span() -> None:
    recording = made(
        [
            host("node", 0, 10, kind=NODE, span=5, trace_high=1, trace_low=2, thread="main/worker"),
            host("aten::mm", 1, 2),
            host("label", 3, 4, kind=RECORD, span=6, parent_span=5, trace_high=1, trace_low=2),
        ]
    )
    spans = list(open_telemetry_spans(recording))
    assert [span.name for span in spans] == ["node", "label"]
    assert spans[0].parent is None
    parent = spans[1].parent
    assert parent is not None
    assert (parent.trace_id, parent.span_id) == ((1 << 64) | 2, 5)
    assert dict(spans[0].attributes or {}) == {"node": "node"}  # its thread has no number
    assert list(open_telemetry_spans(made([host("aten::mm", 1, 2)]))) == []
    assert list(open_telemetry_spans(cp.Recording.empty())) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: open_telemetry_spans(NOTHING), "recording must be a Recording, or a profile that has one, got 3"),
        (lambda: open_telemetry_spans(made([]), resource=NOTHING), "resource must be a Resource, got 3"),
        (lambda: export_spans(made([]), NOTHING), "exporter must be a SpanExporter or a SpanProcessor, got 3"),
    ],
)  # fmt: skip
def test_wrong_arguments_of_spans(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_a_recording_that_has_not_ended_has_no_spans() -> None:
    with profile() as prof, pytest.raises(RuntimeError, match=r"stop\(\) it first"):
        open_telemetry_spans(prof)
