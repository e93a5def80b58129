"""Snapshots of many ranks, merged and compared."""
