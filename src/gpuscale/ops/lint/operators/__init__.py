"""What operators make of custom resources, refuse, and let an HPA scale: a table of kinds."""
