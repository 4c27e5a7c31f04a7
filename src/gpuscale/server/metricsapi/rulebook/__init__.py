"""The rules in force: files, the preset, and those of teams."""
