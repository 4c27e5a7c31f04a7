# mypy: disable-error-code="arg-type, attr-defined"
"""The commands of published guides, by a real kubectl against the API on loopback."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.kube.informers.records import ObjectRecord
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.routes import add_routes
from gpuscale.server.metricsapi.usage.measured import UsageProvider
from gpuscale.server.rules.config import AdapterConfig, default_config, load_rules
from gpuscale.server.sources.embedded import EmbeddedSource

pytestmark = pytest.mark.kubectl

# 2022-04-08T16:56:47Z is 19090 days and 61007 seconds after the epoch.
MEASURED_MS = (19_090 * 86_400 + 61_007) * 1000
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta1"
USAGE_RULES = """
resourceRules:
  cpu:
    containerQuery: sum(cpu{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    nodeQuery: sum(cpu{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    resources: &labels {template: <<.Resource>>}
    containerLabel: container
  memory:
    containerQuery: sum(memory{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    nodeQuery: sum(memory{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    resources: *labels
    containerLabel: container
  window: 1m
"""
SM_UTIL_RULE = """
- metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
  resources:
    overrides:
      NamespaceName:
        resource: namespace
      NodeName:
        resource: node
      PodName:
        resource: pod
  seriesQuery: DCGM_CUSTOM_PROCESS_SM_UTIL{} # This metric indicates the GPU utilization of pods.
"""


class Directory:
    def names(self, resource, namespace, selector):
        return ("dcgm-exporter-2fcbn", "dcgm-exporter-7pwxw", "web-0")


def store() -> SeriesStore:
    series = SeriesStore()
    for pod, value in (("dcgm-exporter-2fcbn", 25.0), ("dcgm-exporter-7pwxw", 24.0)):
        labels = {"namespace": "default", "pod": pod, "service": "dcgm-exporter", "job": "dcgm"}
        series.append({"__name__": "DCGM_FI_DEV_GPU_UTIL", **labels}, MEASURED_MS, value)
    process = {"NamespaceName": "default", "NodeName": "n1", "PodName": "bert-0"}
    series.append({"__name__": "DCGM_CUSTOM_PROCESS_SM_UTIL", **process}, MEASURED_MS, 23.0)
    return series


async def kubectl(server: TestServer, home: str, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        f"--server=http://127.0.0.1:{server.port}",
        *arguments,
        env={"HOME": home, "PATH": os.environ["PATH"], "KUBECONFIG": f"{home}/none"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def serve(config: AdapterConfig) -> web.Application:
    clock = ManualClock(MEASURED_MS + 8_000)
    provider = MetricsProvider(config, EmbeddedSource(store()), Directory(), clock)
    await provider.relist()
    app = web.Application()
    add_routes(app, provider)
    return app


async def raw(server: TestServer, home, path: str) -> dict[str, object]:
    code, out, err = await kubectl(server, str(home), "get", "--raw", path)
    assert (code, err) == (0, "")
    return json.loads(out)


async def test_discovery_lists_what_the_guide_for_alibaba_cloud_shows(tmp_path: Path) -> None:
    async with TestServer(await serve(load_rules(SM_UTIL_RULE, "rules.yaml"))) as server:
        body = await raw(server, tmp_path, CUSTOM)
    assert body["resources"] == [
        {
            "name": f"{resource}/DCGM_CUSTOM_PROCESS_SM_UTIL",
            "singularName": "",
            "namespaced": namespaced,
            "kind": "MetricValueList",
            "verbs": ["get"],
        }
        for resource, namespaced in (("namespaces", False), ("nodes", False), ("pods", True))
    ]


async def test_pods_have_the_values_that_the_guide_for_eks_shows(tmp_path: Path) -> None:
    async with TestServer(await serve(default_config())) as server:
        path = f"{CUSTOM}/namespaces/default/pods/*/DCGM_FI_DEV_GPU_UTIL"
        body = await raw(server, tmp_path, path)
        resources = await raw(server, tmp_path, CUSTOM)
    assert body == {
        "kind": "MetricValueList",
        "apiVersion": "custom.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "describedObject": {
                    "kind": "Pod",
                    "namespace": "default",
                    "name": pod,
                    "apiVersion": "/v1",
                },
                "metricName": "DCGM_FI_DEV_GPU_UTIL",
                "timestamp": "2022-04-08T16:56:47Z",
                "value": value,
                "selector": None,
            }
            for pod, value in (("dcgm-exporter-2fcbn", "25"), ("dcgm-exporter-7pwxw", "24"))
        ],
    }
    names = {resource["name"] for resource in resources["resources"]}
    assert {
        "services/DCGM_FI_DEV_GPU_UTIL",
        "namespaces/DCGM_FI_DEV_GPU_UTIL",
        "jobs.batch/DCGM_FI_DEV_GPU_UTIL",
        "pods/DCGM_FI_DEV_GPU_UTIL",
    } <= names


async def test_an_unknown_metric_is_told_in_the_apis_words(tmp_path: Path) -> None:
    async with TestServer(await serve(default_config())) as server:
        code, out, err = await kubectl(
            server, str(tmp_path), "get", "--raw", f"{CUSTOM}/namespaces/default/pods/*/none"
        )
    assert (code, out) == (1, "")
    assert err == (
        "Error from server (NotFound): the server could not find the metric none for pods\n"
    )


class Running:
    """The pods that run."""

    async def running_pods(self, namespace, selector):
        pods = (ObjectRecord("default", "bert-0", {"app": "bert"}), ObjectRecord("ml", "t5-0", {}))
        return tuple(
            pod
            for pod in pods
            if namespace in (None, pod.namespace) and selector.matches(pod.labels)
        )

    async def nodes(self, selector):
        return ()


async def serve_usage() -> web.Application:
    config = load_rules(USAGE_RULES, "rules.yaml")
    series = SeriesStore()
    for namespace, pod, container, cores, mib in (
        ("default", "bert-0", "model", 0.25, 512.0),
        ("default", "bert-0", "proxy", 0.05, 64.0),
        ("ml", "t5-0", "model", 2.0, 1024.0),
    ):
        labels = {"namespace": namespace, "pod": pod, "container": container}
        series.append({"__name__": "cpu", **labels}, MEASURED_MS, cores)
        series.append({"__name__": "memory", **labels}, MEASURED_MS, mib * 1024 * 1024)
    clock, source = ManualClock(MEASURED_MS + 8_000), EmbeddedSource(series)
    app = web.Application()
    usage = UsageProvider(lambda: config.resource_rules, source.query, Running(), clock)
    add_routes(app, MetricsProvider(config, source, Directory(), clock), usage=usage)
    return app


async def test_kubectl_top_shows_pods_and_their_containers(tmp_path: Path) -> None:
    async with TestServer(await serve_usage()) as server:

        async def top(*arguments):
            code, out, err = await kubectl(
                server, str(tmp_path), "top", "pods", "--no-headers", *arguments
            )
            assert (code, err) == (0, "")
            return [line.split() for line in out.splitlines()]

        # 250m and 50m of CPU, 512 and 64 MiB.
        assert await top() == [["bert-0", "300m", "576Mi"]]
        assert await top("--all-namespaces", "--sort-by=cpu") == [
            ["ml", "t5-0", "2000m", "1024Mi"],
            ["default", "bert-0", "300m", "576Mi"],
        ]
        assert await top("--containers", "--selector=app=bert") == [
            ["bert-0", "model", "250m", "512Mi"],
            ["bert-0", "proxy", "50m", "64Mi"],
        ]
        assert await top("bert-0") == [["bert-0", "300m", "576Mi"]]


async def test_the_groups_and_the_version_are_listed(tmp_path: Path) -> None:
    async with TestServer(await serve(default_config())) as server:
        code, out, err = await kubectl(server, str(tmp_path), "api-versions")
        assert (code, err) == (0, "")
        assert out.splitlines() == [
            "custom.metrics.k8s.io/v1beta1",
            "custom.metrics.k8s.io/v1beta2",
        ]
        _, version, _ = await kubectl(server, str(tmp_path), "version")
    assert "Server Version: v" in version
