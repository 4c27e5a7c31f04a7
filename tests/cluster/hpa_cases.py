# mypy: disable-error-code="arg-type,assignment,list-item,dict-item"
"""Situations of an HPA by seed: a manifest, and syncs with all that its controller sees, as JSON.

Values lie on the edges of tolerances, ages on those of windows, and quantities are written in every way.
What the controller does in each is asked of the controller; nothing here says it.
"""

import json
import random

START_MS = 1_700_000_000_000
TARGET_MILLI = (
    1,
    10,
    333,
    500,
    1000,
    5000,
    16_000,
    80_000,
    100_000,
    2**30 * 1000,
    16 * 2**30 * 1000,
)
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
UNUSABLE = (
    {"key": "queue", "values": ["q"]},
    {"key": "queue", "operator": "Like", "values": ["q"]},
    {"key": "queue", "operator": "Gt", "values": ["1"]},
    {"key": "queue", "operator": "In"},
    {"key": "queue", "operator": "NotIn", "values": []},
    {"key": "queue", "operator": "Exists", "values": ["q", "r"]},
    {"key": "queue", "operator": "DoesNotExist", "values": ["q"]},
    {"key": "", "operator": "Exists"},
    {"operator": "In", "values": ["q"]},
    {"key": "queue", "operator": "In", "values": ["a/b"]},
)
"""Expressions of metric selectors that an API server stores and no controller can use."""
INT32 = 2**31 - 1
MOST_BELOW_ZERO = 10**18 - 1
"""Of a number below zero with more digits the API's quantities lose the sign."""


