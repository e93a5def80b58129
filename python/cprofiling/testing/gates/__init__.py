"""Gates: tests that fail when a pipeline gets worse."""
