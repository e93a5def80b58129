"""The meaning of recordings and statistics."""
