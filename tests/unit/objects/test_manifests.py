import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.manifests import load_manifests, read_stored_hpa

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: web:1
        resources:
          limits: {nvidia.com/gpu: 1, cpu: 500m}
          requests: {cpu: 250m}
"""


def problems(text):
    with pytest.raises(ConfigError) as caught:
        load_manifests(text, "m.yaml")
    return str(caught.value).splitlines()


def test_a_deployment_gets_the_api_servers_defaults() -> None:
    (deployment,) = load_manifests(DEPLOYMENT, "m.yaml")
    assert (deployment.metadata.key, deployment.replicas) == ("default/web", 1)
    assert str(deployment.selector) == "app=web"


def test_a_limit_without_a_request_is_the_request() -> None:
    (deployment,) = load_manifests(DEPLOYMENT, "m.yaml")
    requests = deployment.template.spec.containers[0].requests
    assert {name: str(quantity) for name, quantity in requests.items()} == {
        "nvidia.com/gpu": "1",
        "cpu": "250m",
    }


def test_unknown_fields_pass_as_with_an_older_api_server() -> None:
    assert load_manifests(DEPLOYMENT + "  someNewField: 1\n", "m.yaml")


def test_every_fault_of_every_document_is_told_at_once() -> None:
    text = DEPLOYMENT.replace("replicas", "").replace("cpu: 500m", "cpu: lots")
    text += "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
    assert problems(text) == [
        "m.yaml:14: spec.template.spec.containers[0].resources.limits.cpu: found 'lots', expected "
        "a quantity such as 20, 500m or 1Gi",
        "m.yaml:17: found v1 Secret, expected one of apps/v1 Deployment, apps/v1 DaemonSet, "
        "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet, policy/v1 PodDisruptionBudget, batch/v1 Job, "
        "jobset.x-k8s.io/v1alpha2 JobSet, "
        "v1 Service, v1 Node, v1 Pod, autoscaling/v1 HorizontalPodAutoscaler, autoscaling/v2beta1 "
        "HorizontalPodAutoscaler, autoscaling/v2beta2 HorizontalPodAutoscaler, autoscaling/v2 "
        "HorizontalPodAutoscaler, keda.sh/v1alpha1 ScaledObject, scheduling.k8s.io/v1beta1 PodGroup, "
        "scheduling.k8s.io/v1alpha3 PodGroup, "
        + ", ".join(
            f"resource.k8s.io/{version} {kind}"
            for kind in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate")
            for version in ("v1", "v1beta2", "v1beta1")
        )
        + "".join(
            f", kueue.x-k8s.io/{version} {kind}"
            for version in ("v1beta2", "v1beta1")
            for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass")
        ),
    ]


def test_a_selector_that_misses_its_template_is_refused() -> None:
    text = DEPLOYMENT.replace("{matchLabels: {app: web}}", "{matchLabels: {app: other}}")
    assert problems(text) == [
        "m.yaml:6: spec.selector: found app=other, expected a selector that matches the template's labels; "
        "give template.metadata.labels what the selector asks for"
    ]


def test_a_document_without_kind_says_what_is_missing() -> None:
    assert problems("metadata: {name: x}\n") == [
        "m.yaml:1: apiVersion: this field is required",
        "m.yaml:1: kind: this field is required",
    ]


def test_a_list_is_no_manifest() -> None:
    assert problems("- 1\n") == ["m.yaml:1: found a list, expected a mapping"]


def test_an_hpa_that_an_older_api_server_took_is_read() -> None:
    target = {"kind": "Deployment", "name": "web"}
    body = {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}}
    assert read_stored_hpa(body, "the API server").target.api_version == ""
