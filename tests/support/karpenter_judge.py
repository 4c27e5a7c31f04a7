"""Karpenter's own code and the twin, asked the same: what to buy, what to remove.

The program `karpenter-judge` is scheduler and disruption of the pinned Karpenter, with the instance types of
its KWOK provider. Its answers, and the twin's in the same shape, are plain values.
"""

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuscale.base.objects.pods import (
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodPhase,
    SpreadConstraint,
)
from gpuscale.base.objects.selectors import Operator, Requirement, Selector
from gpuscale.hpa.cluster.nodes import NodePool, NodeRequest, PoolNode
from gpuscale.hpa.cluster.nodes.karpenter.disrupting import Command, Site, drifted, site_of
from gpuscale.hpa.cluster.nodes.karpenter.solving import Solve
from gpuscale_testing import missing
from gpuscale_testing.programs import toolset

PROGRAM = "karpenter-judge"
TIMEOUT_S = 500
NOW_MS = 1_767_225_600_000
"""2026-01-01, the judge's clock."""
_OPERATORS = {
    Operator.EQUALS: "In",
    Operator.IN: "In",
    Operator.NOT_EQUALS: "NotIn",
    Operator.NOT_IN: "NotIn",
    Operator.EXISTS: "Exists",
    Operator.DOES_NOT_EXIST: "DoesNotExist",
    Operator.GREATER_THAN: "Gt",
    Operator.LESS_THAN: "Lt",
}
_NODE_CLASS = "karpenter.kwok.sh/kwoknodeclass In [default], "

Answer = dict[str, Any]


