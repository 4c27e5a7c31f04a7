"""What all objects of a run share: UIDs, times, owners."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.lab.kube_api.kinds import API_VERSIONS
from gpuscale.series.promapi import TimeAxis
from gpuscale.server.metricsapi.wire import timestamp

Json = dict[str, Any]
_IDENTITIES = uuid.UUID("6f0d0c5e-9a53-5d0c-8a5b-0f5a7b3f8f11")
"""Any fixed value: names below it give the same UID in each look at a run."""


@dataclass(frozen=True, slots=True)
class Run:
    """The facts of a run that objects' JSON needs: start, seed, version, time axis, manifests.

    Times are the machine's, as those of the Prometheus API: an API server's times never change, and its
    clients count ages by their own clocks. So an age is in seconds of the machine, whatever the speed.
    """

    start_ms: int
    seed: int
    kubernetes_version: str
    """Such as `1.36`."""
    axis: TimeAxis
    manifests: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """Kind and `namespace/name` to the object as its file has it."""

    def time(self, time_ms: int) -> str:
        """Return a time of the run in RFC 3339, by the machine's clock."""
        return timestamp(self.axis.to_caller_ms(time_ms))

    def beat_ms(self, since_ms: int, now_ms: int, every_ms: int) -> int:
        """Return when a periodic event came last, in milliseconds by the machine's clock.

        Args:
            since_ms: the first time.
            now_ms: the moment of the run.
            every_ms: by the machine's clock; all that come so often come together.
        """
        now_ms = self.axis.to_caller_ms(now_ms)
        return max(self.axis.to_caller_ms(since_ms), now_ms - now_ms % every_ms)

    def uid(self, kind: str, key: str) -> str:
        """Return an object's UID, which depends on the run, the kind and the name only."""
        return str(uuid.uuid5(_IDENTITIES, f"{self.start_ms}/{self.seed}/{kind}/{key}"))

    def manifest(self, kind: str, key: str) -> Mapping[str, Any]:
        """Return an object as its manifest file has it; empty if no file does."""
        return self.manifests.get((kind, key), {})

    def template(self, kind: str, key: str, *, of_workers: bool = False) -> Mapping[str, Any]:
        """Return the pod template of a manifest file's workload; empty if no file has it."""
        spec = self.manifest(kind, key).get("spec", {})
        if kind != "LeaderWorkerSet":
            return dict(spec.get("template", {}))
        group = spec.get("leaderWorkerTemplate", {})
        workers = group.get("workerTemplate", {})
        return dict(workers if of_workers else group.get("leaderTemplate") or workers)

    def metadata(self, kind: str, meta: ObjectMeta, *, generation: int | None = None) -> Json:
        """Return an object's metadata; the store adds `resourceVersion`."""
        body: Json = {"name": meta.name}
        if meta.namespace:
            body["namespace"] = meta.namespace
        body["uid"] = self.uid(kind, meta.key)
        if generation is not None:
            body["generation"] = generation
        body["creationTimestamp"] = self.time(meta.creation_ms or self.start_ms)
        if meta.labels:
            body["labels"] = dict(meta.labels)
        if meta.annotations:
            body["annotations"] = dict(meta.annotations)
        if meta.owner is not None:
            owner = meta.owner
            body["ownerReferences"] = [
                {
                    "apiVersion": API_VERSIONS.get(owner.kind, ""),
                    "kind": owner.kind,
                    "name": owner.name,
                    "uid": self.uid(owner.kind, f"{meta.namespace}/{owner.name}"),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ]
        return body

    def condition(
        self, type_: str, holds: bool, reason: str, message: str, since_ms: int, **more: str
    ) -> Json:
        """Return a status condition."""
        body: Json = {"type": type_, "status": str(holds)}
        body |= {"lastTransitionTime": self.time(since_ms), **more}
        if reason:
            body["reason"] = reason
        if message:
            body["message"] = message
        return body


def manifests_by_key(
    manifests: tuple[Mapping[str, Any], ...],
) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return manifests by kind and `namespace/name`."""
    found = {}
    for manifest in manifests:
        meta = manifest.get("metadata") or {}
        key = f"{meta.get('namespace') or 'default'}/{meta.get('name')}"
        found[str(manifest.get("kind")), key] = manifest
    return found


def address(first: int, second: int, number: int) -> str:
    """Return the `number`-th address of a /16 network; nothing listens there."""
    return f"{first}.{second}.{number // 256 % 256}.{number % 256}"
