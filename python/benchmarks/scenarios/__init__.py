"""Real pipelines, with and without cprofiling, and with what a user would pick instead."""
