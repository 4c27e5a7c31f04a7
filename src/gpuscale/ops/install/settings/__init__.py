"""What can be set of each part of an installation."""
