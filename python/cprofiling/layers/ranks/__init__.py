"""Many ranks: snapshots, merging, skew."""
