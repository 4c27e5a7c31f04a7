"""Applications of ten pods each with an HPA each, and the values that these have to show.

Each pod has one GPU, whose value is `base + application % 20 + replica`, with replicas 0 to 9. So with `base`
10 the pods of application 3 have 13 to 22: 17.5 in the mean, 175 in the sum. Once those with odd numbers
are gone, 13, 15, 17, 19 and 21 are left: 17 and 85.

Pods are as the scheduler and kubelets leave them, bound and running. They belong to custom resources with a
scale subresource, so no controller replaces a pod that was deleted.
"""

from dataclasses import dataclass
from itertools import combinations

from gpuscale.base.quantity import parse_quantity

REPLICAS = 10
GPUS_PER_NODE = 4
NAMESPACES = 20
SERIES = "DCGM_FI_DEV_GPU_UTIL"
ALL = tuple(range(REPLICAS))
EVEN = ALL[::2]
ODD = ALL[1::2]
RULES = f"""
rules:
- seriesQuery: {SERIES}{{pod!=""}}
  name: {{as: gpu_util}}
  resources:
    overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}, app: {{resource: service}}}}
  metricsQuery: avg(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: {SERIES}{{pod!=""}}
  name: {{as: gpu_sum}}
  resources: {{overrides: {{namespace: {{resource: namespace}}}}}}
  metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}}) by (app)
"""


@dataclass(frozen=True)
class Load:
    """What the GPUs do."""

    base: int
    replicas: tuple[int, ...] = ALL
    """The numbers of the pods that each application has."""

    def value(self, app, replica):
        """Return the value of a pod's GPU, in percent."""
        return self.base + app % 20 + replica


@dataclass(frozen=True)
class Fleet:
    """So many pods, on a quarter as many nodes, with a tenth as many HPAs."""

    pods: int

    @property
    def nodes(self):
        return -(-self.pods // GPUS_PER_NODE)

    @property
    def apps(self):
        return range(self.pods // REPLICAS)

    def place(self, app, replica):
        """Return the node of a pod, and its GPU there; the pods of an application are on different nodes."""
        gpu, node = divmod(app * REPLICAS + replica, self.nodes)
        return node, gpu

    def on_node(self, node):
        """Return application, replica and GPU of each pod of a node."""
        numbers = ((gpu, gpu * self.nodes + node) for gpu in range(GPUS_PER_NODE))
        return [(*divmod(number, REPLICAS), gpu) for gpu, number in numbers if number < self.pods]

    def labels(self, app, replica):
        """Return the labels of a pod's series."""
        node, gpu = self.place(app, replica)
        return {
            "namespace": namespace(app),
            "pod": pod_name(app, replica),
            "container": "model",
            "app": app_name(app),
            "Hostname": node_name(node),
            "UUID": f"GPU-{node:08x}-{gpu}",
            "gpu": str(gpu),
        }


def namespace(app):
    return f"team-{app % NAMESPACES:02}"


def app_name(app):
    return f"app-{app:03}"


def pod_name(app, replica):
    return f"{app_name(app)}-{replica}"


def node_name(node):
    return f"gpu-{node:03}"


def metric(app):
    """Return the metric of an HPA: External and Object for one in ten each, Pods for the others."""
    value = {"type": "Value", "value": "500"}
    service = {"apiVersion": "v1", "kind": "Service", "name": app_name(app)}
    if app % 10 == 0:
        selector = {"matchLabels": {"app": app_name(app)}}
        found = {"metric": {"name": "gpu_sum", "selector": selector}, "target": value}
        return {"type": "External", "external": found}
    if app % 10 == 1:
        found = {"metric": {"name": "gpu_util"}, "describedObject": service, "target": value}
        return {"type": "Object", "object": found}
    average = {"type": "AverageValue", "averageValue": "50"}
    return {"type": "Pods", "pods": {"metric": {"name": "gpu_util"}, "target": average}}


def expected_milli(app, load):
    """Return what the status of an HPA has to show: the sum for External, otherwise the mean.

    A mean of thousandths loses what is left over, as in the controller.
    """
    values = [1000 * load.value(app, replica) for replica in load.replicas]
    return sum(values) if metric(app)["type"] == "External" else sum(values) // len(values)


def between(app, before, after):
    """Return the lowest and the highest value that is right while one load follows another, pod by pod."""
    going = [replica for replica in before.replicas if replica not in after.replicas]
    left = [
        (*after.replicas, *some)
        for count in range(len(going) + 1)
        for some in combinations(going, count)
    ]
    found = [
        expected_milli(app, Load(load.base, some)) for load in (before, after) for some in left
    ]
    return min(found), max(found)


def current_milli(item):
    """Return the value that an HPA shows, in thousandths; None where it shows none."""
    found = (item.get("status", {}).get("currentMetrics") or [{"type": ""}])[0]
    current = found.get(found["type"].lower(), {}).get("current", {})
    text = current.get("averageValue", current.get("value"))
    return None if text is None else parse_quantity(text).milli_value()
