"""OME: InferenceServices and ServingRuntimes, whose components have one container beside the fields of a pod.

Source: sgl-project/ome pkg/apis/ome/v1beta1/inference_service.go, servingruntime_types.go (engine, decoder,
    router, `runner`), component.go (validateReplicas).
"""

from collections.abc import Iterator

from gpuscale.ops.lint.operators.made import DEPLOYMENT, Making, fields, limits_of, made, name_of
from gpuscale.ops.lint.operators.refusals import Refusal, bounds
from gpuscale.ops.lint.parts import Part

_COMPONENTS = ("engine", "decoder", "router")


def ome_service(whole: Part) -> Making:
    """Yield each component's pods, and the limits between which it is scaled."""
    for key in _COMPONENTS:
        part, name = whole.at("spec", key), f"{name_of(whole)}-{key}"
        if part.fields("runner"):
            yield made(part, DEPLOYMENT, name, {"template": _template(part)})
        least = part.whole("minReplicas")
        if (part.whole("maxReplicas") or 0) > (1 if least is None else least):
            yield limits_of(part, DEPLOYMENT, name, least=1)


def refused_ome_service(whole: Part) -> Iterator[Refusal]:
    """Yield what the webhook refuses; a maximum of 0 counts as none."""
    for key in _COMPONENTS:
        part = whole.at("spec", key)
        if part.whole("maxReplicas") != 0:
            yield from bounds(part, "minReplicas", "maxReplicas")


def ome_runtime(whole: Part) -> Making:
    """Yield the pods of its engine, decoder and router."""
    for key in _COMPONENTS:
        part = whole.at("spec", f"{key}Config")
        if part.fields("runner"):
            name = f"{name_of(whole)}-{key}"
            yield made(part, DEPLOYMENT, name, {"template": _template(part)})


def _template(part: Part) -> dict[str, object]:
    meta = {"labels": part.at("labels"), "annotations": part.at("annotations")}
    pods = {**fields(part, "runner", "worker", "leader"), "containers": [fields(part.at("runner"))]}
    return {"metadata": meta, "spec": pods}
