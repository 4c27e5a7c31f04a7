"""Room that is asked for without pods: ProvisioningRequests and CapacityBuffers.

Source: cluster-autoscaler/provisioningrequest/{besteffortatomic,checkcapacity}, processors/provreq and
processors/capacitybuffer/pod_list_processor.go (1.35).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import Pod, PodTemplate
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.registry import Registry
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.scale_up import ClusterSize, Growth, scale_up
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.snapshot import Snapshot, Trial
from gpuscale.hpa.cluster.nodes.policy import NodeRequest, ProvisioningRequest
from gpuscale.hpa.cluster.nodes.pools import ProvisioningCondition
from gpuscale.hpa.cluster.scheduling import NodeState

CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"
BEST_EFFORT_ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CONSUME = "autoscaling.x-k8s.io/consume-provisioning-request"
BOOKED_MS = 600_000
"""For how long the room of a request is kept from its being found."""


@dataclass(slots=True)
class _State:
    booked_until_ms: int | None = None
    """None until its room was found."""
    retry_ms: int = 0
    wait_ms: int = 0


class ProvisioningRequests:
    """What became of each request so far."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}

    def without_consumers(self, request: NodeRequest) -> list[Pod]:
        """Return the pending pods but those that a ProvisioningRequest has made room for."""
        if not request.settings.enable_provisioning_requests:
            return list(request.unschedulable)
        return [pod for pod in request.unschedulable if CONSUME not in pod.metadata.annotations]

    def book(self, request: NodeRequest, snapshot: Snapshot) -> None:
        """Keep the room of requests that were served a short while ago."""
        if not request.settings.enable_provisioning_requests:
            return
        for asked in request.provisioning_requests:
            state = self._states.get(asked.metadata.key)
            if state and state.booked_until_ms and state.booked_until_ms >= request.now_ms:
                for pod in _pods_of(asked):
                    snapshot.put(pod)

    def serve(
        self,
        request: NodeRequest,
        snapshot: Snapshot,
        templates: Mapping[str, NodeState],
        registry: Registry,
        size: ClusterSize,
        *,
        draw: int,
    ) -> tuple[Growth, Sequence[ProvisioningCondition]]:
        """Look for the room of one request, and return what grows for it and what it is told."""
        settings, now_ms = request.settings, request.now_ms
        keys = {asked.metadata.key for asked in request.provisioning_requests}
        self._states = {key: state for key, state in self._states.items() if key in keys}
        for asked in request.provisioning_requests:
            key = asked.metadata.key
            state = self._states.setdefault(key, _State())
            kind = asked.provisioning_class_name
            if (
                state.booked_until_ms is not None
                or state.retry_ms > now_ms
                or kind not in (CHECK_CAPACITY, BEST_EFFORT_ATOMIC)
            ):
                continue
            trial = Trial()
            lacking = [pod for pod in _pods_of(asked) if snapshot.place(pod, trial) is None]
            growth = Growth()
            if lacking and kind == BEST_EFFORT_ATOMIC:
                found = scale_up(
                    request.pools,
                    lacking,
                    templates,
                    registry,
                    size,
                    now_ms,
                    snapshot=snapshot,
                    draw=draw,
                    all_or_nothing=True,
                )
                growth = Growth(found.actions)
            if lacking and not growth.actions:
                snapshot.drop(trial)
                first_ms = settings.provisioning_request_initial_backoff_time_ms
                longest_ms = settings.provisioning_request_max_backoff_time_ms
                state.wait_ms = min(2 * state.wait_ms or first_ms, longest_ms)
                state.retry_ms = now_ms + state.wait_ms
                return growth, (ProvisioningCondition(key, False, "CapacityIsNotFound"),)
            snapshot.keep(trial)
            state.booked_until_ms = now_ms + BOOKED_MS
            reason = "CapacityIsProvisioned" if lacking else "CapacityIsFound"
            return growth, (ProvisioningCondition(key, True, reason),)
        return Growth(), ()


def _pods_of(request: ProvisioningRequest) -> list[Pod]:
    return [
        pod
        for number, pods in enumerate(request.pod_sets)
        for pod in made_pods(
            request.metadata, pods.template, f"{request.metadata.name}-{number}", pods.count
        )
    ]


def made_pods(of: ObjectMeta, template: PodTemplate, name: str, count: int) -> list[Pod]:
    """Return pods that stand for room and exist for the autoscaler only."""
    meta = (of.namespace, template.labels, template.annotations, of.creation_ms)
    return [
        Pod(ObjectMeta(f"{name}-{number}", *meta), template.spec) for number in range(1, count + 1)
    ]
