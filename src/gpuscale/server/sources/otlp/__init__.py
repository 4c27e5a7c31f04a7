"""OTLP metrics that clients push into the store."""
