"""A cluster with everything from GPU to HPA, and the doctor for it."""

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from stacked import Stacked
from terminal import Terminal
from upstream_kinds import upstream_kinds

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import UnavailableError
from gpuscale.base.exposition.parse import parse_text
from gpuscale.base.objects.taints import Taint
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.ops.doctor.diagnosis import diagnose
from gpuscale.ops.doctor.gather import Gatherer, GatherSettings
from gpuscale.ops.findings_text import chain_lines as text_lines
from gpuscale.ops.install.certificates import make_certificate
from gpuscale.ops.install.rendering import RenderInputs, manifest, render
from gpuscale.ops.install.values import Values
from gpuscale.series.values import STALE
from gpuscale.testing.podresources import PodResources
from gpuscale.testing.prometheus import serve
from gpuscale_testing import (
    Component,
    ControlPlane,
    Settings,
    SimulatedNode,
    simulated_nodes,
    wait_until,
)
from gpuscale_testing.addresses import free_ports

GPUSCALE = Path(sys.executable).parent / "gpuscale"
LIMIT_S = 60.0
TAINT = Taint("sku", "gpu")
TOLERATIONS = [{"key": "sku", "operator": "Exists", "effect": "NoSchedule"}]
ACCOUNT = "system:serviceaccount:gpuscale:gpuscale-metrics-api"
API = "v1beta1.custom.metrics.k8s.io"


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

    gpus = 2
    labels = {"nvidia.com/gpu.present": "true"}

    def __init__(self, folder):
        self.folder = folder
        self.agent_address = "10.0.0.1"
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
            async with KubeClient(
                KubeSettings(kubeconfig=kubeconfig or self.plane.admin)
            ) as client:
                return await Gatherer(client, WallClock(), settings).snapshot()

        return diagnose(asyncio.run(look()))

    def run(self, *arguments):
        """Return exit code and output of the command, with samples that go on for as long as it runs."""
        process = subprocess.Popen(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        deadline = time.monotonic() + 120
        while True:
            self.sample()
            try:
                output, _ = process.communicate(timeout=0.5)
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    process.kill()
                    raise
            else:
                return process.returncode, output

    def run_plain(self):
        """Return exit code and output of the command with nothing but the kubeconfig."""
        command = [str(GPUSCALE), "doctor", f"--kubeconfig={self.plane.admin}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
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
            findings = [f for root in self.report(**more).findings for f in root.whole()]
            return next((f for f in findings if f.check.id == check and about in f.where), None)

        return wait_until(look, f"the doctor to name {check}", LIMIT_S)

    def healthy(self):
        """Return once the doctor finds nothing."""
        try:
            wait_until(lambda: not self.report().findings, "the doctor to find nothing", LIMIT_S)
        except UnavailableError:
            pytest.fail("\n".join(text_lines(self.report())))

    def shell(self, commands):
        """Run commands of a shell with kubectl on this cluster; an error is one of the test."""
        done = subprocess.run(
            ["bash", "-ec", commands],
            env={**os.environ, "KUBECONFIG": str(self.plane.admin)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"

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
        job = {"job": "gpuscale-node-agent", "instance": f"{self.agent_address}:9400"}
        gpu = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "UUID": "GPU-0", **job}
        plain = {**gpu, "namespace": "default", "pod": self.pod}
        renamed = {**gpu, "namespace": "gpuscale", "pod": "gpuscale-node-agent-x"}
        renamed |= {"exported_namespace": "default", "exported_pod": self.pod}
        for labels, is_there in (
            (plain, self.scraped and not self.renamed),
            (renamed, self.scraped and self.renamed),
            *(({**gpu, "namespace": place, "pod": pod}, True) for place, pod in self.others),
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
        self.up, self._written, self.others = 1, set(), []
        self.plane = stack.enter_context(ControlPlane(Settings(hpa_sync_period_s=1.0)))
        node = SimulatedNode("gpu-1", gpus=self.gpus, labels=self.labels, taints=(TAINT,))
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
        self.plane.apply(manifest(render(values, RenderInputs(self.certificate))))
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
        if name == "agent":
            self.agent = component
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
