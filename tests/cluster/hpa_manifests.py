# mypy: disable-error-code="assignment"
"""HPA manifests beside the border of what an API server takes: a table by hand, and mutations by seed.

What the server says of each is asked of a real one; nothing here says it.
"""

import copy
import json
import random
from collections.abc import Iterator

from gpuscale.base.documents.documents import dotted

APPS = "{apiVersion: apps/v1, kind: Deployment, name: d}"
QUEUE = '{type: External, external: {metric: {name: q}, target: {type: Value, value: "5"}}}'
PER_POD = "target: {type: AverageValue, averageValue: 5}"


def manifest(target=APPS, metric=QUEUE, more="", version="v2", metadata="{name: h}"):
    metrics = f"  metrics: [{metric}]\n" if metric else ""
    return (
        f"apiVersion: autoscaling/{version}\nkind: HorizontalPodAutoscaler\nmetadata: {metadata}\n"
        f"spec:\n  scaleTargetRef: {target}\n  maxReplicas: 3\n{metrics}  {more}\n"
    )


def annotated(metrics=None, behavior=None):
    """Return a v1 manifest with the annotations that carry what v1 has no fields for."""
    prefix = "autoscaling.alpha.kubernetes.io"
    given = {f"{prefix}/metrics": metrics, f"{prefix}/behavior": behavior}
    notes = {key: json.dumps(value) for key, value in given.items() if value is not None}
    metadata = json.dumps({"name": "h", "annotations": notes})
    return manifest(metric="", version="v1", metadata=metadata)


def of_pods(name="m", more="", target=PER_POD):
    return f"{{type: Pods, pods: {{metric: {{name: {name}{more}}}, {target}}}}}"


def of_object(described, target="{type: Value, value: 5}"):
    source = f"metric: {{name: m}}, describedObject: {described}, target: {target}"
    return f"{{type: Object, object: {{{source}}}}}"


def of_container(name, container="main"):
    return (
        f"{{type: ContainerResource, containerResource: {{name: {name}, container: {container}, "
        f"{PER_POD}}}}}"
    )


def old_object(**target):
    described = {"kind": "Service", "name": "s", "apiVersion": "v1"}
    return [{"type": "Object", "object": {"target": described, "metricName": "m", **target}}]


