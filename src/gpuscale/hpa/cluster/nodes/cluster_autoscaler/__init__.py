"""The Cluster Autoscaler: its loop as a node policy."""
