"""Generated clusters and pods for kube-scheduler and its twin, as the API has them."""

import random
from typing import Any

GIB = 1024**3
APPS = ("web", "chat", "train", "batch")
ZONES = ("a", "b", "c")
STRATEGIES = (
    {
        "type": "LeastAllocated",
        "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
    },
    {
        "type": "MostAllocated",
        "resources": [{"name": "nvidia.com/gpu", "weight": 10}, {"name": "cpu", "weight": 1}],
    },
    {
        "type": "LeastAllocated",
        "resources": [{"name": "nvidia.com/gpu", "weight": 3}, {"name": "memory", "weight": 1}],
    },
    {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "nvidia.com/gpu", "weight": 5}, {"name": "cpu", "weight": 1}],
        "requestedToCapacityRatio": {
            "shape": [
                {"utilization": 0, "score": 0},
                {"utilization": 70, "score": 9},
                {"utilization": 100, "score": 4},
            ]
        },
    },
)


class Cases:
    """Cases from a seed; each has something of every rule, in changing doses."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def case(self) -> dict[str, Any]:
        draw = self._draw
        self._zones = draw.random() < 0.7
        self._spread = draw.choice((0, 0.3, 0.8))
        self._affine = draw.choice((0, 0, 0.3, 0.6))
        self._ranked = draw.random() < 0.5
        nodes = [self._node(number) for number in range(draw.randint(1, 8))]
        names = [node["metadata"]["name"] for node in nodes]
        pods = [self._pod(f"old-{number}") for number in range(draw.randint(0, 4 * len(nodes)))]
        for number, pod in enumerate(pods):
            pod["spec"]["nodeName"] = draw.choice(names)
            # Equal times would leave the order of victims to chance.
            pod["status"] = {"startTime": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"}
        case: dict[str, Any] = {
            "nodes": nodes,
            "pods": pods,
            "pending": [self._pod(f"new-{number}") for number in range(draw.randint(1, 8))],
            "services": [self._service(app) for app in APPS if draw.random() < 0.4],
            "replicaSets": [self._replica_set(app) for app in APPS],
            "budgets": [self._budget(app) for app in APPS if draw.random() < 0.3],
        }
        for pod in case["pending"]:
            pod["status"] = {"startTime": "2026-01-01T01:00:00Z"}
        if draw.random() < 0.6:
            case["configuration"] = self._configuration()
        return case

    def _node(self, number: int) -> dict[str, Any]:
        draw = self._draw
        name = f"n{number}"
        labels = {"kubernetes.io/hostname": name, "disk": draw.choice(("ssd", "hdd"))}
        if self._zones and draw.random() < 0.9:
            labels["topology.kubernetes.io/zone"] = draw.choice(ZONES)
        if draw.random() < 0.3:
            labels["size"] = str(draw.randint(1, 9))
        amounts: dict[str, str] = {
            "cpu": draw.choice(("4", "8", "7910m", "32")),
            "memory": draw.choice(("16Gi", "32Gi", "30123456Ki")),
            "pods": draw.choice(("110", "110", "4")),
        }
        if draw.random() < 0.8:
            amounts["nvidia.com/gpu"] = str(draw.choice((1, 2, 4, 8)))
        taints = [
            {
                "key": key,
                "value": "x",
                "effect": draw.choice(
                    ("NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute")
                ),
            }
            for key in ("sku", "spot")
            if draw.random() < 0.2
        ]
        spec: dict[str, Any] = {"taints": taints} if taints else {}
        if draw.random() < 0.05:
            spec["unschedulable"] = True
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": amounts, "capacity": amounts},
        }

    def _pod(self, name: str) -> dict[str, Any]:
        draw = self._draw
        app = draw.choice(APPS)
        spec: dict[str, Any] = {
            "containers": [self._container(n) for n in range(draw.choice((1, 1, 2)))],
            "priority": 0,
        }
        if self._ranked:
            spec["priority"] = draw.choice((-5, 0, 0, 10, 100))
            if draw.random() < 0.1:
                spec["preemptionPolicy"] = "Never"
        if draw.random() < 0.2:
            spec["initContainers"] = [self._container(9)]
        if draw.random() < 0.2:
            spec["nodeSelector"] = {"disk": "ssd"}
        if draw.random() < 0.4:
            spec["tolerations"] = [
                draw.choice(
                    (
                        {"operator": "Exists"},
                        {"key": "sku", "operator": "Exists"},
                        {
                            "key": "spot",
                            "operator": "Equal",
                            "value": "x",
                            "effect": "PreferNoSchedule",
                        },
                    )
                )
            ]
        affinity = self._affinity()
        if affinity:
            spec["affinity"] = affinity
        if draw.random() < self._spread:
            spec["topologySpreadConstraints"] = [
                self._constraint(app) for _ in range(draw.choice((1, 1, 2)))
            ]
        meta: dict[str, Any] = {
            "name": name,
            "namespace": draw.choice(("default", "default", "default", "other")),
            "labels": {"app": app, "tier": draw.choice(("x", "y"))},
        }
        if draw.random() < 0.6:
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app}
            meta["ownerReferences"] = [{**owner, "controller": True}]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def _container(self, number: int) -> dict[str, Any]:
        draw = self._draw
        requests, limits = dict[str, str](), dict[str, str]()
        if draw.random() < 0.7:
            requests["cpu"] = draw.choice(("250m", "1", "1500m", "3"))
        if draw.random() < 0.7:
            requests["memory"] = draw.choice(("300Mi", "1Gi", "5Gi", "123456789"))
        if draw.random() < 0.4:
            limits["nvidia.com/gpu"] = str(draw.choice((1, 1, 2, 4)))
        return {"name": f"c{number}", "resources": {"requests": requests, "limits": limits}}

    def _affinity(self) -> dict[str, Any]:
        draw, found = self._draw, dict[str, Any]()
        if draw.random() < 0.3:
            term = {"matchExpressions": [self._expression()]}
            preferred: list[dict[str, Any]] = [
                {"weight": draw.randint(1, 100), "preference": term}
                for _ in range(draw.randint(1, 2))
            ]
            found["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
            if draw.random() < 0.3:
                found["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = {
                    "nodeSelectorTerms": [{"matchExpressions": [self._expression()]}]
                }
        for kind in ("podAffinity", "podAntiAffinity"):
            if draw.random() >= self._affine:
                continue
            rules = found.setdefault(kind, {})
            if draw.random() < 0.4:
                rules["requiredDuringSchedulingIgnoredDuringExecution"] = [
                    self._term() for _ in range(draw.choice((1, 1, 2)))
                ]
            if draw.random() < 0.6:
                rules["preferredDuringSchedulingIgnoredDuringExecution"] = [
                    {"weight": draw.randint(1, 100), "podAffinityTerm": self._term()}
                ]
        return found

    def _expression(self) -> dict[str, Any]:
        return self._draw.choice(
            (
                {"key": "disk", "operator": "In", "values": ["ssd"]},
                {"key": "size", "operator": "Exists"},
                {"key": "size", "operator": "Gt", "values": ["4"]},
                {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["a"]},
            )
        )

    def _term(self) -> dict[str, Any]:
        draw = self._draw
        term: dict[str, Any] = {
            "topologyKey": draw.choice(
                ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "disk")
            ),
            "labelSelector": self._selector(draw.choice(APPS)),
        }
        if draw.random() < 0.2:
            term["namespaces"] = ["default", "other"]
        elif draw.random() < 0.1:
            term["namespaceSelector"] = {}
        return term

    def _selector(self, app: str) -> dict[str, Any]:
        return self._draw.choice(
            (
                {"matchLabels": {"app": app}},
                {"matchLabels": {"app": app}},
                {"matchExpressions": [{"key": "app", "operator": "In", "values": [app, "web"]}]},
                {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]},
            )
        )

    def _constraint(self, app: str) -> dict[str, Any]:
        draw = self._draw
        constraint: dict[str, Any] = {
            "maxSkew": draw.randint(1, 2),
            "topologyKey": draw.choice(
                ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "disk")
            ),
            "whenUnsatisfiable": draw.choice(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": self._selector(app),
        }
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and draw.random() < 0.2:
            constraint["minDomains"] = draw.randint(1, 4)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if draw.random() < 0.2:
                constraint[policy] = draw.choice(("Honor", "Ignore"))
        if draw.random() < 0.15:
            constraint["matchLabelKeys"] = ["tier"]
        return constraint

    def _service(self, app: str) -> dict[str, Any]:
        namespace = self._draw.choice(("default", "other"))
        return {
            "metadata": {"name": app, "namespace": namespace},
            "spec": {"selector": {"app": app}},
        }

    @staticmethod
    def _replica_set(app: str) -> dict[str, Any]:
        return {
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
        }

    def _budget(self, app: str) -> dict[str, Any]:
        return {
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": self._draw.randint(0, 2)},
        }

    def _configuration(self) -> dict[str, Any]:
        draw = self._draw
        args = {"scoringStrategy": draw.choice(STRATEGIES)}
        profile: dict[str, Any] = {
            "schedulerName": "default-scheduler",
            "pluginConfig": [{"name": "NodeResourcesFit", "args": args}],
        }
        if draw.random() < 0.3:
            spread = {"defaultingType": "List", "defaultConstraints": []}
            profile["pluginConfig"].append({"name": "PodTopologySpread", "args": spread})
        if draw.random() < 0.3:
            off = draw.choice(
                ("NodeResourcesBalancedAllocation", "PodTopologySpread", "TaintToleration")
            )
            profile["plugins"] = {"score": {"disabled": [{"name": off}]}}
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
