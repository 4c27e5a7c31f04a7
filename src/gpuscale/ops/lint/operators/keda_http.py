"""KEDA's HTTP add-on: HTTPScaledObjects.

Source: http-add-on v0.15 operator/apis/http/v1alpha1/httpscaledobject_types.go (CEL rule),
    pkg/k8s/scaledobject.go (NewScaledObject), operator/controllers/http (the annotation that skips it).
"""

from collections.abc import Iterator

from gpuscale.ops.lint.operators.made import SCALED_OBJECT, Making, made, name_of
from gpuscale.ops.lint.operators.refusals import Refusal, bounds
from gpuscale.ops.lint.parts import Part

_SKIP = ("metadata", "annotations", "httpscaledobject.keda.sh/skip-scaledobject-creation")


def http_scaled_object(whole: Part) -> Making:
    """Yield the ScaledObject whose trigger is the interceptors."""
    spec, name = whole.at("spec"), name_of(whole)
    if str(whole.at(*_SKIP).data).lower() == "true":
        return
    scaler = {"scalerAddress": "keda-add-ons-http-external-scaler", "httpScaledObject": name}
    keys = ("apiVersion", "kind", "name")
    yield made(
        spec,
        SCALED_OBJECT,
        name,
        {
            "scaleTargetRef": {key: spec.at("scaleTargetRef", key) for key in keys},
            "minReplicaCount": spec.at("replicas", "min"),
            "maxReplicaCount": spec.at("replicas", "max"),
            "cooldownPeriod": spec.at("scaledownPeriod"),
            "initialCooldownPeriod": spec.at("initialCooldownPeriod"),
            "triggers": [{"type": "external-push", "metadata": scaler}],
        },
    )


def refused_http_scaled_object(whole: Part) -> Iterator[Refusal]:
    """Yield what the schema refuses, and KEDA of what is made."""
    target = whole.at("spec", "scaleTargetRef")
    if target.fields() and ("port" in target.fields()) == ("portName" in target.fields()):
        yield Refusal(target, "port or portName, one of the two")
    if target.fields() and not target.text("service"):
        yield Refusal(target.at("service"), "the Service that gets the requests")
    yield from bounds(whole.at("spec", "replicas"), "min", "max")
