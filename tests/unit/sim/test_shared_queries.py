# mypy: disable-error-code="arg-type,attr-defined"
"""HPAs whose pods have too many names for a query share one query, and get what each would get alone.

Upstream joins all names however many they are (prometheus-adapter pkg/naming/metrics_query.go), so a query
with all of an HPA's names is what is expected.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from gpuscale.base.objects.metric_values import MetricValue
from gpuscale.lab.sim import metrics_client
from gpuscale.lab.sim.metrics_client import VirtualMetricsClient, immediately
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.rules.catalogue import Catalogue
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.queries.plan import CustomPlan, plan_custom
from gpuscale.server.rules.query import MAX_JOINED_NAMES, custom_query
from gpuscale.server.rules.resources import PODS
from gpuscale.server.sources.embedded import EmbeddedSource

NOW_MS = 1_000_000
SERIES = "DCGM_FI_DEV_GPU_UTIL"
RULES = """\
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}
  resources:
    overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}
  name: {as: gpu_util}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
MANY = 400
"""Pods of names with 16 characters: 6 799 with what joins them, of 6 144 that are joined at most."""
ALL_NAMES = 10**9


def pods(app: str, count: int) -> tuple[str, ...]:
    return tuple(f"{app}-{number:014d}" for number in range(count))


@dataclass
class Directory:
    """Pods by namespace and the selector that finds them."""

    known: dict[tuple[str, str], tuple[str, ...]]

    def names(self, resource, namespace, selector) -> tuple[str, ...]:
        assert resource == PODS
        return self.known[namespace, str(selector)]


class Source:
    """A store that notes what it is asked."""

    def __init__(self) -> None:
        self.store = SeriesStore()
        self.asked: list[str] = []

    def query_now(self, promql: str, at_ms: int):
        self.asked.append(promql)
        return EmbeddedSource(self.store).query_now(promql, at_ms)

    def add(self, namespace: str, pod: str, at_ms: int, value: float) -> None:
        labels = {"__name__": SERIES, "exported_namespace": namespace, "exported_pod": pod}
        self.store.append(labels, at_ms, value)


class Site:
    """A client of two namespaces, in which each pod has its number as its use."""

    def __init__(self, **counts: int) -> None:
        known = {
            (namespace, f"app={app}"): pods(app, count)
            for app, count in counts.items()
            for namespace in ("x", "y")
        }
        self.source = Source()
        for (namespace, _), names in known.items():
            for number, name in enumerate(names):
                value = number % 101 + (namespace == "y")
                self.source.add(namespace, name, NOW_MS - 1000, value)
        self.client = VirtualMetricsClient(Directory(known), self.source)
        found = [{"__name__": SERIES, "exported_namespace": "x", "exported_pod": "a"}]
        rules = load_rules(RULES, "r")
        self.client.catalogue = Catalogue.build(rules, {rules.rules[0].series_query: found})
        self.client.now_ms = NOW_MS

    def ask(self, app: str, namespace: str = "x") -> Sequence[MetricValue]:
        return immediately(self.client.pod_values(namespace, f"app={app}", "gpu_util", None))


def expected(app: str, count: int, more: int = 0) -> list[tuple[str, int]]:
    """Return names and values in thousandths."""
    values = (1000 * (number % 101 + more) for number in range(count))
    return list(zip(pods(app, count), values, strict=True))


def plain(answer: Sequence[MetricValue]) -> list[tuple[str, int]]:
    assert {each.measured_ms for each in answer} == {NOW_MS - 1000}
    return [(each.object_name, each.value_milli) for each in answer]


def test_selectors_with_too_many_pods_share_the_query_of_a_moment() -> None:
    assert len("|".join(pods("a", MANY))) > MAX_JOINED_NAMES
    site = Site(a=MANY, b=MANY + 10)
    assert plain(site.ask("a")) == expected("a", MANY)
    assert plain(site.ask("b")) == expected("b", MANY + 10)
    assert plain(site.ask("a")) == expected("a", MANY)
    assert len(site.source.asked) == 1


def test_the_names_of_fewer_pods_are_in_their_query() -> None:
    site = Site(a=MANY, c=3)
    assert plain(site.ask("a")) == expected("a", MANY)
    assert plain(site.ask("c")) == expected("c", 3)
    assert len(site.source.asked) == 2
    assert "|".join(pods("c", 3)) in site.source.asked[1]


