"""From metrics to replicas: readiness, missing pods, utilization, tolerance."""
