"""Kubernetes objects as frozen types, from manifests as users have them."""
