"""Samples as the messages of Prometheus' remote write protocol, and what is done to labels on the way."""
