"""Watched triggers: evaluated on a schedule from the provider and the cluster's objects."""
