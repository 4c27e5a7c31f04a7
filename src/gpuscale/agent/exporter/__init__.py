"""The node agent: reads a node's GPUs at a fixed pace and serves them to Prometheus."""
