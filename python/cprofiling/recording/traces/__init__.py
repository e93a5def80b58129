"""Read and write Chrome traces."""
