"""Live files, as readers see them."""
