"""Device or process to container to pod: who is using the GPU."""
