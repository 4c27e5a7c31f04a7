# mypy: disable-error-code="arg-type"
"""prometheus-adapter and `gpuscale metrics-api`, as processes, behind the same requests.

Both have the same real Prometheus, the same real API server and the same rules. What they answer is the same,
status code, every item, every value and every word of an error, but for the differences listed here, which
docs/metrics-api.md explains. A difference that is listed and no longer there fails too.
"""

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from gpuscale.testing import prometheus as prometheus_process
from gpuscale_testing import KeyPair, missing, wait_until
from gpuscale_testing.metrics_apis import (
    MetricsApi,
    gpuscale_metrics_api,
    prometheus_adapter,
)

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

DATA = Path(__file__).parents[1] / "data" / "metrics_api"
DOCS = Path(__file__).parents[2] / "docs" / "metrics-api.md"
CUSTOM, EXTERNAL = "/apis/custom.metrics.k8s.io", "/apis/external.metrics.k8s.io"
BOTH = ("v1beta1", "v1beta2")
STEP_S = 15
BEFORE_S, AFTER_S = 360, 540
"""Samples lie around now, so that all tests see the same rates; Prometheus takes ten minutes of future."""
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PODS = {
    "ml": {"web-0": "web", "web-1": "web", "worker-0": "worker", "idle-0": "idle"}
    | {"a.b": "dotted", "axb": "undotted", "c": "dotted"},
    "prod": {"web-0": "web", "api-0": "api"},
}
RACKS = """
apiVersion: hall.example.com/v1
kind: Rack
metadata: {name: rack-1}
---
apiVersion: cheese.example.com/v1
kind: Brand
metadata: {name: brie, namespace: ml}
"""


@dataclass(frozen=True)
class Request:
    """A GET of both servers."""

    path: str
    headers: tuple[tuple[str, str], ...] = ()
    user: str = "admin"
    method: str = "GET"


@dataclass(frozen=True)
class Answer:
    """What one server said; times are left out, as requests are not sent at the same one."""

    status: int
    content_type: str
    body: Any

    @property
    def items(self) -> list[Any]:
        """Return the items of a list of values."""
        return self.body.get("items", []) if isinstance(self.body, dict) else []

    @property
    def reason(self) -> str:
        """Return the reason of a Status."""
        return str(self.body.get("reason", "")) if isinstance(self.body, dict) else ""


Differs = Callable[[Request, Answer, Answer], bool]
"""Given the request, prometheus-adapter's answer and ours: whether they differ in the way that is listed."""


@dataclass(frozen=True)
class Difference:
    """One that is meant; `row` begins its row in the table of the docs."""

    row: str
    differs: Differs


@dataclass
class Case:
    """One set of rules with its requests and the differences that must come up."""

    name: str
    rules: str
    requests: list[Request]
    differences: list[Difference] = field(default_factory=list)


def grid(
    resource: str, namespace: str | None, names: list[str], metrics: list[str]
) -> Iterator[Request]:
    """Yield the requests for single objects and for all of them, in both versions."""
    place = f"namespaces/{namespace}/{resource}" if namespace else resource
    for version, name, metric in product(BOTH, [*names, "no-such", "*", "%2A"], metrics):
        yield Request(f"{CUSTOM}/{version}/{place}/{name}/{quote(metric)}")


def selected(path: str, parameter: str, selectors: list[str]) -> Iterator[Request]:
    """Yield a request per selector."""
    for selector in selectors:
        yield Request(f"{path}?{urlencode({parameter: selector})}")


OBJECT_SELECTORS = [
    *("app=web", "app==web", "app!=web", "app in (web,worker)", "app notin (web)", "app", "!app"),
    *("app=web,tier", "app=nobody", "app in (web", "app=a=b", "=web", "a b", "app>1"),
]
SERIES_SELECTORS = [
    *("gpu=0", "gpu==1", "gpu!=0", "gpu in (0)", "gpu in (1,0)", "gpu notin (0,1)", "gpu", "!gpu"),
    *("gpu=0,modelName", "gpu=7", "gpu in (0", "gpu=a=b", "gpu>0", "gpu<1"),
]
CONTAINER_METRICS = ["cpu_usage", "memory_working_set_bytes", "network_receive_bytes"]
GPU = "DCGM_FI_DEV_GPU_UTIL"
PODS_OF_ML = f"{CUSTOM}/v1beta2/namespaces/ml/pods/*"


