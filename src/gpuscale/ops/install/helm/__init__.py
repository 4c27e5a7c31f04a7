"""The Helm chart in process."""
