"""Reports, one document in every format."""
