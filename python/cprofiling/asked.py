"""What a Profiler is asked for beyond times: the bits of ``cprofiling/extra.h``."""

GPU, LAUNCHES, COUNTERS, MEMORY = 1, 2, 4, 8
COUNTER_SHIFT = 8  # of the bits of single counters
