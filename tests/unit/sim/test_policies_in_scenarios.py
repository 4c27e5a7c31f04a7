"""Policies of triggers in the simulator: an HPA on a trigger file, and KEDA; as they would be served."""

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.lab.rehearse.target import check_triggers
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.simulation import simulate

POLICY = """\
query: sum(rate(gpuscale_simulated_requests_total{deployment="llm"}[20s]))
policy: "{name: seasonal, settings: {headroom: 1, spare: 0}}"
podLoad: "10"
startTime: 1m
lag: 0s
maxReplicas: "8"
"""
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: llm}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llm}
  maxReplicas: 8
  metrics:
  - type: External
    external:
      metric: {name: llm-wanted-replicas}
      target: {type: AverageValue, averageValue: "1"}
  behavior: {scaleUp: {tolerance: 0}, scaleDown: {tolerance: 0, stabilizationWindowSeconds: 0}}
"""
KEDA = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: llm}
spec:
  scaleTargetRef: {name: llm}
  minReplicaCount: 1
  maxReplicaCount: 8
  advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleDown: {stabilizationWindowSeconds: 0}}}}
  triggers:
  - type: external
    metadata:
      scalerAddress: gpuscale-scaler:6000
"""


def indented(text: str, by: int) -> str:
    return "".join(" " * by + line for line in text.splitlines(keepends=True))


def scenario(manifest: str, triggers: str = "") -> str:
    """Return a scenario whose pods each take 10 requests a second: 5 come, then 35, then 12."""
    inline = indented(manifest, 8)
    return f"""\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: wanted}}
spec:
  duration: 5m
  manifests:
    - inline: |
        apiVersion: apps/v1
        kind: Deployment
        metadata: {{name: llm}}
        spec:
          replicas: 1
          selector: {{matchLabels: {{app: llm}}}}
          template:
            metadata: {{labels: {{app: llm}}}}
            spec:
              containers:
                - {{name: main, image: "llm:1", resources: {{limits: {{nvidia.com/gpu: 1}}}}}}
        ---
{inline}
{triggers}
  pipeline:
    collectInterval: 500ms
    scrapeInterval: 1s
    ruleInterval: 1s
    relistInterval: 10s
    hpaSyncPeriod: 5s
  nodePools:
    - {{name: gpu, gpuModel: l40s, gpus: 1, min: 8, max: 8, memory: 64Gi, provisioningTime: 4s}}
  workloads:
    - deployment: llm
      imagePull: 2s
      startup: 2s
      service: {{gpuSecondsPerRequest: 0.1, concurrency: 8}}
      load:
        shape: steps
        steps: [{{at: 0s, rate: 5}}, {{at: 100s, rate: 35}}, {{at: 200s, rate: 12}}]
"""


WITH_HPA = scenario(
    HPA,
    "  triggers:\n    inline: |\n      triggers:\n      - namespace: default\n"
    "        workload: deployment/llm\n" + indented(POLICY, 8),
)
WITH_KEDA = scenario(KEDA + "      workload: deployment/llm\n" + indented(POLICY, 6))


def setup_of(text: str) -> Setup:
    def read(name: str) -> str:
        raise AssertionError(name)

    return load_setup(text, "s.yaml", read)


def replicas_at(text: str) -> dict[int, float | None]:
    series = simulate(setup_of(text))["series"]
    return dict(zip(map(round, series["t"]), series["replicas/llm/ready"], strict=True))


@pytest.mark.parametrize("text", [WITH_HPA, WITH_KEDA], ids=["hpa", "keda"])
def test_a_scenario_goes_where_the_policy_wants(text: str) -> None:
    # 5, 35 and 12 requests a second at 10 a pod are 1, 4 and 2 pods: 20 s of the rate's window, 15 s to
    # the next decision, 5 s each to the next evaluation and sync later.
    found = replicas_at(text)
    assert (found[95], found[100 + 50], found[195], found[200 + 50], found[295]) == (1, 4, 4, 2, 2)


def test_a_setting_that_is_wrong_is_named_with_its_line() -> None:
    for text in (WITH_HPA, WITH_KEDA):
        with pytest.raises(ConfigError, match=r"policy\.settings\.headroom|headroom") as error:
            setup_of(text.replace("headroom: 1", "headroom: 7"))
        assert "found 7, expected 0.8 to 2" in str(error.value)
        assert all(each.line is not None for each in error.value.problems)


def test_what_can_not_serve_triggers_says_so() -> None:
    setup = setup_of(WITH_HPA)
    with pytest.raises(UsageError, match="a rehearsal serves no triggers"):
        check_triggers(setup)
