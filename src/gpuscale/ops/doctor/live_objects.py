"""What `lint` reads of a cluster, for `gpuscale lint --live` and for the doctor alike."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.base.objects.fields import Fields
from gpuscale.kube import fields_of
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.snapshot import Look, Snapshot
from gpuscale.ops.lint.cluster import Cluster, as_applied

READ = {
    "hpas": ("autoscaling/v2", "HorizontalPodAutoscaler"),
    "scaledobjects": ("keda.sh/v1alpha1", "ScaledObject"),
    "triggerauthentications": ("keda.sh/v1alpha1", "TriggerAuthentication"),
    "deployments": ("apps/v1", "Deployment"),
    "statefulsets": ("apps/v1", "StatefulSet"),
    "replicasets": ("apps/v1", "ReplicaSet"),
    "servicemonitors": ("monitoring.coreos.com/v1", "ServiceMonitor"),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget"),
    "resourcequotas": ("v1", "ResourceQuota"),
    "nodes": ("v1", "Node"),
    "nodepools": ("karpenter.sh/v1", "NodePool"),
}
"""Kinds that checks of files are about, by plural name."""
STATUS = "autoscaler-status"
"""Of Cluster Autoscaler, whose node groups are not among the objects."""


def live_cluster(snapshot: Snapshot, hpas: Sequence[Mapping[str, Any]] | None = None) -> Cluster:
    """Return the objects of a snapshot as their manifests, custom resources included.

    Args:
        snapshot: with the objects.
        hpas: those that are looked at; None for all.
    """
    looked = snapshot.looks.get("hpas", Look()).items if hpas is None else hpas
    scaled = {_target(fields_of(dict(each))) for each in looked}
    found: list[dict[str, Any]] = []
    for plural, (version, kind) in READ.items():
        for item in looked if plural == "hpas" else snapshot.looks.get(plural, Look()).items:
            body = fields_of({"apiVersion": version, "kind": kind, **item})
            key = facts.namespace(body), kind, facts.name(body)
            # A Deployment's ReplicaSets say what it says.
            if kind != "ReplicaSet" or facts.controller(body) is None or key in scaled:
                found.append(as_applied(body.data))
    found += (
        as_applied(dict(item))
        for plural, look in snapshot.looks.items()
        if "." in plural
        for item in look.items
    )
    is_blind = any(snapshot.hides(plural) for plural in ("nodes", STATUS))
    return Cluster(
        [*found, *(as_applied(dict(each)) for each in snapshot.rule_maps)],
        adds_other_nodes=is_blind or bool(snapshot.all(STATUS)),
        kubernetes=snapshot.kubernetes,
    )


def _target(hpa: Fields) -> tuple[str, str, str]:
    target = hpa.child("spec").child("scaleTargetRef")
    return facts.namespace(hpa), target.text("kind"), target.text("name")
