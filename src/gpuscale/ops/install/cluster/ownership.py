"""The owner of an object: an installation, known by its label, or somebody else."""

import json
from collections.abc import Mapping
from typing import Any

from gpuscale.ops.install.common import INSTALL_LABEL

REPLACED = "gpuscale.dev/replaced"
"""Annotation with the object that was there before, as JSON: the way back."""
_MANAGED = ("app.kubernetes.io/managed-by", "app.kubernetes.io/name", "app")
_HELM_RELEASE = "meta.helm.sh/release-name"
"""Annotation that Helm puts on all that it made; the chart's objects have our label too."""
_OF_JOB_CONTROLLER = (
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
)
_OF_SERVER = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
)


def owner(body: Mapping[str, Any]) -> str | None:
    """Return the installation that an object belongs to; None for another owner's, such as Helm's."""
    if _release(body) is not None:
        return None
    found: str | None = _labels(body).get(INSTALL_LABEL)
    return found


def described(body: Mapping[str, Any]) -> str:
    """Return a description of an object's other owner."""
    release = _release(body)
    if release is not None:
        return f"of Helm's release {release}"
    service = body.get("spec", {}).get("service") if body["kind"] == "APIService" else None
    if service:
        return f"served by Service {service['namespace']}/{service['name']}"
    labels = _labels(body)
    known = [f"{key}={labels[key]}" for key in _MANAGED if key in labels]
    if known:
        return f"labelled {', '.join(known)}"
    managers = [each.get("manager") for each in body["metadata"].get("managedFields", [])]
    return f"made by {', '.join(dict.fromkeys(filter(None, managers)))}" if managers else "not ours"


def essence(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without the fields that the server adds, for writing it again."""
    metadata = {key: value for key, value in body["metadata"].items() if key not in _OF_SERVER}
    rest = {key: value for key, value in body.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": metadata}


def creatable(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object for creation: without server fields, and a Job without its generated selector.

    Source: kubernetes v1.36 pkg/registry/batch/job/strategy.go (generateSelector).
    """
    found: dict[str, Any] = json.loads(json.dumps(body))
    if found["kind"] == "Job" and not found["spec"].get("manualSelector"):
        found["spec"].pop("selector", None)
        for metadata in (found["metadata"], found["spec"]["template"].get("metadata", {})):
            for key in _OF_JOB_CONTROLLER:
                metadata.get("labels", {}).pop(key, None)
    return found


def with_way_back(body: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with an annotation that holds the one it replaces."""
    original = json.dumps(essence(before), sort_keys=True)
    metadata = dict(body["metadata"])
    metadata["annotations"] = {**metadata.get("annotations", {}), REPLACED: original}
    return {**body, "metadata": metadata}


def replaced(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the object that this one replaced; None if it replaced none."""
    text = body["metadata"].get("annotations", {}).get(REPLACED)
    if text is None:
        return None
    original: dict[str, Any] = json.loads(text)
    return original


def _release(body: Mapping[str, Any]) -> str | None:
    found: str | None = (body["metadata"].get("annotations") or {}).get(_HELM_RELEASE)
    return found


def _labels(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return body["metadata"].get("labels") or {}
