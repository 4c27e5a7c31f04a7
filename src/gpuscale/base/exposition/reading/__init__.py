"""Reads what targets expose, judged as Prometheus 3 judges it: one grammar per format, entry by entry."""
