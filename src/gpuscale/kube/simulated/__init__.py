"""Nodes and kubelets that are not there, for an API server that is."""
