"""Connections to other packages, one module each, imported on request."""
