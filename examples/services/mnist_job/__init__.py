"""A training job on handwritten digits."""
