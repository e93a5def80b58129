"""Nodes that patterns name, made while modules are imported."""
