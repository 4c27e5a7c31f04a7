"""Questions to the user on a terminal."""
