"""What the source is asked for the questions of many: which come when, and what costs least."""
