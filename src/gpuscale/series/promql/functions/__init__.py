"""Functions and aggregations of PromQL."""
