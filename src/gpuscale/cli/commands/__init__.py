"""Commands that end by themselves."""
