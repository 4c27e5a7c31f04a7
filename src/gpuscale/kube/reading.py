"""Converts API objects to the kept fields.

They are read field by field. What is missing or of another type is passed over: one odd object must not hide
the others.
"""

from collections.abc import Callable, Iterator, Mapping

from gpuscale.base.documents.documents import Document
from gpuscale.base.objects.fields import Fields
from gpuscale.base.quantity import Quantity
from gpuscale.kube.informers.records import Controller, DeviceKey, NodeRecord, PodRecord

_STATUS_LISTS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
_ENDED = frozenset({"Succeeded", "Failed"})
_STATIC_POD_HASH = "kubernetes.io/config.hash"
_LONGEST_SHARING = 16_384
"""Characters; a pod with all GPUs of a node has some hundred."""
_UNIT_NANO = 1_000_000_000


def read_pod_record(
    body: dict[str, object],
    keeps_label: Callable[[str], bool],
    is_about_sharing: Callable[[str], bool] = lambda _key: False,
) -> PodRecord:
    """Return what is kept of a Pod.

    Args:
        body: as the API server has it.
        keeps_label: whether a label is wanted, by its key.
        is_about_sharing: whether an annotation or label says which part of a GPU the pod has.
    """
    fields = fields_of(body)
    meta, spec, status = fields.child("metadata"), fields.child("spec"), fields.child("status")
    labels, annotations = meta.labels("labels"), meta.labels("annotations")
    return PodRecord(
        namespace=meta.text("namespace"),
        name=meta.text("name"),
        uid=meta.text("uid"),
        labels={key: value for key, value in labels.items() if keeps_label(key)},
        template_hash=labels.get("pod-template-hash", ""),
        static_hash=annotations.get(_STATIC_POD_HASH, ""),
        controller=read_controller(body),
        containers=tuple(each.text("name") for each in _all_items(spec, _CONTAINER_LISTS)),
        container_ids=_container_ids(status),
        limits=_limits(spec),
        sharing={
            key: value
            for key, value in (*labels.items(), *annotations.items())
            if is_about_sharing(key) and len(value) <= _LONGEST_SHARING
        },
        is_ended=status.text("phase") in _ENDED,
    )


def read_controller(body: dict[str, object]) -> Controller | None:
    """Return what controls an object; None where nothing does."""
    for each in fields_of(body).child("metadata").items("ownerReferences"):
        if each.boolean("controller"):
            return Controller(
                each.text("apiVersion"), each.text("kind"), each.text("name"), each.text("uid")
            )
    return None


def read_node_record(body: dict[str, object]) -> NodeRecord:
    """Return what is kept of a Node."""
    status = fields_of(body).child("status")
    return NodeRecord(
        _extended(status.quantities("capacity")), _extended(status.quantities("allocatable"))
    )


def read_slice_devices(body: dict[str, object]) -> dict[DeviceKey, str]:
    """Return the devices of a ResourceSlice with the UUID or PCI address of each that has one.

    Up to `v1beta1` a device's attributes stand below `basic`.
    """
    spec = fields_of(body).child("spec")
    driver, pool = spec.text("driver"), spec.child("pool").text("name")
    found = {}
    for device in spec.items("devices"):
        holder = device.child("basic") if "basic" in device else device
        if identity := _identity(holder.child("attributes"), driver):
            found[driver, pool, device.text("name")] = identity
    return found


def _identity(attributes: Fields, driver: str) -> str:
    for name in ("uuid", f"{driver}/uuid", "resource.kubernetes.io/pciBusID"):
        if value := attributes.child(name).text("string"):
            return value
    return ""


def fields_of(body: dict[str, object]) -> Fields:
    """Return an API object's fields; faults in them are ignored."""
    return Fields(Document("the API server", 0, body, {}), body)


def _all_items(fields: Fields, keys: tuple[str, ...]) -> Iterator[Fields]:
    for key in keys:
        yield from fields.items(key)


def _container_ids(status: Fields) -> dict[str, str]:
    ids = {}
    for each in _all_items(status, _STATUS_LISTS):
        _, _, container_id = each.text("containerID").partition("://")
        if container_id:
            ids[container_id] = each.text("name")
    return ids


def _limits(spec: Fields) -> dict[str, dict[str, int]]:
    found = {}
    for each in _all_items(spec, _CONTAINER_LISTS):
        if limits := _extended(each.child("resources").quantities("limits")):
            found[each.text("name")] = limits
    return found


def _extended(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Return the resources that are no part of Kubernetes itself; those are whole numbers."""
    return {
        name: quantity.nano // _UNIT_NANO for name, quantity in quantities.items() if "/" in name
    }
