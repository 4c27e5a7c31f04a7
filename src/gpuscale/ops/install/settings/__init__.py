"""The settings of each part of an installation."""