class Cases:
    """A stream of cases; the same seed gives the same ones.

    Args:
        seed: of the stream.
        most: the largest value of a metric; beyond 2^53 sums leave int64.
    """

    def __init__(self, seed: int, most: int = 2**53) -> None:
        self.rng = random.Random(seed)
        self.most = most

    def case(self) -> dict:
        """Return one case."""
        rng = self.rng
        self.tolerances = [0.1]
        self.resources = rng.sample(RESOURCES, rng.randint(1, 3))
        self.windows_s = [15, 300]
        zero = rng.random() < 0.15
        hpa = self.manifest(zero=zero)
        settings = {
            "downscaleStabilizationS": rng.choice((300, 300, 60, 0)),
            "tolerance": rng.choice((0.1, 0.1, 0.05, 0.0)),
            "cpuInitializationPeriodS": rng.choice((300, 120, 0)),
            "initialReadinessDelayS": rng.choice((30, 10)),
            "scaleToZero": zero or rng.random() < 0.1,
        }
        self.tolerances.append(settings["tolerance"])
        self.windows_s += [
            settings["cpuInitializationPeriodS"],
            settings["downscaleStabilizationS"],
        ]
        self.windows_s.append(settings["initialReadinessDelayS"])
        syncs = self.syncs(hpa["spec"], zero=zero)
        if rng.random() < 0.08:
            hpa = as_v1(hpa)
        case = {"hpa": hpa, "settings": settings, "others": self.others(), "syncs": syncs}
        if settings["scaleToZero"] and rng.random() < 0.6:
            status = rng.choice(("True", "True", "False"))
            condition = {"type": "ScaledToZero", "status": status, "reason": "r", "message": "m"}
            case["status"] = {
                "conditions": [{**condition, "lastTransitionTime": "2023-11-14T00:00:00Z"}]
            }
        return case

    # The manifest

    def manifest(self, *, zero: bool) -> dict:
        rng = self.rng
        least = 0 if zero else rng.choice((1, 1, 2, 3))
        spec: dict = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "maxReplicas": max(least, 1) + rng.choice((0, 3, 9, 9, 50, 2000)),
            "metrics": [self.metric(i) for i in range(rng.choice((1, 1, 1, 2, 2, 3)))],
        }
        if zero:
            spec["metrics"].append(
                self.total_metric(len(spec["metrics"]), rng.choice(("Object", "External")))
            )
        if least != 1 or rng.random() < 0.7:
            spec["minReplicas"] = least
        if rng.random() < 0.55:
            directions = rng.choice((("scaleUp",), ("scaleDown",), ("scaleUp", "scaleDown")))
            spec["behavior"] = {name: self.rules() for name in directions}
        return {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "namespace": "default"},
            "spec": spec,
        }

    def metric(self, index: int) -> dict:
        kind = self.rng.choice(
            ("Pods", "Pods", "Object", "External", "Resource", "ContainerResource")
        )
        if kind in {"Object", "External"}:
            return self.total_metric(index, kind)
        if kind == "Pods":
            target = {"type": "AverageValue", "averageValue": self.target()}
            return {"type": kind, "pods": {"metric": self.identifier(index), "target": target}}
        target = {"type": "AverageValue", "averageValue": self.target()}
        if self.rng.random() < 0.7:
            target = {
                "type": "Utilization",
                "averageUtilization": self.rng.choice((1, 50, 60, 80, 100, 150)),
            }
        name = self.rng.choice(self.resources)
        if kind == "Resource":
            return {"type": kind, "resource": {"name": name, "target": target}}
        source = {
            "name": name,
            "container": self.rng.choice(("main", "main", "side")),
            "target": target,
        }
        return {"type": kind, "containerResource": source}

    def total_metric(self, index: int, kind: str) -> dict:
        rng = self.rng
        field = rng.choice(("Value", "AverageValue"))
        target = {"type": field, field[0].lower() + field[1:]: self.target()}
        if rng.random() < 0.03:
            target["type"] = "Utilization"
        identifier = self.identifier(index)
        if kind == "External":
            return {"type": kind, "external": {"metric": identifier, "target": target}}
        described = {"apiVersion": "v1", "kind": rng.choice(("Service", "Namespace")), "name": "s"}
        return {
            "type": kind,
            "object": {"metric": identifier, "describedObject": described, "target": target},
        }

    def identifier(self, index: int) -> dict:
        """Return a metric's name, and at times a selector, which may be one that no controller can use."""
        draw, identifier = self.rng.random(), {"name": f"m{index}"}
        if draw < 0.2:
            identifier["selector"] = {"matchLabels": {"queue": "q"}}
        elif draw < 0.23:
            identifier["selector"] = {"matchExpressions": [self.rng.choice(UNUSABLE)]}
        return identifier

    def target(self) -> str:
        return self.spelled(self.rng.choice(TARGET_MILLI))

    def rules(self) -> dict:
        rng = self.rng
        rules = {}
        if rng.random() < 0.8:
            rules["policies"] = [self.policy() for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.6:
            rules["selectPolicy"] = rng.choice(("Max", "Min", "Min", "Disabled"))
        if rng.random() < 0.6:
            rules["stabilizationWindowSeconds"] = rng.choice((0, 15, 30, 60, 300))
            self.windows_s.append(rules["stabilizationWindowSeconds"])
        if rng.random() < 0.4:
            rules["tolerance"] = rng.choice(("0", "0.05", "50m", "0.57", "1e-2", "200m", "3"))
            self.tolerances.append(0.05)
        return rules

    def policy(self) -> dict:
        rng = self.rng
        kind = rng.choice(("Pods", "Percent"))
        value = rng.choice((1, 2, 4, 10, 33, 50, 100, 200))
        if rng.random() < 0.03:
            value = INT32
        period_s = rng.choice((1, 15, 30, 60, 1800))
        self.windows_s.append(period_s)
        return {"type": kind, "value": value, "periodSeconds": period_s}

    # What the controller sees

    def others(self) -> list:
        if self.rng.random() > 0.04:
            return []
        selector = self.rng.choice(("app=a", "app=b", "app in (a,b)", "tier"))
        return [{"key": "default/other", "selector": selector}]

    def syncs(self, spec: dict, *, zero: bool) -> list:
        rng = self.rng
        now_ms = START_MS
        least = 0 if zero else 1
        count = rng.randint(least, min(spec["maxReplicas"] + 1, 12))
        if rng.random() < 0.05:
            count = rng.choice((0, spec["maxReplicas"] + 5, INT32))
        syncs: list[dict] = []
        for number in range(rng.choice((1, 1, 2, 3, 4, 6))):
            sync = {"nowMs": now_ms, "scale": {"selector": self.selector()}}
            if number == 0 or rng.random() < 0.1:
                sync["scale"]["spec"] = count
            if rng.random() < 0.1:
                sync["scale"]["status"] = rng.choice((0, 1, count + 1 if count < INT32 else 1))
            if rng.random() < 0.02:
                sync["scaleError"] = 'deployments.apps "d" not found'
            if rng.random() < 0.03:
                sync["writeError"] = "the object has been modified"
            sync["pods"] = self.pods(min(count, 12), now_ms)
            self.answer(sync, spec["metrics"], now_ms)
            syncs.append(sync)
            now_ms += self.step_ms()
        return syncs

    def step_ms(self) -> int:
        if self.rng.random() < 0.6:
            return 15_000
        return max(1, self.rng.choice(self.windows_s) * 1000 + self.rng.choice((-1, 0, 1)))

    def selector(self) -> str:
        if self.rng.random() < 0.97:
            return "app=a"
        return self.rng.choice(("", "app in (a,b)", "app,!x", "a=b=c", "app="))

    def pods(self, count: int, now_ms: int) -> list:
        rng = self.rng
        calm = rng.random() < 0.5
        lacking = rng.random() < 0.04
        return [self.pod(f"p{i}", now_ms, calm=calm, lacking=lacking) for i in range(count)]

    def pod(self, name: str, now_ms: int, *, calm: bool, lacking: bool) -> dict:
        rng = self.rng
        phase = (
            "Running"
            if calm
            else rng.choice(("Running",) * 6 + ("Pending", "Failed", "Succeeded", "Unknown"))
        )
        labels = {"app": "a"} if rng.random() < 0.98 else {"app": "b"}
        metadata = {"name": name, "namespace": "default", "labels": labels}
        if not calm and rng.random() < 0.08:
            metadata["deletionTimestamp"] = moment(now_ms)
        status = {"phase": phase}
        if calm or rng.random() < 0.95:
            status["startTime"] = moment(now_ms - (3_600_000 if calm else self.age_ms()))
        if calm or rng.random() < 0.95:
            ready = "True" if calm else rng.choice(("True", "True", "False", "Unknown"))
            condition = {"type": "Ready", "status": ready}
            if calm or rng.random() < 0.95:
                condition["lastTransitionTime"] = moment(
                    now_ms - (3_000_000 if calm else self.age_ms())
                )
            status["conditions"] = [condition]
        request = 0 if lacking and rng.random() < 0.3 else rng.choice((100, 250, 1000, 4000))
        spec = {"containers": [self.container("main", request, lacking=lacking)]}
        if rng.random() < 0.3:
            spec["containers"].append(self.container("side", 100, lacking=False))
        elif rng.random() < 0.4:
            spec["initContainers"] = self.init_containers()
        if rng.random() < 0.15:
            own = rng.sample(
                ("cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu"), rng.randint(0, 2)
            )
            spec["resources"] = {"requests": {name: self.spelled(2000) for name in own}}
        if rng.random() < 0.1:
            overhead = rng.sample(("cpu", "memory"), rng.randint(1, 2))
            spec["overhead"] = {name: self.spelled(250) for name in overhead}
        return {"metadata": metadata, "spec": spec, "status": status}

    def init_containers(self) -> list:
        """Return sidecars and others, in any order."""
        rng = self.rng
        found = []
        for name in rng.choice(
            (("side",), ("setup",), ("setup", "side"), ("side", "setup", "late"))
        ):
            request = rng.choice((50, 100, 4000, 6000))
            container = self.container(name, request, lacking=rng.random() < 0.2)
            if name == "side" or rng.random() < 0.2:
                container["restartPolicy"] = "Always"
            found.append(container)
        return found

    def container(self, name: str, request_milli: int, *, lacking: bool) -> dict:
        if lacking and self.rng.random() < 0.5:
            return {"name": name, "resources": {}}
        requests = {each: self.spelled(request_milli) for each in RESOURCES}
        return {"name": name, "resources": {"requests": requests}}

    def age_ms(self) -> int:
        if self.rng.random() < 0.4:
            return self.rng.randrange(600_000)
        return max(0, self.rng.choice((*self.windows_s, 60)) * 1000 + self.rng.choice((-1, 0, 1)))

    # What the metrics APIs answer

    def answer(self, sync: dict, metrics: list, now_ms: int) -> None:
        sync["custom"], sync["external"] = {}, {}
        names = [pod["metadata"]["name"] for pod in sync["pods"]]
        for metric in metrics:
            source = metric[_source(metric)]
            if metric["type"] == "Pods":
                items = [self.value(metric, name, now_ms) for name in self.sampled(names)]
                sync["custom"][source["metric"]["name"]] = self.failed() or {"items": items}
            elif metric["type"] == "Object":
                item = self.value(metric, "s", now_ms, pods=self.rng.choice((1, len(names))))
                sync["custom"][source["metric"]["name"]] = self.failed() or {"items": [item]}
            elif metric["type"] == "External":
                count = self.rng.choice((1, 1, 1, 2, 5, 0))
                items = [
                    self.value(metric, "", now_ms, pods=self.rng.choice((1, len(names))))
                    for _ in range(count)
                ]
                sync["external"][source["metric"]["name"]] = self.failed() or {"items": items}
        sync["resource"] = self.failed() or {
            "items": [self.usage(name, now_ms) for name in self.sampled(names)]
        }

    def failed(self) -> dict | None:
        return {"error": "the server is away"} if self.rng.random() < 0.04 else None

    def sampled(self, names: list) -> list:
        if self.rng.random() < 0.5:
            return names
        kept = [name for name in names if self.rng.random() < 0.8]
        return [*kept, "stranger"] if self.rng.random() < 0.1 else kept

    def value(self, metric: dict, name: str, now_ms: int, pods: int = 1) -> dict:
        source = metric[_source(metric)]
        target = source["target"]
        milli = milli_of(target.get("value") or target.get("averageValue"))
        item = {
            "timestamp": moment(now_ms - self.age_ms()),
            "value": self.near(milli * max(1, pods)),
        }
        if metric["type"] == "External":
            return {"metricName": "m", "metricLabels": {}, **item}
        if self.rng.random() < 0.5:
            item["windowSeconds"] = self.rng.choice((15, 30, 60))
        return {"describedObject": {"kind": "Pod", "name": name}, "metric": {"name": "m"}, **item}

    def usage(self, name: str, now_ms: int) -> dict:
        rng = self.rng
        containers = []
        for container in ("main", "side")[: rng.choice((1, 1, 2))]:
            usage = {
                each: self.near(rng.choice((100, 500, 1000, 16 * 2**30))) for each in RESOURCES
            }
            if rng.random() < 0.03:
                usage.pop(rng.choice(RESOURCES))
            containers.append({"name": container, "usage": usage})
        if rng.random() < 0.02:
            containers = []
        window = rng.choice(("1m0s", "30s", "15s", "0s"))
        return {
            "metadata": {"name": name, "namespace": "default"},
            "timestamp": moment(now_ms - self.age_ms()),
            "window": window,
            "containers": containers,
        }

    def near(self, milli: int) -> str:
        """Return a value about a target: often on the edge of a tolerance, at times far beyond."""
        rng = self.rng
        draw = rng.random()
        if draw < 0.35:
            edge = rng.choice(
                (1 - rng.choice(self.tolerances), 1 + rng.choice(self.tolerances), 1.0)
            )
            milli = round(milli * edge) + rng.choice((-1, 0, 0, 1))
        elif draw < 0.93:
            milli = round(
                milli * rng.choice((0, 0.3, 0.7, 0.95, 1.2, 1.6, 3)) * rng.uniform(0.9, 1.1)
            )
        else:
            milli = rng.choice(
                (0, -1000, 1, self.most, self.most // 2, -self.most, rng.randrange(self.most))
            )
        return self.spelled(max(-min(self.most, MOST_BELOW_ZERO), min(self.most, milli)))

    def spelled(self, milli: int) -> str:
        """Return a quantity in one of its spellings."""
        forms = [f"{milli}m", f"{milli}m"]
        if abs(milli) < 2**40:
            forms += [f"{milli * 1000}u", f"{milli * 1_000_000}n", f"{milli}e-3"]
        if milli % 1000 == 0:
            whole = milli // 1000
            forms += [str(whole)] * 3
            if whole % 1000 == 0:
                forms += [f"{whole // 1000}k", f"{whole // 1000}e3"]
            forms += [f"{whole // 1024}Ki"] if whole % 1024 == 0 else []
            forms += [f"{whole // 2**30}Gi"] if whole % 2**30 == 0 else []
        elif abs(milli) < 2**40:
            sign = "-" if milli < 0 else ""
            forms.append(f"{sign}{abs(milli) // 1000}.{abs(milli) % 1000:03d}")
        return self.rng.choice(forms)


def as_v1(hpa: dict) -> dict:
    """Return an HPA as autoscaling/v1 has it: what that has no fields for is in annotations."""
    spec, prefix = hpa["spec"], "autoscaling.alpha.kubernetes.io"
    metrics = [{"type": m["type"], _source(m): _as_v1_metric(m)} for m in spec["metrics"]]
    annotations = {f"{prefix}/metrics": json.dumps(metrics)}
    if "behavior" in spec:
        policy = {"type": "Pods", "value": 3, "periodSeconds": 30}
        # Policies are filled in for a field, and not for an annotation.
        rules = {key: {"policies": [policy], **each} for key, each in spec["behavior"].items()}
        annotations[f"{prefix}/behavior"] = json.dumps(rules)
    kept = {key: spec[key] for key in spec if key not in {"metrics", "behavior"}}
    metadata = {**hpa["metadata"], "annotations": annotations}
    return {**hpa, "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": kept}


def _as_v1_metric(metric: dict) -> dict:
    kind, source = metric["type"], metric[_source(metric)]
    target, identifier = source["target"], source.get("metric", {})
    flat = {
        "value": "targetValue",
        "averageValue": "averageValue" if kind == "Object" else "targetAverageValue",
        "averageUtilization": "targetAverageUtilization",
    }
    result = {flat[key]: value for key, value in target.items() if key in flat}
    if kind in {"Resource", "ContainerResource"}:
        return {key: source[key] for key in ("name", "container") if key in source} | result
    result["metricName"] = identifier["name"]
    if "selector" in identifier:
        key = "metricSelector" if kind == "External" else "selector"
        result[key] = identifier["selector"]
    if kind == "Object":
        result["target"] = source["describedObject"]
        result.setdefault("targetValue", "0")  # a field that v1 can't leave out
    return result


def _source(metric: dict) -> str:
    return metric["type"][0].lower() + metric["type"][1:]


def milli_of(text: str) -> int:
    """Return the thousandths of a quantity that these cases write."""
    from gpuscale.base.quantity import parse_quantity

    return parse_quantity(text).milli_value()


def moment(time_ms: int) -> str:
    """Return a time as JSON has it, with its milliseconds."""
    from datetime import UTC, datetime

    text = datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{time_ms % 1000:03d}Z"
