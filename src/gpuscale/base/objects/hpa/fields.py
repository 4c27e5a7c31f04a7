"""The fields of an HPA in each API version, and unknown fields in manifests.

The API server drops a field that it does not know, unless it is asked to be strict, as kubectl asks it.

Source: k8s.io/api v0.36 autoscaling/v1/types.go, autoscaling/v2/types.go; v2beta2 is v2 without `tolerance`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuscale.base.documents.documents import Path
from gpuscale.base.words import closest

_Shape = Mapping[str, "_Shape"] | None
"""The fields of a mapping, or of each mapping of a list; None where anything may be below."""


def _plain(*names: str) -> dict[str, _Shape]:
    return dict.fromkeys(names)


_REFERENCE = _plain("apiVersion", "kind", "name")
_SELECTOR: _Shape = {
    "matchLabels": None,
    "matchExpressions": _plain("key", "operator", "values"),
}
_METRIC: _Shape = {"name": None, "selector": _SELECTOR}
_TARGET = _plain("type", "value", "averageValue", "averageUtilization")
_RULES: Mapping[str, _Shape] = {
    **_plain("stabilizationWindowSeconds", "selectPolicy", "tolerance"),
    "policies": _plain("type", "value", "periodSeconds"),
}
_LIMITS: Mapping[str, _Shape] = {
    **_plain("minReplicas", "maxReplicas"),
    "scaleTargetRef": _REFERENCE,
}
_V2: _Shape = {
    **_LIMITS,
    "metrics": {
        "type": None,
        "pods": {"metric": _METRIC, "target": _TARGET},
        "object": {"describedObject": _REFERENCE, "metric": _METRIC, "target": _TARGET},
        "external": {"metric": _METRIC, "target": _TARGET},
        "resource": {"name": None, "target": _TARGET},
        "containerResource": {"name": None, "container": None, "target": _TARGET},
    },
    "behavior": {"scaleUp": _RULES, "scaleDown": _RULES},
}
_SPECS: Mapping[str, _Shape] = {
    "autoscaling/v1": {**_LIMITS, "targetCPUUtilizationPercentage": None},
    "autoscaling/v2beta2": _V2,
    "autoscaling/v2": _V2,
}


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that the API does not have."""

    path: Path
    known: tuple[str, ...]
    """The fields that there are beside it."""

    @property
    def meant(self) -> str | None:
        """Return the field that may have been meant; None where none is similar."""
        return closest(str(self.path[-1]), self.known, cutoff=0.6)


def unknown_fields(data: Mapping[str, object]) -> Iterator[UnknownField]:
    """Return the fields of an HPA's manifest that its API version does not have."""
    spec = _SPECS.get(str(data.get("apiVersion")))
    if spec is not None:
        whole: _Shape = {**_plain("apiVersion", "kind", "metadata", "status"), "spec": spec}
        yield from _unknown(whole, data, ())


def _unknown(shape: _Shape, data: object, path: Path) -> Iterator[UnknownField]:
    if shape is None:
        return
    if isinstance(data, list):
        for index, each in enumerate(data):
            yield from _unknown(shape, each, (*path, index))
    elif isinstance(data, Mapping):
        for key, value in data.items():
            if key in shape:
                yield from _unknown(shape[key], value, (*path, key))
            else:
                yield UnknownField((*path, key), tuple(shape))
