"""`gpuscale doctor` on a real control plane: nothing where all is well, else the trouble and its fix."""

import asyncio
import base64
import json
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from gpuscale.core.clock import WallClock
from gpuscale.core.errors import UnavailableError, UpstreamError
from gpuscale.doctor.diagnose import diagnose
from gpuscale.doctor.gather import Gatherer, GatherSettings
from gpuscale.exposition.parse import parse_text
from gpuscale.install.certificates import make_certificate
from gpuscale.install.render import Inputs, manifest, render
from gpuscale.install.values import Values
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.errors import ApiStatusError
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.objects.nodes import Taint
from gpuscale.series.values import STALE
from gpuscale.testing.podresources import PodResources
from gpuscale.testing.prometheus import serve
from gpuscale.views.findings import chain_lines as text_lines
from gpuscale_testing import (
    Component,
    ControlPlane,
    Settings,
    SimulatedNode,
    simulated_nodes,
    wait_until,
)
from gpuscale_testing.addresses import free_ports
from gpuscale_testing.metrics_apis import prometheus_adapter

sys.path.insert(0, str(Path(__file__).parent))
from stacked import Stacked
from terminal import CTRL_C, CTRL_D, Terminal
from upstream_kinds import upstream_kinds

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
LIMIT_S = 60.0
ROLE = Path(__file__).parents[2] / "docs" / "examples" / "doctor-role.yaml"
TAINT = Taint("sku", "gpu")
TOLERATIONS = [{"key": "sku", "operator": "Exists", "effect": "NoSchedule"}]
ACCOUNT = "system:serviceaccount:gpuscale:gpuscale-metrics-api"
API = "v1beta1.custom.metrics.k8s.io"
EXTERNAL = "v1beta1.external.metrics.k8s.io"
HPA_ROLE = "clusterrole/system:controller:horizontal-pod-autoscaler"