def default_requests() -> list[Request]:
    """Return requests to the rules that the Helm chart adds."""
    ml, prod = list(PODS["ml"]), list(PODS["prod"])
    pod_metrics = [*CONTAINER_METRICS, GPU, "http_requests", "vllm:num_requests_waiting", "no"]
    found = [
        *grid("pods", "ml", ml[:4], pod_metrics),
        *grid("pods", "prod", prod, pod_metrics[:4]),
        *grid("pods", "bare", [], [GPU]),
        *grid("pod", "ml", ml[:1], [GPU]),
        *grid("services", "ml", ["dcgm-exporter"], [GPU, f"{GPU}_AVG", "http_requests"]),
        *grid("deployments.apps", "ml", ["web", "worker"], ["http_requests", "queue_wait"]),
        *grid("deployment", "ml", ["web"], ["queue_wait"]),
        *grid("jobs.batch", "ml", ["train"], ["job_progress", GPU]),
        *grid("ingresses.networking.k8s.io", "ml", ["web"], ["http_requests"]),
        *grid("persistentvolumeclaims", "ml", ["data"], ["disk_free"]),
        *grid("persistentvolumes", None, ["volume-1"], ["disk_free"]),
        *grid("nodes", None, ["gpu-a", "gpu-b"], ["node_power_watts", GPU, "no"]),
        *grid("nothings", "ml", ["x"], [GPU]),
        *grid("nopods.nogroup", "ml", ["web-0"], [GPU]),
        *grid("pods", None, ["web-0"], [GPU]),
        *grid("nodes", "ml", ["gpu-a"], ["node_power_watts"]),
    ]
    for version, name, metric in product(
        BOTH, ["ml", "prod", "bare", "*"], [GPU, "cpu_usage", f"{GPU}_AVG", "no"]
    ):
        found.append(Request(f"{CUSTOM}/{version}/namespaces/{name}/metrics/{metric}"))
    for version in BOTH:
        pods = f"{CUSTOM}/{version}/namespaces/ml/pods"
        found += selected(f"{pods}/*/{GPU}", "labelSelector", OBJECT_SELECTORS)
        found += selected(f"{pods}/web-0/{GPU}", "labelSelector", OBJECT_SELECTORS)
        found += selected(f"{pods}/*/{GPU}", "metricLabelSelector", SERIES_SELECTORS)
        found += selected(f"{pods}/web-0/{GPU}", "metricLabelSelector", SERIES_SELECTORS)
        found += selected(f"{CUSTOM}/{version}/nodes/*/node_power_watts", "labelSelector", ["pool"])
        namespace_metric = f"{CUSTOM}/{version}/namespaces/ml/metrics/{GPU}"
        found += selected(namespace_metric, "metricLabelSelector", SERIES_SELECTORS[:3])
    return [*found, *odd_requests(), *requests_by_users(), *discovery_requests()]


def discovery_requests() -> list[Request]:
    """Return requests for what is served."""
    paths = [f"{CUSTOM}/{version}" for version in BOTH] + [f"{EXTERNAL}/v1beta1"]
    known = [Request(path) for path in (*paths, CUSTOM, EXTERNAL)]
    return [*known, Request("/apis", (("Accept", AGGREGATED),))]


