"""The rules in force: rule files, the preset, and teams' ConfigMaps."""
