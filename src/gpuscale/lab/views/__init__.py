"""What a run looks like: the live page, the report in one file, and text for a terminal."""
