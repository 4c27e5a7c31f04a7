"""Scenarios: the file format, and what a run is set up with."""
