"""Samples in memory: series, columns, bounds and retention."""
