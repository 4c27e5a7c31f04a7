"""Grafana dashboards: JSON models for Grafana 10 and later, filled in for an installation."""
