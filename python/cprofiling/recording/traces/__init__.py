"""Traces: writing and reading Chrome's JSON."""
