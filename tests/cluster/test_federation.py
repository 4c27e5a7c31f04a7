"""prometheus-adapter and KEDA behind gpuscale, in and out, while HPAs of all three are at work."""

import asyncio
import base64
import json
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import GpuscaleError
from gpuscale.kube.aggregation import AggregatedServer, aggregation_objects, api_service_name
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.ops.install.cluster.apply import ApplySettings, Installer
from gpuscale.ops.install.cluster.remove import Remover
from gpuscale.ops.install.common import CA_SECRET, FEDERATES, INSTALL_LABEL
from gpuscale.testing import prometheus as prometheus_process
from gpuscale_testing import ControlPlane, SimulatedNode, missing, simulated_nodes, wait_until
from gpuscale_testing.aggregation import NAMESPACE, serving_name
from gpuscale_testing.keda import Keda
from gpuscale_testing.metrics_apis import gpuscale_metrics_api, prometheus_adapter
from gpuscale_testing.programs.toolset import KEDA

sys.path.insert(0, str(Path(__file__).parent))
from keda_objects import apply, deployment, prometheus_trigger, scaled_object

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(400)]

CUSTOM = ("custom.metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta2")
EXTERNAL = ("external.metrics.k8s.io/v1beta1",)
KEDA_SERVICE = "keda-operator-metrics-apiserver"
RULE = """
rules:
- seriesQuery: {name}{{namespace!="",pod!=""}}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: avg(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
"""
ACCOUNT = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: front}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: front}
rules:
- {apiGroups: [external.metrics.k8s.io, custom.metrics.k8s.io], resources: ["*"], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: front}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: front}
subjects: [{kind: ServiceAccount, name: front, namespace: default}]
"""


def hpa(name, metric):
    metrics = [
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": metric},
                "target": {"type": "AverageValue", "averageValue": "20"},
            },
        }
    ]
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": 3,
            "metrics": metrics,
        },
    }


@dataclass
class Syncs:
    """Looks at HPAs all the time, in a thread: what failed of those that are to work."""

    plane: ControlPlane
    expected: set[str]
    faults: list[str] = field(default_factory=list)
    looks: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self):
        self._before = self._failed_events()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(60)
        after = self._failed_events()
        self.faults += [f"{key}: {n}" for key, n in after.items() if n > self._before.get(key, 0)]

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(GpuscaleError):
                for each in self.plane.get("hpa")["items"]:
                    if each["metadata"]["name"] in self.expected:
                        self.faults += [
                            str(condition)
                            for condition in each["status"].get("conditions", ())
                            if condition["type"] == "ScalingActive"
                            and condition["status"] != "True"
                        ]
                self.looks += 1
            time.sleep(0.1)

    def _failed_events(self):
        """Return how often each HPA failed to get or compute a metric, as its events tell."""
        return {
            (each["involvedObject"]["name"], each["reason"], each["message"]): each.get("count")
            or 1
            for each in self.plane.get("events")["items"]
            if each["involvedObject"]["kind"] == "HorizontalPodAutoscaler"
            and each["reason"].startswith("Failed")
            and each["involvedObject"]["name"] in self.expected
        }


def looks_on(plane, *names, seconds=8) -> Syncs:
    """Return the look at some seconds; the HPA controller syncs once a second."""
    with Syncs(plane, set(names)) as syncs:
        time.sleep(seconds)
    return syncs


def point_at(plane, group_versions, port, service, ca_bundle=None) -> None:
    trust = None if ca_bundle is None else ca_bundle.read_bytes()
    server = AggregatedServer(service, NAMESPACE, port, ca_bundle=trust)
    items = aggregation_objects(group_versions, server)
    plane.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def current(plane, name):
    metrics = plane.get("hpa", name)["status"].get("currentMetrics") or [{}]
    found = metrics[0].get("pods") or metrics[0].get("external") or {}
    return found.get("current", {}).get("averageValue")


def samples(pods, queue):
    now_ms = int(time.time() * 1000)
    yield {"__name__": "queue_length"}, now_ms, queue
    for metric, pod, value in pods:
        labels = {"__name__": metric, "namespace": "default", "pod": pod}
        yield labels, now_ms, value


def pod_of(plane, app):
    pods = plane.get("pods", "-l", f"app={app}")["items"]
    ready = [each for each in pods if each["status"].get("phase") == "Running"]
    return ready[0]["metadata"]["name"] if ready else None


def test_others_work_behind_gpuscale_and_swap_in_and_out_without_a_failed_sync(
    plane, tmp_path: Path
) -> None:
    if reason := missing(["prometheus-adapter", *KEDA]):
        pytest.skip(reason)
    (tmp_path / "prometheus").mkdir()
    rules = {}
    for name in ("ours_util", "theirs_util"):
        rules[name] = tmp_path / f"{name}.yaml"
        rules[name].write_text(RULE.format(name=name))
    plane.apply(ACCOUNT)
    token = tmp_path / "token"
    token.write_text(plane.kubectl("create", "token", "front"))
    relist = ["--metrics-relist-interval=1s", "--metrics-max-age=10m"]
    front = plane.serving_certificate(serving_name("front"))
    with ExitStack() as stack:
        stack.enter_context(simulated_nodes(plane, SimulatedNode("h200-federated", gpus=8)))
        for name in ("ours", "theirs", "kedas"):
            apply(plane, deployment(name, replicas=1))
        for name in ("ours", "theirs"):
            wait_until(partial(pod_of, plane, name), f"a pod of {name}", 60)
        both = [
            ("ours_util", pod_of(plane, "ours"), 15),
            ("theirs_util", pod_of(plane, "theirs"), 15),
        ]
        prometheus = stack.enter_context(
            prometheus_process.serve(samples(both, 15), tmp_path / "prometheus")
        )

        def refresh(stop) -> None:
            while not stop.wait(10):
                prometheus.write(samples(both, 15))

        stopping = threading.Event()
        thread = threading.Thread(target=refresh, args=(stopping,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(stopping.set)

        adapter = stack.enter_context(
            prometheus_adapter(plane, prometheus.url, rules["theirs_util"], tmp_path, more=relist)
        )
        stack.callback(lambda: remove(plane))
        keda = stack.enter_context(Keda(plane, tmp_path, registered=False))
        # As it is before: each API has the server that somebody installed.
        point_at(plane, CUSTOM, adapter.port, "adapter")
        point_at(plane, EXTERNAL, keda.port, KEDA_SERVICE, plane.ca)
        trigger = prometheus_trigger(prometheus.url, "queue_length", 20)
        apply(plane, hpa("theirs", "theirs_util"))
        apply(plane, scaled_object("kedas", trigger, minReplicaCount=1))
        wait_until(lambda: current(plane, "theirs") == "15", "the adapter's HPA to work", 90)
        wait_until(lambda: current(plane, "keda-hpa-kedas") == "15", "KEDA's HPA to work", 90)

        members = [
            f"--federate=keda=https://127.0.0.1:{keda.port},caFile={plane.ca},"
            f"serverName={serving_name(KEDA_SERVICE)},tokenFile={token}",
            f"--federate=prometheus-adapter=https://127.0.0.1:{adapter.port},insecure,tokenFile={token},"
            "groups=custom",
        ]
        pair = [f"--tls-cert-file={front.certificate}", f"--tls-private-key-file={front.key}"]
        api = stack.enter_context(
            gpuscale_metrics_api(
                plane,
                prometheus.url,
                rules["ours_util"],
                tmp_path,
                more=[*relist, *pair, *members],
            )
        )
        theirs = ("theirs", "keda-hpa-kedas")
        with Syncs(plane, set(theirs)) as swapped_in:
            time.sleep(4)
            point_at(plane, CUSTOM, api.port, "front", plane.ca)
            point_at(plane, EXTERNAL, api.port, "front", plane.ca)
            time.sleep(8)
        assert (swapped_in.faults, swapped_in.looks > 20) == ([], True)

        apply(plane, hpa("ours", "ours_util"))
        wait_until(lambda: current(plane, "ours") == "15", "our HPA to work", 60)
        everything = ("ours", *theirs)
        assert looks_on(plane, *everything).faults == []
        path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/theirs_util?why=text"
        assert "the metrics API prometheus-adapter: its name fits *" in plane.kubectl(
            "get", "--raw", path
        )
        listed = json.loads(plane.kubectl("get", "--raw", "/apis/custom.metrics.k8s.io/v1beta1"))
        names = {each["name"] for each in listed["resources"]}
        assert {"pods/ours_util", "pods/theirs_util"} <= names

        # A stranger at our port is turned away before anybody is asked.
        with closing(api.connect()) as connection:
            connection.request("GET", path.partition("?")[0])
            assert connection.getresponse().status == 403

        # One member gone: its own HPA fails, the others' go on.
        adapter.component.end_stop()
        assert looks_on(plane, "ours", "keda-hpa-kedas").faults == []
        wait_until(
            lambda: "prometheus-adapter" in scaling_active(plane, "theirs")["message"],
            "the adapter's HPA to say whose metric is missing",
            30,
        )
        assert scaling_active(plane, "theirs")["status"] == "False"
        keda.kill("keda-adapter")
        assert looks_on(plane, "ours").faults == []
        keda.restart("keda-adapter")
        wait_until(
            lambda: scaling_active(plane, "keda-hpa-kedas")["status"] == "True", "KEDA's HPA", 60
        )
        again = stack.enter_context(
            prometheus_adapter(
                plane, prometheus.url, rules["theirs_util"], tmp_path / "again", more=relist
            )
        )
        with Syncs(plane, {"keda-hpa-kedas"}) as swapped_out:
            time.sleep(4)
            point_at(plane, CUSTOM, again.port, "adapter")
            point_at(plane, EXTERNAL, keda.port, KEDA_SERVICE, plane.ca)
            time.sleep(8)
            api.component.end_stop()
            time.sleep(4)
        assert (swapped_out.faults, swapped_out.looks > 20) == ([], True)
        wait_until(lambda: scaling_active(plane, "theirs")["status"] == "True", "the adapter", 60)


def scaling_active(plane, name):
    conditions = plane.get("hpa", name)["status"]["conditions"]
    return next(each for each in conditions if each["type"] == "ScalingActive")


def remove(plane) -> None:
    for kind, *names in (
        ("scaledobject", "kedas"),
        ("hpa", "ours", "theirs"),
        ("deployment", "ours", "theirs", "kedas"),
        ("service", "adapter", "front", KEDA_SERVICE),
        ("apiservice", *map(api_service_name, (*CUSTOM, *EXTERNAL))),
    ):
        with suppress(GpuscaleError):
            plane.kubectl("delete", "--ignore-not-found", "--wait=false", kind, *names)


def test_install_takes_an_api_over_and_gives_it_back_without_a_failed_sync(
    plane, tmp_path: Path
) -> None:
    """The server trusts our certificate from the first request on: its CA comes from the pods' Secret."""
    if reason := missing(["prometheus-adapter"]):
        pytest.skip(reason)
    (tmp_path / "prometheus").mkdir()
    rules = {name: tmp_path / f"{name}.yaml" for name in ("ours_util", "theirs_util")}
    for name, path in rules.items():
        path.write_text(RULE.format(name=name))
    plane.apply(ACCOUNT)
    token = tmp_path / "token"
    token.write_text(plane.kubectl("create", "token", "front"))
    relist = ["--metrics-relist-interval=1s", "--metrics-max-age=10m"]
    front = plane.serving_certificate(serving_name("front"))
    ca = base64.b64encode(plane.ca.read_bytes()).decode()
    with ExitStack() as stack:
        stack.enter_context(simulated_nodes(plane, SimulatedNode("h200-taken", gpus=8)))
        apply(plane, deployment("theirs", replicas=1))
        pod = wait_until(partial(pod_of, plane, "theirs"), "a pod", 60)
        prometheus = stack.enter_context(
            prometheus_process.serve(
                samples([("theirs_util", pod, 15)], 0), tmp_path / "prometheus"
            )
        )
        adapter = stack.enter_context(
            prometheus_adapter(plane, prometheus.url, rules["theirs_util"], tmp_path, more=relist)
        )
        stack.callback(lambda: remove(plane))
        point_at(plane, CUSTOM, adapter.port, "adapter")
        apply(plane, hpa("theirs", "theirs_util"))
        wait_until(lambda: current(plane, "theirs") == "15", "the adapter's HPA to work", 90)
        pair = [f"--tls-cert-file={front.certificate}", f"--tls-private-key-file={front.key}"]
        member = f"https://127.0.0.1:{adapter.port},insecure,tokenFile={token},groups=custom"
        more = [*relist, *pair, f"--federate=prometheus-adapter={member}"]
        api = stack.enter_context(
            gpuscale_metrics_api(plane, prometheus.url, rules["ours_util"], tmp_path, more=more)
        )
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "front-serving"}}
        apply(plane, {**secret, "data": {"ca.crt": ca}})
        stack.callback(lambda: plane.kubectl("delete", "secret", "front-serving"))
        before = [plane.get("apiservice", api_service_name(each))["spec"] for each in CUSTOM]
        with Syncs(plane, {"theirs"}) as swapped:
            time.sleep(3)
            asyncio.run(installed(plane, api.port))
            for each in CUSTOM:
                spec = plane.get("apiservice", api_service_name(each))["spec"]
                assert (spec["service"]["name"], spec["caBundle"]) == ("front", ca)
            time.sleep(6)
            asyncio.run(removed(plane))
            time.sleep(6)
        assert (swapped.faults, swapped.looks > 20) == ([], True)
        after = [plane.get("apiservice", api_service_name(each))["spec"] for each in CUSTOM]
        assert after == before


async def installed(plane, port) -> None:
    """Install the APIServices that `render` makes of a federation, in front of a server elsewhere."""
    labels = {INSTALL_LABEL: "front"}
    annotations = {FEDERATES: "default/adapter", CA_SECRET: "default/front-serving"}
    service, *apis = aggregation_objects(CUSTOM, AggregatedServer("front", NAMESPACE, port))
    objects = [{**service, "metadata": {**service["metadata"], "labels": labels}}]
    for each in apis:
        spec = {key: text for key, text in each["spec"].items() if key != "insecureSkipTLSVerify"}
        metadata = {**each["metadata"], "labels": labels, "annotations": annotations}
        objects.append({**each, "metadata": metadata, "spec": spec})
    async with KubeClient(KubeSettings(kubeconfig=plane.admin)) as client:
        installer = Installer(client, WallClock(), print, ApplySettings(wait_s=60))
        await installer.install("front", objects)


async def removed(plane) -> None:
    async with KubeClient(KubeSettings(kubeconfig=plane.admin)) as client:
        await Remover(client, WallClock(), print).remove("front")
