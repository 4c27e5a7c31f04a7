"""Generated clusters whose pods claim devices, for kube-scheduler, and our placement's answers to them."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuscale.base.documents.documents import Document
from gpuscale.base.objects.devices import (
    DeviceKey,
    ResourceClaim,
    device_classes,
    node_devices,
    read_resource_slice,
)
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.scheduling import NodeState, Placer, find_victims
from gpuscale.hpa.cluster.scheduling.claims import FAULT

GPU, NIC = "gpu.example.com", "nic.example.com"
VERSION = "resource.k8s.io/v1"
_SELECTORS = (
    f'device.attributes["{GPU}"].model == "a"',
    f'device.attributes["{GPU}"].index < 2',
    f'device.attributes["{GPU}"].?healthy.orValue(false)',
    f'device.capacity["{GPU}"].memory.compareTo(quantity("40Gi")) >= 0',
    f'device.attributes["{GPU}"].driverVersion.isGreaterThan(semver("550.10.0"))',
    f'cel.bind(own, device.attributes["{GPU}"], own.model != "b" || own.index == 1)',
    '"rack" in device.attributes["other.example.com"]',
    f'"{NIC}" in device.attributes || device.driver == "{GPU}"',
    f'device.attributes["{GPU}"].model.startsWith("a") && !device.allowMultipleAllocations',
)
_BROKEN = f'device.attributes["{GPU}"].rack == 1'
"""No device has it, so it is an error wherever it is asked."""


class DeviceCases:
    """Cases from a seed."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def case(self) -> dict[str, Any]:
        draw = self._draw
        count = draw.randint(1, 4)
        self._is_broken = draw.random() < 0.06
        self._parts = draw.random() < 0.4
        self._served = draw.random() < 0.4
        nodes = [self._node(number) for number in range(count)]
        names = [each["metadata"]["name"] for each in nodes]
        slices = [each for name in names for each in self._slices(name)]
        classes = [
            _object("DeviceClass", "any", selectors=[]),
            _object("DeviceClass", "gpu", selectors=[_cel(f'device.driver == "{GPU}"')]),
            _object("DeviceClass", "nic", selectors=[_cel(f'device.driver == "{NIC}"')]),
        ]
        if self._served:
            classes[1]["spec"]["extendedResourceName"] = "example.com/gpu"
        self._claims: list[dict[str, Any]] = []
        pending = [self._pod(f"p{number}") for number in range(draw.randint(1, 7))]
        self._allocate(slices, names)
        case = {"nodes": nodes, "slices": slices, "classes": classes, "claims": self._claims}
        return {**case, "pending": pending}

    def _node(self, number: int) -> dict[str, Any]:
        name = f"n{number}"
        offered = {"cpu": str(self._draw.choice((2, 4, 16))), "memory": "64Gi", "pods": "20"}
        if self._served and self._draw.random() < 0.3:
            offered["example.com/gpu"] = str(self._draw.randint(0, 2))
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": offered},
        }

    def _slices(self, node: str) -> list[dict[str, Any]]:
        draw, found = self._draw, []
        if draw.random() < 0.15:
            return []
        for driver in (GPU, NIC) if draw.random() < 0.5 else (GPU,):
            contents: list[dict[str, Any]] = []
            count = draw.choice((1, 2, 4, 4))
            numbers = list(range(count))
            if driver == GPU and self._parts:
                contents.append(
                    {
                        "sharedCounters": [
                            {
                                "name": f"c{each}",
                                "counters": {"slices": {"value": "7"}, "memory": {"value": "80Gi"}},
                            }
                            for each in numbers
                        ]
                    }
                )
            split = draw.randint(0, count)
            for part in (numbers[:split], numbers[split:]):
                if part:
                    devices = [device for each in part for device in self._devices(driver, each)]
                    contents.append({"devices": devices})
            draw.shuffle(contents)
            pool = {"name": draw.choice(("a", "b")) + node, "generation": 1}
            pool["resourceSliceCount"] = len(contents)
            for place, content in enumerate(contents):
                spec = {"driver": driver, "nodeName": node, "pool": pool, **content}
                name = f"{node}-{driver.partition('.')[0]}-{place}"
                found.append({"metadata": {"name": name}, "spec": spec})
        return found

    def _devices(self, driver: str, number: int) -> list[dict[str, Any]]:
        draw = self._draw
        if driver == NIC:
            attributes: dict[str, Any] = {"numa": {"int": number % 2}}
            attributes[f"{GPU}/numa"] = {"int": number % 2}
            return [{"name": f"nic-{number}", "attributes": attributes}]
        whole: dict[str, Any] = {
            "name": f"gpu-{number}",
            "attributes": {
                "index": {"int": number},
                "numa": {"int": number // 2},
                "model": {"string": draw.choice("ab")},
                "driverVersion": {"version": draw.choice(("550.9.1", "550.54.15", "570.0.0-rc.1"))},
            },
            "capacity": {"memory": {"value": draw.choice(("24Gi", "40Gi", "80Gi"))}},
        }
        if draw.random() < 0.4:
            whole["attributes"]["healthy"] = {"bool": draw.random() < 0.8}
        if draw.random() < 0.2:
            effect = draw.choice(("NoSchedule", "NoExecute", "None"))
            whole["taints"] = [{"key": "broken", "value": "yes", "effect": effect}]
        if not self._parts:
            return [whole]
        devices = []
        for name, slices, memory in (("", 7, 80), ("-half", 4, 40), ("-q0", 2, 20), ("-q1", 2, 20)):
            counters = {"slices": {"value": str(slices)}, "memory": {"value": f"{memory}Gi"}}
            uses = [{"counterSet": f"c{number}", "counters": counters}]
            devices.append({**whole, "name": whole["name"] + name, "consumesCounters": uses})
        return devices

    def _pod(self, name: str) -> dict[str, Any]:
        draw = self._draw
        spec: dict[str, Any] = {"containers": [self._container("c")]}
        claims = []
        for number in range(draw.choice((0, 1, 1, 1, 2) if self._served else (1, 1, 1, 2))):
            claim = f"{name}-{number}"
            claims.append({"name": f"c{number}", "resourceClaimName": claim})
            self._claims.append(self._claim(claim))
        if claims:
            spec["resourceClaims"] = claims
        if self._served and draw.random() < 0.4:
            spec["initContainers"] = [self._container("i")]
            if draw.random() < 0.3:
                spec["initContainers"][0]["restartPolicy"] = "Always"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }

    def _container(self, name: str) -> dict[str, Any]:
        draw = self._draw
        asks = {"cpu": str(draw.choice((1, 1, 2))), "memory": "1Gi"}
        if self._served and draw.random() < 0.6:
            resource = draw.choice(("example.com/gpu", "deviceclass.resource.kubernetes.io/nic"))
            asks[resource] = str(draw.choice((1, 1, 2)))
        return {"name": name, "resources": {"requests": asks, "limits": asks}}

    def _claim(self, name: str) -> dict[str, Any]:
        draw = self._draw
        requests = [self._request(f"r{number}") for number in range(draw.choice((1, 1, 1, 2)))]
        devices: dict[str, Any] = {"requests": requests}
        if draw.random() < 0.3:
            key = draw.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
            constraint: dict[str, Any] = {
                key: f"{GPU}/{draw.choice(('numa', 'model', 'driverVersion'))}"
            }
            if draw.random() < 0.3:
                names = [each["name"] for each in requests]
                names += [
                    f"{each['name']}/{other['name']}"
                    for each in requests
                    for other in each.get("firstAvailable", ())
                ]
                constraint["requests"] = [draw.choice(names)]
            devices["constraints"] = [constraint]
        claim = _object("ResourceClaim", name, devices=devices)
        claim["metadata"]["namespace"] = "default"
        return claim

    def _request(self, name: str) -> dict[str, Any]:
        draw = self._draw
        if draw.random() < 0.3:
            asks = [self._ask(f"{name}s{number}") for number in range(draw.randint(1, 3))]
            return {"name": name, "firstAvailable": asks}
        ask = self._ask(name)
        del ask["name"]
        return {"name": name, "exactly": ask}

    def _ask(self, name: str) -> dict[str, Any]:
        draw = self._draw
        ask: dict[str, Any] = {
            "name": name,
            "deviceClassName": draw.choice(("gpu", "gpu", "gpu", "nic", "any")),
        }
        if draw.random() < 0.15:
            ask["allocationMode"] = "All"
        elif draw.random() < 0.5:
            ask["count"] = draw.choice((1, 2, 2, 3, 17))
        if ask["deviceClassName"] == "gpu" and draw.random() < 0.5:
            ask["selectors"] = [_cel(draw.choice(_SELECTORS))]
            if self._is_broken:
                ask["selectors"].append(_cel(_BROKEN))
        if draw.random() < 0.15:
            ask["capacity"] = {"requests": {"memory": "40Gi"}}
        if draw.random() < 0.3:
            toleration = {"key": "broken", "operator": "Exists"}
            if draw.random() < 0.5:
                toleration = {"key": "broken", "value": draw.choice(("yes", "no"))}
            if draw.random() < 0.5:
                toleration["effect"] = draw.choice(("NoSchedule", "NoExecute"))
            ask["tolerations"] = [toleration]
        return ask

    def _allocate(self, slices: Sequence[dict[str, Any]], nodes: Sequence[str]) -> None:
        """Let claims of nobody here have some devices."""
        for each in slices:
            spec = each["spec"]
            for device in spec.get("devices", ()):
                if self._draw.random() < 0.12:
                    name = f"old-{spec['nodeName']}-{device['name']}"
                    claim = self._claim(name)
                    claim["spec"] = {
                        "devices": {
                            "requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]
                        }
                    }
                    had = {
                        "request": "r",
                        "driver": spec["driver"],
                        "pool": spec["pool"]["name"],
                        "device": device["name"],
                    }
                    claim["status"] = {"allocation": {"devices": {"results": [had]}}}
                    self._claims.append(claim)


