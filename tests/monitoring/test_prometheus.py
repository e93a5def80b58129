"""Statistics for Prometheus: what a scrape shows, in whose eyes ever (failure scenarios F4, F5, I7)."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import math
import os
import random
import re
import runpy
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import UserDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cprofiling as cp
from calls import by_name, profiler_on, run_unwatched, spin, unwatched
from command import python
from cprofiling.monitoring.node_totals import DEFAULT_BOUNDS
from gpu_snapshots import GPU_MS, gpu_snapshot
from hostile_names import NAMES, exported

prometheus_client = pytest.importorskip("prometheus_client")
openmetrics = pytest.importorskip("prometheus_client.openmetrics.exposition")
openmetrics_parser = pytest.importorskip("prometheus_client.openmetrics.parser")
text_parser = pytest.importorskip("prometheus_client.parser")

from prometheus_client.core import CollectorRegistry, Metric, Sample  # noqa: E402 it may be missing

from cprofiling.export import PrometheusCollector  # noqa: E402 as above

GRAFANA = Path(__file__).parents[2] / "python/docs/pages/guides/grafana"
NODE = [f"cprofiling_node_{name}" for name in ("calls", "errors", "cancelled", "skipped", "dropped")]
NAMED = {
    **dict.fromkeys(("cprofiling_node_duration_seconds", "cprofiling_node_gpu_duration_seconds"), "histogram"),
    **dict.fromkeys((*NODE, "cprofiling_internal_errors"), "counter"),
    **dict.fromkeys(("cprofiling_node_memory_peak_bytes", "cprofiling_folded_nodes"), "gauge"),
    **dict.fromkeys(("cprofiling_call_cost_seconds", "cprofiling_read_failed"), "gauge"),
    "cprofiling_build": "info",
}


def registry_with(profiler: Any, **options: Any) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(profiler, **options))
    return registry


def as_text(registry: CollectorRegistry) -> list[Metric]:
    """What a scrape in the text format shows."""
    text = prometheus_client.generate_latest(registry).decode()
    return list(text_parser.text_string_to_metric_families(text))


def as_openmetrics(registry: CollectorRegistry) -> list[Metric]:
    """What a scrape in OpenMetrics' format shows, to a parser that lets nothing pass."""
    text = openmetrics.generate_latest(registry).decode()
    return list(openmetrics_parser.text_string_to_metric_families(text))


def samples(registry: CollectorRegistry, name: str) -> list[Sample]:
    return [sample for family in registry.collect() for sample in family.samples if sample.name == name]


def values(registry: CollectorRegistry, name: str) -> dict[str, float]:
    """The values of a family by node."""
    return {sample.labels["node"]: sample.value for sample in samples(registry, name)}


def buckets(registry: CollectorRegistry, node: str = "work", name: str = "duration") -> list[tuple[float, float]]:
    found = samples(registry, f"cprofiling_node_{name}_seconds_bucket")
    return [(float(each.labels["le"]), each.value) for each in found if each.labels["node"] == node]


# ---- figures -------------------------------------------------------------------------------------


def test_the_families_have_their_names_types_and_labels() -> None:
    profiler = profiler_on()
    profiler.record("train", "work", 1.0)
    families = {family.name: family for family in as_openmetrics(registry_with(profiler))}
    assert {name: family.type for name, family in families.items()} == NAMED
    assert not any(sample.name.endswith("_created") for family in families.values() for sample in family.samples)
    for name, family in families.items():
        for sample in family.samples:
            wanted = {"node": "work", "stage": "train"} if "_node_" in name else {}
            assert {
                label: value for label, value in sample.labels.items() if label != "le"
            } == wanted or "build" in name
    (build,) = families["cprofiling_build"].samples
    assert set(build.labels) == {"version", "python", "clock"}
    assert (build.labels["python"], build.value) == (".".join(map(str, sys.version_info[:3])), 1.0)


