"""Devices, classes and claims from what manifests have of them."""

from collections.abc import Sequence
from typing import Any

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.objects.devices import (
    DeviceClaim,
    DeviceClass,
    NodeDevices,
    ResourceSlice,
    device_classes,
    node_devices,
    read_resource_slice,
)
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.manifests import load_manifests

CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec:
  selectors: [{cel: {expression: device.driver == "gpu.example.com"}}]
"""


def slice_of(text: str, name: str = "a") -> ResourceSlice:
    """Return a slice of devices from the `spec` of a ResourceSlice; the driver is gpu.example.com."""
    (document,) = load_documents(f"driver: gpu.example.com\n{text}", "slice.yaml")
    fields = Fields(document, document.data)
    found = read_resource_slice(fields, name)
    fields.finish()
    return found


def class_of(text: str = CLASS) -> DeviceClass:
    found: Any = load_manifests(text, "class.yaml")[0]
    assert isinstance(found, DeviceClass)
    return found


def node_of(*slices: str, classes: Sequence[str] = (CLASS,)) -> NodeDevices:
    """Return the devices of the node `n`, from its slices in the order of their names."""
    made = [slice_of(text, f"s{number}") for number, text in enumerate(slices)]
    return node_devices(made, "n", device_classes(map(class_of, classes)))


def claim_of(devices: str) -> DeviceClaim:
    """Return what a ResourceClaim asks for, from its `spec.devices` in one line."""
    text = (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\n"
        f"spec: {{devices: {devices}}}\n"
    )
    found: Any = load_manifests(text, "claim.yaml")[0]
    claim: DeviceClaim = found.claim
    return claim
