"""Node statistics, profilers, decorators, summaries and snapshots."""
