"""What scraping does to a pipeline: a Prometheus scrapes it every second while 4 threads run nodes, or stands still.

``python python/benchmarks/scraping.py`` runs for 60 s with scraping and 60 s without, by turns of 4 s, three times
over, some seven minutes in all. It checks that each scrape is taken over whole, that Prometheus has our counts and
sums, and that its ``histogram_quantile(0.99, ...)`` is at most a bucket from our 99th percentile. It prints how many
times that without scraping the 99th percentile of the nodes' times is, both as the median of all turns, and times in us
of all turns together. The exit status is 0 where that was at most 1.05 in any of the runs, and nothing was wrong; else
the last lines say what was. Needs the extra prometheus, and a ``prometheus`` on the PATH.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, MetricsHandler

import cprofiling as cp
from cprofiling.export import PrometheusCollector
from cprofiling.monitoring.node_totals import DEFAULT_BOUNDS

if not __package__:  # run by itself
    sys.path.append(str(Path(__file__).resolve().parent.parent))  # behind the package, if that is installed
    __package__ = Path(__file__).resolve().parent.name

from .spinning import Pipeline, percentile_us, sorted_times

SECONDS, RUNS, TURN = 60.0, 3, 4.0
INTERVAL = 1.0  # seconds from scrape to scrape
MOST_ADDED = 0.05
MOST_LATE = 0.05  # of the scrapes: a busy machine does not answer each of them within a second
PATIENCE_S = 60.0
BUCKET = "cprofiling_node_duration_seconds_bucket"


def run_by_turns(
    pipeline: Pipeline, turns: list[bool], seconds: float, switch: Callable[[bool], None]
) -> list[array[int]]:
    """Run a pipeline, scraped or not, as ``turns`` say, ``seconds`` each; return the times of each, in order."""
    kept = []
    with pipeline.running():
        for is_scraped in turns:
            switch(is_scraped)
            kept.append(pipeline.begin_turn())
            time.sleep(seconds)
            pipeline.begin_turn()  # what comes while it is switched
    return [sorted_times(turn) for turn in kept]


class Endpoint(ThreadingHTTPServer):
    """Serves a registry as prometheus_client does, and tells when it has."""

    daemon_threads = True

    def __init__(self, registry: CollectorRegistry) -> None:
        """Serve it at a free port."""
        self.has_answered = threading.Event()
        metrics = MetricsHandler.factory(registry)

        class Handler(metrics):  # type: ignore[misc, valid-type]
            def do_GET(self) -> None:  # noqa: N802 its name is the base class's
                with suppress(BrokenPipeError):  # on a busy machine it may take longer than Prometheus waits
                    super().do_GET()
                self.server.has_answered.set()

        super().__init__(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self.shutdown()
        self.server_close()
        self._thread.join()


class Prometheus:
    """A server that scrapes an endpoint, in a process of its own that can be made to stand still."""

    def __init__(self, folder: Path, endpoint: Endpoint) -> None:
        """Start it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        config, self._log, self._endpoint = folder / "prometheus.yml", folder / "log", endpoint
        jobs = f"[{{job_name: nodes, static_configs: [{{targets: ['127.0.0.1:{endpoint.server_port}']}}]}}]"
        every = f"{INTERVAL:g}s"
        config.write_text(f"{{global: {{scrape_interval: {every}, scrape_timeout: {every}}}, scrape_configs: {jobs}}}")
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{self._port}"], stderr=log)

    def __enter__(self) -> Prometheus:
        """Wait until it has scraped once."""
        self.wait_for(lambda: self.query("up") == {"": 1.0})
        return self

    def __exit__(self, *exception: object) -> None:
        """End it."""
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def switch(self, is_scraping: bool) -> None:
        """Let it scrape, or stand still, from the end of its next scrape on."""
        if is_scraping:
            self._process.send_signal(signal.SIGCONT)
            return
        self._endpoint.has_answered.clear()
        self._endpoint.has_answered.wait(PATIENCE_S)
        time.sleep(INTERVAL / 4)  # in which it takes the answer in
        self._process.send_signal(signal.SIGSTOP)

    def query(self, query: str) -> dict[str, float]:
        """The values of an expression, by node."""
        address = f"http://127.0.0.1:{self._port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            result = json.load(answer)["data"]["result"]
        return {each["metric"].get("node", ""): float(each["value"][1]) for each in result}

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so. RuntimeError, with its log, if it takes too long."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                if is_so():
                    return
            except OSError:
                pass  # it begins
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError(self._log.read_text())
            time.sleep(0.1)

    def warnings(self) -> list[str]:
        """The lines of its log that complain, as of series that are no series."""
        return [line for line in self._log.read_text().splitlines() if "level=warn" in line or "level=error" in line]


