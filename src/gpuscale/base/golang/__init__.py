"""Formats of Go that Kubernetes and Prometheus use: quoting, booleans, durations and templates."""
