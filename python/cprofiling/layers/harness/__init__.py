"""The harness that runs one stage alone."""
