"""Harness that runs one stage alone."""
