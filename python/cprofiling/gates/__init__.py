"""Gates: tests that fail when a pipeline gets worse. Times are compared as interleaved pairs: ``compare_pairs``.

The plugin of pytest is in ``cprofiling_pytest``, which loads what is here when a test uses it.
"""

from cprofiling.gates.pairs import PairedComparison, PairedTimes, compare_pairs

__all__ = ["PairedComparison", "PairedTimes", "compare_pairs"]
