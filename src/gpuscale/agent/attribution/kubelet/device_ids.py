"""Device ids of the various device plugins, and the GPU that each one means.

Every form is read without knowing which plugin runs:

| from | id |
| --- | --- |
| NVIDIA's plugin | `GPU-...`, or the index |
| its MIG devices | `MIG-...`; before driver 470 `MIG-GPU-<uuid>/<gpu instance>/<compute instance>` |
| its time-slicing and MPS | any of these with `::<replica>` |
| GKE's plugin | `nvidia0`, `nvidia0/gi0`, and either with `/vgpu<replica>` |
| AMD's plugin | the PCI address |

Source: NVIDIA k8s-device-plugin (internal/rm), GKE container-engine-accelerators (pkg/gpu/nvidia),
    ROCm k8s-device-plugin.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.agent.attribution import reasons
from gpuscale.agent.attribution.kubelet.allocations import ClaimDevice, KubeletDevice
from gpuscale.agent.gpu.owners import Unattributed
from gpuscale.agent.gpu.readings import GpuIdentity
from gpuscale.base.objects.gpu_resources import GpuKind, counts_gpus, gpu_kind

MAX_ID = 256
"""Longer than any id of a known plugin; a guard."""
_NUMBER = "[0-9]{1,6}"
_UUID = re.compile("(?:GPU|MIG)-[0-9A-Za-z-]+")
_OLD_MIG = re.compile(f"MIG-(GPU-[0-9A-Za-z-]+)/({_NUMBER})/{_NUMBER}")
_GKE = re.compile(f"nvidia({_NUMBER})(?:/gi({_NUMBER}))?(?:/vgpu({_NUMBER}))?")
_REPLICA = re.compile(f"(.+)::({_NUMBER})")
_INDEX = re.compile(_NUMBER)
_PCI = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])")
_UUID_INSIDE = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OWN_VENDORS = ("nvidia.com", "amd.com")
_OTHER_MAKERS = ("intel.com",)
"""Whose GPUs may be on a node of the others."""
_GPU_WORD = re.compile("gpu|vcuda")
_EXPECTED_ID = "an id such as GPU-..., MIG-..., nvidia0, 0 or 0000:c1:00.0"


@dataclass(frozen=True, slots=True)
class DeviceId:
    """A parsed device id: a UUID, index or PCI address, and the part of the GPU."""

    text: str
    uuid: str = ""
    """Of a GPU or a MIG instance; of the parent GPU where `gpu_instance` is given."""
    index: int | None = None
    gpu_instance: int | None = None
    """NVML's GPU-instance id of a MIG instance."""
    replica: int | None = None
    """Which share of a shared GPU; the shares are alike."""
    pci_bus_id: str = ""
    """With the domain in eight digits, upper-case."""


def is_gpu(device: KubeletDevice, extra_resources: Iterable[str] = ()) -> bool:
    """Return whether a device is a GPU or a part of one, judged by resource name and id.

    Plugins can rename resources, so any name counts when its ids are NVIDIA's UUIDs. So does a name with the
    word alone, of any vendor: what can't be resolved is counted, and not passed over.
    """
    vendor, _, name = device.resource.partition("/")
    if device.resource in extra_resources:
        return True
    if gpu_kind(device.resource) is GpuKind.QUALIFIER:
        return False
    if vendor not in _OWN_VENDORS:
        has_word = vendor not in _OTHER_MAKERS and _GPU_WORD.search(name) is not None
        return bool(vendor and has_word) or names_gpu(device.id)
    return counts_gpus(device.resource) or _UUID.match(device.id) is not None


def without_unknown(
    devices: Iterable[KubeletDevice], extra_resources: Iterable[str] = ()
) -> tuple[tuple[KubeletDevice, ...], tuple[KubeletDevice, ...]]:
    """Return the devices whose ids can be resolved, and the first device of each other resource.

    Another vendor's `3` need not be the GPU of that number: it may be a third share, or the third GiB.
    """
    known: list[KubeletDevice] = []
    unknown: dict[str, KubeletDevice] = {}
    for device in devices:
        is_own = device.resource.partition("/")[0] in _OWN_VENDORS
        if is_own or device.resource in extra_resources or names_gpu(device.id):
            known.append(device)
        else:
            unknown.setdefault(device.resource, device)
    return tuple(known), tuple(unknown.values())


def names_gpu(text: str) -> bool:
    """Return whether a name holds the UUID of an NVIDIA GPU or MIG instance."""
    return _UUID_INSIDE.search(text[:MAX_ID]) is not None


def is_gpu_resource(resource: str, extra_resources: Iterable[str] = ()) -> bool:
    """Return whether a resource counts GPUs, going by its name alone."""
    is_own = resource.partition("/")[0] in _OWN_VENDORS
    return resource in extra_resources or (is_own and counts_gpus(resource))


def parse_device_id(resource: str, id: str) -> DeviceId:  # noqa: A002 - the kubelet's own word
    """Return what an id says.

    Raises:
        ValueError: no form of a known plugin.
    """
    if len(id) > MAX_ID:
        raise ValueError(
            f"{resource}: found an id of {len(id)} characters, expected {_EXPECTED_ID}"
        )
    shared = _REPLICA.fullmatch(id)
    body = shared[1] if shared else id
    replica = int(shared[2]) if shared else None
    found = _parse_body(id, body, replica)
    if found is None:
        raise ValueError(f"{resource}: found {id!r}, expected {_EXPECTED_ID}")
    return found


