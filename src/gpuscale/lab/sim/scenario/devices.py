"""Devices for claims in a scenario: what nodes have, and what pods claim (dynamic resource allocation)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpuscale.base.documents.documents import Path
from gpuscale.base.objects.devices import (
    DeviceAsk,
    DeviceClaim,
    DeviceClass,
    DeviceClasses,
    NodeDevices,
    ResourceClaimTemplate,
    ResourceSlice,
    device_classes,
    read_resource_slice,
    slice_faults,
)
from gpuscale.base.objects.kueue import QUEUE_LABEL
from gpuscale.base.objects.manifests import KubernetesObject
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Container, PodClaim, PodSpec
from gpuscale.base.objects.workloads import Job, JobSet
from gpuscale.hpa.cluster.scheduling import (
    SelectorError,
    check_selector,
    claim_for_resources,
    selects,
)
from gpuscale.lab.sim.control.machines import CloudPool
from gpuscale.lab.sim.scenario.pool_model import NodePoolSpec
from gpuscale.lab.sim.scenario.priorities import Item, with_specs
from gpuscale.lab.sim.scenario.references import References

GpusOfDevices = Mapping[tuple[str, str], tuple[int, ...]]
"""Driver and name of a device, to the GPUs of its node that it is, or is a part of."""
_GPU_DRIVERS = "gpu."


def read_classes(
    objects: Sequence[KubernetesObject], pools: Sequence[NodePoolSpec], references: References
) -> DeviceClasses | None:
    """Return the classes of devices; None where a scenario has nothing to do with claims."""
    found = [each for each in objects if isinstance(each, DeviceClass)]
    for each in found:
        _check(each.selectors, f"DeviceClass {each.name}", references)
    has_any = found or any(pool.resource_slices for pool in pools)
    return device_classes(found) if has_any else None


def read_slices(
    pool: NodePoolSpec, path: Path, references: References
) -> tuple[ResourceSlice, ...]:
    """Return the slices of each of a pool's nodes; faults are collected."""
    found = tuple(
        read_resource_slice(
            references.fields(each, (*path, "resourceSlices", index)), f"{index:03}"
        )
        for index, each in enumerate(pool.resource_slices)
    )
    for expected in slice_faults(found):
        references.note((*path, "resourceSlices"), expected)
    return found


def gpus_of_devices(
    slices: Sequence[ResourceSlice], gpus: int, path: Path, references: References
) -> GpusOfDevices:
    """Return which GPUs the devices of GPU drivers are: in their order, and parts by their counter sets."""
    found: dict[tuple[str, str], tuple[int, ...]] = {}
    of_gpus = [each for each in slices if each.driver.startswith(_GPU_DRIVERS)]
    sets = list(dict.fromkeys(set_ for each in of_gpus for set_, _, _ in each.counters))
    count = len(sets)
    for each in of_gpus:
        for device in each.devices:
            parts = {sets.index(set_) for set_, _, _ in device.counters if set_ in sets}
            found[each.driver, device.name] = tuple(sorted(parts)) or (count,)
            count += not parts
    if slices and count != gpus:
        expected = (
            f"{gpus} GPUs in the devices of drivers such as {_GPU_DRIVERS}nvidia.com, as in gpus"
        )
        references.note((*path, "resourceSlices"), expected, found=str(count))
    return found


