"""The document of a run."""