def deployment(name, *, replicas=1, tolerations=TOLERATIONS, **more):
    container = {"name": "model", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    labels = {"app": name}
    pod = {"containers": [{**container, **more}], "tolerations": list(tolerations)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def hpa(name, metric=None):
    metric = metric or {
        "type": "Pods",
        "pods": {
            "metric": {"name": "DCGM_FI_DEV_GPU_UTIL"},
            "target": {"type": "AverageValue", "averageValue": "60"},
        },
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 2,
            "metrics": [metric],
        },
    }


def service(name, namespace="default", **spec):
    spec = spec or {"type": "ExternalName", "externalName": "localhost"}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


class Cluster(Stacked):
    """A cluster with everything from GPU to HPA, and the doctor for it."""

    def __init__(self, folder):
        self.folder = folder
        self.renamed = False
        self.scraped = True

    def logs(self):
        return self.plane.logs()

    def report(self, kubeconfig=None, **more):
        """Return what the doctor finds now."""
        self.sample()
        given = {"prometheus_url": self.prometheus.url, "agent_urls": {"gpu-1": self.agent_url}}
        settings = GatherSettings(**{**given, **more})

        async def look():
            async with KubeClient(KubeSettings(kubeconfig or self.plane.admin)) as client:
                return await Gatherer(client, WallClock(), settings).snapshot()

        return diagnose(asyncio.run(look()))

    def run(self, *arguments):
        """Return exit code and output of the command."""
        self.sample()
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def command(self, *arguments, kubeconfig=None):
        return [
            *(GPUSCALE, "doctor", f"--kubeconfig={kubeconfig or self.plane.admin}"),
            *(f"--prometheus-url={self.prometheus.url}", f"--agent=gpu-1={self.agent_url}"),
            *arguments,
        ]

    def asked(self, *arguments, **more):
        """Return a run of the command with `--fix` at a terminal."""
        self.sample()
        return Terminal(*self.command("--fix", *arguments), **more)

    def named(self, check, about="", **more):
        """Return the finding of a check once the doctor names it."""

        def look():
            findings = self.report(**more).findings
            return next((f for f in findings if f.check.id == check and about in f.where), None)

        return wait_until(look, f"the doctor to name {check}", LIMIT_S)

    def healthy(self):
        """Return once the doctor finds nothing."""
        try:
            wait_until(lambda: not self.report().findings, "the doctor to find nothing", LIMIT_S)
        except UnavailableError:
            pytest.fail("\n".join(text_lines(self.report())))

    @contextmanager
    def objects(self, *bodies):
        """Have these objects until the block ends."""
        if not bodies:
            yield
            return
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)})
        self.plane.kubectl("create", "-f", "-", stdin=text)
        try:
            yield
        finally:
            self.plane.kubectl(
                "delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=text
            )

    @contextmanager
    def patched(self, thing, patch, *more):
        """Have a field changed until the block ends; then the object is as it was."""
        before = self.plane.get(thing, *more)
        for key in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
            before["metadata"].pop(key, None)
        before.pop("status", None)
        self.plane.kubectl("patch", thing, *more, "--type=merge", "-p", json.dumps(patch))
        try:
            yield
        finally:
            self.plane.kubectl("replace", "-f", "-", stdin=json.dumps(before))

    def sample(self):
        """Store what Prometheus would have scraped just now."""
        now_ms = round(time.time() * 1000)
        job = {"job": "gpuscale-node-agent", "instance": "10.0.0.1:9400"}
        gpu = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "UUID": "GPU-0", **job}
        plain = {**gpu, "namespace": "default", "pod": self.pod}
        renamed = {**gpu, "namespace": "gpuscale", "pod": "gpuscale-node-agent-x"}
        renamed |= {"exported_namespace": "default", "exported_pod": self.pod}
        for labels, is_there in (
            (plain, self.scraped and not self.renamed),
            (renamed, self.scraped and self.renamed),
        ):
            key = json.dumps(labels)
            if is_there:
                self.prometheus.write([(labels, now_ms, 40.0)])
                self._written.add(key)
            elif key in self._written:
                self.prometheus.write([(labels, now_ms, STALE)])
                self._written.discard(key)
        up = float(self.up) if self.up is not None else STALE
        self.prometheus.write([({"__name__": "up", **job}, now_ms, up)])

    def _start(self, stack):
        self.up, self._written = 1, set()
        self.plane = stack.enter_context(ControlPlane(Settings(hpa_sync_period_s=1.0)))
        node = SimulatedNode(
            "gpu-1", gpus=2, labels={"nvidia.com/gpu.present": "true"}, taints=(TAINT,)
        )
        stack.enter_context(upstream_kinds(self.plane, "keda", "karpenter-aws"))
        self.nodes = stack.enter_context(simulated_nodes(self.plane, node))
        self.prometheus = stack.enter_context(serve([], self._folder("prometheus")))
        self.plane.apply(json.dumps(deployment("web")))
        ready = "jsonpath={.status.readyReplicas}=1"
        self.plane.wait("deployment/web", ready, timeout_s=LIMIT_S)
        (pod,) = self.plane.get("pods", "-l", "app=web")["items"]
        self.pod = pod["metadata"]["name"]
        self.sample()
        (self.api_port,) = free_ports(1)
        values = self._install()
        self._start_agent(stack)
        self._start_api(stack, values)
        for api in (API, API.replace("v1beta1", "v1beta2")):
            self.plane.wait(f"apiservice/{api}", "condition=Available", timeout_s=LIMIT_S)

    def _folder(self, name):
        folder = self.folder / name
        folder.mkdir()
        return folder

    def _install(self):
        spec = {
            "taint": {"key": "sku", "value": "gpu"},
            "scale": [{"workload": {"name": "web"}, "target": 60, "maxReplicas": 2}],
            "metricsApi": {"externalName": "localhost", "port": self.api_port},
            "prometheus": {"kind": "plain", "url": self.prometheus.url},
            "networkPolicies": False,
        }
        values = Values.model_validate({"spec": spec})
        self.certificate = make_certificate(values, round(time.time() * 1000))
        self.plane.apply(manifest(render(values, Inputs(self.certificate))))
        return values

    def _start_agent(self, stack):
        socket = self.folder / "kubelet.sock"
        self.agent_url = self.start_agent(
            stack, "agent", "--kubernetes", f"--pod-resources-kubelet-socket={socket}"
        )
        gpus = sorted(
            {
                dict(sample.labels)["UUID"]
                for family in self.families(self.agent_url)
                if family.name == "DCGM_FI_DEV_GPU_UTIL"
                for sample in family.samples
            }
        )
        kubelet = stack.enter_context(PodResources(socket, gpus))
        kubelet.allocate("default", self.pod, gpus[0])

    def start_agent(self, stack, name, *more):
        """Run a node agent with the node's GPUs; return its address once it has read them."""
        (port,) = free_ports(1)
        command = ["env", "NODE_NAME=gpu-1", str(GPUSCALE), "exporter"]
        command += ["--gpu=simulated:NVIDIA H200:2", f"--address=127.0.0.1:{port}", *more]
        command += ["--collect-interval=500ms"]
        component = Component(name, command, self._folder(name), 2.0)
        stack.callback(component.end_stop)
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: self._reads(url), "the agent to read its GPUs", LIMIT_S)
        return url

    def _reads(self, url):
        try:
            return any(family.name.startswith("DCGM_FI") for family in self.families(url))
        except OSError:
            return False

    def families(self, url):
        with closing(HTTPConnection(url.removeprefix("http://"), timeout=10)) as connection:
            connection.request("GET", "/metrics")
            return parse_text(connection.getresponse().read().decode())

    def _start_api(self, stack, values):
        folder = self._folder("api")
        (folder / "tls.crt").write_text(self.certificate.certificate)
        (folder / "tls.key").write_text(self.certificate.key)
        rules = self.plane.get("configmap", "gpuscale-metrics-api", "--namespace=gpuscale")["data"]
        (folder / "rules.yaml").write_text(rules["rules.yaml"])
        command = [
            *(str(GPUSCALE), "metrics-api", f"--config={folder / 'rules.yaml'}"),
            f"--prometheus-url={self.prometheus.url}",
            f"--lister-kubeconfig={self.plane.kubeconfig(ACCOUNT)}",
            *(f"--secure-port={self.api_port}", "--bind-address=127.0.0.1"),
            f"--tls-cert-file={folder / 'tls.crt'}",
            f"--tls-private-key-file={folder / 'tls.key'}",
            *("--metrics-relist-interval=1s", "--metrics-max-age=2s"),
        ]
        component = Component("metrics API", command, folder, 5.0)
        stack.callback(component.end_stop)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("doctor")) as running:
        yield running


