"""Live files: statistics that other processes read while a program runs, and after it was killed.

``set_profiling(True, live=PATH)`` has a Profiler keep one, ``CPROFILING_LIVE=PATH`` a whole process; ``read`` reads it.
"""

from cprofiling.live.reading import LivePart, LiveStatistics, read

__all__ = ["LivePart", "LiveStatistics", "read"]
