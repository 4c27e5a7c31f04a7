# mypy: disable-error-code="comparison-overlap"
"""Rules as cloud providers and guides publish them, over series as their exporters give them.

Rules: Alibaba Cloud's guide to scaling by GPU metrics (ack-alibaba-cloud-metrics-adapter); the Helm chart
prometheus-community/prometheus-adapter with its default rules, as the guides for AKS and EKS install it.
"""

from pathlib import Path

import pytest

from gpuscale.base.objects.metric_values import MetricValue
from gpuscale.base.objects.selectors import Selector
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Vector
from gpuscale.server.rules.catalogue import Catalogue, needed_metric_names
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.queries.plan import plan_custom
from gpuscale.server.rules.resources import KUBERNETES
from gpuscale.server.sources.embedded import EmbeddedSource

ALIBABA = (Path(__file__).parents[2] / "data" / "metrics_api" / "alibaba_rules.yaml").read_text()
NOW_MS = 1_700_000_000_000
DEVICE = {"NodeName": "cn-beijing.192.168.94.107", "gpu": "0"}
POD = {**DEVICE, "NamespaceName": "default", "PodName": "bert-0", "ContainerName": "bert-container"}


def alibaba_source() -> EmbeddedSource:
    store = SeriesStore()
    samples = (
        ("DCGM_FI_DEV_GPU_UTIL", DEVICE, 23.0),
        ("DCGM_FI_DEV_FB_USED", DEVICE, 15345.0),
        ("DCGM_CUSTOM_PROCESS_SM_UTIL", POD, 23.0),
        ("DCGM_CUSTOM_PROCESS_MEM_USED", POD, 4040.0),
        ("DCGM_CUSTOM_CONTAINER_MEM_ALLOCATED", POD, 16160.0),
    )
    for name, labels, value in samples:
        store.append({"__name__": name, **labels}, NOW_MS, value)
    return EmbeddedSource(store)


def discover(config, source: EmbeddedSource) -> Catalogue:
    start_ms = NOW_MS - 60_000
    return Catalogue.build(
        config, {query: source.series_now(query, start_ms) for query in config.series_queries()}
    )


def answer(catalogue, source, resource, namespace, name, metric):
    plan = plan_custom(catalogue, KUBERNETES, resource, namespace, (name,), metric, Selector())
    value = source.query_now(plan.promql, NOW_MS + 5_000)
    assert isinstance(value, Vector)
    return plan.answer(value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ALIBABA, id="a bare list"),
        pytest.param("rules:\n  default: false\n  custom:\n" + ALIBABA, id="below custom"),
        pytest.param("rules:\n" + ALIBABA, id="the adapter's own file"),
    ],
)
def test_alibabas_rules_list_what_its_guide_shows(text) -> None:
    config = load_rules(text, "rules.yaml")
    assert config.warnings == ()
    catalogue = discover(config, alibaba_source())
    assert [(metric.name, metric.namespaced) for metric in catalogue.custom_resources()] == [
        ("namespaces/DCGM_CUSTOM_PROCESS_GPU_MEM_USED_RATIO", False),
        ("namespaces/DCGM_CUSTOM_PROCESS_MEM_USED", False),
        ("namespaces/DCGM_CUSTOM_PROCESS_SM_UTIL", False),
        ("nodes/DCGM_CUSTOM_PROCESS_MEM_USED", False),
        ("nodes/DCGM_CUSTOM_PROCESS_SM_UTIL", False),
        ("nodes/DCGM_FI_DEV_FB_USED", False),
        ("nodes/DCGM_FI_DEV_GPU_UTIL", False),
        ("pods/DCGM_CUSTOM_PROCESS_GPU_MEM_USED_RATIO", True),
        ("pods/DCGM_CUSTOM_PROCESS_MEM_USED", True),
        ("pods/DCGM_CUSTOM_PROCESS_SM_UTIL", True),
    ]


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "metric", "value_milli"),
    [
        ("pods", "default", "bert-0", "DCGM_CUSTOM_PROCESS_SM_UTIL", 23_000),
        ("nodes", None, "cn-beijing.192.168.94.107", "DCGM_FI_DEV_GPU_UTIL", 23_000),
        ("namespaces", None, "default", "DCGM_CUSTOM_PROCESS_MEM_USED", 4_040_000),
        # 4040 MiB used of 16160 MiB allocated = 0.25
        ("pods", "default", "bert-0", "DCGM_CUSTOM_PROCESS_GPU_MEM_USED_RATIO", 250),
    ],
)
def test_alibabas_rules_answer(
    resource: str, namespace: str | None, name: str, metric: str, value_milli: int
) -> None:
    source = alibaba_source()
    catalogue = discover(load_rules(ALIBABA, "rules.yaml"), source)
    found = answer(catalogue, source, resource, namespace, name, metric)
    assert found == (MetricValue(name, value_milli, NOW_MS),)