def test_a_healthy_cluster_gives_no_finding(cluster):
    cluster.healthy()
    code, told = cluster.run()
    assert (code, told.count("nothing wrong")) == (0, 8), told
    assert "looked at nodes 1, GPU nodes 1, agents 1, HPAs 1, metrics 1" in told


# Broken and repaired, one after another

WEB = "hpa/web-gpu"


def pods_metric(name, target="60"):
    value = {"type": "AverageValue", "averageValue": target}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": value}}


def unknown_metric(cluster):
    return cluster.patched(WEB, {"spec": {"metrics": [pods_metric("gpu_load")]}})


def unreachable_target(cluster):
    metrics = [pods_metric("DCGM_FI_DEV_GPU_UTIL", "100")]
    return cluster.patched(WEB, {"spec": {"metrics": metrics}})


def one_replica(cluster):
    return cluster.patched(WEB, {"spec": {"maxReplicas": 1}})


def hpa_of_nothing(cluster):
    return cluster.objects(hpa("gone"))


@contextmanager
def hpa_written_for_old_clusters(cluster):
    key = "kubectl.kubernetes.io/last-applied-configuration"
    applied = json.dumps({"apiVersion": "autoscaling/v2beta1"})
    with cluster.objects(hpa("old")):
        cluster.plane.kubectl("annotate", "--overwrite", "hpa/old", f"{key}={applied}")
        yield


def external_metric(cluster):
    target = {"type": "AverageValue", "averageValue": "5"}
    external = {"metric": {"name": "jobs_waiting"}, "target": target}
    return cluster.objects(hpa("batch", {"type": "External", "external": external}))


def taint_without_toleration(cluster):
    return cluster.objects(deployment("strict", tolerations=()))


@contextmanager
def hpa_controller_without_rights(cluster):
    role = cluster.plane.get(HPA_ROLE)
    rules = [rule for rule in role["rules"] if "custom.metrics.k8s.io" not in rule["apiGroups"]]
    with cluster.patched(HPA_ROLE, {"rules": rules}):
        yield


