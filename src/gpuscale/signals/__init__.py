"""What workloads are scaled on: one file for each kind of source."""