def odd_requests() -> list[Request]:
    """Return requests for what is not served, and unusual ones for what is."""
    v1 = f"{CUSTOM}/v1beta1"
    paths = [
        *(f"{v1}/blah", f"{v1}/nodes/foo", f"{v1}/namespaces/ml/pods/bar", f"{v1}/namespaces"),
        *(f"{v1}/namespaces/ml", f"{v1}/namespaces/ml/foo", f"{CUSTOM}/v1", f"{CUSTOM}/v1/a/b/c"),
        *(
            f"{v1}/namespaces/ml/pods/web-0/{GPU}/more",
            f"{v1}/namespaces/ml/pods/*/{GPU}?selector=a",
        ),
        *(f"{v1}/namespaces/ml/pods/*/{GPU}?pretty=true", f"{v1}/namespaces/ml/pods/*/{GPU}/"),
        *("/apis/nothing.k8s.io", "/apis/nothing.k8s.io/v1", "/nothing", "/api", "/api/v1/pods"),
        f"{v1}/namespaces/ml/pods/*/{GPU}?labelSelector=app%3Dweb&metricLabelSelector=gpu%3D0",
        f"{v1}/namespaces/ml/pods/*/{GPU}?labelSelector=app%3Dweb&labelSelector=app%3Dworker",
        f"{v1}/namespaces/nowhere/pods/*/{GPU}",
        f"{v1}/namespaces/ml/pods/web%2D0/{GPU}",
        f"{v1}/namespaces/ml/PODS/web-0/{GPU}",
    ]
    accepted = [
        *("application/json, */*", "application/vnd.kubernetes.protobuf, */*", "*/*"),
        *("application/vnd.kubernetes.protobuf", "application/yaml", "text/html"),
    ]
    path = f"{PODS_OF_ML}/{GPU}?labelSelector=app%3Dweb"
    return [
        *map(Request, paths),
        *(Request(path, (("Accept", accept),)) for accept in accepted),
        *(Request(path, method=method) for method in ("POST", "PUT", "DELETE", "PATCH")),
    ]


def requests_by_users() -> list[Request]:
    """Return requests of users with and without permissions, by certificate and by the front proxy."""
    forwarded = (("X-Remote-User", "jane"), ("X-Remote-Group", "team"))
    master = (("X-Remote-User", "root"), ("X-Remote-Group", "system:masters"))
    path = f"{PODS_OF_ML}/{GPU}?labelSelector=app%3Dweb"
    paths = [path, f"{CUSTOM}/v1beta1/namespaces/ml/metrics/{GPU}", f"{CUSTOM}/v1beta1"]
    told = [Request(each, user=user) for each in paths for user in ("reader", "stranger", "")]
    spoofed = [Request(each, master) for each in paths]
    return [
        *told,
        *(Request(request.path, master, user="") for request in spoofed),
        *(Request(each, forwarded, user="front-proxy") for each in paths),
        *(Request(each, master, user="front-proxy") for each in paths),
        Request(path, (("Authorization", "Bearer nonsense"),), user=""),
        *(Request(path, user="") for path in ("/healthz", "/livez", "/readyz", "/version")),
        *(Request(path, user="") for path in ("/metrics", "/openapi/v2", "/apis")),
    ]


def alibaba_requests() -> list[Request]:
    """Return requests to the rules of Alibaba Cloud's guide."""
    process = ["DCGM_CUSTOM_PROCESS_SM_UTIL", "DCGM_CUSTOM_PROCESS_MEM_USED"]
    ratio = "DCGM_CUSTOM_PROCESS_GPU_MEM_USED_RATIO"
    return [
        *grid("pods", "ml", ["web-0", "web-1"], [*process, ratio, GPU]),
        *grid("nodes", None, ["gpu-a"], [*process, GPU, "DCGM_FI_DEV_FB_USED"]),
        *(
            Request(f"{CUSTOM}/{version}/namespaces/{name}/metrics/{metric}")
            for version, name, metric in product(BOTH, ("ml", "*"), (*process, ratio))
        ),
        *selected(f"{PODS_OF_ML}/{process[0]}", "labelSelector", OBJECT_SELECTORS[:4]),
        *discovery_requests(),
    ]