def test_the_figures_are_the_summarys() -> None:
    profiler = profiler_on(skip_first_n=2)

    @profiler.profile_node("work")
    def work(fails: bool) -> None:
        if fails:
            raise ValueError

    for number in range(50):
        with contextlib.suppress(ValueError):
            work(number % 10 == 9)
    work_open = profiler.profile_node("work")
    work_open.__enter__()
    profiler.set_profiling(True, skip_first_n=2)
    work_open.__exit__(None, None, None)
    registry = registry_with(profiler)
    [row] = profiler.get_profiling_summary()
    assert (row.count, row.error_count, row.skipped_count) == (44, 5, 2)
    for families in (as_text(registry), as_openmetrics(registry)):
        shown = {
            sample.name: sample.value for family in families for sample in family.samples if "le" not in sample.labels
        }
        assert shown["cprofiling_node_duration_seconds_count"] == row.count
        assert shown["cprofiling_node_duration_seconds_sum"] == row.total_ms / 1e3
        assert shown["cprofiling_node_calls_total"] == 51
        assert shown["cprofiling_node_errors_total"] == row.error_count
        assert shown["cprofiling_node_skipped_total"] == row.skipped_count
        assert shown["cprofiling_node_cancelled_total"] == shown["cprofiling_node_dropped_total"] == 0
        assert shown["cprofiling_internal_errors_total"] == 0
        assert shown["cprofiling_call_cost_seconds"] > 0
        assert shown["cprofiling_read_failed"] == shown["cprofiling_folded_nodes"] == 0


def test_cancelled_and_dropped_calls_are_counted() -> None:
    import asyncio

    profiler = profiler_on()
    block = profiler.profile_node("work")
    with profiler.profile_node("work"):
        pass
    with pytest.raises(asyncio.CancelledError), profiler.profile_node("work"):
        raise asyncio.CancelledError
    with block:
        profiler.reset_profiling()
    registry = registry_with(profiler)
    assert values(registry, "cprofiling_node_dropped_total") == {"work": 1}
    with pytest.raises(asyncio.CancelledError), block:
        raise asyncio.CancelledError
    assert values(registry, "cprofiling_node_cancelled_total") == {"work": 1}
    assert values(registry, "cprofiling_node_calls_total") == {"work": 2}


def test_each_bucket_has_exactly_what_is_below_its_bound() -> None:
    profiler, draw = profiler_on(), random.Random(1)
    times = [math.exp(draw.uniform(math.log(1e-7), math.log(500))) for _ in range(3000)]
    for seconds in times:
        profiler.record("inference", "work", seconds * 1e3)
    shown = buckets(registry_with(profiler))
    assert [bound for bound, _ in shown] == [*DEFAULT_BOUNDS, math.inf]
    assert shown == [(bound, sum(each < bound for each in times)) for bound, _ in shown]
    assert 0 < shown[0][1] < shown[-2][1] < shown[-1][1] == 3000


def test_bounds_are_moved_to_edges_and_stay_exact() -> None:
    wanted = (0.00025, 0.005, 0.1, 0.25, 1, 2.5, 60)
    profiler, draw = profiler_on(), random.Random(2)
    times = [bound * draw.uniform(0.98, 1.02) for bound in wanted for _ in range(300)]
    for seconds in times:
        profiler.record("inference", "work", seconds * 1e3)
    shown = buckets(registry_with(profiler, buckets=wanted))
    assert [bound for bound, _ in shown[:-1]] == [pytest.approx(bound, rel=0.008) for bound in wanted]
    assert shown == [(bound, sum(each < bound for each in times)) for bound, _ in shown]
    profiler.reset_profiling()
    profiler.record("inference", "work", 0.001)
    limits = buckets(registry_with(profiler, buckets=(1e-9, 1e-6, 1e5)))  # a time that equals a bound counts above it
    assert limits == [(1e-9, 0), (1e-6, 0), (pytest.approx(1e5, rel=0.008), 1), (math.inf, 1)]


def test_gpu_times_and_memory_are_there_where_they_are_known(tmp_path: Path) -> None:
    snapshot = gpu_snapshot(tmp_path)
    registry = registry_with(lambda: snapshot)
    assert values(registry, "cprofiling_node_duration_seconds_count") == {"gpu": len(GPU_MS), "host": 1}
    assert values(registry, "cprofiling_node_gpu_duration_seconds_count") == {"gpu": len(GPU_MS)}
    assert values(registry, "cprofiling_node_gpu_duration_seconds_sum") == {"gpu": pytest.approx(sum(GPU_MS) / 1e3)}
    shown = buckets(registry, "gpu", "gpu_duration")
    assert shown == [(bound, sum(each / 1e3 < bound for each in GPU_MS)) for bound, _ in shown]
    assert as_openmetrics(registry)


