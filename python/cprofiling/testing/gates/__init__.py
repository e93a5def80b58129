"""Tests that fail when a pipeline gets worse."""
