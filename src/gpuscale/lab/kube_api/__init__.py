"""The Kubernetes API of `gpuscale up`: the simulated cluster as `kubectl` reads it."""
