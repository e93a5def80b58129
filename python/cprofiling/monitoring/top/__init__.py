"""The screen of ``cprofiling top``."""