POLICY = "{type: Pods, value: 4, periodSeconds: 15}"
_TARGETS = (
    "{kind: Deployment, name: d}",
    "{apiVersion: '', kind: Deployment, name: d}",
    "{apiVersion: null, kind: Deployment, name: d}",
    "{apiVersion: v1, kind: Deployment, name: d}",
    "{apiVersion: /, kind: Deployment, name: d}",
    "{apiVersion: /v1, kind: Deployment, name: d}",
    "{apiVersion: apps/, kind: Deployment, name: d}",
    "{apiVersion: apps, kind: Deployment, name: d}",
    "{apiVersion: apps/v1/x, kind: Deployment, name: d}",
    "{apiVersion: a b/c d, kind: Deployment, name: d}",
    "{apiVersion: apps/v1, kind: ReplicationController, name: d}",
    "{apiVersion: v1, kind: ReplicationController, name: d}",
    "{kind: ReplicationController, name: d}",
    "{apiVersion: a/b/c, kind: ReplicationController, name: d}",
    "{apiVersion: v1, kind: replicationcontroller, name: d}",
    "{apiVersion: 1, kind: Deployment, name: d}",
    "{apiVersion: apps/v1, kind: Deployment, name: 7}",
    "{apiVersion: apps/v1, kind: Deployment, name: '7'}",
    "{apiVersion: apps/v1, kind: true, name: d}",
    "{apiVersion: apps/v1, kind: Deployment, name: on}",
    "{apiVersion: apps/v1, kind: Deployment, name: 1e3}",
    "{apiVersion: apps/v1, kind: Deployment, name: 0x10}",
    "{apiVersion: apps/v1, kind: Deployment, name: 12:30}",
    "{apiVersion: apps/v1, kind: Deployment, name: 2026-01-02}",
    "{apiVersion: apps/v1, kind: Deployment, name: 1.2.3}",
    "{apiVersion: apps/v1, kind: Deployment, name: 1_000}",
    "{apiVersion: apps/v1, kind: Deployment, name: 010}",
    "{apiVersion: apps/v1, kind: Deployment, name: 089}",
    "{apiVersion: apps/v1, kind: Deployment, name: .5}",
    "{apiVersion: apps/v1, kind: Deployment, name: ~}",
    "{apiVersion: apps/v1, kind: Deployment, name: [d]}",
    "{apiVersion: apps/v1, kind: Deployment, name: d, more: x}",
    "[]",
)
_METRICS = (
    *(of_pods(name) for name in ("5", "1.5", "true", "'5'", "m5", "null", "''", "..", "a%b")),
    *(
        of_pods(more=f", selector: {{matchLabels: {{{labels}}}}}")
        for labels in (
            "version: 2",
            "version: '2'",
            "version: true",
            "version: null",
            "version: ''",
            "2: a",
            "a: 12:30",
            "a: 2026-01-02",
            "a: [x]",
        )
    ),
    *(
        of_pods(more=f", selector: {{matchExpressions: [{expression}]}}")
        for expression in (
            "{key: a, operator: In, values: [1]}",
            "{key: a, operator: In, values: ['1']}",
            "{key: 5, operator: Exists}",
            "{key: a, operator: Is}",
            "{key: a, operator: In}",
            "{key: a, operator: Exists, values: [x]}",
            "{operator: Exists}",
            "{key: a}",
            "{key: a, operator: Gt, values: ['1']}",
            "{key: a, operator: In, values: [null]}",
        )
    ),
    *(
        of_object(described)
        for described in (
            "{kind: Service, name: s}",
            "{apiVersion: v1, kind: Service, name: s}",
            "{apiVersion: a/b/c, kind: Service, name: s}",
            "{apiVersion: 1, kind: Service, name: s}",
            "{kind: Service, name: 5}",
        )
    ),
    *(
        of_container(name)
        for name in (
            "cpu",
            "memory",
            "ephemeral-storage",
            "hugepages-2Mi",
            "hugepages-",
            "gpu",
            "pods",
            "storage",
            "requests.cpu",
            "nvidia.com/gpu",
            "requests.nvidia.com/gpu",
            "kubernetes.io/x",
            "x.kubernetes.io/y",
            "nvidia.com/",
            "/gpu",
            "a/b/c",
            "A.com/gpu",
            "a..b/gpu",
            "nvidia.com/-gpu",
            "cpu-",
            "5",
            "''",
            f"{'a' * 253}/gpu",
            f"{'.'.join(['a' * 61] * 4)}/gpu",
            f"nvidia.com/{'g' * 64}",
        )
    ),
    *(of_container("cpu", container) for container in ("Main", "5", "'5'", "a.b", "-a")),
    *(
        of_pods(target=f"target: {{type: AverageValue, averageValue: {value}}}")
        for value in (
            "0",
            "1.5",
            "'1'",
            "1e3",
            "1E3",
            "true",
            "''",
            "-1",
            "null",
            "1 ",
            ".5",
            "5.",
            "1k",
            "1K",
            "0x10",
            "[1]",
            "1n",
            "0.1n",
            "+5",
            "y",
        )
    ),
    "{type: Resource, resource: {name: 5, target: {type: Utilization, averageUtilization: 5}}}",
    "{type: Resource, resource: {name: gpu, target: {type: Utilization, averageUtilization: 5}}}",
    "{type: Resource, resource: {name: a b, target: {type: Utilization, averageUtilization: 5}}}",
    "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: '5'}}}",
    "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 5.0}}}",
    "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 5.5}}}",
    "{type: Pods, pods: null}",
    "null",
    "x",
)
_MORE = (
    'behavior: {scaleUp: {selectPolicy: ""}}',
    f'behavior: {{scaleUp: {{selectPolicy: "", policies: [{POLICY}]}}}}',
    "behavior: {scaleUp: {selectPolicy: null}}",
    "behavior: {scaleUp: {selectPolicy: max}}",
    "behavior: {scaleUp: {selectPolicy: Max}}",
    "behavior: {scaleUp: {policies: []}}",
    "behavior: {scaleUp: {policies: null}}",
    "behavior: {scaleUp: {policies: [null]}}",
    "behavior: {scaleUp: {policies: [{type: 5, value: 1, periodSeconds: 1}]}}",
    "behavior: {scaleUp: {policies: [{type: Pods, value: '1', periodSeconds: 1}]}}",
    "behavior: {scaleUp: {policies: [{type: Pods, value: 1.0, periodSeconds: 1e1}]}}",
    "behavior: {scaleUp: {tolerance: true}}",
    "behavior: {scaleUp: {tolerance: '0.1'}}",
    "behavior: {scaleUp: {tolerance: ''}}",
    "behavior: {}",
    "behavior: null",
    "behavior: []",
    "behavior: {scaleUp: null, scaleDown: {}}",
    "minReplicas: 1.0",
    "minReplicas: 1.5",
    "minReplicas: '1'",
    "minReplicas: null",
    "minReplicas: 3",
    "minReplicas: 4",
    "minReplicas: 2147483648",
    "minReplicas: 0x2",
    "minReplicas: true",
    "minReplicas: 1e0",
    "unknown: 5",
)
_METADATA = (
    "{name: 5}",
    "{name: '5'}",
    "{name: h, labels: {version: 2}}",
    "{name: h, labels: {version: '2'}}",
    "{name: h, labels: {version: 'a b'}}",
    "{name: h, labels: {a b: x}}",
    "{name: h, annotations: {a: true}}",
    "{name: h, annotations: {a: 'x y'}}",
    "{name: h, annotations: {a b: x}}",
    "{name: h, namespace: default}",
    "{generateName: h-}",
    "{generateName: 5}",
    "{name: h, creationTimestamp: 2026-01-02T03:04:05Z}",
    "{name: h, creationTimestamp: null}",
    "{name: h, creationTimestamp: tomorrow}",
)
_POLICIES = [{"Type": "Pods", "Value": 4, "PeriodSeconds": 15}]
_ANNOTATED = (
    annotated(old_object(targetValue="0", averageValue="1")),
    annotated(old_object(averageValue="1")),
    annotated(old_object(targetValue="-1", averageValue="1")),
    annotated(old_object(targetValue="2", averageValue="1")),
    annotated(old_object(targetValue="2")),
    annotated(old_object(targetValue="0")),
    annotated(old_object()),
    annotated(old_object(targetValue="0", averageValue="0")),
    annotated(behavior={"ScaleUp": {"SelectPolicy": "Max"}}),
    annotated(behavior={"ScaleUp": {"SelectPolicy": "Max", "Policies": _POLICIES}}),
    annotated(behavior={"ScaleUp": {"SelectPolicy": "", "Policies": _POLICIES}}),
    annotated(behavior={"ScaleUp": {"Policies": []}}),
    annotated(behavior={"ScaleUp": {}, "ScaleDown": None}),
    annotated(behavior={"ScaleUp": None, "ScaleDown": {"Policies": _POLICIES}}),
    annotated(behavior={}),
    annotated(behavior={"scaleDown": {"policies": []}}),
)


