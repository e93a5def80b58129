"""Findings: what costs time or memory in a recording, rule by rule."""
