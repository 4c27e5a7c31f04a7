"""The preset's answers for series as exporters and model servers have them, against arithmetic."""

import pytest

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import NotFoundError
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.wire.paths import CustomTarget
from gpuscale.server.rules.config import load_rules, preset_config, preset_text
from gpuscale.server.sources.embedded import EmbeddedSource

NOW_MS = 1_700_000_000_000
UTIL, AVG, USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_AVG", "DCGM_FI_DEV_FB_USED"
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
BERT = ("bert-7d9f8b6c5d-x2f4z", "bert-7d9f8b6c5d-q8r7k")
"""Pods of the Deployment `bert`."""
EXPORTER = {"namespace": "monitoring", "pod": "dcgm-exporter-2fcbn", "service": "dcgm-exporter"}
"""What a scrape configuration adds."""


class Objects:
    """Every name that is asked for."""

    def __init__(self, names) -> None:
        self._names = names

    def names(self, resource, namespace, selector):
        return self._names


class World:
    """Series in memory, and the preset over them."""

    def __init__(self) -> None:
        self._store = SeriesStore()

    def add(self, name, value, **labels) -> None:
        self._store.append({"__name__": name, **labels}, NOW_MS, value)

    async def values(self, resource, namespace, metric, *names, selector=""):
        provider = MetricsProvider(
            preset_config(), EmbeddedSource(self._store), Objects(names), ManualClock(NOW_MS)
        )
        await provider.relist()
        target = CustomTarget(resource, namespace, "*" if len(names) > 1 else names[0], metric)
        answer = await provider.custom(target, parse_selector(""), parse_selector(selector))
        return {each.object_name: each.value_milli / 1000 for each in answer.values}


@pytest.fixture
def world():
    return World()


def add_gpus(world, pod_label, namespace_label, **target) -> None:
    """Two pods of one Deployment, one with two GPUs, on two nodes; and a GPU that nobody has."""
    for node, gpu, pod, util, used in (
        ("n1", "0", BERT[0], 80.0, 1000.0),
        ("n1", "1", BERT[0], 40.0, 3000.0),
        ("n2", "0", BERT[1], 30.0, 500.0),
        ("n2", "1", None, 0.0, 10.0),
    ):
        owner = {} if pod is None else {namespace_label: "ml", pod_label: pod, "container": "main"}
        labels = {**target, **owner, "gpu": gpu, "UUID": f"{node}-{gpu}", "Hostname": node}
        world.add(UTIL, util, **labels)
        world.add(USED, used, **labels)
        world.add("DCGM_FI_DEV_GPU_TEMP", 30.0 + util, **labels)


