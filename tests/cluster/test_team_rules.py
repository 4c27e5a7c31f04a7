"""Rules that teams put into ConfigMaps of a real cluster: served, confined, and each on its own."""

import json
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuscale.testing import prometheus as prometheus_process
from gpuscale_testing import wait_until
from gpuscale_testing.metrics_apis import gpuscale_metrics_api

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

TEAMS = ("rules-a", "rules-b")
FREE = "rules-free"
"""A namespace without rules of its own."""
CLUSTER_RULES = """
rules:
- seriesQuery: load{pod!=""}
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
# Asks for the whole cluster's series, and puts them under the name of a pod of its own.
GREEDY = """
rules:
- seriesQuery: load
  name: {as: everything}
  resources: {template: <<.Resource>>}
  metricsQuery: 'label_replace(sum(load), "pod", "<<index .LabelValuesByName "pod">>", "", "")'
"""
OWN = CLUSTER_RULES.replace("avg(", "10 * avg(")
LOADS = {"rules-a": 1.0, "rules-b": 100.0, FREE: 1.0}
STEP_S, BEFORE_S, AFTER_S = 15, 120, 540


def pod(namespace: str) -> str:
    spec = {"schedulerName": "nobody", "containers": [{"name": "app", "image": "none"}]}
    metadata = {"name": "web", "namespace": namespace, "labels": {"app": "web"}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def config_map(namespace: str, name: str, text: str) -> str:
    metadata = {"name": name, "namespace": namespace, "labels": {"gpuscale.dev/rules": "true"}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return json.dumps({**body, "data": {"rules.yaml": text}})


def samples():
    now_s = int(time.time())
    for at_s in range(now_s - BEFORE_S, now_s + AFTER_S, STEP_S):
        for namespace, value in LOADS.items():
            labels = {"__name__": "load", "namespace": namespace, "pod": "web"}
            yield labels, at_s * 1000, value


@pytest.fixture(scope="module")
def world(plane, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("teams")
    rules = folder / "rules.d"
    rules.mkdir()
    (rules / "cluster.yaml").write_text(CLUSTER_RULES)
    (folder / "prometheus").mkdir()
    for team in (*TEAMS, FREE):
        plane.kubectl("create", "namespace", team)
        plane.apply(pod(team))
    more = ["--rules-configmaps=gpuscale.dev/rules=true", "--metrics-relist-interval=1h"]
    admin = plane.client_certificate("admin", ["system:masters"])
    with (
        prometheus_process.serve(samples(), folder / "prometheus") as prometheus,
        gpuscale_metrics_api(plane, prometheus.url, rules, folder, more=more) as api,
    ):
        yield SimpleNamespace(api=api, admin=admin, rules=rules)
    for team in (*TEAMS, FREE):
        plane.kubectl("delete", "namespace", team, "--wait=false")


def get(world, path):
    with closing(world.api.connect(world.admin)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def value(world, namespace, metric):
    """Return the metric of the pod `web`, or the status that says why there is none."""
    path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/%2A/{metric}"
    status, text = get(world, path)
    if status != 200:
        return status
    return [each["value"] for each in json.loads(text)["items"]]


def becomes(world, namespace, metric, expected) -> None:
    what = f"{metric} in {namespace} to be {expected}"
    wait_until(lambda: value(world, namespace, metric) == expected, what, 60)


def test_a_team_gets_its_own_and_nothing_of_others(plane, world) -> None:
    becomes(world, "rules-a", "load", ["1"])
    plane.apply(config_map("rules-a", "gpu", GREEDY))
    # The sum over the whole cluster is 102, of the team's own namespace 1.
    becomes(world, "rules-a", "everything", ["1"])
    assert value(world, "rules-b", "everything") == 404
    status, text = get(world, "/apis/custom.metrics.k8s.io/v1beta2")
    assert (status, "pods/everything" in text) == (200, True)


def test_in_its_namespace_a_teams_rule_comes_first_and_goes_with_its_config_map(
    plane, world
) -> None:
    plane.apply(config_map("rules-b", "own", OWN))
    becomes(world, "rules-b", "load", ["1k"])
    assert value(world, "rules-a", "load") == ["1"]
    plane.kubectl("delete", "configmap", "own", "-n", "rules-b")
    becomes(world, "rules-b", "load", ["100"])


def test_a_bad_config_map_keeps_its_last_good_version_and_is_reported(plane, world) -> None:
    plane.apply(config_map("rules-a", "kept", OWN))
    becomes(world, "rules-a", "load", ["10"])
    plane.apply(config_map("rules-a", "kept", OWN.replace("<<.Series>>", "<<.Nothing>>")))
    plane.apply(config_map("rules-b", "own", OWN))
    becomes(world, "rules-b", "load", ["1k"])
    assert value(world, "rules-a", "load") == ["10"]
    ready, text = get(world, "/readyz?verbose")
    assert (ready, "configmap rules-a/kept/rules.yaml:5" in text) == (200, True), text
    _, metrics = get(world, "/metrics")
    name = "gpuscale_metrics_api_rule_source_last_reload_successful"
    assert f'{name}{{source="configmap rules-a/kept"}} 0\n' in metrics
    assert f'{name}{{source="configmap rules-b/own"}} 1\n' in metrics


def test_changes_of_rules_fail_no_request(plane, world) -> None:
    (file,) = Path(world.rules).iterdir()
    factors, failed, number = set(), [], 0
    deadline = time.monotonic() + 150
    while len(factors) < 4:
        assert time.monotonic() < deadline, factors
        if number % 10 == 0:
            file.write_text(CLUSTER_RULES.replace("avg(", f"{number + 1} * avg("))
            bad = number % 20 == 0
            plane.apply(config_map("rules-b", "changing", "x: 1" if bad else GREEDY))
        for team in TEAMS:
            found = value(world, team, "load")
            failed += [] if isinstance(found, list) and len(found) == 1 else [found]
        factors.add(str(value(world, FREE, "load")))
        number += 1
    assert failed == []
