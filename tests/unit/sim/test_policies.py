# mypy: disable-error-code="arg-type, attr-defined"
"""Replica and node policies of users: each one file that knows nothing of the simulator."""

import re
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from gpuscale.base import plugins
from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.hpa.cluster.nodes.pools import ScaleDown, ScaleUp
from gpuscale.lab.scenarios import load_policy
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulation import simulate

FOLDER = Path(__file__).parents[2] / "data" / "policies"
MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {kind: Deployment, name: web, apiVersion: apps/v1}
  maxReplicas: 4
  metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 20}}}]
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  duration: 10m
  manifests: [{file: m}]
  nodePools: [{name: gpu, gpuModel: Tesla T4, gpus: 1, min: 1, max: 3}]
"""


def setup(text=SCENARIO, load=load_policy):
    return load_setup(text, "s.yaml", lambda _: MANIFESTS, load)


def policy(file, name):
    spec = spec_from_file_location(file, FOLDER / f"{file}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def test_a_replica_policy_scales_and_is_seen_in_the_document() -> None:
    run = simulate(setup(), replica_policy=policy("steady_growth", "SteadyGrowth"))
    rescales = [each for each in run["events"] if each["kind"] == "SuccessfulRescale"]
    # The first sync is at 15 s; one more replica each minute after it, until the HPA's maximum.
    assert [(each["t"], each["to"], each["reason"]) for each in rescales] == [
        (75.0, 2, "New size: 2; reason: minute 1"),
        (135.0, 3, "New size: 3; reason: minute 2"),
        (195.0, 4, "New size: 4; reason: minute 3"),
    ]
    assert {each["object"] for each in rescales} == {"HorizontalPodAutoscaler/web"}
    assert run["summary"]["hpas"]["web"] == {"maxReplicas": 4, "finalReplicas": 4, "rescales": 3}
    assert run["series"]["hpa/web/desired"][-1] == 4


def test_a_node_policy_rents_nodes_and_is_seen_in_the_document() -> None:
    run = simulate(setup(), node_policy=policy("spare_node", "SpareNode"))
    grown = [each for each in run["events"] if each["kind"] == "TriggeredScaleUp"]
    # The pool's one node holds the one pod; the second is the spare.
    assert [(each["t"], each["from"], each["to"]) for each in grown] == [(10.0, 1, 2)]
    assert run["summary"]["nodePools"]["gpu"] == {"maxNodes": 2, "finalNodes": 2}


def test_the_policies_on_the_page_about_them_run() -> None:
    page = (FOLDER.parents[2] / "docs" / "extending.md").read_text()
    made: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        if "class SteadyGrowth" in block or "class SpareNode" in block:
            exec(compile(block, "extending.md", "exec"), made)
    policies = {"replica_policy": made["SteadyGrowth"], "node_policy": made["SpareNode"]}
    run = simulate(setup(), **policies)
    assert run["summary"]["hpas"]["web"]["finalReplicas"] == 4
    assert run["summary"]["nodePools"]["gpu"]["finalNodes"] == 3


def test_both_together() -> None:
    run = simulate(
        setup(),
        replica_policy=policy("steady_growth", "SteadyGrowth"),
        node_policy=policy("spare_node", "SpareNode"),
    )
    assert run["summary"]["nodePools"]["gpu"] == {"maxNodes": 3, "finalNodes": 3}
    assert run["summary"]["hpas"]["web"]["finalReplicas"] == 4


def test_a_scenario_names_the_policies_of_a_plug_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in FOLDER.glob("*.py"):
        shutil.copy(file, tmp_path)
    info = tmp_path / "made_up-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gpuscale.replica_policies]\nsteady = steady_growth:SteadyGrowth\n"
        "[gpuscale.node_policies]\nspare = spare_node:SpareNode\nbroken = nowhere:Policy\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plugins._entry_points.cache_clear()
    text = SCENARIO + "  replicaPolicy: steady\n  nodeAutoscaler: {policy: spare}\n"
    run = simulate(setup(text))
    assert run["summary"]["hpas"]["web"]["rescales"] == 3
    assert run["summary"]["nodePools"]["gpu"]["finalNodes"] == 3
    broken = SCENARIO + "  nodeAutoscaler: {policy: broken}\n"
    with pytest.raises(UsageError, match=r"entry point gpuscale\.node_policies: broken = nowhere"):
        setup(broken)
    plugins._entry_points.cache_clear()
    for file in FOLDER.glob("*.py"):
        sys.modules.pop(file.stem, None)


def test_a_policy_that_is_nowhere_is_a_fault_of_the_scenario() -> None:
    text = SCENARIO + "  replicaPolicy: none\n  nodeAutoscaler: {policy: other}\n"
    with pytest.raises(ConfigError) as caught:
        setup(text)
    replicas, nodes = map(str, caught.value.problems)
    assert "found 'none'" in replicas
    assert "hpa, or the name of an installed entry point of gpuscale.replica_policies" in replicas
    assert "spec.nodeAutoscaler.policy" in nodes
    assert "found 'other'" in nodes


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (ScaleUp("cpu", 1, 2, ()), "expected one of the pools gpu"),
        (ScaleUp("gpu", 1, 4, ()), "expected from_nodes 1 and to_nodes above it, at most 3"),
        (ScaleUp("gpu", 2, 3, ()), "expected from_nodes 1 and to_nodes above it, at most 3"),
        (ScaleDown("gpu", "node-of-nowhere", 1), "expected a node of that pool that isn't leaving"),
    ],
)
def test_what_a_pool_can_not_do_is_refused(action, expected: str) -> None:
    class Wrong:
        def scan(self, request):
            return (action,)

    with pytest.raises(UsageError, match=expected):
        simulate(setup(), node_policy=Wrong)