def api_service_without_a_service(cluster):
    reference = {"name": "gone", "namespace": "gpuscale", "port": 443}
    return cluster.patched(f"apiservice/{API}", {"spec": {"service": reference}})


def api_service_of_prometheus_adapter(cluster):
    reference = {"name": "prometheus-adapter", "namespace": "monitoring", "port": 443}
    return cluster.patched(f"apiservice/{API}", {"spec": {"service": reference}})


def api_service_with_another_ca(cluster):
    other = base64.b64encode(cluster.plane.ca.read_bytes()).decode()
    return cluster.patched(f"apiservice/{API}", {"spec": {"caBundle": other}})


def api_service_that_trusts_anyone(cluster):
    trust = {"caBundle": None, "insecureSkipTLSVerify": True}
    return cluster.patched(f"apiservice/{API}", {"spec": trust})


@contextmanager
def adapter_without_rules(cluster):
    rules = cluster.folder / "no-rules.yaml"
    rules.write_text("rules: []\n")
    with (
        prometheus_adapter(
            cluster.plane, cluster.prometheus.url, rules, cluster.folder / "adapter"
        ) as adapter,
        ExitStack() as stack,
    ):
        stack.enter_context(cluster.objects(service("prometheus-adapter")))
        reference = {"name": "prometheus-adapter", "namespace": "default", "port": adapter.port}
        spec = {"service": reference, "caBundle": None, "insecureSkipTLSVerify": True}
        for version in ("v1beta1", "v1beta2"):
            name = f"apiservice/{version}.custom.metrics.k8s.io"
            stack.enter_context(cluster.patched(name, {"spec": spec}))
        yield


@contextmanager
def keda_without_its_api(cluster):
    trigger = {"type": "prometheus", "metadata": {"query": "x"}}
    scaled = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "batch", "namespace": "default"},
        "spec": {"scaleTargetRef": {"name": "batch"}, "triggers": [trigger]},
    }
    api = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": EXTERNAL},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "service": {"name": "prometheus-adapter", "namespace": "monitoring"},
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
        },
    }
    with cluster.objects(scaled, api):
        yield


def adapter_with_a_wrong_address(cluster):
    adapter = deployment(
        "prometheus-adapter",
        resources={},
        args=["--prometheus-url=http://prometheus.monitoring.svc:9090", "--secure-port=6443"],
    )
    ports = {"ports": [{"port": 9091}]}
    return cluster.objects(adapter, service("prometheus", **ports))


@contextmanager
def changed(cluster, **fields):
    """Have what Prometheus scrapes changed until the block ends."""
    before = {name: getattr(cluster, name) for name in fields}
    vars(cluster).update(fields)
    try:
        yield
    finally:
        vars(cluster).update(before)


def honor_labels_off(cluster):
    return changed(cluster, renamed=True)


def nothing_scraped(cluster):
    return changed(cluster, scraped=False, up=None)


def target_down(cluster):
    return changed(cluster, up=0)


def scraped_without_series(cluster):
    return changed(cluster, scraped=False)


@contextmanager
def node(cluster, given, *objects):
    with cluster.objects(*objects):
        cluster.nodes.add(given)
        try:
            yield
        finally:
            cluster.nodes.remove(given.name)


LABELLED = {"nvidia.com/gpu.present": "true"}


def node_without_plugin(cluster):
    return node(cluster, SimulatedNode("gpu-2", gpus=0, labels=LABELLED, taints=(TAINT,)))


def plugin_kept_off_by_a_taint(cluster):
    plugin = deployment("nvidia-device-plugin", tolerations=(), resources={})
    plugin["kind"] = "DaemonSet"
    del plugin["spec"]["replicas"]
    given = SimulatedNode("gpu-2", gpus=0, labels=LABELLED, taints=(TAINT,))
    return node(cluster, given, plugin)


def node_without_label(cluster):
    return node(cluster, SimulatedNode("gpu-3", gpus=1))


