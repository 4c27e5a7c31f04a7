"""Builders of Kubernetes objects, one module per part: values in, plain objects out, nothing else touched."""
