"""Devices for claims: what drivers publish of a node's devices, classes of them, and what pods claim.

Dynamic resource allocation, `resource.k8s.io` v1; claims are also read in the form of v1beta1, whose requests
name their class directly. What would change where pods go and is not known here is a fault.

Source: kubernetes v1.37 staging/src/k8s.io/api/resource/v1 (types.go), pkg/apis/resource/validation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuscale.base.objects.gpu_resources import class_resources
from gpuscale.base.objects.meta import ObjectMeta, read_meta
from gpuscale.base.objects.taints import Taint, Toleration
from gpuscale.base.quantity import Quantity

if TYPE_CHECKING:
    from gpuscale.base.objects.fields import Fields  # it loads YAML, which most commands don't need

API_VERSIONS = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1")
MOST_DEVICES = 32
"""In one claim."""
MOST_ALTERNATIVES = 8
"""In one request's `firstAvailable`."""
_NOT_SIMULATED = "none: it is not simulated"


@dataclass(frozen=True, slots=True)
class Version:
    """A version attribute, which is compared as a semantic version."""

    text: str


Attribute = str | int | bool | Version
DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Device:
    """A device that a driver has published."""

    name: str
    driver: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """By name; one without a domain has that of the driver."""
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    counters: tuple[tuple[str, str, int], ...] = ()
    """Set, counter and amount in billionths, of the pool's, that it takes."""

    def attribute(self, name: str) -> Attribute | None:
        """Return an attribute by its full name, `domain/name`."""
        found = self.attributes.get(name)
        if found is None and name.startswith(f"{self.driver}/"):
            found = self.attributes.get(name.partition("/")[2])
        return found


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """Devices of a node, or counters of its pool, as a driver publishes them."""

    driver: str
    pool: str
    """Empty: named as the node."""
    devices: tuple[Device, ...] = ()
    counters: tuple[tuple[str, str, int], ...] = ()
    """Set, counter and amount in billionths, that the pool's devices share."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class DevicePool:
    """The devices that are given away together: those of one driver, pool and node."""

    driver: str
    name: str
    devices: tuple[Device, ...]
    counters: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By set and counter, billionths."""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Which devices requests may have that name the class."""

    name: str
    selectors: tuple[str, ...] = ()
    """In CEL; all must hold."""
    extended_resource: str = ""
    """The resource by which pods can ask for its devices without a claim."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceClasses:
    """All classes of a cluster."""

    by_name: Mapping[str, DeviceClass] = field(default_factory=dict)
    by_resource: Mapping[str, DeviceClass] = field(default_factory=dict)
    """By each resource that asks for devices of one, without a claim."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeDevices:
    """What is known of the devices of a node, where claims are known at all."""

    pools: tuple[DevicePool, ...]
    """In the order in which they are tried."""
    classes: DeviceClasses


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """One way to satisfy a request."""

    name: str
    """Of the alternative; empty where the request has no others."""
    class_name: str
    count: int | None = 1
    """None: all devices that match."""
    selectors: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    capacity: tuple[tuple[str, Quantity], ...] = ()
    """The least that a device must have."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A number of equal devices."""

    name: str
    asks: tuple[DeviceAsk, ...]
    """Alternatives, the preferred first."""
    is_list: bool = False
    """`firstAvailable`: nodes that have an earlier alternative are preferred."""


