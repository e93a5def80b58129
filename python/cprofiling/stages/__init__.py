"""What the stage reports, their harness and their comparison share."""