def measured(seconds: float, turn: float, *, scraped_first: bool) -> dict[str, Any]:
    """Run once, and return what there is to say."""
    pipeline, registry = Pipeline(), CollectorRegistry()
    registry.register(PrometheusCollector(pipeline.profiler))
    endpoint = Endpoint(registry)
    turns = [scraped_first, not scraped_first] * max(1, round(seconds / turn))
    with tempfile.TemporaryDirectory() as folder, Prometheus(Path(folder), endpoint) as prometheus:
        times = run_by_turns(pipeline, turns, turn, prometheus.switch)
        prometheus.switch(True)
        result = compared(pipeline.profiler, registry, prometheus)
    endpoint.close()
    medians = {
        wanted: statistics.median(
            percentile_us(each, 0.99) for each, is_scraped in zip(times, turns, strict=True) if is_scraped == wanted
        )
        for wanted in (True, False)
    }
    ratio = medians[True] / medians[False]
    result = {"p99 over p99 without": round(ratio, 4), **result}
    for name, wanted in (("scraped", True), ("left alone", False)):
        together = array(
            "q", sorted(chain(*(each for each, scraped in zip(times, turns, strict=True) if scraped == wanted)))
        )
        result[name] = {f"p{share * 100:g}": percentile_us(together, share) for share in (0.5, 0.99, 0.999)}
        result[name]["calls"] = len(together)
    return result


def compared(profiler: cp.Profiler, registry: CollectorRegistry, prometheus: Prometheus) -> dict[str, Any]:
    """Return how what Prometheus has compares with what it should have, now that no node runs any more."""
    rows = {row.node_name: row for row in profiler.get_profiling_summary()}
    counts = {name: float(row.count) for name, row in rows.items()}
    prometheus.wait_for(lambda: prometheus.query("cprofiling_node_calls_total") == counts)
    sums = prometheus.query("cprofiling_node_duration_seconds_sum")
    quantiles = prometheus.query(f"histogram_quantile(0.99, {BUCKET})")
    ours = {name: (row.p99_ms or math.nan) / 1e3 for name, row in rows.items()}
    return {
        "scrapes": prometheus.query("sum_over_time(up[1h])").get("", 0.0),
        "failed scrapes": prometheus.query("count_over_time(up[1h]) - sum_over_time(up[1h])").get("", 0.0),
        "samples": sum(len(family.samples) for family in registry.collect()),
        "samples taken": prometheus.query("scrape_samples_scraped").get("", 0.0),
        "scrape ms": round(prometheus.query("avg_over_time(scrape_duration_seconds[1h])").get("", 0.0) * 1e3, 2),
        "sums are ours": sums == {name: row.total_ms / 1e3 for name, row in rows.items()},
        "buckets apart": max(abs(bucket_of(quantiles[name]) - bucket_of(p99)) for name, p99 in ours.items()),
        "warnings": prometheus.warnings(),
    }


def bucket_of(seconds: float) -> int:
    """The number of the bucket of the exported histogram in which a time is."""
    return bisect_right(DEFAULT_BOUNDS, seconds * (1 - 1e-12))  # an upper bound is the bucket's own


def faults(result: dict[str, Any]) -> Iterator[str]:
    """Say what went wrong: nothing may."""
    if result["failed scrapes"] > MOST_LATE * result["scrapes"] or not result["scrapes"]:
        yield f"{result['failed scrapes']:g} scrapes failed, {result['scrapes']:g} did not"
    if result["samples taken"] != result["samples"]:
        yield f"{result['samples taken']:g} of {result['samples']} samples were taken over"
    if not result["sums are ours"]:
        yield "the sums are others"
    if result["buckets apart"] > 1:
        yield f"a quantile is {result['buckets apart']} buckets from ours"
    yield from result["warnings"]


def main() -> int:
    """Run the check and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--turn", type=float, default=TURN)
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs must be >= 1, got {options.runs}")
    if shutil.which("prometheus") is None:
        parser.error("there is no prometheus on the PATH")
    ratios, wrong = list[float](), list[str]()
    for number in range(options.runs):
        result = measured(options.seconds, options.turn, scraped_first=number % 2 == 0)
        ratios.append(result["p99 over p99 without"])
        wrong += faults(result)
        print(json.dumps(result), flush=True)
    good = sum(ratio <= 1 + MOST_ADDED for ratio in ratios)
    verdict = f"within {MOST_ADDED:.0%} in {good} of {options.runs} runs; {'this' if wrong else 'nothing'} was wrong"
    print(verdict, *wrong, sep="\n")
    return 0 if good and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
