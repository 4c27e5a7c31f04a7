"""Policies of other projects, after their sources."""
