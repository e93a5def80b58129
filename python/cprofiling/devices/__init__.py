"""Devices: which one a call uses, waiting, memory, CUDA's toolkits and tracing."""
