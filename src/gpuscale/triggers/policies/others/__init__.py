"""Policies of other projects, each as its source has it."""
