"""A Prometheus, or what speaks like one, as a source of metrics."""
