"""The entry points of ``%load_ext cprofiling``."""

from __future__ import annotations


def load_ipython_extension(ipython: object) -> None:
    """Register ``%cprofiling`` and ``%%cprofiling`` in a shell."""
    from cprofiling.report.notebook import magics

    magics.load(ipython)


def unload_ipython_extension(ipython: object) -> None:
    """Remove them from a shell."""
    from cprofiling.report.notebook import magics

    magics.unload(ipython)
