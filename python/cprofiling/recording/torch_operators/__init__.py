"""The operators that PyTorch's own profiler records."""
