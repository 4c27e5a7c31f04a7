"""YAML and JSON documents: read, checked against models, with the place of each fault."""
