"""The page in HTML."""
