"""NVIDIA GPUs through NVML, the driver's management library: cheap calls often, slow calls seldom."""
