"""Measuring, counting and gates."""
