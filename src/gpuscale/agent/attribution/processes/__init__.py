"""Processes on GPUs and the containers that they run in."""
