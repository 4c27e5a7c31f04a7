"""Rendering of the Helm chart in process, without Helm."""
