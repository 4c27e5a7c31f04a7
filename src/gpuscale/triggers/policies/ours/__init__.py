"""Policies that gpuscale has of its own."""
