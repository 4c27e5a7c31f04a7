"""Ask what Kubernetes' HPA controller would do, without a cluster.

Prints:

    2 -> 3: Service metric gpu_utilization above target
"""

from gpuscale.hpa import HpaState, ObjectValue, PodInfo, Scale, decide
from gpuscale.manifests import HorizontalPodAutoscaler, load_manifests

MANIFEST = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: vision}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vision}
  minReplicas: 1
  maxReplicas: 8
  metrics:
  - type: Object
    object:
      metric: {name: gpu_utilization}
      describedObject: {apiVersion: v1, kind: Service, name: vision}
      target: {type: Value, value: "60"}
"""

(hpa,) = load_manifests(MANIFEST, "hpa.yaml")
assert isinstance(hpa, HorizontalPodAutoscaler)
pods = [PodInfo("vision-0"), PodInfo("vision-1")]
scale = Scale(spec_replicas=2, status_replicas=2, selector="app=vision")

# 85 of 60 with 2 ready pods: ceil(2 * 85 / 60) = 3. Values are whole thousandths.
decision = decide(hpa, scale, pods, [ObjectValue(value_milli=85_000)], HpaState(), now_ms=0)
print(f"{decision.current_replicas} -> {decision.desired_replicas}: {decision.reason}")
