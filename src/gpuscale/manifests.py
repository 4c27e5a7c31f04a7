"""Kubernetes objects from manifests, checked as an API server checks them. Part of the promised API."""

from gpuscale.core.quantity import Quantity
from gpuscale.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from gpuscale.objects.manifests import load_manifests, read_stored_hpa

__all__ = [
    "ContainerResourceMetric",
    "ExternalMetric",
    "HorizontalPodAutoscaler",
    "MetricTarget",
    "ObjectMetric",
    "PodsMetric",
    "Quantity",
    "ResourceMetric",
    "load_manifests",
    "read_stored_hpa",
]
