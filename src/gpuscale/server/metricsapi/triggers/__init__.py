"""Triggers watched: evaluated on a schedule from the provider and the cluster's objects."""
