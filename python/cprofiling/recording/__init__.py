"""Recordings: profile, schedules, events, traces in and out."""
