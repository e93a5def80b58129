"""What measurements mean: where the warm-up ends, what runs in no node, what a faster node is worth, frames per second.

Each answer is an ``Insight``: a list of frozen values that prints itself as a table, and shows itself in a notebook.
"""