@contextmanager
def killed_by_its_probe(cluster):
    container = {"name": "exporter", "image": "dcgm-exporter:2.0"}
    probe = {"httpGet": {"path": "/health", "port": 9400}, "initialDelaySeconds": 5}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "dcgm-exporter-x", "namespace": "default"},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{**container, "livenessProbe": probe}],
        },
    }
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:15Z"}
    ended = {"terminated": {"exitCode": 137, "reason": "Error", **times}}
    status = {**container, "imageID": "", "ready": False, "restartCount": 7, "lastState": ended}
    with cluster.objects(pod):
        cluster.plane.kubectl(
            *("patch", "pod/dcgm-exporter-x", "--subresource=status", "--type=merge", "-p"),
            json.dumps({"status": {"containerStatuses": [status]}}),
        )
        yield


def more_pods_than_gpus(cluster):
    return cluster.objects(deployment("many", replicas=3))


@contextmanager
def pool_at_zero_without_gpu(cluster):
    status = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"},
        "data": {"status": "autoscalerStatus: Running\n"},
    }
    with cluster.objects(deployment("many", replicas=3), status):
        pod = wait_until(lambda: waiting(cluster), "a pod to wait", LIMIT_S)
        about = {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": "default"}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "refused", "namespace": "default"},
            "involvedObject": about,
            "reason": "NotTriggerScaleUp",
            "message": "pod didn't trigger scale-up: 1 Insufficient nvidia.com/gpu",
            "type": "Normal",
        }
        with cluster.objects(event):
            yield


def waiting(cluster):
    pods = cluster.plane.get("pods", "-l", "app=many", "--field-selector=status.phase=Pending")
    return next((pod["metadata"]["name"] for pod in pods["items"]), None)


@contextmanager
def karpenter_pool_at_its_limit(cluster):
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"}
    template = {"spec": {"nodeClassRef": reference, "requirements": []}}
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "gpu"},
        "spec": {"limits": {"nvidia.com/gpu": "2"}, "template": template},
    }
    used = json.dumps({"status": {"resources": {"nvidia.com/gpu": "2"}}})
    with cluster.objects(deployment("many", replicas=3), pool):
        cluster.plane.kubectl(
            *("patch", "nodepool/gpu", "--subresource=status", "--type=merge", f"--patch={used}")
        )
        yield


def small_quota(cluster):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
    }
    return cluster.objects(quota)


TROUBLES = [
    (unknown_metric, "no-value", "rule: ", "kubectl get --raw"),
    (unknown_metric, "lint/unknown-metric", "", ""),
    (unreachable_target, "lint/unreachable-target", "averageValue", "Choose a target below"),
    (one_replica, "min-is-max", "maxReplicas: 1", "kubectl patch hpa -n default web-gpu"),
    (hpa_of_nothing, "no-scale-target", "404", "scaleTargetRef"),
    (hpa_written_for_old_clusters, "old-api-version", "autoscaling/v1", "autoscaling/v2"),
    (external_metric, "no-metrics-api", "hpa/default/batch", "metricsApi.external"),
    (taint_without_toleration, "taint-not-tolerated", "1 GPU node", '"key": "sku"'),
    (hpa_controller_without_rights, "hpa-not-allowed", "", "kubectl create clusterrolebinding"),
    (api_service_without_a_service, "api-unavailable", "ServiceNotFound", "-n gpuscale"),
    (api_service_of_prometheus_adapter, "api-of-somebody-else", "monitoring/", "--replace"),
    (api_service_with_another_ca, "api-certificate", "x509", '"caBundle":"LS0t'),
    (api_service_that_trusts_anyone, "api-not-verified", "insecureSkipTLSVerify", "caBundle"),
    (adapter_without_rules, "api-without-metrics", "404", "gpuscale lint"),
    (keda_without_its_api, "keda-conflict", "ScaledObject default/batch", "keda-operator"),
    (
        adapter_with_a_wrong_address,
        "wrong-prometheus-address",
        "no Service monitoring/prometheus",
        "--prometheus-url=http://prometheus.default.svc:9091",
    ),
    (honor_labels_off, "pod-is-exported-pod", "exported_pod=web-", "honorLabels: true"),
    (nothing_scraped, "no-scrape-target", "none of them an agent", "ServiceMonitor"),
    (target_down, "target-down", "instance=10.0.0.1:9400", "NetworkPolicy"),
    (scraped_without_series, "no-series", "no series DCGM_*", "metricRelabeling"),
    (node_without_plugin, "no-device-plugin", "allocatable 0", "devicePlugin.enabled"),
    (plugin_kept_off_by_a_taint, "device-plugin-taint", "nvidia-device-plugin", '"key": "sku"'),
    (node_without_label, "gpu-node-unlabelled", "1 GPUs", "gpuscale.dev/gpu=true"),
    (node_without_label, "node-without-agent", "gpuscale-node-agent", "kubectl label node gpu-3"),
    (killed_by_its_probe, "probe-too-early", "7 restarts", '"failureThreshold": 60'),
    (more_pods_than_gpus, "no-node-autoscaler", "nvidia.com/gpu", "nodePool"),
    (pool_at_zero_without_gpu, "template-without-gpu", "Insufficient", "node-template/resources"),
    (karpenter_pool_at_its_limit, "node-pool-limit", "nvidia.com/gpu", "kubectl patch nodepool"),
    (small_quota, "quota-below-max", "of 1 used", '"requests.nvidia.com/gpu":"2"'),
]


