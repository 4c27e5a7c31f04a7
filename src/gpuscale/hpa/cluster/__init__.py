"""Kubernetes' scheduling and node autoscaling; pure."""