def test_peaks_of_memory_are_in_bytes(tmp_path: Path) -> None:
    # In a process of its own: a call that stays below what was reached before it has no peak.
    program = """
import cprofiling as cp
from cprofiling.export import PrometheusCollector
profiler = cp.Profiler()
profiler.set_profiling(True, memory=True)
with profiler.profile_node("work"):
    block = bytearray(300 << 20)
peak = profiler.get_profiling_summary().node("work").memory.host.peak
metrics = {metric.name: metric.samples for metric in PrometheusCollector(profiler).collect()}
for each in metrics["cprofiling_node_memory_peak_bytes"]:
    print(each.labels["memory"], each.value == peak, peak)
"""
    done = python(["-c", program], tmp_path, watched=False)
    assert done.err == ""
    memory, same, peak = done.out.split()
    assert (memory, same) == ("host", "True")
    assert int(peak) > 300 << 20


# ---- whose statistics ----------------------------------------------------------------------------


def test_several_profilers_are_told_apart_by_their_names() -> None:
    class Pipeline(cp.PipelineProfiling):
        pass

    pipeline, profiler = Pipeline(), profiler_on()
    pipeline.set_profiling(True)
    sources: dict[str, Any] = {"first": profiler, "second \ud800": pipeline}
    registry = registry_with(sources)
    profiler.record("train", "work", 1.0)
    pipeline.profiler.record("train", "work", 2.0)
    sources["third"] = lambda: profiler.snapshot()
    shown = samples(registry, "cprofiling_node_duration_seconds_sum")
    assert [(each.labels["pipeline"], each.value) for each in shown] == [
        ("first", 0.001), ("second \\ud800", 0.002), ("third", 0.001),
    ]  # fmt: skip
    assert len(as_openmetrics(registry)) == len(as_text(registry)) == len(NAMED)
    del sources["first"], sources["third"]
    assert len(samples(registry, "cprofiling_read_failed")) == 1


def test_registering_reads_nothing_and_one_collector_serves_all() -> None:
    def read() -> cp.Snapshot:
        raise AssertionError("it was read")

    registry = registry_with(read)
    with pytest.raises(ValueError, match=r"Duplicated timeseries.*cprofiling_node_duration_seconds"):
        registry.register(PrometheusCollector(cp.Profiler()))


def test_names_that_come_later_take_nothing_else_with_them(caplog: pytest.LogCaptureFixture) -> None:
    profiler, gone = profiler_on(), False
    profiler.record("train", "work", 1.0)

    class Sources(UserDict[Any, Any]):
        def __iter__(self) -> Any:
            if gone:
                raise OSError("gone")
            return super().__iter__()

    sources = Sources({"good": profiler})
    registry = registry_with(sources)
    sources.update({3: profiler, "n\0l": profiler})
    for _ in range(2):
        shown = samples(registry, "cprofiling_read_failed")
        failed = {each.labels["pipeline"]: each.value for each in shown}
        assert failed == {"good": 0, "3 (int)": 1, "'n\\x00l' (str)": 1}
        assert values(registry, "cprofiling_node_calls_total") == {"work": 1}
    assert len(caplog.messages) == 2
    assert caplog.messages[0] == (
        "statistics of '3 (int)' cannot be read for Prometheus: name must be a str, got 3 (int)"
    )
    caplog.clear()
    for gone in (True, True, False, True):
        assert len(samples(registry, "cprofiling_read_failed")) == (0 if gone else 3)
    assert caplog.messages == ["statistics cannot be read for Prometheus: gone"] * 2


