"""A run's document: its results as plain data."""
