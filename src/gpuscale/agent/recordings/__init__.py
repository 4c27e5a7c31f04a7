"""Recordings of GPUs, and their replay."""