@dataclass(frozen=True, slots=True)
class DeviceConstraint:
    """What a claim's devices must have in common, or must not."""

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()
    """Names, with `/` and the name of an alternative where only that is meant; empty: all."""


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """What a ResourceClaim asks for."""

    requests: tuple[DeviceRequest, ...]
    constraints: tuple[DeviceConstraint, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceClaimTemplate:
    """What each pod that names it claims."""

    metadata: ObjectMeta
    claim: DeviceClaim


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """A claim with a name, for the pods that name it."""

    metadata: ObjectMeta
    claim: DeviceClaim


def device_classes(classes: Iterable[DeviceClass]) -> DeviceClasses:
    """Return the classes by what asks for them; of two with one resource the first by name serves it."""
    by_name = {
        each.name: each for each in sorted(classes, key=lambda each: each.name, reverse=True)
    }
    by_resource = {
        resource: each
        for each in by_name.values()
        for resource in class_resources(each.name, each.extended_resource)
    }
    return DeviceClasses(by_name, by_resource)


def node_devices(slices: Iterable[ResourceSlice], node: str, classes: DeviceClasses) -> NodeDevices:
    """Return what a node has of devices, from the slices of that node."""
    by_pool: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in slices:
        by_pool.setdefault((each.driver, each.pool or node), []).append(each)
    pools = []
    for (driver, name), parts in sorted(by_pool.items()):
        parts.sort(key=lambda each: each.name)
        devices = tuple(device for part in parts for device in part.devices)
        counters = {
            (set_, counter): most for part in parts for set_, counter, most in part.counters
        }
        pools.append(DevicePool(driver, name, devices, counters))
    return NodeDevices(tuple(pools), classes)


def read_device_class(fields: "Fields") -> DeviceClass:
    """Return the DeviceClass of a manifest."""
    meta, spec = read_meta(fields, namespaced=False), fields.child("spec")
    return DeviceClass(meta.name, _selectors(spec), spec.text("extendedResourceName"))


def read_claim_template(fields: "Fields") -> ResourceClaimTemplate:
    """Return the ResourceClaimTemplate of a manifest."""
    spec = fields.child("spec", required=True).child("spec", required=True)
    return ResourceClaimTemplate(read_meta(fields), read_device_claim(spec))


def read_resource_claim(fields: "Fields") -> ResourceClaim:
    """Return the ResourceClaim of a manifest."""
    spec = fields.child("spec", required=True)
    return ResourceClaim(read_meta(fields), read_device_claim(spec))


def read_resource_slice(fields: "Fields", name: str) -> ResourceSlice:
    """Return the devices of one node that the `spec` of a ResourceSlice describes."""
    for key in ("nodeSelector", "allNodes", "perDeviceNodeSelection"):
        if fields.data.get(key):
            fields.note((key,), "devices of one node: others are not simulated", found="one")
    driver = fields.text("driver", required=True)
    if fields.data.get("devices") and fields.data.get("sharedCounters"):
        fields.note(("sharedCounters",), "devices or sharedCounters, each in a slice of its own")
    counters = [
        (each.text("name", required=True), key, amount.nano)
        for each in fields.items("sharedCounters")
        for key, amount in _amounts(each.child("counters"))
    ]
    devices = tuple(_device(each, driver) for each in fields.items("devices"))
    pool = fields.child("pool").text("name")
    return ResourceSlice(driver, pool, devices, tuple(counters), name)


def slice_faults(slices: Sequence[ResourceSlice]) -> Iterator[str]:
    """Yield why the slices of one node can't be used together; for each what was expected."""
    names: set[tuple[str, str, str]] = set()
    sets = {
        (each.driver, each.pool, set_, key) for each in slices for set_, key, _ in each.counters
    }
    for each in slices:
        for device in each.devices:
            name = each.driver, each.pool, device.name
            if name in names:
                yield f"each device's name once in a pool, found {device.name!r} twice"
            names.add(name)
            for set_, key, _ in device.counters:
                if (each.driver, each.pool, set_, key) not in sets:
                    yield (
                        f"the counter {key!r} in a counter set {set_!r} of sharedCounters, which the device "
                        f"{device.name!r} consumes"
                    )


def _device(fields: "Fields", driver: str) -> Device:
    if "basic" in fields:  # v1beta1
        fields = _inside(fields, "basic")
    for key in (
        *(
            "allowMultipleAllocations",
            "bindsToNode",
            "bindingConditions",
            "nodeName",
            "nodeSelector",
        ),
        *("allNodes", "nodeAllocatableResources", "compatibilityGroups"),
    ):
        if fields.data.get(key):
            fields.note((key,), _NOT_SIMULATED, found="one")
    capacity: dict[str, Quantity] = {}
    for key in fields.child("capacity").data:
        each = fields.child("capacity").child(key)
        if each.data.get("requestPolicy"):
            each.note(("requestPolicy",), _NOT_SIMULATED, found="one")
        amount = each.quantity("value")
        if amount is None:
            each.note(("value",), "a quantity, such as 40Gi")
        else:
            capacity[key] = amount
    return Device(
        fields.text("name", required=True),
        driver,
        {
            key: _attribute(fields.child("attributes").child(key))
            for key in fields.child("attributes").data
        },
        capacity,
        tuple(
            Taint(each.text("key", required=True), each.text("value"), each.text("effect"))
            for each in fields.items("taints")
        ),
        tuple(
            (each.text("counterSet", required=True), key, amount.nano)
            for each in fields.items("consumesCounters")
            for key, amount in _amounts(each.child("counters"))
        ),
    )


def _inside(fields: "Fields", key: str) -> "Fields":
    """Return what is below a key, with the name beside it."""
    inner = fields.child(key)
    inner.data = {"name": fields.data.get("name"), **inner.data}
    return inner


def _attribute(fields: "Fields") -> Attribute:
    if len(fields.data) == 1:
        match next(iter(fields.data.items())):
            case "string", str(text):
                return text
            case "bool", bool(truth):
                return truth
            case "int", int(number) if not isinstance(number, bool):
                return number
            case "version", str(text):
                return Version(text)
    fields.note((), "one of string, int, bool and version, with a value of that kind")
    return ""


def _amounts(fields: "Fields") -> Iterator[tuple[str, Quantity]]:
    for key in fields.data:
        amount = fields.child(key).quantity("value")
        if amount is not None:
            yield key, amount


def read_device_claim(fields: "Fields") -> DeviceClaim:
    """Return what the `spec` of a ResourceClaim asks for."""
    devices = fields.child("devices")
    requests = tuple(_request(each) for each in devices.items("requests"))
    if not requests:
        devices.note(("requests",), "at least one request")
    return DeviceClaim(requests, tuple(_constraint(each) for each in devices.items("constraints")))


def _request(fields: "Fields") -> DeviceRequest:
    name = fields.text("name", required=True)
    alternatives = tuple(
        _ask(each, each.text("name", required=True)) for each in fields.items("firstAvailable")
    )
    if not alternatives:
        # The form of v1beta1 has no `exactly`.
        exactly = fields.child("exactly") if "exactly" in fields else fields
        return DeviceRequest(name, (_ask(exactly, ""),))
    if len(alternatives) > MOST_ALTERNATIVES:
        fields.note(("firstAvailable",), f"at most {MOST_ALTERNATIVES} alternatives")
    return DeviceRequest(name, alternatives, is_list=True)


def _ask(fields: "Fields", name: str) -> DeviceAsk:
    for key in ("adminAccess", "derivedAttributes"):
        if fields.data.get(key):
            fields.note((key,), _NOT_SIMULATED, found="one")
    mode, count = fields.text("allocationMode", "ExactCount"), fields.integer("count", 1)
    if mode not in ("ExactCount", "All"):
        fields.note(("allocationMode",), "ExactCount or All", found=repr(mode))
    elif mode == "All" and "count" in fields:
        fields.note(("count",), "none beside allocationMode All", found=str(count))
    elif count is None or count < 1:
        fields.note(("count",), "a number from 1 on", found=str(count))
    requests = fields.child("capacity").quantities("requests")
    return DeviceAsk(
        name,
        fields.text("deviceClassName", required=True),
        None if mode == "All" else count,
        _selectors(fields),
        tuple(_toleration(each) for each in fields.items("tolerations")),
        tuple(sorted(requests.items())),
    )


def _toleration(fields: "Fields") -> Toleration:
    operator, key = fields.text("operator", "Equal"), fields.text("key")
    if operator not in ("Equal", "Exists"):
        fields.note(("operator",), "Equal or Exists", found=repr(operator))
    if not key and operator != "Exists":
        fields.note(("operator",), "Exists where no key is given", found=operator)
    if fields.data.get("tolerationSeconds") is not None:
        fields.note(("tolerationSeconds",), _NOT_SIMULATED, found="one")
    return Toleration(key, operator, fields.text("value"), fields.text("effect"))


def _constraint(fields: "Fields") -> DeviceConstraint:
    same, distinct = fields.text("matchAttribute"), fields.text("distinctAttribute")
    attribute = same or distinct
    if bool(same) == bool(distinct):
        fields.note((), "matchAttribute or distinctAttribute")
    elif "/" not in attribute:
        key = "matchAttribute" if same else "distinctAttribute"
        fields.note(
            (key,), "a name with its domain, such as gpu.example.com/model", found=repr(attribute)
        )
    return DeviceConstraint(attribute, bool(distinct), fields.texts("requests"))


def _selectors(fields: "Fields") -> tuple[str, ...]:
    return tuple(
        each.child("cel").text("expression", required=True) for each in fields.items("selectors")
    )