def test_alibabas_rules_name_every_series_they_need() -> None:
    assert needed_metric_names(load_rules(ALIBABA, "rules.yaml")) == {
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_CUSTOM_PROCESS_SM_UTIL",
        "DCGM_CUSTOM_PROCESS_MEM_USED",
        "DCGM_CUSTOM_CONTAINER_MEM_ALLOCATED",
    }


EXPORTER = {
    "gpu": "0",
    "container": "exporter",
    "namespace": "default",
    "service": "dcgm-exporter",
    "job": "dcgm-exporter",
    "endpoint": "metrics",
    "instance": "10.0.0.1:9400",
}
CHART_VALUES = """
prometheus:
  url: http://kube-prometheus-stack-prometheus.kube-prometheus-stack.svc.cluster.local
  port: 9090
rbac: {create: true}
rules: {default: true}
"""


def chart_source() -> EmbeddedSource:
    store = SeriesStore()
    for pod, value in (("dcgm-exporter-2fcbn", 25.0), ("dcgm-exporter-7pwxw", 24.0)):
        labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", **EXPORTER, "pod": pod}
        store.append(labels, NOW_MS, value)
    average = {"namespace": "default", "service": "dcgm-exporter"}
    store.append({"__name__": "DCGM_FI_DEV_GPU_UTIL_AVG", **average}, NOW_MS, 24.5)
    return EmbeddedSource(store)


def test_the_charts_default_rules_list_what_the_guides_show() -> None:
    config = load_rules(CHART_VALUES, "values.yaml")
    names = [metric.name for metric in discover(config, chart_source()).custom_resources()]
    assert [name for name in names if name.endswith("/DCGM_FI_DEV_GPU_UTIL")] == [
        "jobs.batch/DCGM_FI_DEV_GPU_UTIL",
        "namespaces/DCGM_FI_DEV_GPU_UTIL",
        "pods/DCGM_FI_DEV_GPU_UTIL",
        "services/DCGM_FI_DEV_GPU_UTIL",
    ]


def test_the_charts_default_rules_answer_for_pods_and_for_a_service() -> None:
    source = chart_source()
    catalogue = discover(load_rules(CHART_VALUES, "values.yaml"), source)
    pod = "dcgm-exporter-2fcbn"
    assert answer(catalogue, source, "pods", "default", pod, "DCGM_FI_DEV_GPU_UTIL") == (
        MetricValue(pod, 25_000, NOW_MS),
    )
    service = answer(
        catalogue, source, "services", "default", "dcgm-exporter", "DCGM_FI_DEV_GPU_UTIL_AVG"
    )
    assert service == (MetricValue("dcgm-exporter", 24_500, NOW_MS),)


def test_the_charts_default_rules_may_ask_for_any_series() -> None:
    assert needed_metric_names(load_rules(CHART_VALUES, "values.yaml")) is None