def test_one_that_cannot_be_read_takes_nothing_else_with_it(caplog: pytest.LogCaptureFixture) -> None:
    profiler, broken = profiler_on(), True
    profiler.record("train", "work", 1.0)

    def read() -> Any:
        if broken:
            raise OSError("gone")
        return profiler.snapshot()

    sources: dict[str, Any] = {"bad": read, "good": profiler, "wrong": lambda: 3}
    registry = registry_with(sources)
    for _ in range(3):
        assert [each.value for each in samples(registry, "cprofiling_read_failed")] == [1, 0, 1]
        assert values(registry, "cprofiling_node_calls_total") == {"work": 1}
    assert [(record.name, record.levelno) for record in caplog.records] == [("cprofiling", logging.WARNING)] * 2
    assert caplog.messages[0] == "statistics of 'bad' cannot be read for Prometheus: gone"
    assert "must be a Snapshot, got 3 (int)" in caplog.messages[1]
    broken = False
    sources["later"] = 4
    assert [each.value for each in samples(registry, "cprofiling_read_failed")] == [0, 0, 1, 1]
    broken = True
    caplog.clear()
    assert [each.value for each in samples(registry, "cprofiling_read_failed")] == [1, 0, 1, 1]
    assert caplog.messages == ["statistics of 'bad' cannot be read for Prometheus: gone"]
    assert [each.value for each in samples(registry_with(read), "cprofiling_read_failed")] == [1]
    assert caplog.messages[1] == "statistics cannot be read for Prometheus: gone"


# ---- names, and how many -------------------------------------------------------------------------


def test_hostile_names_come_back() -> None:
    profiler = profiler_on()
    for name in ("\ud800", "\\ud800"):
        profiler.record("train", name, 1.0)
    assert values(registry_with(profiler), "cprofiling_node_calls_total") == {"\\ud800": 2}  # they look alike
    profiler.reset_profiling()
    for place, name in enumerate(NAMES):
        profiler.record(name, NAMES[-place - 1], 1.0)
    registry = registry_with({NAMES[250]: profiler}, buckets=(1,))
    expected = {
        (exported(NAMES[250]), exported(stage), exported(NAMES[-place - 1])) for place, stage in enumerate(NAMES)
    }
    for families in (as_text(registry), as_openmetrics(registry)):
        (family,) = [family for family in families if family.name == "cprofiling_node_calls"]
        found = [tuple(each.labels[label] for label in ("pipeline", "stage", "node")) for each in family.samples]
        assert set(found) == expected
        assert len(found) == len(expected)


def test_the_nodes_beyond_the_limit_are_added_up_by_stage() -> None:
    profiler = profiler_on()
    for number in range(5):
        for stage in ("train", "val"):
            profiler.record(stage, f"node {number}", 1.0)
    profiler.record("other", "node", 1.0)
    profiler.record("another", "node", 1.0)
    profiler.record("train", "__overflow__", 1.0)
    registry = registry_with(profiler, max_nodes=4)
    shown = samples(registry, "cprofiling_node_duration_seconds_count")
    assert {(each.labels["stage"], each.labels["node"]): each.value for each in shown} == {
        ("train", "node 0"): 1, ("val", "node 0"): 1, ("train", "node 1"): 1, ("val", "node 1"): 1,
        ("train", "__overflow__"): 4, ("val", "__overflow__"): 3, ("__overflow__", "__overflow__"): 2,
    }  # fmt: skip
    assert [each.value for each in samples(registry, "cprofiling_folded_nodes")] == [8]
    assert as_openmetrics(registry)


@pytest.mark.filterwarnings("ignore:a Profiler keeps 65536 keys:RuntimeWarning")
def test_a_hundred_thousand_nodes_are_a_thousand_series() -> None:
    profiler = profiler_on()
    for number in range(100_000):
        profiler.record("train", str(number), 1.0)
    counts = values(registry_with(profiler), "cprofiling_node_calls_total")
    assert len(counts) == 1001
    assert sum(counts.values()) == 100_000


