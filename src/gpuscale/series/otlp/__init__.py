"""OTLP metrics: read, and named and laid out as Prometheus does on its own OTLP endpoint."""