@pytest.mark.parametrize(
    ("trouble", "check", "evidence", "fix"),
    [pytest.param(*row, id=f"{row[1]}-{row[0].__name__}") for row in TROUBLES],
)
def test_each_trouble_is_named_with_its_fix(cluster, trouble, check, evidence, fix):
    with trouble(cluster):
        finding = cluster.named(check)
    assert evidence in f"{finding.where} {finding.evidence}"
    assert fix in f"{finding.fix.say} {finding.fix.command}"


def test_what_may_not_be_read_is_told_with_the_right_that_it_takes(cluster):
    somebody = cluster.plane.kubeconfig("somebody")
    with pytest.raises(ApiStatusError, match="nor may it see anything else: give it the role"):
        cluster.report(kubeconfig=somebody)
    role, binding = ("clusterrole", "sees-nodes"), ("clusterrolebinding", "sees-nodes")
    cluster.plane.kubectl("create", *role, "--verb=get,list", "--resource=nodes")
    cluster.plane.kubectl("create", *binding, "--clusterrole=sees-nodes", "--user=somebody")
    try:

        def may_list_nodes():
            try:
                return cluster.plane.kubectl("get", "nodes", kubeconfig=somebody) is not None
            except UpstreamError:
                return False

        wait_until(may_list_nodes, "the right to list nodes", LIMIT_S)
        found = cluster.report(kubeconfig=somebody).findings
    finally:
        cluster.plane.kubectl("delete", *binding)
        cluster.plane.kubectl("delete", *role)
    hidden = {finding.where: finding for finding in found if finding.check.id == "cannot-see"}
    assert {"pods", "hpas", "apiservices"} <= hidden.keys()
    assert "nodes" not in hidden
    assert "--resource=horizontalpodautoscalers.autoscaling" in hidden["hpas"].fix.command


def test_the_role_of_the_docs_is_enough(cluster):
    cluster.plane.apply(ROLE.read_text())
    binding = ("clusterrolebinding", "gpuscale-doctor")
    cluster.plane.kubectl("create", *binding, "--clusterrole=gpuscale-doctor", "--user=reader")
    try:
        reader = cluster.plane.kubeconfig("reader")
        wait_until(
            lambda: not cluster.report(kubeconfig=reader).findings,
            "a reader to find nothing",
            LIMIT_S,
        )
        with unknown_metric(cluster):
            finding = cluster.named("no-value", kubeconfig=reader)
        assert finding.evidence.startswith("rule: ")
    finally:
        cluster.plane.kubectl("delete", *binding)
        cluster.plane.kubectl("delete", "clusterrole", "gpuscale-doctor")


def test_agents_without_utilization_or_pods_are_reported(cluster):
    counters = cluster.folder / "counters.csv"
    counters.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, Temperature (in C).\n")
    with ExitStack() as stack:
        url = cluster.start_agent(stack, "no-util", f"--collectors={counters}")
        finding = cluster.named("no-gpu-util", agent_urls={"gpu-1": url})
        assert "DCGM_FI_DEV_GPU_UTIL, gauge" in finding.fix.say
        url = cluster.start_agent(stack, "no-pods")
        finding = cluster.named("no-pod-labels", agent_urls={"gpu-1": url})
        assert cluster.pod in finding.evidence
        assert "--kubernetes" in finding.fix.say
    (gone,) = free_ports(1)
    url = f"http://127.0.0.1:{gone}"
    assert cluster.named("agent-unreachable", agent_urls={"gpu-1": url})
    assert cluster.named("prometheus-unreachable", prometheus_url=url)


