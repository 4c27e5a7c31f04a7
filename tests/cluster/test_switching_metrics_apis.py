"""From prometheus-adapter to gpuscale and back while HPAs are at work, as the page on migrating has it."""

import json
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuscale.base.errors import GpuscaleError
from gpuscale.kube.aggregation import AggregatedServer, aggregation_objects, api_service_name
from gpuscale.testing import prometheus as prometheus_process
from gpuscale_testing import (
    ControlPlane,
    SimulatedNode,
    missing,
    simulated_nodes,
    wait_until,
)
from gpuscale_testing.aggregation import NAMESPACE, serving_name
from gpuscale_testing.metrics_apis import gpuscale_metrics_api, prometheus_adapter

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

GROUP_VERSIONS = ("custom.metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta2")
VALUES = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*/gpu_util?labelSelector=app%3Dmoved"
RULES = """
rules:
- seriesQuery: gpu_util{namespace!="",pod!=""}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
WORKLOAD = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: moved}
spec:
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: moved}}
  template:
    metadata: {labels: {app: moved}}
    spec: {containers: [{name: model, image: none, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: moved}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: moved}
  maxReplicas: 3
  metrics: [{type: Pods, pods: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 20}}}]
"""


@dataclass
class Watcher:
    """Asks for values and looks at the HPA all the time, in a thread; notes what is not as it should be."""

    plane: ControlPlane
    faults: list[str] = field(default_factory=list)
    looks: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self):
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                items = json.loads(self.plane.kubectl("get", "--raw", VALUES))["items"]
                if len(items) < 2:
                    self.faults.append(f"found {items}, expected both pods")
                hpa = self.plane.get("hpa", "moved")["status"]
                self.faults += [
                    str(each)
                    for each in hpa["conditions"]
                    if each["type"] == "ScalingActive" and each["status"] != "True"
                ]
            except GpuscaleError as error:
                self.faults.append(str(error))
            self.looks += 1

    def looks_on(self, seconds=4) -> None:
        """Return after so many seconds, in which the HPA controller, too, has looked several times."""
        before = self.looks
        time.sleep(seconds)
        wait_until(lambda: self.looks > before + 3, "some more looks")


def samples(**values):
    now_ms = int(time.time() * 1000)
    for pod, value in values.items():
        labels = {"__name__": "gpu_util", "namespace": "default", "pod": pod.replace("_", "-")}
        yield labels, now_ms, value


def average(plane):
    metrics = plane.get("hpa", "moved")["status"].get("currentMetrics") or [{}]
    return metrics[0].get("pods", {}).get("current", {}).get("averageValue")


def replicas(plane):
    return plane.get("statefulset", "moved")["status"].get("readyReplicas")


def point_at(plane, api, service, ca_bundle=None) -> None:
    trust = None if ca_bundle is None else ca_bundle.read_bytes()
    server = AggregatedServer(service, NAMESPACE, api.port, ca_bundle=trust)
    items = aggregation_objects(GROUP_VERSIONS, server)
    plane.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def test_the_apis_move_to_gpuscale_and_back_without_an_outage(plane, tmp_path: Path) -> None:
    if reason := missing(["prometheus-adapter"]):
        pytest.skip(reason)
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    (tmp_path / "prometheus").mkdir()
    pair = plane.serving_certificate(serving_name("gpuscale"))
    flags = [f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}"]
    relist = ["--metrics-relist-interval=1s", "--metrics-max-age=10m"]
    with ExitStack() as stack:
        stack.enter_context(simulated_nodes(plane, SimulatedNode("h200-moved", gpus=4)))
        both = samples(moved_0=30, moved_1=10)
        prometheus = stack.enter_context(prometheus_process.serve(both, tmp_path / "prometheus"))
        given = (plane, prometheus.url, rules, tmp_path)
        theirs = stack.enter_context(prometheus_adapter(*given, more=relist))
        stack.callback(lambda: remove(plane))
        point_at(plane, theirs, "adapter")
        plane.apply(WORKLOAD)
        wait_until(lambda: average(plane) == "20", "the HPA to work on the adapter", 90)
        ours = stack.enter_context(gpuscale_metrics_api(*given, more=[*relist, *flags]))
        with Watcher(plane) as watcher:
            watcher.looks_on()
            point_at(plane, ours, "gpuscale", plane.ca)
            watcher.looks_on()
            theirs.component.end_stop()
            watcher.looks_on()
            prometheus.write(samples(moved_0=50, moved_1=10))
            wait_until(lambda: replicas(plane) == 3, "gpuscale to make the HPA scale out", 60)
            prometheus.write(samples(moved_0=40, moved_1=10, moved_2=10))
            wait_until(lambda: average(plane) == "20", "the average of three pods", 60)
            again = stack.enter_context(
                prometheus_adapter(*given[:3], tmp_path / "again", more=relist)
            )
            watcher.looks_on()
            point_at(plane, again, "adapter")
            watcher.looks_on()
            ours.component.end_stop()
            watcher.looks_on()
        assert watcher.faults == []
        assert (average(plane), replicas(plane)) == ("20", 3)


def remove(plane) -> None:
    for kind, name in (
        *(
            ("hpa", "moved"),
            ("statefulset", "moved"),
            ("service", "adapter"),
            ("service", "gpuscale"),
        ),
        *(("apiservice", api_service_name(each)) for each in GROUP_VERSIONS),
    ):
        with suppress(GpuscaleError):
            plane.kubectl("delete", "--ignore-not-found", kind, name)
    wait_until(lambda: not plane.get("pods", "-l", "app=moved")["items"], "the pods to be gone", 60)
