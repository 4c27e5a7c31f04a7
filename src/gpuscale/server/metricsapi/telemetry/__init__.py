"""The metrics API's own metrics."""
