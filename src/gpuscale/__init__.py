"""gpuscale scales GPU workloads on Kubernetes by what their GPUs really do."""

__version__ = "0.1.0"