def need_judge() -> None:
    """Skip a test where the program is not built; in CI, that is an error."""
    if reason := missing([PROGRAM]):
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def judged(requests: Iterable[NodeRequest]) -> list[Answer]:
    """Return what Karpenter would do, one answer for each request."""
    lines = "\n".join(json.dumps(_case(each)) for each in requests)
    done = subprocess.run(
        [toolset.find(PROGRAM)], input=lines, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert not done.returncode, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for answer in answers:
        # A pool that is beyond its limits already gets no replacement.
        assert not answer["failed"] or "exceeds limit" in answer["failed"], answer["failed"]
        answer["claims"] = sorted(map(_bare, answer["claims"]), key=repr)
        answer["errors"] = {
            pod: text.replace(_NODE_CLASS, "") for pod, text in answer["errors"].items()
        }
        for command in answer["commands"]:
            command["replacements"] = sorted(map(_bare, command["replacements"]), key=repr)
    return answers


def _bare(claim: dict[str, Any]) -> dict[str, Any]:
    """Leave the names of pods out: which of equal pods goes where is chance."""
    return {**claim, "pods": len(claim["pods"])}


def decided(request: NodeRequest) -> Answer:
    """Return what the twin would do, in the judge's shape."""
    site = _site(request)
    solve = Solve(site.snapshot)
    solve.place([*request.unschedulable, *site.losing])
    answer: Answer = {
        "claims": sorted((_claim(each.state, len(each.pods)) for each in solve.claims), key=repr),
        "placed": {
            site.snapshot.nodes[place].name: sorted(pod.metadata.name for pod in pods)
            for place, pods in solve.placed.items()
        },
        "errors": {key.partition("/")[2]: why for key, why in solve.errors.items()},
        "commands": [],
    }
    command, why_not = _command(request)
    if command is not None:
        pods = [len(each) for each in command.pods]
        answer["commands"] = [
            {
                "reason": command.reason,
                "decision": "replace" if command.replacements else "delete",
                "nodes": sorted(command.names),
                "replacements": sorted(map(_claim, command.replacements, pods), key=repr),
            }
        ]
    answer["why_not"] = why_not
    return answer


def _site(request: NodeRequest) -> Site:
    """Return what is looked at, where nothing that has failed can be had."""
    failed = {(each.instance_type, each.offering) for each in request.failures}
    return site_of(request, sold_out=failed)


def _command(request: NodeRequest) -> tuple[Command | None, dict[str, str]]:
    """Return what the first method with a valid command does; each validation takes 15 s."""
    now_ms = request.now_ms
    site = _site(request)
    pools = {pool.name: pool for pool in request.pools}
    since = {
        node.state.name: now_ms
        for node in request.nodes
        if node.ready and not node.leaving and drifted(node, pools[node.pool])
    }
    for name in ("emptiness", "drift", "multi_node", "single_node"):
        found = site.drift(since) if name == "drift" else getattr(site, name)()
        if found is None:
            continue
        if name == "drift":
            return None if site.exceeds_limits(found) else found, {}
        now_ms += 15_000
        site = _site(replace(request, now_ms=now_ms))
        found = site.still_valid(found)
        if found is not None:
            return None if site.exceeds_limits(found) else found, {}
    return None, site.why_not


def _claim(state: Any, count: int) -> dict[str, Any]:
    shapes = state.cheapest_first()
    kinds = {
        sold.offering.capacity_type for each in shapes for sold in each.choices(state.requirements)
    }
    return {
        "pool": state.template.pool.name,
        "types": [each.name for each in shapes],
        "capacityTypes": sorted(kinds),
        "pods": count,
    }


def _case(request: NodeRequest) -> dict[str, Any]:
    assert request.now_ms == NOW_MS
    types = {kind.name: kind for pool in request.pools for kind in pool.instance_types}
    pods = [*request.unschedulable, *(pod for here in request.pods.values() for pod in here)]
    return {
        "instanceTypes": [
            {
                "name": kind.name,
                "architecture": "amd64",
                "operatingSystems": ["linux"],
                "resources": {name: str(amount) for name, amount in kind.capacity.items()},
                "offerings": [
                    {
                        "Price": each.price_per_hour,
                        "Requirements": [
                            {"key": key, "operator": "In", "values": [value]}
                            for key, value in {**each.labels, **kind.labels}.items()
                        ],
                    }
                    for each in kind.offerings
                ],
            }
            for kind in types.values()
        ],
        "unavailable": [
            f"{each.instance_type}/{each.offering.zone}/{each.offering.capacity_type}"
            for each in request.failures
        ],
        "pools": [_pool(pool) for pool in request.pools],
        "nodes": [_node(node, types[node.instance_type].labels) for node in request.nodes],
        "pods": [_pod(pod) for pod in pods],
        "daemonSets": [
            {
                "metadata": {"name": pod.metadata.name, "namespace": "default"},
                "spec": {"template": {"spec": _pod(pod)["spec"]}},
            }
            for pod in request.daemons
        ],
        "pdbs": [
            {
                "metadata": {"name": each.metadata.name, "namespace": each.metadata.namespace},
                "spec": {
                    "selector": {
                        "matchLabels": {r.key: r.values[0] for r in each.selector.requirements}
                    },
                    **(
                        {}
                        if each.max_unavailable is None
                        else {"maxUnavailable": each.max_unavailable}
                    ),
                    **({} if each.min_available is None else {"minAvailable": each.min_available}),
                },
                "status": {"disruptionsAllowed": each.disruptions_allowed},
            }
            for each in request.budgets
        ],
    }


def _pool(pool: NodePool) -> dict[str, Any]:
    disruption = pool.disruption
    wait_ms = disruption.consolidate_after_ms
    names = [kind.name for kind in pool.instance_types]
    template: dict[str, Any] = {
        "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": names},
            *(_requirement(each) for each in pool.requirements),
        ],
        "taints": [_fields(taint) for taint in pool.taints],
        "startupTaints": [_fields(taint) for taint in pool.startup_taints],
    }
    return {
        "metadata": {"name": pool.name},
        "spec": {
            "weight": pool.weight or None,
            "limits": {name: str(amount) for name, amount in pool.limits.items()},
            "disruption": {
                "consolidationPolicy": disruption.consolidation_policy,
                "consolidateAfter": "Never" if wait_ms is None else f"{wait_ms // 1000}s",
                "budgets": [
                    {
                        "nodes": each.nodes,
                        **({"reasons": list(each.reasons)} if each.reasons else {}),
                        **(
                            {
                                "schedule": each.schedule,
                                "duration": f"{each.duration_ms // 60_000}m",
                            }
                            if each.schedule
                            else {}
                        ),
                    }
                    for each in disruption.budgets
                ],
            },
            "template": {"metadata": {"labels": dict(pool.labels)}, "spec": template},
        },
    }