def guide_requests() -> list[Request]:
    """Return requests to rules of guides, and to rules that go wrong."""
    pods = ["http_requests_per_second", "guide_requests", "gpu_util", "tokens_by_fields", "twice"]
    wrong = ["ungrouped", "one_of_several", "without_namespace", "without_query", "no_promql"]
    found = [
        *grid("pods", "ml", ["web-0", "a.b"], [*pods, *wrong, "a_range", "numbers"]),
        *grid("pods", "ml", [f"n-{name}" for name in NUMBERS], ["numbers"]),
        *grid("nodes", None, ["gpu-a"], ["foo"]),
        *grid("deployments.apps", "ml", ["web"], ["rollout_steps", "guide_requests"]),
        *grid("brands.cheese.example.com", "ml", ["brie"], ["brand_fame"]),
        *grid("racks.hall.example.com", None, ["rack-1"], ["rack_watts"]),
        *grid("racks.hall.example.com", "ml", ["rack-1"], ["rack_watts"]),
        *selected(f"{PODS_OF_ML}/selected_sum", "labelSelector", ["app=dotted"]),
        *selected(f"{PODS_OF_ML}/one_of_several", "metricLabelSelector", ["kind=in", "kind!=in"]),
        *discovery_requests(),
    ]
    external = ["queue_consumer_lag", "queue_depth", "queue_depth_sum", "queue_depth_unmapped"]
    external += ["queue_depth_scalar", "queue_depth_range", "queue_depth_no_promql", "numbers"]
    selectors = ["", "name=q1", "name!=q1", "name in (q1,q2)", "queue=a", "queue", "!queue"]
    selectors += ["queue>1", "queue in (a", "queue=nothing", "pod=n-plain"]
    for name, namespace in product([*external, "no"], ("ml", "default")):
        path = f"{EXTERNAL}/v1beta1/namespaces/{namespace}/{name}"
        found += [Request(path), *selected(path, "labelSelector", selectors)]
    for rest in ("namespaces/foo", "blah", "namespaces/foo/queue/metric"):
        found.append(Request(f"{EXTERNAL}/v1beta1/{rest}"))
    path = f"{EXTERNAL}/v1beta1/namespaces/ml/queue_depth"
    found += [Request(f"{path}?watch={word}") for word in ("true", "1", "false")]
    found += [Request(path, user=user) for user in ("reader", "stranger", "")]
    return found


NUMBERS = {
    "zero": 0.0,
    "tiny": 0.0004,
    "plain": 23.5,
    "cut": 1.001,
    "milli": 0.016,
    "thousand": 5000.0,
    "million": 1e6,
    "negative": -2.5,
    "big": 1.25e12,
    "exact": 1.005,
    "nan": math.nan,
    "infinite": math.inf,
    "minus-infinite": -math.inf,
    "too-large": 1e19,
}


def gauges() -> Iterator[tuple[dict[str, str], float]]:
    """Yield series that stay as they are."""
    exporter = {"service": "dcgm-exporter", "job": "dcgm-exporter", "modelName": "H200"}
    for number, (pod, gpu) in enumerate(
        [("web-0", "0"), ("web-0", "1"), ("web-1", "0"), ("worker-0", "3")]
    ):
        labels = {"__name__": GPU, "namespace": "ml", "pod": pod, "gpu": gpu, **exporter}
        yield labels, 20.25 + number
        exported = {"exported_namespace": "ml", "exported_pod": pod}
        yield {"__name__": GPU, "job": "gpu", "gpu": gpu, **exported}, 40.125 + number
    yield {"__name__": GPU, "namespace": "prod", "pod": "web-0", "gpu": "0", "node": "gpu-b"}, 77.0
    yield {"__name__": f"{GPU}_AVG", "namespace": "ml", "service": "dcgm-exporter"}, 33.333
    waiting = {"__name__": "vllm:num_requests_waiting", "model_name": "org/model"}
    yield {**waiting, "namespace": "ml", "pod": "web-0"}, 3.0
    yield {"__name__": "job_progress", "namespace": "ml", "job": "train"}, 0.4567
    yield {"__name__": "disk_free", "namespace": "ml", "persistentvolumeclaim": "data"}, 1e11
    volume = {"persistentvolume": "volume-1", "namespace": "ml"}
    yield {"__name__": "disk_free", **volume}, 123456789.0
    for node, watts in (("gpu-a", 512.5), ("gpu-b", 700.0)):
        yield {"__name__": "node_power_watts", "namespace": "monitoring", "node": node}, watts
    for pod, container, size in (
        *(("web-0", "app", 1e9), ("web-0", "side", 5e7), ("web-0", "POD", 1e6)),
        *(("web-1", "app", 2e9), ("worker-0", "app", 123456789.5)),
    ):
        labels = {"namespace": "ml", "pod": pod, "container": container}
        yield {"__name__": "container_memory_working_set_bytes", **labels}, size
    yield from guide_gauges()
    yield from alibaba_gauges()


