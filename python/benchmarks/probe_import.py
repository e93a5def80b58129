"""Prints how many ns ``import cprofiling`` takes in a fresh interpreter, beyond dataclasses, enum and contextvars."""

import contextvars  # noqa: F401
import dataclasses  # noqa: F401
import enum  # noqa: F401
import time

start = time.perf_counter_ns()
import cprofiling  # noqa: E402,F401

print(time.perf_counter_ns() - start)
