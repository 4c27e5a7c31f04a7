"""Many services on shared node pools: what policies order, which pods find GPUs, when nodes come and go."""
