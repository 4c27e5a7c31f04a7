"""The metrics APIs as they look on the wire: paths, selectors, bodies and statuses."""
