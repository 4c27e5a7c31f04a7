"""What the controller of an HPA sees, as a Decision document read."""

from gpuscale.base.documents.documents import load_documents
from gpuscale.hpa.decisions import DecisionRequest, read_decision

PODS = "{type: Pods, pods: {metric: {name: queue}, target: {type: AverageValue, averageValue: 20}}}"
TEXT = """
apiVersion: gpuscale.dev/v1alpha1
kind: Decision
metadata: {{name: chat}}
spec:
  hpa:
    apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {{name: chat, namespace: prod}}
    spec:
      scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: chat}}
      minReplicas: 1
      maxReplicas: 9
      metrics: [{metric}]
  scale: {{specReplicas: {replicas}, statusReplicas: {replicas}, selector: app=chat}}
  pods: [{pods}]
  observed: [{observed}]
  config: {{kubernetesVersion: "1.35"}}
"""


def seen(replicas: int, value: str, metric: str = PODS, observed: str = "") -> DecisionRequest:
    """Return what an HPA with a target of 20 sees of two pods with this value each."""
    pod = "{{name: {}, labels: {{app: chat}}, phase: Running, ready: 'True'}}"
    of_pods = ", ".join(f"{{pod: {each}, value: '{value}', age: 12}}" for each in "ab")
    text = TEXT.format(
        replicas=replicas,
        metric=metric,
        pods=", ".join(map(pod.format, "ab")),
        observed=observed or f"{{pods: [{of_pods}]}}",
    )
    (document,) = load_documents(text, "seen")
    return read_decision(document)
