"""Commands of `gpuscale load` that load something else than a service: GPUs, and a cluster with Jobs."""
