"""Kubernetes objects from manifests, checked as an API server checks them. Part of the promised API."""

from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from gpuscale.base.objects.manifests import load_manifests, read_stored_hpa
from gpuscale.base.quantity import Quantity

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
