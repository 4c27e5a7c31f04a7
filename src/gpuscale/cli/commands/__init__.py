"""Commands that end without Ctrl-C."""
