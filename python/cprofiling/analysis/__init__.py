"""What a finished recording is asked: averages, stacks, figures of devices, findings.

``rows`` says what of a recording they read, ``tree`` how its rows lie in one another; ``recording.py`` offers the
results.
"""