def test_another_namespace_is_another_query() -> None:
    site = Site(a=MANY)
    assert plain(site.ask("a")) == expected("a", MANY)
    assert plain(site.ask("a", "y")) == expected("a", MANY, more=1)
    assert plain(site.ask("a")) == expected("a", MANY)


def test_a_later_moment_has_its_own_values() -> None:
    site = Site(a=MANY)
    assert plain(site.ask("a")) == expected("a", MANY)
    site.source.add("x", pods("a", 1)[0], NOW_MS, 55.0)
    site.client.now_ms = NOW_MS + 15_000
    first, *others = site.ask("a")
    assert (first.value_milli, first.measured_ms) == (55_000, NOW_MS)
    assert plain(others) == expected("a", MANY)[1:]
    assert len(site.source.asked) == 2


def joining_all_names(
    catalogue, mapper, resource, namespace, names, metric, selector
) -> CustomPlan:
    """Return the plan that upstream has: its query names each pod."""
    plan = plan_custom(catalogue, mapper, resource, namespace, names, metric, selector)
    rule, series = plan.scope.entry.rule, plan.scope.entry.series
    promql = custom_query(
        rule.metrics_query,
        series,
        rule.labels,
        plan.resource,
        namespace,
        names,
        selector,
        most_joined=ALL_NAMES,
    )
    return replace(plan, promql=promql)


SERVICE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {app}}}}}
  template:
    metadata: {{labels: {{app: {app}}}}}
    spec: {{containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {app}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
  minReplicas: {replicas}
  maxReplicas: 48
  metrics: [{{type: Pods, pods: {{metric: {{name: gpu_util}},
    target: {{type: AverageValue, averageValue: 50}}}}}}]
---
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: shared}}
spec:
  duration: 12m
  manifests: [{{file: m}}]
  rules: {{file: r}}
  pipeline: {{downscaleStabilization: 60s}}
  nodePools: [{{name: gpu, gpuModel: L4, gpus: 8, min: 16, max: 16, cpu: "64", memory: 512Gi}}]
  workloads:
{workloads}
"""
WORKLOAD = """\
  - {{deployment: {name}, imagePull: 0s, startup: 10s, service: {{gpuSecondsPerRequest: 0.1}},
     load: {{shape: sine, mean: {rate}, amplitude: {amplitude}, period: 6m, offset: {offset}s}}}}
"""


def test_decisions_are_those_of_queries_that_name_each_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three HPAs of one moment; the names of two have more than 6 KiB, always or at times."""
    services = (("long-", 30, 220), ("grows-", 24, 200), ("short", 2, 0))
    manifests, workloads, names = "", "", {}
    for at, (app, replicas, width) in enumerate(services):
        name = app + "x" * width if width else app
        names[app.rstrip("-")] = name
        manifests += SERVICE.format(name=name, app=app.rstrip("-"), replicas=replicas)
        rate = replicas * 5
        workloads += WORKLOAD.format(name=name, rate=rate, amplitude=0.9 * rate, offset=40 * at)
    text = SCENARIO.format(workloads=workloads)
    setup = load_setup(text, "s", {"m": manifests, "r": RULES}.__getitem__)

    asked: list[str] = []
    query_now = EmbeddedSource.query_now

    def noting(self: EmbeddedSource, promql: str, at_ms: int):
        asked.append(promql)
        return query_now(self, promql, at_ms)

    monkeypatch.setattr(EmbeddedSource, "query_now", noting)
    shared = simulate(setup, through_pipeline=True)
    assert len([promql for promql in asked if ".+" in promql]) > 40  # of 48 syncs
    assert [promql for promql in asked if "grows-" in promql]
    asked.clear()

    monkeypatch.setattr(metrics_client, "plan_custom", joining_all_names)
    monkeypatch.setattr(metrics_client, "are_joined", lambda names: True)
    alone = simulate(setup, through_pipeline=True)
    assert not [promql for promql in asked if ".+" in promql]
    assert max(map(len, asked)) > MAX_JOINED_NAMES

    assert shared == alone
    rescales = [each for each in alone["events"] if each["kind"] == "SuccessfulRescale"]
    assert {each["object"].partition("/")[2] for each in rescales} == set(names)
