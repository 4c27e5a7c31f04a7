"""OTLP metrics that are pushed in, kept in the store."""