def _parse_body(text: str, body: str, replica: int | None) -> DeviceId | None:
    if _UUID.fullmatch(body):
        return DeviceId(text, uuid=body, replica=replica)
    if match := _OLD_MIG.fullmatch(body):
        return DeviceId(text, uuid=match[1], gpu_instance=int(match[2]), replica=replica)
    if match := _GKE.fullmatch(body):
        return DeviceId(
            text,
            index=int(match[1]),
            gpu_instance=_number(match[2]),
            replica=_number(match[3]) if replica is None else replica,
        )
    if _INDEX.fullmatch(body):
        return DeviceId(text, index=int(body), replica=replica)
    if address := canonical_pci_bus_id(body):
        return DeviceId(text, pci_bus_id=address, replica=replica)
    return None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def canonical_pci_bus_id(text: str) -> str:
    """Return a PCI address in upper case with an eight-digit domain; empty if it is none."""
    match = _PCI.fullmatch(text)
    if match is None:
        return ""
    return f"{match[1]:0>8}:{match[2]}:{match[3]}.{match[4]}".upper()


class KnownGpus:
    """A node's GPUs and MIG instances, found by any of their names."""

    def __init__(self, identities: Iterable[GpuIdentity]) -> None:
        self._by_uuid: dict[str, str] = {}
        self._whole: dict[int | str, str] = {}
        self._instances: dict[tuple[int | str, int], set[str]] = {}
        for gpu in identities:
            self._add(gpu)

    def _add(self, gpu: GpuIdentity) -> None:
        names = (gpu.index, gpu.uuid, canonical_pci_bus_id(gpu.pci_bus_id))
        self._by_uuid[gpu.allocated_as] = gpu.allocated_as
        for name in names:
            if gpu.instance is None:
                self._whole[name] = gpu.allocated_as
            else:
                self._instances.setdefault((name, gpu.instance.id), set()).add(gpu.allocated_as)

    def find(self, device: DeviceId) -> str | None:
        """Return the UUID by which a GPU is allocated; None if it is not on this node."""
        if device.gpu_instance is None:
            name = device.pci_bus_id or device.index
            return self._by_uuid.get(device.uuid) if name is None else self._whole.get(name)
        name = device.uuid if device.index is None else device.index
        instances = self._instances.get((name, device.gpu_instance), set())
        return next(iter(instances)) if len(instances) == 1 else None

    def find_uuid(self, uuid: str) -> str | None:
        """Return the UUID if this node has it."""
        return self._by_uuid.get(uuid)

    def __str__(self) -> str:
        return ", ".join(self._by_uuid) or "none"


def resolve(device: DeviceId, gpus: KnownGpus | Sequence[GpuIdentity]) -> str | Unattributed:
    """Return the UUID of the GPU or MIG instance that an id means, or why there is none."""
    known = gpus if isinstance(gpus, KnownGpus) else KnownGpus(gpus)
    found = known.find(device)
    if found is not None:
        return found
    return Unattributed(
        reasons.UNKNOWN_DEVICE_ID, device.text, f"it is none of the GPUs read here: {known}"
    )


def resolve_device(device: KubeletDevice, gpus: KnownGpus) -> str | Unattributed:
    """Return the UUID of the GPU or MIG instance that was allocated, or why there is none."""
    try:
        return resolve(parse_device_id(device.resource, device.id), gpus)
    except ValueError as error:
        return Unattributed(reasons.UNKNOWN_DEVICE_ID, device.id[:MAX_ID], str(error))


def replica_of(device: KubeletDevice) -> str:
    """Return a device's share number on its GPU; empty if it is no share."""
    try:
        replica = parse_device_id(device.resource, device.id).replica
    except ValueError:
        return ""
    return "" if replica is None else str(replica)


def unknown_share(device: KubeletDevice) -> Unattributed:
    """Return an error reason: the resource shares GPUs in an unknown way."""
    detail = (
        f"how {device.resource} shares GPUs is not known here; expected an id with a GPU's UUID"
    )
    return Unattributed(reasons.UNKNOWN_DEVICE_ID, device.id[:MAX_ID], detail)


def resolve_claim(
    claim: ClaimDevice, gpus: KnownGpus, uuids: Mapping[tuple[str, str, str], str]
) -> str | Unattributed | None:
    """Return the UUID of the GPU or MIG instance of a resource claim, or why there is none.

    None is a device that neither its names nor its ResourceSlice call a GPU of this node.

    Args:
        claim: as the kubelet names it.
        gpus: of this node.
        uuids: (driver, pool, device) to UUID or PCI address, from ResourceSlices; empty without a cluster.
    """
    name = uuids.get(claim.key, "")
    found = gpus.find_uuid(name)
    if found is None and (address := canonical_pci_bus_id(name)):
        found = gpus.find(DeviceId(name, pci_bus_id=address))
    found = found or _resolve_cdi(claim, gpus)
    if found is None and claim.is_named_gpu:
        return _unresolved(claim, name, gpus)
    return found


def _resolve_cdi(claim: ClaimDevice, gpus: KnownGpus) -> str | None:
    for name in claim.cdi_names:
        for uuid in _UUID_INSIDE.findall(name[:MAX_ID]):
            if found := gpus.find_uuid(uuid):
                return found
    return None


def _unresolved(claim: ClaimDevice, name: str, gpus: KnownGpus) -> Unattributed:
    subject = "/".join(claim.key)
    if name:
        detail = f"its ResourceSlice says {name}, which is none of the GPUs read here: {gpus}"
    else:
        detail = "no ResourceSlice names its UUID; let the exporter read resourceslices"
    return Unattributed(reasons.DRA_UNRESOLVED, subject, detail)
