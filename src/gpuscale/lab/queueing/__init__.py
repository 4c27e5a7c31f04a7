"""Queueing: service times, waiting times, and tallies of observed times."""