def guide_gauges() -> Iterator[tuple[dict[str, str], float]]:
    """Yield what the guides' rules ask for."""
    for pod, kind, count in (
        *(("web-0", "in", 7.0), ("web-0", "out", 11.0), ("web-1", "in", 13.0)),
        *(("a.b", "in", 1.0), ("axb", "in", 10.0), ("c", "in", 100.0)),
    ):
        yield {"__name__": "tokens", "namespace": "ml", "pod": pod, "kind": kind}, count
    for name, value in NUMBERS.items():
        yield {"__name__": "numbers", "namespace": "ml", "pod": f"n-{name}"}, value
    yield {"__name__": "foo_total", "system_name": "gpu-a"}, 30.0
    yield {"__name__": "foo_count", "system_name": "gpu-a"}, 8.0
    steps = {"kube_apps_deployment": "web", "namespace": "ml"}
    yield {"__name__": "rollout_steps", **steps}, 4.0
    yield {"__name__": "brand_fame", "namespace": "ml", "brand": "brie"}, 9.0
    yield {"__name__": "rack_watts", "rack": "rack-1"}, 9000.0
    for name, queue, lag in (("q1", "a", 5.0), ("q2", "a", 6.5), ("q3", "b", 0.0)):
        labels = {"__name__": "queue_consumer_lag", "name": name, "queue": queue}
        yield {**labels, "namespace": "ml"}, lag
        yield {"__name__": "queue_depth", "queue": queue, "name": name}, lag + 1


def alibaba_gauges() -> Iterator[tuple[dict[str, str], float]]:
    """Yield what Alibaba's exporter gives."""
    device = {"NodeName": "gpu-a", "gpu": "0"}
    yield {"__name__": GPU, **device}, 23.0
    yield {"__name__": "DCGM_FI_DEV_FB_USED", **device}, 15345.0
    for number, pod in enumerate(("web-0", "web-1")):
        labels = {**device, "NamespaceName": "ml", "PodName": pod, "ContainerName": "app"}
        yield {"__name__": "DCGM_CUSTOM_PROCESS_SM_UTIL", **labels}, 23.0 + number
        yield {"__name__": "DCGM_CUSTOM_PROCESS_MEM_USED", **labels}, 4040.0 + number
        yield {"__name__": "DCGM_CUSTOM_CONTAINER_MEM_ALLOCATED", **labels}, 16160.0


def counters() -> Iterator[tuple[dict[str, str], float]]:
    """Yield series with their growth per second, which lies between two thousandths."""
    for pod, cores in (("web-0", 0.2505), ("web-1", 1.7505), ("worker-0", 3.0005)):
        for container in ("app", "POD"):
            labels = {"namespace": "ml", "pod": pod, "container": container}
            yield {"__name__": "container_cpu_usage_seconds_total", **labels}, cores
        labels = {"namespace": "ml", "pod": pod, "interface": "eth0"}
        yield {"__name__": "container_network_receive_bytes_total", **labels}, 1234.3 * cores
    for pod, rate in (("web-0", 12.3455), ("web-1", 0.1005)):
        place = {"namespace": "ml", "pod": pod, "service": "web", "job": "web"}
        more = {"deployment": "web", "ingress": "web", "endpoint": "http"}
        yield {"__name__": "http_requests_total", **place, **more}, rate
        renamed = {"kubernetes_namespace": "ml", "kubernetes_pod_name": pod}
        yield {"__name__": "http_requests_total", **renamed}, rate
        yield {"__name__": "guide_requests_total", **place, "deployment": "web"}, rate
    queue = {"namespace": "ml", "deployment": "worker"}
    yield {"__name__": "queue_wait_seconds_total", **queue}, 0.7505


def samples() -> Iterator[prometheus_process.Sample]:
    """Yield all series around now."""
    now_ms = int(time.time() * 1000)
    offsets = range(-BEFORE_S, AFTER_S, STEP_S)
    for labels, value in gauges():
        for offset_s in offsets:
            yield labels, now_ms + 1000 * offset_s, value
    for labels, per_second in counters():
        for offset_s in offsets:
            total = 1e6 + per_second * (offset_s + BEFORE_S)
            yield labels, now_ms + 1000 * offset_s, total


