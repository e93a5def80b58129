"""Gates: times compared as interleaved pairs; see also the pytest plugin."""

from cprofiling._internal.faces import adopt
from cprofiling.testing.gates.pairs import PairedComparison, PairedTimes, compare_pairs

__all__ = ["PairedComparison", "PairedTimes", "compare_pairs"]

adopt(globals())
