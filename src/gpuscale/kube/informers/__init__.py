"""Objects followed by list and watch."""
