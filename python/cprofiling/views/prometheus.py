"""Statistics in Prometheus' text format, as a scrape of ``export.PrometheusCollector`` would have them."""

from __future__ import annotations

from importlib import import_module

from cprofiling.export import imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cprofiling.snapshot import Snapshot


def render(snapshot: Snapshot) -> str:
    """Return a snapshot in the text format. ImportError, naming the extra, without prometheus_client."""
    client = imported("prometheus_client", install="cprofiling[prometheus]")
    collector = import_module("cprofiling.export").PrometheusCollector
    registry = client.CollectorRegistry()
    registry.register(collector(lambda: snapshot))
    text: str = client.generate_latest(registry).decode("utf-8")
    return text
