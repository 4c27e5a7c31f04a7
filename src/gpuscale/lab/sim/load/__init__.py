"""Load on services, and the GPUs that work for it."""
