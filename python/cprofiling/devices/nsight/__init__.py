"""Reports of NVIDIA's ncu and nsys."""
