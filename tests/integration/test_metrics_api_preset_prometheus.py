"""The preset over a real Prometheus that scrapes our node agent, with and without honor_labels.

Each expected value is worked out from the text that the agents served.
"""

import asyncio
import json
from collections import defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import fmean

import pytest
from aiohttp.test_utils import unused_port

from gpuscale.agent.attribution.processes.shares import split_utilisation
from gpuscale.agent.exporter.agent import NodeAgent
from gpuscale.agent.exporter.collector import Extras
from gpuscale.agent.exporter.routes import ServeOptions
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader
from gpuscale.base.clock import WallClock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.exposition.parse import parse_text
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.wire.paths import CustomTarget
from gpuscale.server.rules.config import preset_config
from gpuscale.server.sources.prometheus.client import PrometheusSettings, PrometheusSource
from gpuscale.signals import DEFAULT_COUNTERS

pytestmark = pytest.mark.prometheus

EVERYTHING = parse_selector("")
PODS = ("bert-7d9f8b6c5d-x2f4z", "bert-7d9f8b6c5d-q8r7k")
UTIL, USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"
SHARE = "gpuscale_container_gpu_utilization_percent"
# GPUs of each node: by which pod they are used, and how much of the time.
NODES = {
    "n1": ((PODS[0], 0.8), (PODS[0], 0.31), (None, 0.0)),
    "n2": ((PODS[1], 0.2),),
}


class Objects:
    """The pods and nodes that there are."""

    def names(self, resource, namespace, selector):
        return PODS if resource.plural == "pods" else tuple(NODES)


def agent(node: str) -> NodeAgent:
    gpus = NODES[node]
    work = {
        index: (GpuWork(100 + index, "python", busy, busy / 2, int(10_000 * busy)),)
        for index, (pod, busy) in enumerate(gpus)
        if pod is not None
    }
    seed = sorted(NODES).index(node)
    reader = SimulatedReader(
        node, MODELS["NVIDIA H200"], len(gpus), seed, lambda gpu, *_: work.get(gpu, ())
    )
    owners = [None if pod is None else ContainerRef("ml", pod, "main") for pod, _ in gpus]
    devices = {
        gpu.uuid: (owner,)
        for gpu, owner in zip(reader.gpus(), owners, strict=True)
        if owner is not None
    }
    processes = {100 + index: owner for index, owner in enumerate(owners) if owner is not None}
    attribution = Attribution(devices, processes)
    return NodeAgent(
        reader,
        lambda _: attribution,
        DEFAULT_COUNTERS,
        FamilyOptions(node),
        WallClock(),
        3600.0,
        serve=ServeOptions(extras=Extras(split_utilisation)),
        reader_blocks=False,
    )


def scrape_config(ports: dict[str, int], *, honours: bool) -> str:
    """Return a configuration as an operator's ServiceMonitor makes it."""
    targets = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {
                "namespace": "monitoring",
                "pod": f"exporter-{node}",
                "service": "exporter",
                "container": "exporter",
                "node": node,
            },
        }
        for node, port in ports.items()
    ]
    job = {
        "job_name": "gpus",
        "scrape_interval": "1s",
        "honor_labels": honours,
        "static_configs": targets,
    }
    return json.dumps({"scrape_configs": [job]})


@asynccontextmanager
async def prometheus(folder, config):
    (folder / "prometheus.yml").write_text(config)
    port = unused_port()
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with PrometheusSource(PrometheusSettings(f"http://127.0.0.1:{port}")) as source:
            yield source
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def served(folder, *, honours):
    """Yield a provider with the preset, and what the agents serve: (name, node, labels, value)."""
    async with AsyncExitStack() as stack:
        ports, samples = {}, []
        for node in NODES:
            running = agent(node)
            await running.collect()
            ports[node] = await running.start("127.0.0.1", 0)
            stack.push_async_callback(running.stop)
            samples += [
                (family.name, node, dict(sample.labels), sample.value)
                for family in parse_text(running.snapshot.text.decode())
                for sample in family.samples
            ]
        config = scrape_config(ports, honours=honours)
        source = await stack.enter_async_context(prometheus(folder, config))
        provider = MetricsProvider(preset_config(), source, Objects(), WallClock())
        await until_both_are_scraped(source, provider)
        yield provider, samples


async def until_both_are_scraped(source, provider) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                rows = await source.query(f"count by (node) ({UTIL})", WallClock().now_ms())
                if len(rows.samples) == len(NODES):
                    break
            except GpuscaleError:
                pass
            await asyncio.sleep(0.2)
        await provider.relist()


def by(samples, name, key):
    """Return the values of a metric's samples, by what `key` makes of node and labels."""
    found = defaultdict(list)
    for each, node, labels, value in samples:
        if each == name and key(node, labels) is not None:
            found[key(node, labels)].append(value)
    return dict(found)


def pod_of(_node, labels):
    return labels.get("pod")


async def ask(provider, resource, namespace, metric, name="*"):
    target = CustomTarget(resource, namespace, name, metric)
    answer = await provider.custom(target, EVERYTHING, EVERYTHING)
    return {each.object_name: each.value_milli / 1000 for each in answer.values}


def about(values, summary):
    return pytest.approx({key: summary(each) for key, each in values.items()}, abs=0.001)


@pytest.mark.parametrize("honours", [True, False], ids=["honor_labels", "exported"])
async def test_values_are_those_of_the_agents_pages(tmp_path: Path, honours: bool) -> None:
    async with served(tmp_path, honours=honours) as (provider, samples):
        pods, nodes = by(samples, UTIL, pod_of), by(samples, UTIL, lambda node, _: node)
        assert {pod: len(values) for pod, values in pods.items()} == {PODS[0]: 2, PODS[1]: 1}
        assert max(pods[PODS[0]]) > min(pods[PODS[0]]) > 0
        of_ml = [value for values in pods.values() for value in values]
        assert await ask(provider, "pods", "ml", UTIL) == about(pods, fmean)
        assert await ask(provider, "pods", "ml", f"{UTIL}_AVG") == about(pods, fmean)
        assert await ask(provider, "pods", "ml", "gpu_utilization") == about(pods, fmean)
        assert await ask(provider, "pods", "ml", USED) == about(by(samples, USED, pod_of), sum)
        assert await ask(provider, "pods", "ml", SHARE) == about(by(samples, SHARE, pod_of), fmean)
        assert await ask(provider, "nodes", None, UTIL) == about(nodes, fmean)
        for metric in (UTIL, f"{UTIL}_AVG", "gpu_utilization"):
            found = await ask(provider, "deployments.apps", "ml", metric, "bert")
            assert found == about({"bert": of_ml}, fmean)
        assert await ask(provider, "namespaces", None, UTIL, "ml") == about({"ml": of_ml}, fmean)
        # The Service is the exporter's. With honor_labels only the idle GPU is left in its namespace.
        idle = [value for name, _, labels, value in samples if name == UTIL and "pod" not in labels]
        every = [value for values in nodes.values() for value in values]
        of_service = {"exporter": idle if honours else every}
        found = await ask(provider, "services", "monitoring", UTIL, "exporter")
        assert found == about(of_service, fmean)
