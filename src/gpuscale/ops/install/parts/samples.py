"""Workloads to try it with: an inference service of BERT, a vision API, and training jobs on MNIST."""

from gpuscale.ops.install.common import Object, labels, metadata
from gpuscale.ops.install.values import Values

PART = "sample"
_BERT = "bert-intent-detection"
_VISION = "vision-api"
_MNIST = "samples-tf-mnist-demo"
_BERT_IMAGE = "registry.cn-hangzhou.aliyuncs.com/ai-samples/bert-intent-detection:1.0.1"
_MNIST_IMAGE = "mcr.microsoft.com/azuredocs/samples-tf-mnist-demo:gpu"


def sample_objects(values: Values) -> list[Object]:
    """Return the samples that are switched on."""
    samples = values.spec.samples
    found: list[Object] = []
    if samples.bert:
        found += _served(values, _BERT, _BERT_IMAGE, 80)
    if samples.vision_image is not None:
        found += _served(values, _VISION, samples.vision_image, 8080)
    if samples.mnist_jobs:
        found.append(_mnist(values))
    return found


def _served(values: Values, name: str, image: str, port: int) -> list[Object]:
    container = {
        "name": name,
        "image": image,
        "ports": [{"name": "http", "containerPort": port}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    service = {
        "selector": {"app": name},
        "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
    }
    deployment = {
        # No `replicas`: they are the autoscaler's, and an upgrade must not set them back.
        "selector": {"matchLabels": {"app": name}},
        "template": _template(values, name, {"containers": [container]}),
    }
    return [
        _object(values, "apps/v1", "Deployment", name, deployment),
        _object(values, "v1", "Service", name, service),
    ]


def _mnist(values: Values) -> Object:
    container = {
        "name": _MNIST,
        "image": _MNIST_IMAGE,
        "args": ["--max_steps", "500"],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    pod = {"containers": [container], "restartPolicy": "OnFailure"}
    count = values.spec.samples.mnist_jobs
    spec = {
        "completions": count,
        "parallelism": count,
        "template": _template(values, _MNIST, pod),
    }
    return _object(values, "batch/v1", "Job", _MNIST, spec)


def _object(values: Values, version: str, kind: str, name: str, spec: Object) -> Object:
    namespace = values.spec.samples.namespace
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata(values, PART, name=name, namespace=namespace),
        "spec": spec,
    }


def _template(values: Values, name: str, pod: Object) -> Object:
    return {
        "metadata": {"labels": {**labels(values, PART), "app": name}},
        "spec": {**pod, "tolerations": tolerations(values)},
    }


def tolerations(values: Values) -> list[Object]:
    """Return what a workload needs to run on nodes with the installation's taint, or a plugin's usual one."""
    taint = values.spec.taint
    own = {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
    return [own, {"key": "nvidia.com/gpu", "operator": "Exists"}]
