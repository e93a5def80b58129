"""What recordings and statistics mean: averages, stacks, findings, warm-up, gaps."""
