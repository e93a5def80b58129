"""Nodes and their statistics: Profiler, decorators, summaries, snapshots."""
