"""The Prometheus HTTP API over a series store, for Grafana, promtool and anything else that speaks it."""
