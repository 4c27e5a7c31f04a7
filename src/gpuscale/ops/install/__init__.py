"""Onto a cluster and off again: values, rendered objects, apply and remove, per provider."""