def test_safe_fixes_are_applied_and_work(cluster):
    with (
        hpa_controller_without_rights(cluster),
        api_service_with_another_ca(cluster),
        node_without_label(cluster),
    ):
        for check in ("hpa-not-allowed", "api-certificate", "gpu-node-unlabelled"):
            cluster.named(check)
        code, told = cluster.run("--fix", "--yes")
        assert code == 1, told
        fixed = [line for line in told.splitlines() if line.startswith("fixed: ")]
        assert [line.split()[1] for line in fixed] == [
            "[gpu-node-unlabelled]",
            "[api-certificate]",
            "[hpa-not-allowed]",
        ]

        def left():
            found = {finding.check.id for finding in cluster.report().findings}
            # Nobody serves the metrics of a node agent on a node that is not there.
            return not found - {"agent-unreachable"}

        wait_until(left, "the fixes to work", LIMIT_S)
    for kind in ("clusterrole", "clusterrolebinding"):
        cluster.plane.kubectl("delete", kind, "gpuscale-hpa-reads-metrics-custom")


# Asked at a terminal

ORDER = ("gpu-node-unlabelled", "api-certificate", "hpa-not-allowed")
QUESTION = "Do it? [y/N]:"


@contextmanager
def three_troubles(cluster):
    """Have three troubles with safe fixes, and the agent of the node that comes with one of them."""
    with (
        hpa_controller_without_rights(cluster),
        api_service_with_another_ca(cluster),
        node_without_label(cluster),
    ):
        for check in ORDER:
            cluster.named(check)
        try:
            yield f"--agent=gpu-3={cluster.agent_url}"
        finally:
            for kind in ("clusterrole", "clusterrolebinding"):
                name = "gpuscale-hpa-reads-metrics-custom"
                cluster.plane.kubectl("delete", kind, name, "--ignore-not-found")


def fixes_applied(cluster):
    """Return which of the three fixes the cluster shows."""
    labels = cluster.plane.get("node/gpu-3")["metadata"]["labels"]
    bundle = cluster.plane.get(f"apiservice/{API}")["spec"]["caBundle"]
    roles = cluster.plane.get("clusterroles")["items"]
    has = {
        "gpu-node-unlabelled": "gpuscale.dev/gpu" in labels,
        "api-certificate": base64.b64decode(bundle).decode() == cluster.certificate.ca,
        "hpa-not-allowed": any(
            role["metadata"]["name"] == "gpuscale-hpa-reads-metrics-custom" for role in roles
        ),
    }
    return {check for check, is_there in has.items() if is_there}


def fixed_lines(text):
    return [line.split("[")[1].split("]")[0] for line in text.splitlines() if "fixed: [" in line]


def test_only_what_was_agreed_to_is_repaired_and_then_all_is_well(cluster):
    with three_troubles(cluster) as agent:
        with cluster.asked(agent) as terminal:
            for count, answer in enumerate(("y\r", "\r", "n\r"), 1):
                terminal.wait_for(QUESTION, count)
                terminal.type(answer)
            code, shown = terminal.end()
        assert (code, fixed_lines(shown)) == (1, ["gpu-node-unlabelled"]), shown
        assert shown.index("kubectl label node gpu-3") < shown.index(QUESTION)
        assert fixes_applied(cluster) == {"gpu-node-unlabelled"}

        # A word that is no answer is asked again.
        with cluster.asked(agent) as terminal:
            for count, answer in enumerate(("perhaps\r", "y\r", "yes\r"), 1):
                terminal.wait_for(QUESTION, count)
                terminal.type(answer)
            code, shown = terminal.end()
        assert fixed_lines(shown) == [*ORDER[1:]], shown
        assert fixes_applied(cluster) == set(ORDER)

        def is_clean():
            code, told = cluster.run(agent)
            return code == 0 and told.count("nothing wrong") == 8

        wait_until(is_clean, "a second run to find nothing", LIMIT_S)


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D], ids=["Ctrl-C", "Ctrl-D"])
def test_breaking_off_repairs_nothing_more_and_tells_what_was(cluster, key):
    with three_troubles(cluster) as agent:
        with cluster.asked(agent) as terminal:
            terminal.wait_for(QUESTION)
            terminal.type("y\r")
            terminal.wait_for(QUESTION, 2)
            terminal.type(key)
            code, shown = terminal.end()
        assert (code, fixed_lines(shown)) == (1, ["gpu-node-unlabelled"]), shown
        assert "Traceback" not in shown
        assert shown.count(QUESTION) == 2
        assert fixes_applied(cluster) == {"gpu-node-unlabelled"}


