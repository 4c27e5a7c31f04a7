"""The node agent: it reads a node's GPUs, finds the pods that use them, and serves both to scrapers."""
