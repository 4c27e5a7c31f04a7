"""Errors of lint that an API server can refuse itself: ValidatingAdmissionPolicies, made of the same checks.

Those are in them that an object shows by itself, and that Kubernetes or KEDA stores all the same. What takes
rules or other objects, such as a target's unit, stays with `gpuscale lint`.

Source: kubernetes v1.37 staging/src/k8s.io/api/admissionregistration/v1; the definition of CEL.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuscale.base.findings import Check
from gpuscale.base.objects.gpu_resources import GPU_PATTERN
from gpuscale.ops.lint.checks.hpas import (
    CLUSTER_SCOPED_OBJECT,
    CONTRADICTING_TARGET_TYPE,
    GPU_RESOURCE_METRIC,
)
from gpuscale.ops.lint.checks.keda import FALLBACK_WITHOUT_EFFECT, NAME_TOO_LONG
from gpuscale.ops.lint.checks.scale_targets import NO_SCALE_TARGET, WRONG_TARGET_VERSION
from gpuscale.ops.lint.problems import REFUSED_MANIFEST
from gpuscale.ops.lint.workloads import SCALED
from gpuscale.server.rules import KUBERNETES, NAMESPACES

_API = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class _Rule:
    """What an object has to be like."""

    check: Check
    expression: str
    """In CEL; true for what is admitted."""
    says: str = ""
    """What is wrong and what to do; empty takes the check's own words."""


@dataclass(frozen=True, slots=True)
class _Guard:
    """A kind, and what its objects have to be like."""

    group: str
    version: str
    resource: str
    rules: tuple[_Rule, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    """CEL by name, for the rules."""


def _group_of(reference: str) -> str:
    """Return CEL for the group of an object's `apiVersion`; empty for the core group."""
    version = f"{reference}.apiVersion"
    return f"has({version}) && {version}.contains('/') ? {version}.split('/')[0] : ''"


_CLUSTER_SCOPED = [
    f"{each.group}/{each.kind}"
    for each in KUBERNETES.types
    if not each.namespaced and each != NAMESPACES
]
_KNOWN = {name: version for kind, version in SCALED.items() for name in (kind, kind.lower())}
"""The API versions of kinds, by the names that Kubernetes' clients find them by."""
_GROUPS = {name: version.rpartition("/")[0] for name, version in _KNOWN.items()}
_IS_CUSTOM = "variables.group.contains('.')"
"""Whether the target is of a group with a domain, whose kinds are not Kubernetes' own."""
_HAS_SCALE = _Rule(NO_SCALE_TARGET, f"{_IS_CUSTOM} || variables.kind in {_GROUPS}")


def _right_version(wanted: Mapping[str, str], found: str) -> _Rule:
    """Return the rule that the target's version, or its group, is that of its kind."""
    right = f"{wanted}[variables.kind] == variables.{found}"
    return _Rule(WRONG_TARGET_VERSION, f"{_IS_CUSTOM} || !(variables.kind in {wanted}) || {right}")


_TARGET = "object.spec.scaleTargetRef"
_DESCRIBED = "m.object.describedObject"
_HPAS = _Guard(
    "autoscaling",
    "v2",
    "horizontalpodautoscalers",
    (
        _HAS_SCALE,
        _right_version(_GROUPS, "group"),
        _Rule(
            CONTRADICTING_TARGET_TYPE,
            "variables.objects.all(m, m.object.target.type == 'Value' ? has(m.object.target.value) : "
            "m.object.target.type == 'AverageValue' && has(m.object.target.averageValue))",
        ),
        _Rule(
            GPU_RESOURCE_METRIC,
            f"!variables.resources.exists(name, name.matches(r'^({GPU_PATTERN})$'))",
        ),
        _Rule(
            CLUSTER_SCOPED_OBJECT,
            f"!variables.objects.exists(m, ({_group_of(_DESCRIBED)}) + '/' + {_DESCRIBED}.kind in "
            f"{_CLUSTER_SCOPED})",
        ),
    ),
    {
        "kind": f"{_TARGET}.kind",
        "group": _group_of(_TARGET),
        "metrics": "has(object.spec.metrics) ? object.spec.metrics : []",
        "objects": "variables.metrics.filter(m, m.type == 'Object')",
        "resources": "variables.metrics.filter(m, m.type == 'Resource').map(m, m.resource.name) + "
        "variables.metrics.filter(m, m.type == 'ContainerResource').map(m, m.containerResource.name)",
    },
)
_CONFIG = "object.spec.advanced.horizontalPodAutoscalerConfig"
_MODIFIERS = "object.spec.advanced.scalingModifiers"
_SCALED_OBJECTS = _Guard(
    "keda.sh",
    "v1alpha1",
    "scaledobjects",
    (
        _HAS_SCALE,
        _right_version(_KNOWN, "version"),
        _Rule(NAME_TOO_LONG, "size(object.metadata.name) <= 63 && size(variables.hpa) <= 63"),
        _Rule(
            FALLBACK_WITHOUT_EFFECT,
            "!has(object.spec.fallback) || !variables.modified || "
            f"(has({_MODIFIERS}.target) && {_MODIFIERS}.target.matches(r'^0*[1-9][0-9]*$'))",
        ),
        _Rule(
            REFUSED_MANIFEST,
            "object.spec.triggers.all(t, t.type != 'prometheus' || ['query', 'threshold'].all(key, "
            "key in t.metadata && t.metadata[key] != ''))",
            "A prometheus trigger has no query or no threshold. Write both; KEDA refuses the trigger.",
        ),
    ),
    {
        "kind": f"has({_TARGET}.kind) ? {_TARGET}.kind : 'Deployment'",
        "version": f"has({_TARGET}.apiVersion) ? {_TARGET}.apiVersion : 'apps/v1'",
        "group": "variables.version.contains('/') ? variables.version.split('/')[0] : ''",
        "hpa": f"has(object.spec.advanced) && has({_CONFIG}) && has({_CONFIG}.name) && "
        f"{_CONFIG}.name != '' ? {_CONFIG}.name : 'keda-hpa-' + object.metadata.name",
        "modified": f"has(object.spec.advanced) && has({_MODIFIERS}) && (has({_MODIFIERS}.formula) || "
        f"has({_MODIFIERS}.target) || has({_MODIFIERS}.activationTarget) || has({_MODIFIERS}.metricType))",
    },
)


def admission_policies() -> tuple[dict[str, Any], ...]:
    """Return the policies and their bindings, as objects to apply."""
    return tuple(each for guard in (_HPAS, _SCALED_OBJECTS) for each in _policy(guard))


def _policy(guard: _Guard) -> tuple[dict[str, Any], dict[str, Any]]:
    name = f"gpuscale-lint-{guard.resource}"
    rule = {
        "apiGroups": [guard.group],
        "apiVersions": [guard.version],
        "resources": [guard.resource],
        "operations": ["CREATE", "UPDATE"],
    }
    changes = "request.operation == 'CREATE' || object.spec != oldObject.spec"
    policy: dict[str, Any] = {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {"resourceRules": [rule]},
            # What is stored already may still be labelled and deleted.
            "matchConditions": [{"name": "new-or-changed", "expression": changes}],
            "variables": [{"name": key, "expression": cel} for key, cel in guard.variables.items()],
            "validations": [_validation(each) for each in guard.rules],
        },
    }
    binding: dict[str, Any] = {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return policy, binding


def _validation(rule: _Rule) -> dict[str, str]:
    says = rule.says or f"{rule.check.explanation} {rule.check.fix}"
    return {
        "expression": rule.expression,
        "message": f"{says} (gpuscale lint: {rule.check.id})",
    }
