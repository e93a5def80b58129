"""Live files: statistics of a program that runs, or was killed.

``set_profiling(True, live=PATH)`` has a Profiler keep one, ``CPROFILING_LIVE=PATH`` a whole process; ``read`` reads it.
"""

from cprofiling._internal.faces import adopt
from cprofiling.nodes.live_file import LivePart, LiveStatistics, read

__all__ = ["LivePart", "LiveStatistics", "read"]

adopt(globals())
