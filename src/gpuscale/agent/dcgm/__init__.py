"""A DCGM host engine beside the driver: for the profiling counters that NVML does not have."""