def _cel(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


def _object(kind: str, name: str, **spec: object) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def answer(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what happens to each pod, as the judge writes it."""
    classes = device_classes(map(_read, case["classes"]))
    slices: dict[str, list[Any]] = {}
    for each in case["slices"]:
        fields = Fields(Document("slice", 0, each["spec"], {}), each["spec"])
        found = read_resource_slice(fields, each["metadata"]["name"])
        fields.finish()
        slices.setdefault(each["spec"]["nodeName"], []).append(found)
    claims: dict[str, ResourceClaim] = {}
    held: set[DeviceKey] = set()
    for each in case["claims"]:
        claim: ResourceClaim = _read({key: each[key] for key in each if key != "status"})
        claims[claim.metadata.name] = claim
        for had in (
            each.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        ):
            held.add((had["driver"], had["pool"], had["device"]))
    states = []
    for each in case["nodes"]:
        node: Node = _read(each)
        name = node.metadata.name
        devices = node_devices(slices.get(name, ()), name, classes)
        there = {(p.driver, p.name, d.name) for p in devices.pools for d in p.devices}
        states.append(NodeState(replace(node, devices=devices), held=frozenset(held & there)))
    placer = Placer(states)
    answers: list[dict[str, Any]] = []
    for each in case["pending"]:
        pod: Pod = _read(each)
        asking = tuple(
            replace(claim, name=f"default/{claim.claim}", asks=claims[claim.claim].claim)
            for claim in pod.spec.claims
        )
        pod = replace(pod, spec=replace(pod.spec, claims=asking))
        best = placer.best_nodes(pod)
        placed = placer.place(pod)
        if placed.message.startswith(FAULT):
            answers.append({"fault": placed.message})
        elif placed.node is None:
            search = find_victims(placer, pod, ())
            answers.append({"message": placed.message, "noVictims": search.message})
        else:
            assert placed.node == best[0]
            keys = {*held, *(key for state in placer.states.values() for key in state.held)}
            answers.append({"best": list(best), "allocated": sorted(map("/".join, keys))})
    return answers


def _read(data: Mapping[str, Any]) -> Any:
    (found,) = load_manifests(json.dumps(data), "case.json")
    return found
