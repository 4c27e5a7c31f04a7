"""The Cluster Autoscaler in scenarios: its flags by their names, and what it makes of a cloud's faults."""

from dataclasses import fields
from typing import Any

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.hpa.cluster.nodes import AutoscalerSettings
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.model import NodeAutoscaler
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate

WEB = """\
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


def setup(autoscaler: str = "", pool: str = "", settings: tuple[str, ...] = ()) -> Setup:
    """Return a scenario of two pods, of which one fits on the node that is there."""
    text = f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: small}}
spec:
  duration: 20m
  seed: 3
  manifests: [{{file: m}}]
  nodeAutoscaler: {{{autoscaler}}}
  nodePools: [{{name: gpu, gpuModel: Tesla T4, gpus: 1, min: 1, max: 4, {pool}}}]
"""
    return load_setup(text, "s.yaml", lambda _: WEB, settings=settings)


def times(document: dict[str, Any], kind: str) -> list[float]:
    return [each["t"] for each in document["events"] if each["kind"] == kind]


def test_without_flags_all_is_as_upstream_has_it() -> None:
    assert setup().autoscaler == AutoscalerSettings(seed=3)


def test_flags_have_their_names_and_go_before_the_profile() -> None:
    text = """profile: aks, unneededTime: 5m, delayAfterAdd: 1m, scaleDownDelayAfterFailure: 1m,
      expander: "priority,least-waste", expanderPriorities: {50: [spot], 10: [".*"]},
      coresTotal: [8, 640], scaleDownGpuUtilizationThreshold: 0.3, skipNodesWithLocalStorage: true,
      balancingIgnoreLabel: [rack], maxGracefulTerminationSec: 60"""
    assert setup(text).autoscaler == AutoscalerSettings(
        seed=3,
        cloud_provider="azure",
        scale_down_delay_after_delete_ms=10_000,
        unneeded_time_ms=300_000,
        delay_after_add_ms=60_000,
        scale_down_delay_after_failure_ms=60_000,
        expander="priority,least-waste",
        expander_priorities={50: ("spot",), 10: (".*",)},
        cores_total=(8, 640),
        scale_down_gpu_utilization_threshold=0.3,
        balancing_ignore_label=("rack",),
        max_graceful_termination_sec=60,
    )


@pytest.mark.parametrize(
    ("profile", "flags"),
    [
        # AKS' documented profile differs in three flags.
        (
            "aks",
            {
                "cloud_provider": "azure",
                "expander": "random",
                "skip_nodes_with_local_storage": False,
                "scale_down_delay_after_delete_ms": 10_000,
            },
        ),
        ("gke", {"cloud_provider": "gce"}),
        ("ack", {"cloud_provider": "alicloud"}),
        ("eks", {"cloud_provider": "aws"}),
    ],
)
def test_a_profile_alone(profile: str, flags: dict[str, Any]) -> None:
    assert setup(f"profile: {profile}").autoscaler == AutoscalerSettings(seed=3, **flags)


def test_a_profile_that_is_not_known_is_named() -> None:
    with pytest.raises(ConfigError, match="profile"):
        setup("profile: oke")


def test_each_flag_of_the_scenario_is_a_setting() -> None:
    known = {each.name.removesuffix("_ms") for each in fields(AutoscalerSettings)}
    flags = set(NodeAutoscaler.model_fields) - {"policy", "profile"}
    assert flags <= known


def test_an_expander_that_is_not_known_is_named() -> None:
    with pytest.raises(ConfigError, match="expander"):
        setup("expander: cheapest")


def test_a_stock_out_closes_the_pool_for_5_and_10_minutes() -> None:
    """The first try is at 30 s. The next loop comes at once, is told, and closes the pool for 5 minutes.

    At 330 s it still is. The second failure, of 340 s, closes it until 940 s; then there is stock again.
    """
    document = simulate(setup(pool="stockOuts: [{length: 7m}]"))
    assert times(document, "FailedToScaleUpGroup") == [30, 340]
    assert times(document, "TriggeredScaleUp") == [950]


@pytest.mark.parametrize(
    ("labels", "orders"),
    [
        ("{k8s.amazonaws.com/accelerator: nvidia-tesla-t4}", 1),
        (
            "{}",
            3,
        ),  # at 30 s, and when each of two nodes is Ready 90 s later, before the first GPU at 240 s
    ],
)
def test_on_eks_a_node_without_the_label_brings_another_before_its_gpu_is_there(
    labels: str, orders: int
) -> None:
    pool = f"labels: {labels}, provisioningTime: 90s, gpuStartTime: 120s"
    document = simulate(setup("profile: eks", pool))
    assert len(times(document, "TriggeredScaleUp")) == orders


@pytest.mark.parametrize(("release", "is_on"), [("1.34", False), ("1.35", True), ("1.36", True)])
def test_frequent_loops_are_on_since_1_35(release: str, is_on: bool) -> None:
    # config/flags/flags.go; changed by kubernetes/autoscaler #8019, after 1.34
    of = setup(settings=(f"spec.pipeline.kubernetesVersion='{release}'",))
    assert of.autoscaler.frequent_loops_enabled is is_on


@pytest.mark.parametrize(("flag", "asked"), [("false", 50), ("true", 43)])
def test_frequent_loops_ask_30_s_after_the_pod(flag: str, asked: int) -> None:
    """A pod made at 13 s is 30 s old at the third loop after that, and 37 s old at one of the others."""
    text = f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: small}}
spec:
  duration: 2m
  manifests: [{{file: m}}]
  nodeAutoscaler: {{frequentLoopsEnabled: {flag}}}
  nodePools: [{{name: gpu, gpuModel: Tesla T4, gpus: 1, min: 0, max: 4}}]
  workloads: [{{job: train, run: {{at: 13s, duration: 1m}}}}]
"""
    job = WEB.replace("apps/v1", "batch/v1").replace("Deployment", "Job").replace("web", "train")
    job = job.replace("  replicas: 2\n  selector: {matchLabels: {app: train}}\n", "")
    job = job.replace("spec: {containers", "spec: {restartPolicy: Never, containers")
    document = simulate(load_setup(text, "s.yaml", lambda _: job))
    assert times(document, "TriggeredScaleUp") == [asked]