def table() -> list[str]:
    """Return the manifests that were written by hand, good ones, bad ones and near misses."""
    return [
        *(manifest(target=each) for each in _TARGETS),
        *(manifest(metric=each) for each in _METRICS),
        *(manifest(more=each) for each in _MORE),
        *(manifest(metadata=each) for each in _METADATA),
        *_ANNOTATED,
        manifest(target="{kind: Deployment, name: d}", metric="", version="v1"),
        manifest(metric="", version="v1", more="targetCPUUtilizationPercentage: '50'"),
        manifest(metric="", version="v1", more="targetCPUUtilizationPercentage: 50"),
        manifest(metric="", version="v1", more="targetCPUUtilizationPercentage: 0"),
    ]


_WHOLE = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "h", "labels": {"app": "x"}},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "minReplicas": 1,
        "maxReplicas": 9,
        "metrics": [
            {
                "type": "Pods",
                "pods": {
                    "metric": {
                        "name": "m",
                        "selector": {
                            "matchLabels": {"a": "b"},
                            "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}],
                        },
                    },
                    "target": {"type": "AverageValue", "averageValue": "5"},
                },
            },
            {
                "type": "Object",
                "object": {
                    "metric": {"name": "m"},
                    "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
                    "target": {"type": "Value", "value": "5"},
                },
            },
            {
                "type": "External",
                "external": {
                    "metric": {"name": "q"},
                    "target": {"type": "AverageValue", "averageValue": "5"},
                },
            },
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 5},
                },
            },
            {
                "type": "ContainerResource",
                "containerResource": {
                    "name": "memory",
                    "container": "main",
                    "target": {"type": "AverageValue", "averageValue": "1Gi"},
                },
            },
        ],
        "behavior": {
            "scaleUp": {
                "stabilizationWindowSeconds": 0,
                "selectPolicy": "Max",
                "tolerance": "50m",
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
            },
            "scaleDown": {"policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}]},
        },
    },
}
_VALUES = (
    None, "", "x", "5", "a/b", "Pods", "Value", "100m", "-1", 0, 1, -1, 2, 1.0, 1.5, 3601,
    1 << 31, True, False, [], {}, ["x"], {"x": "y"}, "ab c",
)  # fmt: skip


def mutations(number: int, seed: int = 0) -> Iterator[str]:
    """Return manifests with one field of a whole one changed or left out, or two."""
    rng = random.Random(seed)
    paths = [path for path in _paths(_WHOLE) if path[0] in {"metadata", "spec"}]
    for _ in range(number):
        changed = copy.deepcopy(_WHOLE)
        for path in rng.sample(paths, rng.choice([1, 1, 2])):
            _change(changed, path, rng)
        yield json.dumps(changed)


def misspelled() -> Iterator[tuple[str, str]]:
    """Return a whole manifest with each field called otherwise, and the path of that field."""
    for path in _paths(_WHOLE):
        if isinstance(path[-1], int) or path[0] in {"apiVersion", "kind", "metadata"}:
            continue
        if "matchLabels" in path[:-1]:
            continue
        changed = copy.deepcopy(_WHOLE)
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        name = f"{path[-1]}X"
        inner[name] = inner.pop(path[-1])
        yield json.dumps(changed), dotted((*path[:-1], name))


def _paths(data, path=()):
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from _paths(value, (*path, key))


def _change(data, path, rng) -> None:
    for key in path[:-1]:
        data = _child(data, key)
    key = path[-1]
    if _child(data, key) is None:
        return  # An earlier change took it away.
    if rng.random() < 0.25:
        data.pop(key)
    else:
        data[key] = rng.choice(_VALUES)


def _child(data, key):
    if isinstance(data, dict):
        return data.get(key)
    is_item = isinstance(data, list) and isinstance(key, int) and key < len(data)
    return data[key] if is_item else None
