"""The answers of our placement to the cases that kube-scheduler gets."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.pods import Pod, PodStatus
from gpuscale.base.objects.selectors import Selector, selector_of_labels
from gpuscale.hpa.cluster.scheduling.fit import node_state
from gpuscale.hpa.cluster.scheduling.placing import Placer
from gpuscale.hpa.cluster.scheduling.preempting import find_victims
from gpuscale.hpa.cluster.scheduling.scoring import (
    DEFAULT_WEIGHTS,
    SchedulerSettings,
    ScoringStrategy,
)


def answer(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what happens to each pod, as the judge writes it."""
    nodes = [_object(each) for each in case["nodes"]]
    pods = [_pod(each) for each in case["pods"]]
    states = [
        node_state(node, [pod for pod in pods if pod.spec.node_name == node.metadata.name])
        for node in nodes
    ]
    budgets = sorted(map(_budget, case["budgets"]), key=lambda each: each.metadata.name)
    placer = Placer(states, settings_of(case.get("configuration")), _selector_of(case))
    found: list[dict[str, Any]] = []
    for each in case["pending"]:
        pod = _pod(each)
        best = placer.best_nodes(pod)
        placed = placer.place(pod)
        if best:
            assert placed.node == best[0]
            found.append({"best": list(best)})
            continue
        search = find_victims(placer, pod, budgets)
        outcome: dict[str, Any] = {"message": placed.message}
        if not search.choices:
            found.append({**outcome, "noVictims": search.message})
            continue
        victims = {c.node: sorted(p.metadata.name for p in c.victims) for c in search.choices}
        found.append({**outcome, "victims": victims})
        chosen = search.choices[0]
        on_it = [p for p in placer.states[chosen.node].pods if p not in chosen.victims]
        states_now = dict(placer.states)
        states_now[chosen.node] = node_state(states_now[chosen.node].node, [*on_it, pod])
        placer.update(states_now)
    return found


def settings_of(configuration: Mapping[str, Any] | None) -> SchedulerSettings:
    """Return the settings of a KubeSchedulerConfiguration's only profile."""
    if configuration is None:
        return SchedulerSettings()
    (profile,) = configuration["profiles"]
    args = {each["name"]: each["args"] for each in profile["pluginConfig"]}
    given = args["NodeResourcesFit"]["scoringStrategy"]
    shape = given.get("requestedToCapacityRatio", {}).get("shape", ())
    off = {each["name"] for each in profile.get("plugins", {}).get("score", {}).get("disabled", ())}
    return SchedulerSettings(
        ScoringStrategy(
            given["type"],
            tuple((each["name"], each["weight"]) for each in given["resources"]),
            tuple((each["utilization"], each["score"]) for each in shape),
        ),
        {name: weight for name, weight in DEFAULT_WEIGHTS.items() if name not in off},
        "PodTopologySpread" not in args,
    )


def _object(data: Mapping[str, Any]) -> Any:
    (found,) = load_manifests(json.dumps(data), "case.json")
    return found


def _pod(data: Mapping[str, Any]) -> Pod:
    pod = _object(data)
    owner = next(iter(data["metadata"].get("ownerReferences", ())), None)
    meta = pod.metadata
    if owner:
        meta = replace(meta, owner=OwnerReference(owner["kind"], owner["name"]))
    start = round(datetime.fromisoformat(data["status"]["startTime"]).timestamp() * 1000)
    made: Pod = replace(pod, metadata=meta, status=PodStatus(start_ms=start))
    return made


def _budget(data: Mapping[str, Any]) -> PodDisruptionBudget:
    meta = ObjectMeta(data["metadata"]["name"], data["metadata"]["namespace"])
    selector = selector_of_labels(data["spec"]["selector"]["matchLabels"])
    allowed = data["status"]["disruptionsAllowed"]
    return PodDisruptionBudget(meta, selector, disruptions_allowed=allowed)


def _selector_of(case: Mapping[str, Any]) -> Callable[[Pod], Selector]:
    def selector_of(pod: Pod) -> Selector:
        labels: dict[str, str] = {}
        for each in case["services"]:
            selector = each["spec"]["selector"]
            near = each["metadata"]["namespace"] == pod.metadata.namespace
            if near and selector.items() <= pod.metadata.labels.items():
                labels |= selector
        found = list(selector_of_labels(labels).requirements)
        owner = pod.metadata.owner
        if owner and pod.metadata.namespace == "default":
            found += selector_of_labels({"app": owner.name}).requirements
        return Selector(tuple(dict.fromkeys(found)))

    return selector_of
