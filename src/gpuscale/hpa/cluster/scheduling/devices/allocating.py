"""Which devices of a node claims get: the first that fit, tried one after the other.

Source: kubernetes v1.37 staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating
(allocator_incubating.go, pools_incubating.go, constraint.go, consumable_capacity.go), which is used while no
gate that is off by default is on; the points are pkg/scheduler/framework/plugins/dynamicresources
(computeScore). Known difference: a search that takes long ends after a number of steps, there after 10 s.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuscale.base.objects.devices import (
    MOST_ALTERNATIVES,
    MOST_DEVICES,
    Attribute,
    Device,
    DeviceAsk,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceKey,
    DevicePool,
    NodeDevices,
)
from gpuscale.base.objects.taints import untolerated
from gpuscale.hpa.cluster.scheduling.devices.selecting import SelectorError, matches

_MOST_STEPS = 200_000


class AllocationError(Exception):
    """A claim that can't be judged; the scheduler then tries the pod on no other node."""


@dataclass(frozen=True, slots=True)
class NamedClaim:
    """A claim of a pod, and what messages call it."""

    name: str
    claim: DeviceClaim


@dataclass(frozen=True, slots=True)
class Allocation:
    """The devices for all claims of a pod."""

    devices: tuple[tuple[DeviceKey, ...], ...] = ()
    """Of each claim."""
    points: int = 0
    """More where earlier alternatives were had."""

    @property
    def keys(self) -> frozenset[DeviceKey]:
        """Return the devices of all claims."""
        return frozenset(key for each in self.devices for key in each)


def allocate(
    claims: Sequence[NamedClaim], devices: NodeDevices, held: frozenset[DeviceKey]
) -> Allocation | None:
    """Return devices for all of a pod's claims; None where the node has not enough.

    Args:
        claims: of one pod.
        devices: of the node.
        held: those that are allocated.

    Raises:
        AllocationError: something is wrong with a claim or class.
    """
    return _Search(claims, devices, held).run()


def counted(
    device_class: DeviceClass, devices: NodeDevices, held: frozenset[DeviceKey]
) -> tuple[int, int]:
    """Return how many devices of a node are of a class, and how many of them are allocated.

    Raises:
        SelectorError: the class can't be judged.
    """
    keys = [
        (pool.driver, pool.name, device.name)
        for pool in devices.pools
        for device in pool.devices
        if all(matches(each, device) for each in device_class.selectors)
    ]
    return len(keys), sum(key in held for key in keys)


class _TooManyDevices(Exception):
    """A claim would have more devices than it may."""


@dataclass(slots=True, eq=False)
class _Constraint:
    """What devices of a claim must have in common, and what those that were chosen have."""

    rule: DeviceConstraint
    values: list[Attribute] = field(default_factory=list)

    def concerns(self, request: str, alternative: str) -> bool:
        names = self.rule.requests
        return not names or request in names or f"{request}/{alternative}" in names

    def add(self, device: Device) -> bool:
        """Count a device; return False where it may not be chosen."""
        value = device.attribute(self.rule.attribute)
        if value is None:
            return False
        is_known = any(type(each) is type(value) and each == value for each in self.values)
        if is_known if self.rule.distinct else self.values and not is_known:
            return False
        self.values.append(value)
        return True


@dataclass(frozen=True, slots=True)
class _At:
    """Which device is looked for."""

    claim: int = 0
    request: int = 0
    alternative: int | None = None
    """None: any, the first that works."""
    number: int = 0
    """Of the devices of the request."""


