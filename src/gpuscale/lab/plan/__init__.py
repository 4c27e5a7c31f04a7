"""Replays of recorded demand under other policies, and their scores against bounds."""
