"""The metrics API's side of the collector process: it starts, watches and queries it."""
