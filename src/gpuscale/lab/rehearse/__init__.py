"""A scenario on a real API server: Kubernetes schedules and scales, nodes and GPUs are simulated."""
