"""Queries of rules: planned, widened to many objects, and judged."""