class _Search:
    def __init__(
        self, claims: Sequence[NamedClaim], devices: NodeDevices, held: frozenset[DeviceKey]
    ) -> None:
        self._claims = claims
        self._classes = devices.classes.by_name
        self._held = held
        self._pools = devices.pools
        self._devices = [
            ((pool.driver, pool.name, device.name), device, pool)
            for pool in devices.pools
            for device in pool.devices
        ]
        self._all: dict[tuple[int, int, int], list[int]] = {}
        """The devices of each alternative that wants all, as places in that list."""
        self._constraints = [
            [_Constraint(rule) for rule in each.claim.constraints] for each in claims
        ]
        self._taken: list[list[DeviceKey]] = [[] for _ in claims]
        self._in_use: set[DeviceKey] = set()
        self._chosen: dict[tuple[int, int], int] = {}
        """Claim and request to the alternative that was had."""
        self._counters: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
        """What is taken of a pool's counters."""
        for key, device, pool in self._devices if held else ():
            if key in held and device.counters:
                self._count(device, pool, 1)
        self._steps = 0

    def run(self) -> Allocation | None:
        for number, named in enumerate(self._claims):
            least = 0
            for place, request in enumerate(named.claim.requests):
                counts = []
                for alternative, ask in enumerate(request.asks):
                    about = f"claim {named.name}, request {ask.name or request.name}"
                    if ask.class_name not in self._classes:
                        said = f"could not retrieve device class {ask.class_name}"
                        raise AllocationError(f"{about}: {said}")
                    which = number, place, alternative
                    if ask.count is None:
                        self._all[which] = [
                            index
                            for index, (key, device, _) in enumerate(self._devices)
                            if self._selects(named, ask, key, device) and _is_large(device, ask)
                        ]
                    counts.append(self._count_of(which, ask))
                if min(counts) > MOST_DEVICES - least:
                    raise AllocationError(
                        f"claim {named.name}, request {request.name}: adding {min(counts)} devices exceeds "
                        f"the claim limit of {MOST_DEVICES}, with {least} already accounted for"
                    )
                least += min(counts)
        try:
            if not self._find(_At(), 0):
                return None
        except _TooManyDevices:
            return None
        points = sum(MOST_ALTERNATIVES - each for each in self._chosen.values())
        return Allocation(tuple(map(tuple, self._taken)), points)

    def _find(self, at: _At, start: int) -> bool:
        """Find this device and all that come after it.

        Args:
            at: which device is looked for.
            start: where in the list of devices; those of one request are chosen in its order.

        Raises:
            _TooManyDevices: what is left needs more devices than the claim may have.
        """
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise AllocationError("timed out trying to allocate devices")
        if at.claim == len(self._claims):
            return True
        named = self._claims[at.claim]
        if at.request == len(named.claim.requests):
            try:
                return self._find(_At(at.claim + 1), 0)
            except _TooManyDevices:
                return False
        request = named.claim.requests[at.request]
        if at.alternative is None and request.is_list:
            is_too_many = True
            for alternative in range(len(request.asks)):
                try:
                    found = self._find(_At(at.claim, at.request, alternative), 0)
                except _TooManyDevices:
                    continue
                is_too_many = False
                if found:
                    self._chosen[at.claim, at.request] = alternative
                    return True
            if is_too_many:
                raise _TooManyDevices
            return False
        alternative = at.alternative or 0
        ask = request.asks[alternative]
        count = self._count_of((at.claim, at.request, alternative), ask)
        if ask.count is None and not count:
            return False
        if at.number >= count:
            return self._find(_At(at.claim, at.request + 1), 0)
        if count - at.number > MOST_DEVICES - len(self._taken[at.claim]):
            raise _TooManyDevices
        then = _At(at.claim, at.request, at.alternative, at.number + 1)
        if ask.count is None:
            index = self._all[at.claim, at.request, alternative][at.number]
            key, device, pool = self._devices[index]
            return self._try(at, ask, key, device, pool, then, 0)
        for index in range(start, len(self._devices)):
            key, device, pool = self._devices[index]
            if (
                key not in self._held
                and key not in self._in_use
                and self._selects(named, ask, key, device)
                and _is_large(device, ask)
                and self._try(at, ask, key, device, pool, then, index + 1)
            ):
                return True
        return False

    def _try(
        self,
        at: _At,
        ask: DeviceAsk,
        key: DeviceKey,
        device: Device,
        pool: DevicePool,
        then: _At,
        start: int,
    ) -> bool:
        """Take a device if it is free and may be had, and find what comes after it, or give it back."""
        if key in self._held or key in self._in_use:
            return False
        named = self._claims[at.claim]
        request = named.claim.requests[at.request].name
        if device.counters:
            self._count(device, pool, 1)
        added: list[_Constraint] = []
        is_free = not device.counters or self._has_counters(pool)
        if is_free and untolerated(device.taints, ask.tolerations) is None:
            concerned = [
                each for each in self._constraints[at.claim] if each.concerns(request, ask.name)
            ]
            for each in concerned:
                if not each.add(device):
                    if ask.count is None:
                        raise AllocationError(
                            f"claim {named.name}, request {ask.name or request}: cannot add device "
                            f"{'/'.join(key)} because a claim constraint would not be satisfied"
                        )
                    break
                added.append(each)
            else:
                self._in_use.add(key)
                self._taken[at.claim].append(key)
                try:
                    if self._find(then, start):
                        return True
                except _TooManyDevices:
                    self._give_back(at, key, device, pool, added)
                    raise
                self._give_back(at, key, device, pool, added)
                return False
        for each in added:
            each.values.pop()
        if device.counters:
            self._count(device, pool, -1)
        return False

    def _give_back(
        self, at: _At, key: DeviceKey, device: Device, pool: DevicePool, added: list[_Constraint]
    ) -> None:
        self._taken[at.claim].pop()
        self._in_use.discard(key)
        for each in added:
            each.values.pop()
        if device.counters:
            self._count(device, pool, -1)

    def _count_of(self, which: tuple[int, int, int], ask: DeviceAsk) -> int:
        return len(self._all[which]) if ask.count is None else ask.count

    def _count(self, device: Device, pool: DevicePool, sign: int) -> None:
        taken = self._counters.setdefault((pool.driver, pool.name), Counter())
        for set_, counter, amount in device.counters:
            taken[set_, counter] += sign * amount

    def _has_counters(self, pool: DevicePool) -> bool:
        taken = self._counters[pool.driver, pool.name]
        return all(taken[each] <= most for each, most in pool.counters.items())

    def _selects(self, named: NamedClaim, ask: DeviceAsk, key: DeviceKey, device: Device) -> bool:
        """Return whether a device is one that a request may have, by its class and its own selectors."""
        selectors = self._classes[ask.class_name].selectors
        about = f"class {ask.class_name}"
        for each in (selectors, ask.selectors):
            for number, expression in enumerate(each):
                try:
                    if not matches(expression, device):
                        return False
                except SelectorError as error:
                    raise AllocationError(
                        f"{about}: selector #{number} on device {'/'.join(key)}: {error}"
                    ) from None
            about = f"claim {named.name}"
        return True


def _is_large(device: Device, ask: DeviceAsk) -> bool:
    """Return whether a device has the capacity that a request needs."""
    return all(
        name in device.capacity and device.capacity[name].nano >= least.nano
        for name, least in ask.capacity
    )