def _node(node: PoolNode, labels: Any) -> dict[str, Any]:
    quiet = (node.changed_ms, node.ready_ms, node.joined_ms, node.ordered_ms)
    since_ms = next(time_ms for time_ms in quiet if time_ms is not None)
    return {
        "name": node.state.name,
        "pool": node.pool,
        "type": node.instance_type,
        "zone": node.offering.zone,
        "capacityType": node.offering.capacity_type,
        "ageS": (NOW_MS - node.ordered_ms) // 1000,
        "idleS": (NOW_MS - since_ms) // 1000,
        "uninitialized": not node.ready,
        "deleting": node.leaving,
        "labels": dict(labels),
        "annotations": dict(node.state.node.metadata.annotations),
    }


def _pod(pod: Pod) -> dict[str, Any]:
    terms = pod.spec.required_node_terms
    required = {"nodeSelectorTerms": [_term(each) for each in terms or ()]}
    preferred = [
        {"weight": weight, "preference": _term(each)}
        for weight, each in pod.spec.preferred_node_terms
    ]
    affinity = {
        **({"requiredDuringSchedulingIgnoredDuringExecution": required} if terms else {}),
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    owner = pod.metadata.owner
    return {
        "metadata": {
            "name": pod.metadata.name,
            "labels": dict(pod.metadata.labels),
            "annotations": dict(pod.metadata.annotations),
            "creationTimestamp": _time(pod.metadata.creation_ms),
            **(
                {
                    "ownerReferences": [
                        {"apiVersion": "apps/v1", "kind": owner.kind, "name": "o", "uid": "o"}
                    ]
                }
                if owner
                else {}
            ),
        },
        "status": {} if pod.status.start_ms is None else {"startTime": _time(pod.status.start_ms)},
        "spec": {
            "nodeName": pod.spec.node_name,
            "nodeSelector": dict(pod.spec.node_selector),
            "priority": pod.spec.priority,
            "tolerations": [_fields(each) for each in pod.spec.tolerations],
            "affinity": {
                "nodeAffinity": affinity,
                "podAffinity": _pod_terms(pod, is_anti=False),
                "podAntiAffinity": _pod_terms(pod, is_anti=True),
            },
            "topologySpreadConstraints": [_spread(each) for each in pod.spec.spread],
            "containers": [
                {
                    "name": each.name,
                    "resources": {"requests": {k: str(v) for k, v in each.requests.items()}},
                }
                for each in pod.spec.containers
            ],
        },
    }


def _pod_terms(pod: Pod, *, is_anti: bool) -> dict[str, Any]:
    terms = [each for each in pod.spec.affinity if each.is_anti is is_anti]
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            _pod_term(each) for each in terms if each.weight is None
        ],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": each.weight, "podAffinityTerm": _pod_term(each)}
            for each in terms
            if each.weight is not None
        ],
    }


def _pod_term(term: PodAffinityTerm) -> dict[str, Any]:
    return {"topologyKey": term.topology_key, "labelSelector": _selector(term.selector)}


def _spread(constraint: SpreadConstraint) -> dict[str, Any]:
    return {
        "maxSkew": constraint.max_skew,
        "topologyKey": constraint.topology_key,
        "whenUnsatisfiable": "DoNotSchedule" if constraint.required else "ScheduleAnyway",
        "labelSelector": _selector(constraint.selector),
        "minDomains": constraint.min_domains,
        "nodeAffinityPolicy": "Honor" if constraint.honors_affinity else "Ignore",
        "nodeTaintsPolicy": "Honor" if constraint.honors_taints else "Ignore",
    }


def _selector(selector: Selector | None) -> dict[str, Any] | None:
    if selector is None:
        return None
    return {"matchLabels": {each.key: each.values[0] for each in selector.requirements}}


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _term(term: NodeSelectorTerm) -> dict[str, Any]:
    return {"matchExpressions": [_requirement(each) for each in term.labels]}


def _requirement(requirement: Requirement) -> dict[str, Any]:
    return {
        "key": requirement.key,
        "operator": _OPERATORS[requirement.operator],
        "values": list(requirement.values),
    }


def _fields(each: Any) -> dict[str, str]:
    return {name: getattr(each, name) for name in each.__slots__ if getattr(each, name)}


def running(pods: Sequence[Pod], node: str) -> list[Pod]:
    """Return the pods as they run on a node."""
    return [
        replace(
            pod,
            spec=replace(pod.spec, node_name=node),
            status=replace(pod.status, phase=PodPhase.RUNNING, start_ms=NOW_MS - 60_000),
        )
        for pod in pods
    ]
