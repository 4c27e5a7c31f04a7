"""The Kubernetes API, as far as the node agent needs it."""
