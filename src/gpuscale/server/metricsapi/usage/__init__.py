"""Usage of pods and nodes: `metrics.k8s.io`."""
