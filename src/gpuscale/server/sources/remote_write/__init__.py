"""Prometheus' remote write: samples of the store sent on to where history lives."""
