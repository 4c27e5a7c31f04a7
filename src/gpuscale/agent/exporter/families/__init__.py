"""Families that only the agent has: its own metrics, containers, and the format of Azure Monitor."""
