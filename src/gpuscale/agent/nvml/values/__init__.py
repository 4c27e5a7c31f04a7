"""Values of NVIDIA GPUs: which calls give which field, how often, and averaged how."""
