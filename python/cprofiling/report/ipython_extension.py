"""What IPython calls for ``%load_ext cprofiling``; the magics themselves are imported then."""

from __future__ import annotations


def load_ipython_extension(ipython: object) -> None:
    """Have ``%cprofiling`` and ``%%cprofiling`` in this shell, which calls it for ``%load_ext cprofiling``."""
    from cprofiling.report.notebook import magics

    magics.load(ipython)


def unload_ipython_extension(ipython: object) -> None:
    """Have them no more: ``%unload_ext cprofiling``."""
    from cprofiling.report.notebook import magics

    magics.unload(ipython)
