"""Values of NVIDIA GPUs: the calls behind each field, their periods and averages."""
