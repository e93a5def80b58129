"""Connections to what others wrote, a module for each; none is imported unless it is asked for."""
