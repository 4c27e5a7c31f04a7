"""Grafana dashboards, made by code: panels and queries as values, put as JSON for Grafana 10 and later."""
