"""Prometheus rules evaluated beside an event loop: rule files that are followed, a schedule, metrics."""
