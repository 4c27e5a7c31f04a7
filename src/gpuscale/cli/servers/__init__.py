"""Commands that serve until they are stopped."""