# Whether Prometheus honours the exporter's labels, does not, or leaves Alibaba Cloud's alone.
LABELS = {
    "honoured": ("pod", "namespace"),
    "renamed": ("exported_pod", "exported_namespace"),
    "alibaba": ("PodName", "NamespaceName"),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
async def test_gpus_of_pods_deployments_namespaces_and_nodes(world, labels) -> None:
    add_gpus(world, *labels, **EXPORTER)
    # The first pod has (80 + 40) / 2; the Deployment and the namespace (80 + 40 + 30) / 3.
    assert await world.values("pods", "ml", UTIL, *BERT) == {BERT[0]: 60.0, BERT[1]: 30.0}
    assert await world.values("deployments.apps", "ml", UTIL, "bert") == {"bert": 50.0}
    assert await world.values("namespaces", None, UTIL, "ml") == {"ml": 50.0}
    # The second node has a GPU that is idle: (30 + 0) / 2.
    assert await world.values("nodes", None, UTIL, "n1", "n2") == {"n1": 60.0, "n2": 15.0}
    # Memory adds up: 1000 + 3000, and 500; all of the Deployment is 4500.
    assert await world.values("pods", "ml", USED, *BERT) == {BERT[0]: 4000.0, BERT[1]: 500.0}
    assert await world.values("deployments.apps", "ml", USED, "bert") == {"bert": 4500.0}
    # The hotter of 30 + 80 and 30 + 40.
    temperature = "DCGM_FI_DEV_GPU_TEMP"
    assert await world.values("pods", "ml", temperature, BERT[0]) == {BERT[0]: 110.0}
    # The mean over GPUs, of memory too: (1000 + 3000 + 500) / 3.
    assert await world.values("deployments.apps", "ml", AVG, "bert") == {"bert": 50.0}
    assert await world.values("deployments.apps", "ml", f"{USED}_AVG", "bert") == {"bert": 1500.0}
    assert await world.values("pods", "ml", "gpu_utilization", *BERT) == {
        BERT[0]: 60.0,
        BERT[1]: 30.0,
    }
    assert await world.values("deployments.apps", "ml", "gpu_utilization", "bert") == {"bert": 50.0}
    assert await world.values("nodes", None, "gpu_utilization", "n1", "n2") == {
        "n1": 60.0,
        "n2": 15.0,
    }


async def test_the_service_of_the_exporter_in_its_own_namespace(world) -> None:
    add_gpus(world, *LABELS["renamed"], **EXPORTER)
    # All four GPUs: (80 + 40 + 30 + 0) / 4.
    for metric in (UTIL, AVG):
        found = await world.values("services", "monitoring", metric, "dcgm-exporter")
        assert found == {"dcgm-exporter": 37.5}


async def test_the_guide_for_eks_where_nothing_has_a_pod(world) -> None:
    """Seed: the HPA of a vision API reads DCGM_FI_DEV_GPU_UTIL_AVG of the Service dcgm-exporter."""
    for pod, util in (("dcgm-exporter-2fcbn", 25.0), ("dcgm-exporter-7pwxw", 24.0)):
        labels = {"namespace": "default", "service": "dcgm-exporter", "pod": pod}
        world.add(UTIL, util, **labels, gpu="0", UUID=pod, Hostname=pod)
    service = await world.values("services", "default", AVG, "dcgm-exporter")
    assert service == {"dcgm-exporter": 24.5}
    pods = ("dcgm-exporter-2fcbn", "dcgm-exporter-7pwxw")
    assert await world.values("pods", "default", AVG, *pods) == dict(
        zip(pods, (25.0, 24.0), strict=True)
    )


async def test_a_recorded_average_comes_before_the_one_that_is_made(world) -> None:
    world.add(UTIL, 10.0, namespace="default", service="dcgm-exporter", gpu="0")
    world.add(AVG, 99.0, namespace="default", service="dcgm-exporter")
    service = await world.values("services", "default", AVG, "dcgm-exporter")
    assert service == {"dcgm-exporter": 99.0}


async def test_nodes_by_the_scrape_configuration_come_before_the_exporters_host_name(world) -> None:
    labels = {"Hostname": "dcgm-exporter-2fcbn", "node": "n1", "UUID": "a"}
    world.add(UTIL, 70.0, **labels, **EXPORTER)
    assert await world.values("nodes", None, UTIL, "n1") == {"n1": 70.0}


async def test_mig_instances_count_each_and_whole_gpus_once(world) -> None:
    owner = {"namespace": "ml", "pod": BERT[0], "Hostname": "n1"}
    for instance, active in (("1", 0.5), ("2", 0.25)):
        mig = {"GPU_I_ID": instance, "GPU_I_PROFILE": "1g.18gb"}
        world.add(ACTIVE, active, UUID="a", gpu="0", **mig, **owner)
        world.add(USED, 100.0, UUID="a", gpu="0", **mig, **owner)
    # A whole GPU of another pod, which has both series.
    other = {**owner, "pod": BERT[1], "UUID": "b", "gpu": "1"}
    world.add(UTIL, 90.0, **other)
    world.add(ACTIVE, 0.8, **other)
    # 100 × (0.5 + 0.25) / 2, and the 90 of the whole GPU.
    assert await world.values("pods", "ml", "gpu_utilization", *BERT) == {
        BERT[0]: 37.5,
        BERT[1]: 90.0,
    }
    # The mean of 50, 25 and 90.
    expected = {"bert": 55.0}
    assert await world.values("deployments.apps", "ml", "gpu_utilization", "bert") == expected
    assert await world.values("pods", "ml", ACTIVE, *BERT) == {BERT[0]: 0.375, BERT[1]: 0.8}
    assert await world.values("pods", "ml", USED, BERT[0]) == {BERT[0]: 200.0}


async def test_parts_of_shared_gpus(world) -> None:
    share, used = (
        "gpuscale_container_gpu_utilization_percent",
        "gpuscale_container_gpu_memory_used_bytes",
    )
    for uuid, container, percent in (("a", "x", 20.0), ("a", "y", 30.0), ("b", "x", 10.0)):
        labels = {"namespace": "ml", "pod": "p", "container": container, "Hostname": "n1"}
        world.add(share, percent, UUID=uuid, **labels)
        world.add(used, percent, UUID=uuid, **labels)
    # On GPU a 20 + 30, on b 10: (50 + 10) / 2. Bytes add up.
    assert await world.values("pods", "ml", share, "p") == {"p": 30.0}
    assert await world.values("nodes", None, share, "n1") == {"n1": 30.0}
    assert await world.values("pods", "ml", used, "p") == {"p": 60.0}


async def test_processes_of_alibaba_cloud(world) -> None:
    sm, used = "DCGM_CUSTOM_PROCESS_SM_UTIL", "DCGM_CUSTOM_PROCESS_MEM_USED"
    for process, util, mib in (("1", 10.0, 100.0), ("2", 30.0, 300.0)):
        labels = {"NamespaceName": "ml", "PodName": BERT[0], "NodeName": "n1"}
        world.add(sm, util, ProcessId=process, **labels)
        world.add(used, mib, ProcessId=process, **labels)
    world.add("DCGM_CUSTOM_CONTAINER_MEM_ALLOCATED", 1600.0, **labels)
    world.add("DCGM_CUSTOM_ALLOCATE_MODE", 2.0, NodeName="n1")
    # (10 + 30) / 2, 100 + 300, and 400 / 1600.
    assert await world.values("pods", "ml", sm, BERT[0]) == {BERT[0]: 20.0}
    assert await world.values("nodes", None, sm, "n1") == {"n1": 20.0}
    assert await world.values("pods", "ml", used, BERT[0]) == {BERT[0]: 400.0}
    ratio = "DCGM_CUSTOM_PROCESS_GPU_MEM_USED_RATIO"
    assert await world.values("pods", "ml", ratio, BERT[0]) == {BERT[0]: 0.25}
    assert await world.values("deployments.apps", "ml", sm, "bert") == {"bert": 20.0}
    assert await world.values("deployments.apps", "ml", used, "bert") == {"bert": 400.0}
    mode = await world.values("nodes", None, "DCGM_CUSTOM_ALLOCATE_MODE", "n1")
    assert mode == {"n1": 2.0}


@pytest.mark.parametrize(
    ("series", "metric"),
    [
        ("vllm:num_requests_waiting", "vllm_num_requests_waiting"),
        ("tgi_queue_size", "tgi_queue_size"),
        ("nv_inference_pending_request_count", "nv_inference_pending_request_count"),
        ("ray_serve_deployment_queued_queries", "ray_serve_deployment_queued_queries"),
    ],
)
async def test_queues_of_model_servers(world, series: str, metric: str) -> None:
    for pod, model, waiting in ((BERT[0], "a", 3.0), (BERT[0], "b", 4.0), (BERT[1], "a", 5.0)):
        # Ray's own label `deployment` names no Deployment of Kubernetes.
        labels = {"namespace": "ml", "pod": pod, "service": "bert", "node": "n1"}
        world.add(series, waiting, **labels, model_name=model, deployment="Translator")
    assert await world.values("pods", "ml", metric, *BERT) == {BERT[0]: 7.0, BERT[1]: 5.0}
    for resource, namespace, name in (
        ("deployments.apps", "ml", "bert"),
        ("services", "ml", "bert"),
        ("namespaces", None, "ml"),
        ("nodes", None, "n1"),
    ):
        assert await world.values(resource, namespace, metric, name) == {name: 12.0}


async def test_the_used_part_of_a_cache_is_a_mean(world) -> None:
    for pod, used in zip(BERT, (0.2, 0.6), strict=True):
        world.add("vllm:kv_cache_usage_perc", used, namespace="ml", pod=pod, service="bert")
    metric = "vllm_kv_cache_usage_perc"
    assert await world.values("services", "ml", metric, "bert") == {"bert": 0.4}
    assert await world.values("deployments.apps", "ml", metric, "bert") == {"bert": 0.4}


async def test_a_deployment_has_its_own_pods_and_no_others(world) -> None:
    for pod, util in (
        ("web-5f6d7c8b9-abcde", 99.0),  # `a` and `e` are letters that Kubernetes never takes
        ("web-5f6d7c8b9-bcdfg", 10.0),
        ("web-api-5f6d7c8b9-bcdfg", 50.0),
        ("web-0", 70.0),
        ("web", 80.0),
        ("web-exporter-2fcbn", 90.0),
    ):
        world.add(UTIL, util, namespace="ml", pod=pod, UUID=pod)
    expected = {"web": 10.0, "web-api": 50.0}
    assert await world.values("deployments.apps", "ml", UTIL, "web", "web-api", "none") == expected
    with pytest.raises(NotFoundError):
        await world.values("deployments.apps", "ml", UTIL, "web", selector="UUID=x")


async def test_hostile_names_ask_for_nothing_else(world) -> None:
    world.add(UTIL, 10.0, namespace="ml", pod=BERT[0], UUID="a")
    for namespace, name in (
        ('x"} or secret{a="', "bert"),
        ("ml", '.*"} or secret{a="'),
        ("ml", ".*"),
    ):
        with pytest.raises(NotFoundError):
            await world.values("deployments.apps", namespace, UTIL, name)


def test_the_preset_has_no_warnings_and_asks_for_series_six_times() -> None:
    config = load_rules(preset_text(), "preset.yaml")
    assert config.warnings == ()
    assert len(config.series_queries()) == 6
