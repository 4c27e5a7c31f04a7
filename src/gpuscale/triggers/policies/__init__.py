"""Policies: from what is seen at a step to the replicas that are wanted."""
