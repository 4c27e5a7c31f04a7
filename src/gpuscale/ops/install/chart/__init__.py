"""What the Helm chart has of the code."""
