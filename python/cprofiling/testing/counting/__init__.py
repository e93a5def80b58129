"""Counting calls, operators and launches."""
