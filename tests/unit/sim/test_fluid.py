# mypy: disable-error-code="arg-type, attr-defined, index, operator"
"""A scenario as a fleet: near an exact run, arithmetic by hand, and what is refused or left out."""

import json
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from gpuscale.base.errors import UsageError
from gpuscale.hpa.kernel.memory import MAX, PERCENT, PODS, Limits, Rules
from gpuscale.lab.plan.fleet.manifest_hpa import POD_AVERAGE, manifest_policy
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.fluid.document import ACCURACY
from gpuscale.lab.sim.fluid.run import simulate_fluid
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale.triggers.policies.hpa import HPA
from gpuscale.triggers.policies.replaying import ReplaySettings, run

ROOT = Path(__file__).parents[3]
MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
HPA_OF_WEB = """\
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {kind: Deployment, name: web, apiVersion: apps/v1}
  maxReplicas: 4
  metrics: [{type: Pods, pods: {metric: {name: METRIC}, target: {type: AverageValue, averageValue: 50}}}]
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  duration: 1h
  manifests: [{file: web.yaml}]
  pipeline: {honorLabels: true}
  nodePools: [{name: gpu, gpuModel: NVIDIA L4, gpus: 4, min: 1, max: 2PRICE}]
  workloads:
    - deployment: web
      service: {gpuSecondsPerRequest: 0.5, concurrency: 8, queueLimit: 10}
      load: {shape: constant, rate: RATE}
"""


def setup_of(*, rate: float = 3, hpa: str = "", price: str = ", pricePerHour: 2"):
    text = SCENARIO.replace("RATE", str(rate)).replace("PRICE", price)
    return load_setup(text, "small.yaml", lambda name: MANIFESTS + hpa)


@pytest.mark.parametrize(
    ("name", "most"), [("ack-bert", 0.02), ("ack-bert-v2beta1", 0.02), ("eks-vision", 0.02)]
)
def test_it_is_as_near_to_an_exact_run_as_the_docs_say(name, most):
    setup = find_setup(name)
    fluid, exact = simulate_fluid(setup)["summary"], simulate(setup)["summary"]
    assert fluid["hpas"] == exact["hpas"]
    assert fluid["nodePools"] == exact["nodePools"]
    # eks-vision starts four nodes and four pods: 15 s more for each where steps round up, and 25 s for a node
    # whose order counts from the pod's on: 220 s are 0.061 hours.
    assert fluid["startingGpuHours"] == pytest.approx(exact["startingGpuHours"], abs=0.061)
    assert fluid["gpuHours"] == pytest.approx(exact["gpuHours"], rel=most)
    for deployment, requests in exact["requests"].items():
        assert fluid["requests"][deployment]["arrived"] == pytest.approx(requests["arrived"])


@pytest.mark.parametrize(
    ("number", "most"),
    [
        (12, 0.05),  # pods of two GPUs on nodes of eight
        (9, 0.05),  # pods of one and two GPUs
        # Of one and four. The Cluster Autoscaler puts pods on nodes in turn, also on those on the way, so few
        # have four GPUs left together: an exact run has one node of seven more for most of its time.
        (34, 1 / 6),
    ],
)
def test_drawn_scenarios_cost_what_an_exact_run_says(number, most, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import fluid_scenarios

    setup = replace(fluid_scenarios.drawn_setup(number), duration_ms=3_600_000)
    fluid, exact = simulate_fluid(setup)["summary"], simulate(setup)["summary"]
    assert sum(hpa["rescales"] for hpa in exact["hpas"].values()) >= 10
    assert fluid["gpuHours"] == pytest.approx(exact["gpuHours"], rel=most)


def test_the_accuracy_that_an_answer_names_is_the_one_that_was_measured():
    result = json.loads((ROOT / "benchmarks" / "results" / "fluid.json").read_text("utf-8"))
    notes = {each["name"]: each["note"] for each in result["figures"]}
    assert f"within 5 % of an exact run's in {notes['drawn: within 5 %']}" in ACCURACY


def test_a_fixed_count_costs_its_nodes_and_turns_away_what_it_cannot_do():
    summary = simulate_fluid(setup_of(rate=5))["summary"]
    # Two pods do 4 requests a second; 1 of 5 waits, up to 10 for both, and the rest is turned away.
    requests = summary["requests"]["web"]
    assert requests == {"arrived": 18_000, "served": 14_400, "waiting": 10, "rejected": 3_590}
    # One node of 4 GPUs for an hour at 2 USD; two of the GPUs are busy all the time.
    assert (summary["gpuHours"], summary["busyGpuHours"], summary["cost"]) == (4, 2, 2)
    assert (summary["nodeHours"], summary["startingGpuHours"], summary["idleGpuHours"]) == (1, 0, 2)
    # 2.5 pods' worth came and 2 were there.
    assert summary["shortOfCapacity"]["web"] == {"shortTime": 3600, "shortPodHours": 0.5}
    assert summary["hpas"] == {}


def test_what_is_not_known_is_absent_and_says_why():
    summary = simulate_fluid(setup_of(price=""))["summary"]
    assert summary["cost"] is None
    assert summary["poolsWithoutPrice"] == ["gpu"]
    for name in ("latency", "scaleOuts", "slo"):
        assert name not in summary
        assert summary["notModelled"][name]["reason"]


def test_the_hpa_follows_use():
    # 3 requests of 0.5 s are 1.5 GPUs: at a target of 50 % three pods.
    setup = setup_of(hpa=HPA_OF_WEB.replace("METRIC", "DCGM_FI_DEV_GPU_UTIL"))
    document = simulate_fluid(setup)
    assert document["summary"]["hpas"]["web"] == {
        "maxReplicas": 3,
        "finalReplicas": 3,
        "rescales": 1,
    }
    assert document["series"]["hpa/web/current"][-1] == 3
    assert set(map(len, document["series"].values())) == {240}


def test_what_it_does_not_model_is_refused_all_at_once():
    with pytest.raises(UsageError) as caught:
        simulate_fluid(setup_of(hpa=HPA_OF_WEB.replace("METRIC", "queue_length")))
    assert "found metrics queue_length" in str(caught.value)
    for name in ("keda-zero", "aks-mnist-jobs"):
        with pytest.raises(UsageError, match=f"{name}: --fidelity fluid: found"):
            simulate_fluid(find_setup(name))


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_an_hpa_with_the_usual_behavior_is_the_policy_of_that_name(lag):
    limits = Limits(
        1,
        1_000_000,
        1,
        0,
        Rules(0, MAX, 0, 2),
        Rules(300_000, MAX, 2, 3),
        [PERCENT, 100, 15_000, PODS, 4, 15_000, PERCENT, 100, 15_000],
    )
    policy, settings = manifest_policy(
        limits,
        60_000,
        POD_AVERAGE,
        tolerance_up=0.1,
        tolerance_down=0.1,
        busy_milli=100_000,
        step_s=15.0,
        lag=lag,
    )
    demand = 20 + 15 * numpy.sin(numpy.arange(500) / 40)
    columns = []
    for desired, chosen, memory in (
        (policy.desired, settings, policy.memory),
        (HPA.desired, HPA.settings(), HPA.memory),
    ):
        filled = [numpy.zeros(len(demand)) for _ in range(4)]
        run(desired, chosen, numpy.zeros(memory), demand, ReplaySettings(lag_s=15.0 * lag), *filled)
        columns.append(filled[1].tolist())
    assert columns[0] == columns[1]
    assert len(set(columns[0])) > 10