def is_garbage(value: str) -> bool:
    """Return whether a quantity is what comes of a number that fits no integer."""
    return value in ("-9223372036854775808m", "0")


def numbers_differ(request: Request, theirs: Answer, ours: Answer) -> bool:
    """Return whether only values that are no numbers are left out of ours, or printed in another way."""
    if ("/numbers" not in request.path and "_scalar" not in request.path) or theirs.status != 200:
        return False
    if ours.status == 404:
        return [is_garbage(item.get("value", "")) for item in theirs.items] == [True]
    rest = [item for item in theirs.items if item not in ours.items]
    return ours.status == 200 and bool(rest) and all(is_garbage(item["value"]) for item in rest)


def statuses(theirs: int, ours: int, part: str) -> Differs:
    """Return the check that answers to paths with this part have these status codes."""

    def differs(request: Request, their_answer: Answer, our_answer: Answer) -> bool:
        return part in request.path and (their_answer.status, our_answer.status) == (theirs, ours)

    return differs


def words_differ(request: Request, theirs: Answer, ours: Answer) -> bool:
    """Return whether both refuse a selector for the same reason, in other words."""
    known = "elector=" in request.path and theirs.status == ours.status == 400
    return known and theirs.reason == ours.reason == "BadRequest"


def media_types_differ(request: Request, theirs: Answer, ours: Answer) -> bool:
    """Return whether something other than JSON was asked for, and ours is JSON."""
    asks = any(name == "Accept" and value != AGGREGATED for name, value in request.headers)
    return asks and ours.status == 200 and ours.content_type == "application/json"


def unknown_paths_differ(_request: Request, theirs: Answer, ours: Answer) -> bool:
    """Return whether nothing is there, and theirs tells of what there is elsewhere."""
    return theirs.status == ours.status == 404 and ours.body == NOT_FOUND and "paths" in theirs.body


def lists_differ(metric: str) -> Differs:
    """Return the check that lists of metrics differ in nothing but where this one belongs to."""

    def differs(_request: Request, theirs: Answer, ours: Answer) -> bool:
        if not isinstance(theirs.body, dict) or "resources" not in theirs.body:
            return False
        left, right = (
            [entry for entry in each.body["resources"] if metric not in entry["name"]]
            for each in (theirs, ours)
        )
        return left == right

    return differs


def group_differs(request: Request, theirs: Answer, ours: Answer) -> bool:
    """Return whether the group's document has a version more."""
    if request.path != CUSTOM:
        return False
    versions = [each["version"] for each in ours.body["versions"]]
    return len(theirs.body["versions"]) == 1 and versions == list(BOTH)


def aggregated_differs(_request: Request, theirs: Answer, ours: Answer) -> bool:
    """Return whether the document of all groups has some, where theirs has none."""
    is_one = theirs.content_type == ours.content_type == AGGREGATED
    return is_one and not theirs.items and bool(ours.items)


def path_differs(path: str) -> Differs:
    """Return the check that a path is this one."""
    return lambda request, _theirs, _ours: request.path == path


def sums_differ(request: Request, theirs: Answer, ours: Answer) -> bool:
    """Return whether the pod `axb` counts as `a.b` in theirs: 1 + 10 + 100, and 1 + 100 in ours."""
    if "/selected_sum" not in request.path:
        return False
    values = [[item["value"] for item in each.items] for each in (theirs, ours)]
    return values == [["111"], ["101"]]


