"""Recordings as DataFrames, statistics for Prometheus and OpenTelemetry."""

from cprofiling._internal.faces import adopt
from cprofiling.monitoring.open_telemetry import OpenTelemetryMetrics, export_spans, open_telemetry_spans
from cprofiling.monitoring.prometheus import PrometheusCollector
from cprofiling.recording.dataframe import (
    FRAME_COLUMNS,
    Numbers,
    arrow_stream,
    event_rows,
    frame_columns,
    to_pandas,
    to_polars,
)

__all__ = [
    "FRAME_COLUMNS",
    "Numbers",
    "OpenTelemetryMetrics",
    "PrometheusCollector",
    "arrow_stream",
    "event_rows",
    "export_spans",
    "frame_columns",
    "open_telemetry_spans",
    "to_pandas",
    "to_polars",
]

adopt(globals())
