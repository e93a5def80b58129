"""Recordings, with schedules, events, and traces in and out."""
