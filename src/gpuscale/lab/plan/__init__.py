"""What another policy would have done with a recorded demand: replayed in columns, scored against bounds."""
