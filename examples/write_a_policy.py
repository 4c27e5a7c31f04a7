"""Scale by a rule of your own, and try it in the simulator: ten minutes of virtual time.

Prints:

     75 s: 2 replicas
    135 s: 3 replicas
    195 s: 4 replicas
"""

from typing import Any, cast

from gpuscale.hpa import Decision, ReplicaRequest, resized
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.simulation import simulate

MANIFESTS = """
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
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 4
  metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 20}}}]
"""
SCENARIO = """
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  duration: 10m
  manifests: [{file: web.yaml}]
  nodePools: [{name: gpu, gpuModel: Tesla T4, gpus: 1, min: 1, max: 4}]
"""


class SteadyGrowth:
    """One replica more in each full minute. Each HPA gets an object of its own."""

    def __init__(self) -> None:
        self._start_ms: int | None = None

    def decide(self, request: ReplicaRequest) -> Decision:
        """Return how many replicas there should be; `resized` keeps within the HPA's bounds."""
        if self._start_ms is None:
            self._start_ms = request.now_ms
        minutes = (request.now_ms - self._start_ms) // 60_000
        return resized(request, 1 + minutes, f"minute {minutes}")


setup = load_setup(SCENARIO, "scenario.yaml", lambda _: MANIFESTS)
run = simulate(setup, replica_policy=SteadyGrowth)
events = cast("list[dict[str, Any]]", run["events"])
# The first sync is at 15 s, and the HPA's maximum is 4.
for event in events:
    if event["kind"] == "SuccessfulRescale":
        print(f"{event['t']:3.0f} s: {event['to']} replicas")
