"""Metrics of the metrics API about itself."""