class Claims:
    """Looks up what pods claim.

    Args:
        objects: of the manifests.
        classes: of devices; None where nothing is known of claims.
        pools: with their devices.
        is_karpenter: Karpenter makes the nodes.
        references: collects faults.
    """

    def __init__(
        self,
        objects: Sequence[KubernetesObject],
        classes: DeviceClasses | None,
        pools: Sequence[CloudPool],
        references: References,
        *,
        is_karpenter: bool,
    ) -> None:
        self._classes = classes or DeviceClasses()
        self._references = references
        self._is_karpenter = is_karpenter
        self._templates = {
            each.metadata.key: each.claim
            for each in objects
            if isinstance(each, ResourceClaimTemplate)
        }
        self._machines = [machine for pool in pools for machine in pool.machines]
        for key, claim in self._templates.items():
            for ask in _asks(claim):
                _check(ask.selectors, f"ResourceClaimTemplate {key}", references)
                if ask.class_name not in self._classes.by_name:
                    references.note_missing(
                        "DeviceClass", ask.class_name, ("manifests",), self._classes.by_name
                    )

    def resolved(self, item: Item) -> Item:
        """Return a workload whose pods' claims say what they ask for."""
        by = f"{type(item).__name__} {item.metadata.name}"
        namespace = item.metadata.namespace
        return with_specs(item, lambda spec: self._resolved(spec, namespace, by))

    def _resolved(self, spec: PodSpec, namespace: str, by: str) -> PodSpec:
        claims = [self._looked_up(each, namespace, by) for each in spec.claims]
        containers = (*spec.containers, *spec.init_containers)
        served = {name for each in containers for name in each.requests} & set(
            self._classes.by_resource
        )
        if not served:
            return replace(spec, claims=tuple(claims)) if claims else spec
        self._check_served(served, by)
        # No node has them of a plugin, so that the claim for them is the same everywhere.
        anywhere = Node(ObjectMeta("any", ""), devices=NodeDevices((), self._classes))
        asks = claim_for_resources(spec, anywhere)
        if asks is not None:
            claims.append(PodClaim("<extended-resources>", asks=asks, gpus=self._gpus(asks)))
        return replace(
            spec,
            claims=tuple(claims),
            containers=tuple(_without(each, served) for each in spec.containers),
            init_containers=tuple(_without(each, served) for each in spec.init_containers),
        )

    def _looked_up(self, claim: PodClaim, namespace: str, by: str) -> PodClaim:
        if not claim.template:
            self._references.note(
                ("manifests",),
                "resourceClaimTemplateName: claims that pods share are not simulated",
                found=f"resourceClaimName {claim.claim} in {by}",
            )
            return claim
        asks = self._templates.get(f"{namespace}/{claim.template}")
        if asks is None:
            name = f"{namespace}/{claim.template}"
            self._references.note_missing(
                "ResourceClaimTemplate", name, ("manifests",), self._templates
            )
            return claim
        return replace(claim, asks=asks, gpus=self._gpus(asks))

    def _check_served(self, served: Iterable[str], by: str) -> None:
        names = ", ".join(sorted(served))
        if any(name in machine.offers for machine in self._machines for name in served):
            self._references.note(
                ("nodePools",),
                f"resourceSlices in all pools or in none, as {names} is served by a DeviceClass",
                found=f"some with GPUs of a device plugin, and {by}, which asks for {names}",
            )
        if self._is_karpenter:
            self._references.note(
                ("manifests",),
                "a ResourceClaimTemplate: Karpenter is not simulated with resources that DeviceClasses serve",
                found=f"{names} in {by}",
            )

    def _gpus(self, asks: DeviceClaim) -> int:
        """Return how many GPUs a claim gets where it gets what it prefers."""
        return sum(self._gpus_of(each.asks[0]) for each in asks.requests)

    def _gpus_of(self, ask: DeviceAsk) -> int:
        device_class = self._classes.by_name.get(ask.class_name)
        if device_class is None:
            return 0
        selectors = (*device_class.selectors, *ask.selectors)
        most = max(
            (
                sum(
                    all(selects(each, device) for each in selectors)
                    for each in machine.shape.slices
                    for device in each.devices
                    if (device.driver, device.name) in machine.gpu_of
                )
                for machine in self._machines
            ),
            default=0,
        )
        return most if ask.count is None or not most else ask.count


def check_queued(items: Iterable[Job | JobSet], references: References) -> None:
    """Refuse claims of Jobs that queues start, whose quotas don't count devices here."""
    for each in items:
        jobs = each.jobs if isinstance(each, JobSet) else (each,)
        if QUEUE_LABEL in each.metadata.labels and any(job.template.spec.claims for job in jobs):
            references.note(
                ("manifests",),
                f"no {QUEUE_LABEL}: what claims take of a queue's quota is not simulated",
                found=f"claims in {type(each).__name__} {each.metadata.name}",
            )


def _asks(claim: DeviceClaim) -> Iterator[DeviceAsk]:
    return (ask for request in claim.requests for ask in request.asks)


def _check(selectors: Iterable[str], by: str, references: References) -> None:
    for expression in selectors:
        try:
            check_selector(expression)
        except SelectorError as error:
            references.note(
                ("manifests",), "an expression in CEL", found=f"{expression!r} in {by}: {error}"
            )


def _without(container: Container, resources: set[str]) -> Container:
    """Return a container that does not ask for these resources."""
    return replace(
        container,
        requests={k: v for k, v in container.requests.items() if k not in resources},
        limits={k: v for k, v in container.limits.items() if k not in resources},
    )
