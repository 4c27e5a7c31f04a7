"""Metric families of the agent itself, of containers, and in Azure Monitor's format."""