MEMORY_OF_SCRAPES = """
import ctypes, threading, tracemalloc
import cprofiling as cp
from cprofiling.export import PrometheusCollector

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", *"1234567", "free", "9")]

info = ctypes.CDLL(None).mallinfo2
info.restype = Info
profiler = cp.Profiler()
profiler.set_profiling(True)
for number in range(30_000):
    profiler.record("train", str(number), 1.0)
collector = PrometheusCollector(profiler, max_nodes=1)
bytearray(31 << 20)  # from now on each arena keeps up to 62 MiB of what is given back to it

def scrape():
    thread = threading.Thread(target=collector.collect)
    thread.start()
    thread.join()

before = info().free
scrape()
free = info().free - before
tracemalloc.start()
scrape()
print(free, tracemalloc.get_traced_memory()[1])
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="it asks glibc")
def test_a_scrape_of_many_nodes_leaves_no_memory_with_the_allocator() -> None:
    done = run_unwatched(MEMORY_OF_SCRAPES)
    assert done.returncode == 0, done.stderr
    free, peak = map(int, done.stdout.split())
    assert free < 4 << 20
    assert peak < 4 << 20


# ---- while things happen -------------------------------------------------------------------------


def test_a_reset_begins_all_anew() -> None:
    profiler = profiler_on()
    registry = registry_with(profiler)
    for _ in range(3):
        profiler.record("train", "work", 1.0)
    assert values(registry, "cprofiling_node_calls_total") == {"work": 3}
    profiler.reset_profiling()
    assert values(registry, "cprofiling_node_calls_total") == {}
    profiler.record("train", "work", 1.0)
    assert values(registry, "cprofiling_node_calls_total") == {"work": 1}
    profiler.set_profiling(False)
    assert values(registry, "cprofiling_node_calls_total") == {"work": 1}


@pytest.mark.slow
def test_scrapes_while_threads_record_and_reset_are_whole() -> None:
    profiler, wrong, is_over = profiler_on(), list[str](), threading.Event()
    registry = registry_with(profiler)

    def record() -> None:
        while not is_over.is_set():
            profiler.record("train", "work", 1.0)

    def scrape() -> None:
        for _ in range(60):
            for family in as_openmetrics(registry):  # which checks buckets and counts, too
                shown = {each.name.rpartition("_")[2]: each.value for each in family.samples if "le" not in each.labels}
                if "sum" in shown and not math.isclose(shown["sum"], shown["count"] * 0.001, abs_tol=1e-9):
                    wrong.append(str(shown))
            profiler.reset_profiling()

    writers = [threading.Thread(target=record) for _ in range(2)]
    readers = [threading.Thread(target=scrape) for _ in range(3)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    is_over.set()
    for thread in writers:
        thread.join()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_scrapes_its_own_statistics() -> None:
    profiler = profiler_on()
    profiler.record("train", "work", 1.0)
    registry = registry_with(profiler)
    child = os.fork()
    if child == 0:
        before = values(registry, "cprofiling_node_calls_total")
        profiler.record("val", "child", 1.0)
        os._exit(0 if (before, values(registry, "cprofiling_node_calls_total")) == ({}, {"child": 1}) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert values(registry, "cprofiling_node_calls_total") == {"work": 1}


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"profiler": None}, TypeError, "profiler must be a Profiler, a pipeline, or a callable .* got None"),
        ({"profiler": {"a": 3}}, TypeError, r"profiler\['a'\] must be a Profiler, .* got 3"),
        ({"profiler": {3: cp.Profiler()}}, TypeError, "name must be a str"),
        ({"profiler": {"a\0": cp.Profiler()}}, ValueError, "name must not contain NUL"),
        ({"buckets": 3}, TypeError, "buckets must be an iterable of numbers, got 3"),
        ({"buckets": "12"}, TypeError, "buckets must be an iterable of numbers, got '12'"),
        ({"buckets": (1, "2")}, TypeError, r"buckets\[1\] must be a number, got '2'"),
        ({"buckets": ()}, ValueError, "buckets must not be empty"),
        ({"buckets": (0,)}, ValueError, r"buckets\[0\] must be from 1e-09 to 100000, got 0"),
        ({"buckets": (1, math.inf)}, ValueError, r"buckets\[1\] must be from 1e-09 to 100000, got inf"),
        ({"buckets": (2, 1)}, ValueError, "buckets must rise, by 2 % at least, got 1 .*after 1.99"),
        ({"buckets": (1, 1.0001)}, ValueError, "buckets must rise, by 2 % at least, got 1.0001"),
        ({"max_nodes": 0}, ValueError, "max_nodes must be >= 1, got 0"),
        ({"max_nodes": 1.5}, TypeError, "max_nodes must be an integer"),
    ],
)  # fmt: skip
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PrometheusCollector(**{"profiler": cp.Profiler(), **arguments})


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with pytest.raises(
        ImportError, match=r'prometheus_client\.core is needed.* pip install "cprofiling\[prometheus\]"'
    ):
        PrometheusCollector(cp.Profiler())


def test_the_module_loads_it_when_it_is_asked_for() -> None:
    code = (
        "import sys; import cprofiling.export as e\n"
        "assert not [n for n in sys.modules if n.startswith(('prometheus', 'opentelemetry'))]\n"
        "assert 'PrometheusCollector' in dir(e) and 'to_pandas' in dir(e)\n"
        "assert e.PrometheusCollector.__module__ == 'cprofiling.export'\n"
        "assert not [n for n in sys.modules if n.startswith('prometheus_client')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---- a real server -------------------------------------------------------------------------------


class Server:
    """A Prometheus of its own that scrapes one address."""

    def __init__(self, folder: Path, target: int, interval: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = folder / "prometheus.yml"
        jobs = f"[{{job_name: nodes, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]"
        config.write_text(
            f"{{global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}, scrape_configs: {jobs}}}"
        )
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    def ask(self, path: str, **parameters: str) -> Any:
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, query: str, **parameters: str) -> dict[str, float]:
        """The values of an expression by node."""
        result = self.ask("query", query=query, **parameters)["result"]
        return {each["metric"].get("node", ""): float(each["value"][1]) for each in result}

    def wait_until(self, is_so: Callable[[], Any]) -> None:
        end = time.monotonic() + 60
        while True:
            try:
                if is_so():
                    return
            except OSError as error:
                if isinstance(error, urllib.error.HTTPError):  # 503 while it starts
                    error.close()
                assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.1)


@pytest.fixture
def exposed() -> Iterator[tuple[cp.Profiler, CollectorRegistry, int]]:
    """A Profiler that is on, its registry, and the port at which that is served."""
    profiler = profiler_on()
    registry = registry_with({"main": profiler})
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    yield profiler, registry, server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
def test_a_real_server_scrapes_a_pipeline_that_runs(
    exposed: tuple[cp.Profiler, CollectorRegistry, int], tmp_path: Path
) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("not on PATH: prometheus")
    profiler, registry, port = exposed
    draw = random.Random(3)

    @profiler.profile_node("work")
    def work() -> None:
        spin(draw.lognormvariate(-8.0, 0.7))

    names = [name for name in NAMES if len(name) < 40][:50]  # a busy machine is to answer within a second
    work()
    with Server(tmp_path, port, "1s") as server:
        server.wait_until(lambda: server.query("cprofiling_node_calls_total{node='work'}") == {"work": 1})
        end = time.monotonic() + 3
        while time.monotonic() < end:
            work()
        for name in names:
            profiler.record(name, name, 1.0)
        shown = [sample for family in registry.collect() for sample in family.samples]
        server.wait_until(lambda: server.query("scrape_samples_scraped") == {"": len(shown)})
        server.wait_until(lambda: {each["health"] for each in server.ask("targets")["activeTargets"]} == {"up"})
        times: dict[str, float] = {}

        def was_scraped() -> bool:
            times.update(server.query("timestamp(cprofiling_node_calls_total{node='work'})"))
            return bool(times)

        server.wait_until(was_scraped)
        then = {"time": str(times["work"])}  # that stays as it is, also where the next scrape is too late
        scraped = server.ask("query", query="cprofiling_node_calls_total", **then)["result"]
        assert {(each["metric"].get("stage", ""), each["metric"].get("node", "")) for each in scraped} == {
            ("inference", "work"), *((exported(name), exported(name)) for name in names),
        }  # fmt: skip
        row = by_name(profiler)["work"]
        assert row.p99_ms is not None
        bucket = "cprofiling_node_duration_seconds_bucket{node='work'}"
        quantile = server.query(f"histogram_quantile(0.99, {bucket})", **then)["work"]
        recent = server.query(f"histogram_quantile(0.99, rate({bucket}[10m]))", **then)["work"]
        bound = next(bound for bound in DEFAULT_BOUNDS if bound * 1e3 > row.p99_ms)
        assert bound / 2 <= quantile <= bound  # the bucket in which our p99 is
        assert bound / 4 <= recent <= bound * 2  # that of what came after the first scrape
        total = server.query("cprofiling_node_duration_seconds_sum{node='work'}", **then)
        assert total == {"work": row.total_ms / 1e3}
        assert "level=warn" not in server.log.read_text()  # as on duplicates, and on what does not parse


def dashboard() -> Any:
    return json.loads((GRAFANA / "dashboard.json").read_text(encoding="ascii"))


@pytest.mark.slow
def test_each_panel_of_the_dashboard_is_answered(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("not on PATH: prometheus")
    profiler, snapshot = profiler_on(), gpu_snapshot(tmp_path)

    @profiler.profile_node("work")
    def work(fails: bool) -> None:
        if fails:
            raise LookupError

    def call() -> None:
        for number in range(10):
            with contextlib.suppress(LookupError):
                work(number == 0)

    call()
    server, thread = prometheus_client.start_http_server(
        0, "127.0.0.1", registry_with({"main": profiler, "stored": lambda: snapshot})
    )
    try:
        with Server(tmp_path, server.server_port, "1s") as prometheus:
            prometheus.wait_until(lambda: prometheus.query("cprofiling_node_calls_total{node='work'}") == {"work": 10})
            call()
            prometheus.wait_until(lambda: prometheus.query("cprofiling_node_calls_total{node='work'}") == {"work": 20})
            answers = {}
            for panel in dashboard()["panels"]:
                for target in panel["targets"]:
                    query = re.sub(r"\$__\w+", "1m", target["expr"])
                    query = re.sub(r"\$\w+", ".*", query)
                    answers[panel["title"], target["refId"]] = prometheus.ask("query", query=query)["result"]
            values = {title: [float(each["value"][1]) for each in answer] for (title, _), answer in answers.items()}
            assert all(values.values())
            assert max(values["Part of the calls that fail, by node"]) == pytest.approx(0.1)
            assert values["Calls that fail"] == [pytest.approx(0.1)]
            assert values["Not read"] == [0]
            labels = {each["metric"]["node"] for each in answers["p99 by node", "A"]}
            assert labels == {"work", "gpu", "host"}
            for variable in dashboard()["templating"]["list"][1:]:
                metric, _, label = (
                    variable["definition"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
                )
                found = prometheus.ask("series", **{"match[]": re.sub(r"\$\w+", ".*", metric)})
                assert {each[label] for each in found}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_dashboard_is_laid_out() -> None:
    panels = dashboard()["panels"]
    assert [panel["id"] for panel in panels] == [*range(1, len(panels) + 1)]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert taken.isdisjoint(cells)
        assert max(x for x, _ in cells) < 24
        taken |= cells
    shown = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    families = {family.name for family in PrometheusCollector(profiler_on()).collect()}
    assert families <= set(re.findall(r"cprofiling_[a-z_]+?(?=_total|_bucket|_sum|_info|\{)", shown))


SERIES = 'job="j", pipeline="main", stage="train", node="load"'
SLOW = "For five minutes it has been more than twice that of the hour before the last."
# When each alert is quiet, when it is loud, in minutes, and what it tells. A call takes less than 0.1 s for two hours,
# then less than 1 s. In the fourth hour 5 % fail.
ALERTS: dict[str, tuple[int, int, dict[str, str]]] = {
    "NodeIsSlow": (110, 140, {"summary": "train / load: p99 is 991ms", "description": SLOW}),
    "NodeFails": (140, 200, {
        "summary": "train / load: 5% of the calls fail",
        "description": "For five minutes an exception has left more than 1 % of its calls.",
    }),
    "StatisticsAreNotRead": (140, 200, {
        "summary": "i: the statistics cannot be read",
        "description": "They are missing from the series. The program's log says why.",
    }),
    "ProfilerHasFaults": (140, 200, {
        "summary": "i: faults inside the profiler", "description": "Calls may be missing from the statistics.",
    }),
}  # fmt: skip


def test_the_alerts_go_off_when_they_should(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("not on PATH: promtool")
    bucket = "cprofiling_node_duration_seconds_bucket"
    series = {
        f'{bucket}{{{SERIES}, le="0.1"}}': "0+60x120 7200+0x120",
        f'{bucket}{{{SERIES}, le="1"}}': "0+60x241",
        f'{bucket}{{{SERIES}, le="+Inf"}}': "0+60x241",
        f"cprofiling_node_calls_total{{{SERIES}}}": "0+60x241",
        f"cprofiling_node_errors_total{{{SERIES}}}": "0+0x180 0+3x60",
        'cprofiling_read_failed{job="j", instance="i"}': "0x180 1x60",
        'cprofiling_internal_errors_total{job="j", instance="i"}': "0x180 1+1x60",
    }
    of_node = {"job": "j", "pipeline": "main", "stage": "train", "node": "load"}
    of_source = {"job": "j", "instance": "i"}
    tests = []
    for name, (quiet, loud, told) in ALERTS.items():
        labels = (of_node if name.startswith("Node") else of_source) | {
            "severity": "critical" if name == "NodeFails" else "warning"
        }
        expected = [{"exp_labels": labels, "exp_annotations": told}]
        tests += [
            {"eval_time": f"{quiet}m", "alertname": name, "exp_alerts": []},
            {"eval_time": f"{loud}m", "alertname": name, "exp_alerts": expected},
        ]
    given = [{"series": name, "values": values} for name, values in series.items()]
    case = {"interval": "1m", "input_series": given, "alert_rule_test": tests}
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(GRAFANA / "alerts.yml")], "tests": [case]}), encoding="ascii")
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {*re.findall(r"- alert: (\w+)", (GRAFANA / "alerts.yml").read_text(encoding="ascii"))} == {*ALERTS}


def test_prometheus_own_linter_finds_nothing() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("not on PATH: promtool")
    profiler = profiler_on(memory=True)
    for name in NAMES:
        with profiler.profile_node(name):
            pass
    text = prometheus_client.generate_latest(registry_with({"main": profiler}, buckets=(1e-3, 1)))
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# ---- the benchmark -------------------------------------------------------------------------------

BENCHMARK = Path(__file__).resolve().parents[2] / "python" / "benchmarks" / "scraping.py"


@pytest.mark.slow
def test_a_second_of_the_benchmark_goes_well() -> None:
    """Its times are nothing here."""
    if shutil.which("prometheus") is None:
        pytest.skip("not on PATH: prometheus")
    command = [sys.executable, str(BENCHMARK), "--seconds", "1", "--turn", "1", "--runs", "1"]
    environment = {**unwatched(), "PYTHONPATH": str(Path(cp.__file__).parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=150)
    assert done.stderr == ""
    run, verdict = done.stdout.splitlines()
    assert verdict.endswith("; nothing was wrong")
    result = json.loads(run)
    assert result["scraped"]["calls"] > 0
    assert result["left alone"]["calls"] > 0


RIGHT = {
    "scrapes": 9.0, "failed scrapes": 0.0, "samples": 5, "samples taken": 5.0, "sums are ours": True,
    "buckets apart": 1, "warnings": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("difference", "fault"),
    [
        ({}, None),
        ({"scrapes": 0.0}, "0 scrapes failed, 0 did not"),
        ({"failed scrapes": 2.0, "scrapes": 40.0}, None),
        ({"failed scrapes": 2.0}, "2 scrapes failed, 9 did not"),
        ({"samples taken": 4.0}, "4 of 5 samples were taken over"),
        ({"sums are ours": False}, "the sums are others"),
        ({"buckets apart": 2}, "a quantile is 2 buckets from ours"),
        ({"warnings": ["level=warn"]}, "level=warn"),
    ],
)
def test_the_benchmark_tells_what_is_wrong(difference: dict[str, Any], fault: str | None) -> None:
    scraping = runpy.run_path(str(BENCHMARK))
    assert list(scraping["faults"]({**RIGHT, **difference})) == ([fault] if fault else [])
