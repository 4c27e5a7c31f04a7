"""What a real cluster recorded of a workload, as a scenario that anyone can run again."""
