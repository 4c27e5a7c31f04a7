"""Alert rules about GPUs and their scaling: rule files of Prometheus, filled in for an installation."""
