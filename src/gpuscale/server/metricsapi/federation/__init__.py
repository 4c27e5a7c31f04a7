"""Other metrics APIs behind this one: whose a metric is, and what passes between."""
