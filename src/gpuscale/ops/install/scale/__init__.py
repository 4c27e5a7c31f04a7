"""What is scaled in a values file, on which metrics, and how fast."""