NOT_FOUND = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "the server could not find the requested resource",
    "reason": "NotFound",
    "details": {},
    "code": 404,
}
DOCUMENTS = [
    Difference("`/apis` as one document", aggregated_differs),
    Difference("group document of custom metrics", group_differs),
]
UNKNOWN_PATHS = Difference("a path that is not there", unknown_paths_differ)
BAD_SERIES_SELECTOR = Difference(
    "malformed `metricLabelSelector`", statuses(500, 400, "metricLabelSelector=")
)
NOT_EQUAL = Difference("selector with `!=`", statuses(500, 200, "etricLabelSelector="))
DEFAULT_DIFFERENCES = [
    *DOCUMENTS,
    UNKNOWN_PATHS,
    BAD_SERIES_SELECTOR,
    NOT_EQUAL,
    Difference("`*` of a resource that is not there", statuses(500, 404, "/no")),
    Difference("words for a malformed selector", words_differ),
    Difference("answers in protobuf and YAML", media_types_differ),
    Difference("`/version`", path_differs("/version")),
]
ALIBABA_DIFFERENCES = [*DOCUMENTS, UNKNOWN_PATHS]
GUIDE_DIFFERENCES = [
    *DOCUMENTS,
    NOT_EQUAL,
    Difference("words for a malformed selector", words_differ),
    Difference("NaN and infinite rows", numbers_differ),
    Difference("cluster-scoped custom resources", statuses(404, 200, "racks.hall.example.com")),
    Difference("cluster-scoped custom resources", statuses(404, 404, "racks.hall.example.com/")),
    Difference("cluster-scoped custom resources", statuses(500, 404, "ml/racks.hall.example.com")),
    Difference("cluster-scoped custom resources", lists_differ("rack_watts")),
    Difference("object names in matchers", sums_differ),
]
DEAD_RULE_DIFFERENCES = [
    Difference("a failing series query", statuses(404, 200, "tokens")),
    Difference("a failing series query", statuses(404, 404, "/no-such/tokens")),
    Difference("a failing series query", lists_differ("tokens")),
]


def cases() -> list[Case]:
    """Return everything that is asked."""
    chart = resources.files("gpuscale.server.rules").joinpath("default_rules.yaml").read_text()
    published = (DATA / "alibaba_rules.yaml").read_text()
    tokens = list(grid("pods", "ml", ["web-0"], ["tokens"]))
    return [
        Case("chart", f"rules:\n{chart}", default_requests(), DEFAULT_DIFFERENCES),
        Case("alibaba", f"rules:\n{published}", alibaba_requests(), ALIBABA_DIFFERENCES),
        Case(
            "guides",
            (DATA / "guide_rules.yaml").read_text(),
            guide_requests(),
            GUIDE_DIFFERENCES,
        ),
        Case(
            "one dead rule",
            (DATA / "one_dead_rule.yaml").read_text(),
            [*tokens, *discovery_requests()[:2]],
            DEAD_RULE_DIFFERENCES,
        ),
    ]


CASES = cases()


@pytest.fixture(scope="module")
def users(plane) -> dict[str, KeyPair | None]:
    """Return who asks."""
    if reason := missing(["prometheus-adapter"]):
        pytest.skip(reason)
    return {
        "": None,
        "admin": plane.client_certificate("admin", ["system:masters"]),
        "reader": plane.client_certificate("reader"),
        "stranger": plane.client_certificate("stranger"),
        "front-proxy": plane.front_proxy,
    }


@pytest.fixture(scope="module")
def objects(plane) -> Iterator[None]:
    """Make the objects that requests are about."""
    manifest = (DATA / "objects.yaml").read_text()
    plane.apply(manifest)
    plane.apply(rights() + "\n---\n".join(["", *pods()]))
    for name in ("racks.hall.example.com", "brands.cheese.example.com"):
        plane.wait(f"crd/{name}", "condition=Established")
    plane.apply(RACKS)
    yield
    plane.kubectl("delete", "--wait=false", "-f", "-", stdin=manifest)


def rights() -> str:
    """Return what the user called reader may do."""
    return """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: one-metric-of-ml, namespace: ml}
rules:
- {apiGroups: [custom.metrics.k8s.io], resources: [pods/DCGM_FI_DEV_GPU_UTIL], verbs: [get]}
- {apiGroups: [external.metrics.k8s.io], resources: [queue_depth], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: one-metric-of-ml, namespace: ml}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: one-metric-of-ml}
subjects:
- {kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}
- {kind: Group, name: team, apiGroup: rbac.authorization.k8s.io}
"""


