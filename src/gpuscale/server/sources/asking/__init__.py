"""Sharing of queries: which requests will come next, and which query serves them at least cost."""
