"""Devices and streams of calls, waiting, memory, CUDA toolkits, tracing."""
