"""Room that a scenario asks for without pods: ProvisioningRequests and CapacityBuffers.

Source: cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1 and
apis/capacitybuffer/autoscaling.x-k8s.io/v1beta1 types.go (1.35).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuscale.base.documents.documents import Path
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import PodTemplate
from gpuscale.base.objects.requests import total_requests
from gpuscale.base.objects.workloads import Deployment
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.nodes import CapacityBuffer, PodSet, ProvisioningRequest
from gpuscale.lab.sim.scenario import model as spec
from gpuscale.lab.sim.scenario.references import References


@dataclass(frozen=True, slots=True)
class Buffer:
    """A CapacityBuffer whose size may follow a Deployment's."""

    metadata: ObjectMeta
    template: PodTemplate
    most: int
    """By `replicas` and `limits`."""
    deployment: str = ""
    """Its key, with a percentage."""
    percentage: int = 0

    def now(self, deployments: Mapping[str, Deployment]) -> CapacityBuffer:
        """Return it with as many pods as it has now: of several numbers the smallest."""
        found = self.most
        if self.deployment:
            replicas = deployments[self.deployment].replicas
            part = math.ceil(replicas * self.percentage / 100)
            found = min(found, max(1, part) if replicas and self.percentage else 0)
        return CapacityBuffer(self.metadata, found, self.template)


def read_provisioning_requests(
    run: spec.ScenarioSpec, templates: Mapping[str, PodTemplate], references: References
) -> tuple[ProvisioningRequest, ...]:
    """Return the requests, oldest first, made at milliseconds of the scenario; faults are collected."""
    found: list[ProvisioningRequest] = []
    _check_policy(run, "provisioningRequests", bool(run.provisioning_requests), references)
    for index, each in enumerate(run.provisioning_requests):
        sets: list[PodSet] = []
        for place, pods in enumerate(each.pod_sets):
            path: Path = ("provisioningRequests", index, "podSets", place, "podTemplateRef")
            template = _template(pods.pod_template_ref, path, templates, references)
            if template is not None:
                sets.append(PodSet(pods.count, template))
        meta = ObjectMeta(each.name, creation_ms=each.at)
        found.append(ProvisioningRequest(meta, each.provisioning_class_name, tuple(sets)))
    return tuple(sorted(found, key=lambda each: each.metadata.creation_ms))


def read_capacity_buffers(
    run: spec.ScenarioSpec,
    templates: Mapping[str, PodTemplate],
    deployments: Mapping[str, Deployment],
    references: References,
) -> tuple[Buffer, ...]:
    """Return the buffers; faults are collected."""
    found: list[Buffer] = []
    _check_policy(run, "capacityBuffers", bool(run.capacity_buffers), references)
    for index, each in enumerate(run.capacity_buffers):
        path: Path = ("capacityBuffers", index)
        if each.scalable_ref is not None:
            key = _key(each.scalable_ref)
            if key not in deployments:
                where = (*path, "scalableRef")
                references.note_missing("Deployment", each.scalable_ref, where, deployments)
                continue
            template: PodTemplate | None = deployments[key].template
        else:
            key, where = "", (*path, "podTemplateRef")
            template = _template(str(each.pod_template_ref), where, templates, references)
        if template is None:
            continue
        numbers = [] if each.replicas is None else [each.replicas]
        pod = template.spec
        requests = total_requests(pod.containers, pod.init_containers, pod.requests, pod.overhead)
        for name, text in each.limits.items():
            try:
                limit = parse_quantity(text).nano
            except ValueError as error:
                references.note((*path, "limits", name), str(error), found=repr(text))
            else:
                numbers += [limit // requests[name]] if requests.get(name) else []
        if not numbers and each.percentage is None:
            expected = "replicas, percentage, or limits of something that its pods ask for"
            references.note(path, expected, found=f"{each.name} without an end")
        meta = ObjectMeta(each.name)
        buffer = Buffer(meta, template, min(numbers, default=2**31 - 1))
        if each.percentage is not None:
            buffer = replace(buffer, deployment=key, percentage=each.percentage)
        found.append(buffer)
    return tuple(found)


def _check_policy(
    run: spec.ScenarioSpec, field: str, is_given: bool, references: References
) -> None:
    if is_given and run.node_autoscaler.policy == "karpenter":
        expected = "none with nodeAutoscaler.policy karpenter, which does not serve them here"
        fix = "take them out, or take the policy cluster-autoscaler"
        references.note((field,), expected, fix=fix)


def _template(
    name: str, path: Path, templates: Mapping[str, PodTemplate], references: References
) -> PodTemplate | None:
    found = templates.get(_key(name))
    if found is None:
        references.note_missing("Deployment or Job", name, path, templates)
    return found


def _key(name: str) -> str:
    return name if "/" in name else f"default/{name}"
