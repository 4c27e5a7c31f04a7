# mypy: disable-error-code="attr-defined"
"""DaemonSets in a simulation: what their pods take of nodes, and of those that are still to be bought."""

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.lab.sim.pod_index import is_daemon
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import check_no_groups
from gpuscale.lab.sim.world import World

MANIFESTS = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs}
spec:
  selector: {matchLabels: {app: logs}}
  template:
    metadata: {labels: {app: logs}}
    spec:
      nodeSelector: {disk: local}
      containers: [{name: c, image: "logs:1", resources: {requests: {cpu: "1"}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      containers: [{name: c, image: "i:1", resources: {requests: {cpu: "4"}, limits: {nvidia.com/gpu: 1}}}]
"""
SCENARIO = """
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: daemons}
spec:
  duration: 20m
  manifests: [{file: m.yaml}]
  nodePools:
  - name: gpu
    gpuModel: Tesla T4
    gpus: 2
    cpu: "8"
    min: 0
    max: 4
    labels: {disk: local}
    provisioningTime: 60s
  workloads:
  - job: train
    run: {at: 10s, duration: 600s}
"""


def world(scenario=SCENARIO, manifests=MANIFESTS):
    return World(load_setup(scenario, "s.yaml", {"m.yaml": manifests}.__getitem__), 0)


def nodes_at(site, seconds=400):
    site.engine.run_until(seconds * 1000)
    return site.cloud.sizes("gpu")[0]


KARPENTER = SCENARIO.replace("  nodePools:", "  nodeAutoscaler: {policy: karpenter}\n  nodePools:")


# Two pods of 4 CPUs fill a node of 8, unless the DaemonSet has one of them.
@pytest.mark.parametrize("scenario", [SCENARIO, KARPENTER], ids=["cluster-autoscaler", "karpenter"])
def test_room_for_daemon_sets_is_counted_before_the_first_node_is_there(scenario) -> None:
    assert nodes_at(world(scenario)) == 2
    assert nodes_at(world(scenario.replace("{disk: local}", "{disk: other}"))) == 1


def test_each_node_that_it_suits_has_a_pod_which_goes_with_the_node() -> None:
    site = world()
    nodes_at(site)
    daemons = [pod for pod in site.cluster.pods.values() if is_daemon(pod)]
    on = [pod.spec.node_name for pod in daemons if pod.metadata.labels == {"app": "logs"}]
    assert sorted(on) == sorted(site.cluster.nodes)
    # It keeps no node from going. A node whose pod fits on no other is looked at every five minutes: at
    # 1000 s it is empty, and ten minutes later it goes.
    site.engine.run_until(1620 * 1000)
    assert (site.cloud.sizes("gpu"), dict(site.cluster.pods)) == ((0, 0), {})


def test_a_node_too_small_for_it_says_so() -> None:
    site = world(manifests=MANIFESTS.replace('cpu: "1"', 'cpu: "9"', 1))
    site.cloud.adopt("n", site.cloud.pools["gpu"], site.cloud.pools["gpu"].machine, _offering(site))
    said = [(e.object, e.reason) for e in site.cluster.events.since(0) if e.type == "Warning"]
    assert said == [("DaemonSet/logs", "no pod on n: Insufficient cpu")]


def _offering(site):
    return site.cloud.pools["gpu"].machine.shape.offerings[0]


def test_what_is_not_simulated_is_refused() -> None:
    with pytest.raises(ConfigError, match="found DaemonSet logs with GPUs, expected DaemonSets"):
        world(manifests=MANIFESTS.replace('cpu: "1"', "nvidia.com/gpu: 1", 1))
    with pytest.raises(ConfigError, match="found DaemonSet dcgm-exporter, expected none"):
        world(manifests=MANIFESTS.replace("name: logs", "name: dcgm-exporter", 1))
    with pytest.raises(UsageError, match="found DaemonSet default/logs, expected none"):
        check_no_groups(world().setup, "rehearse")
