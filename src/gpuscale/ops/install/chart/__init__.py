"""The generated parts of the Helm chart."""
