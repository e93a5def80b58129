"""Statistics in Prometheus' text format, as a scrape of ``export.PrometheusCollector`` would have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cprofiling.monitoring.prometheus import PrometheusCollector
from cprofiling.recording.dataframe import imported

if TYPE_CHECKING:
    from cprofiling.nodes.snapshot import Snapshot


def render(snapshot: Snapshot) -> str:
    """Return a snapshot in the text format. ImportError, naming the extra, without prometheus_client."""
    client = imported("prometheus_client", install="cprofiling[prometheus]")
    registry = client.CollectorRegistry()
    registry.register(PrometheusCollector(lambda: snapshot))
    text: str = client.generate_latest(registry).decode("utf-8")
    return text