def test_the_terminal_goes_away_while_it_asks(cluster):
    with three_troubles(cluster) as agent:
        with cluster.asked(agent) as terminal:
            terminal.wait_for(QUESTION)
            terminal.hang_up()
            terminal.end()
        assert fixes_applied(cluster) == set()


def test_questions_stay_at_the_terminal_when_the_report_goes_to_a_file(cluster):
    report = cluster.folder / "report.txt"
    with three_troubles(cluster) as agent, report.open("w") as file:
        with cluster.asked(agent, output=file.fileno()) as terminal:
            for count in (1, 2, 3):
                terminal.wait_for(QUESTION, count)
                terminal.type("n\r")
            code, shown = terminal.end()
        assert code == 1
        assert "kubectl label node gpu-3" in shown
        assert fixes_applied(cluster) == set()
    assert QUESTION not in report.read_text()
    assert "[gpu-node-unlabelled]" in report.read_text()


def test_without_a_terminal_nothing_is_asked_and_nothing_done(cluster):
    with three_troubles(cluster) as agent:
        done = subprocess.run(
            cluster.command("--fix", agent),
            input="y\ny\ny\n",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "expected a terminal to ask at, or --yes" in done.stderr
        assert fixes_applied(cluster) == set()


def test_a_fix_that_is_refused_does_not_keep_others_from_being_done(cluster):
    cluster.plane.apply(ROLE.read_text())
    labeller = [
        *("create", "clusterrole", "gpuscale-labeller"),
        *("--verb=patch", "--resource=apiservices.apiregistration.k8s.io"),
    ]
    cluster.plane.kubectl(*labeller)
    bindings = {"gpuscale-doctor": "gpuscale-doctor", "gpuscale-labeller": "gpuscale-labeller"}
    for binding, role in bindings.items():
        cluster.plane.kubectl(
            *("create", "clusterrolebinding", binding, f"--clusterrole={role}", "--user=some")
        )
    secret = ("create", "role", "ca", "-n=gpuscale", "--verb=get", "--resource=secrets")
    cluster.plane.kubectl(*secret)
    cluster.plane.kubectl(
        *("create", "rolebinding", "ca", "-n=gpuscale", "--role=ca"), "--user=some"
    )
    try:
        with three_troubles(cluster) as agent:
            command = cluster.command(
                "--fix", "--yes", agent, kubeconfig=cluster.plane.kubeconfig("some")
            )
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 1
            assert fixed_lines(done.stdout) == ["api-certificate"], done.stdout + done.stderr
            assert fixes_applied(cluster) == {"api-certificate"}
            lines = done.stderr.splitlines()
            assert [line.split()[3] for line in lines] == [
                "[gpu-node-unlabelled]",
                "[hpa-not-allowed]",
            ]
            assert all("403" in line for line in lines)
    finally:
        for binding in bindings:
            cluster.plane.kubectl("delete", "clusterrolebinding", binding)
            cluster.plane.kubectl("delete", "clusterrole", bindings[binding])
        cluster.plane.kubectl("delete", "role,rolebinding", "ca", "-n=gpuscale")


def test_one_document_for_programs(cluster):
    with one_replica(cluster):
        cluster.named("min-is-max")
        code, told = cluster.run("--output=json")
    document = json.loads(told)
    assert (code, document["healthy"]) == (1, False)
    (finding,) = (each for each in document["findings"] if each["id"] == "min-is-max")
    assert finding["about"] == "hpa/default/web-gpu"
    assert (finding["hop"], finding["severity"], finding["safe"]) == (
        "autoscaler",
        "warning",
        False,
    )


def test_repaired_it_is_healthy_again(cluster):
    cluster.healthy()
