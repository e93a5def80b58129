"""Comparison of runs, and the timing reports that it reads."""
