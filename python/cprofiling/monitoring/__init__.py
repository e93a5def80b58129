"""Watching programs that run: live files, top, gRPC, Prometheus, OpenTelemetry."""
