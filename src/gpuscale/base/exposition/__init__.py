"""Metric families, and the Prometheus text format that carries them."""