def pods() -> Iterator[str]:
    """Yield manifests of pods that nobody schedules."""
    for namespace, named in PODS.items():
        numbers = {f"n-{name}": "numbers" for name in NUMBERS} if namespace == "ml" else {}
        for name, app in {**named, **numbers}.items():
            labels = {"app": app, **({"tier": "front"} if name == "web-0" else {})}
            metadata = {"name": name, "namespace": namespace, "labels": labels}
            spec = {"schedulerName": "nobody", "containers": [{"name": "app", "image": "none"}]}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            yield json.dumps(body)


@pytest.fixture(scope="module")
def prometheus_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a Prometheus that holds all series."""
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus_process.serve(samples(), folder) as running:
        yield running.url


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_answer_the_same(
    plane,
    objects: None,
    users: dict[str, KeyPair | None],
    prometheus_url: str,
    tmp_path: Path,
    case,
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(case.rules)
    given = (plane, prometheus_url, rules, tmp_path)
    flags = {"more": ["--metrics-relist-interval=1h"]}
    with ExitStack() as stack:
        theirs = stack.enter_context(prometheus_adapter(*given, **flags))
        ours = stack.enter_context(gpuscale_metrics_api(*given, **flags))
        wait_until(lambda: is_listed(ours, users["admin"]), "metrics to be discovered by gpuscale")
        if case.differences is not DEAD_RULE_DIFFERENCES:
            wait_until(
                lambda: is_listed(theirs, users["admin"]), "metrics to be discovered by the adapter"
            )
        with ThreadPoolExecutor(2) as pool:
            answers = [pool.submit(ask_all, api, users, case.requests) for api in (theirs, ours)]
            told = list(zip(case.requests, *(each.result() for each in answers), strict=True))
    judge(case, told)


def is_listed(api: MetricsApi, user: KeyPair | None) -> bool:
    """Return whether a server has found any metric."""
    answer = ask_all(api, {"admin": user}, [Request(f"{CUSTOM}/v1beta1")])[0]
    return answer.status == 200 and bool(answer.body["resources"])


def ask_all(
    api: MetricsApi, users: dict[str, KeyPair | None], requests: list[Request]
) -> list[Answer]:
    """Return the answers to the requests, in their order; one connection per user."""
    with ExitStack() as stack:
        connections = {
            name: stack.enter_context(closing(api.connect(pair))) for name, pair in users.items()
        }
        return [ask(connections[request.user], request) for request in requests]


def ask(connection, request: Request) -> Answer:
    """Return the answer to a request."""
    connection.request(request.method, request.path, headers=dict(request.headers))
    response = connection.getresponse()
    body = response.read()
    content_type = response.headers.get("Content-Type", "")
    return Answer(response.status, content_type, without_times(read(body, content_type)))


def read(body: bytes, content_type: str) -> Any:
    """Return a document; of what is no JSON only its kind matters."""
    if content_type.startswith("application/json"):
        return json.loads(body)
    return content_type


def without_times(body: Any) -> Any:
    """Return a list of values without its times, and a list of metrics in an order of its own."""
    if not isinstance(body, dict):
        return body
    for item in body.get("items", []):
        if "timestamp" in item:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", item.pop("timestamp"))
    if "resources" in body:
        body["resources"].sort(key=lambda each: each["name"])
    return body


def judge(case: Case, told: list[tuple[Request, Answer, Answer]]) -> None:
    """Fail with every difference that is not listed, and every listed one that there is not."""
    occurred: set[str] = set()
    unlisted: list[str] = []
    for request, theirs, ours in told:
        if theirs == ours:
            continue
        found = [each.row for each in case.differences if each.differs(request, theirs, ours)]
        occurred.update(found)
        if not found:
            unlisted.append(f"{request}\n  adapter:  {theirs}\n  gpuscale: {ours}")
    gone = [each.row for each in case.differences if each.row not in occurred]
    assert not unlisted, f"{len(unlisted)} of {len(told)}:\n" + "\n".join(unlisted)
    assert not gone, f"listed, but there is no such difference any more: {gone}"


def test_there_are_enough_requests() -> None:
    distinct = {(case.name, request) for case in CASES for request in case.requests}
    assert len(distinct) >= 500


def test_every_difference_is_in_the_docs() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| ")]
    listed = {each.row for case in CASES for each in case.differences}
    missing_rows = [
        row for row in listed if not any(line.startswith(f"| {row} |") for line in rows)
    ]
    assert not missing_rows
