"""Requests to one URL, sent when they are due, whatever the server does."""
