"""Several replicas that share the work of following agents."""
