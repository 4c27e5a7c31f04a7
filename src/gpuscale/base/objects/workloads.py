"""Deployments, Jobs and Services."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.meta import ObjectMeta, read_meta
from gpuscale.base.objects.pods import PodTemplate, read_pod_template
from gpuscale.base.objects.selectors import Selector, selector_of_labels


@dataclass(frozen=True, slots=True)
class Deployment:
    """A Deployment: this many pods of one template."""

    metadata: ObjectMeta
    replicas: int
    selector: Selector
    template: PodTemplate


@dataclass(frozen=True, slots=True)
class Job:
    """A Job: pods of one template until enough of them succeeded."""

    metadata: ObjectMeta
    template: PodTemplate
    completions: int = 1
    parallelism: int = 1


@dataclass(frozen=True, slots=True)
class Service:
    """A Service: a name for the pods that its selector finds."""

    metadata: ObjectMeta
    selector: Mapping[str, str] = field(default_factory=dict)


def read_deployment(fields: Fields) -> Deployment:
    """Return the Deployment of a manifest."""
    spec = fields.child("spec", required=True)
    template = read_pod_template(spec)
    selector = spec.selector("selector")
    if selector is None:
        spec.note(("selector",), "this field is required")
    elif not selector.matches(template.labels):
        fix = "give template.metadata.labels what the selector asks for"
        spec.note(
            ("selector",),
            "a selector that matches the template's labels",
            found=str(selector),
            fix=fix,
        )
    return Deployment(
        metadata=read_meta(fields),
        replicas=_count(spec, "replicas", 1),
        selector=selector or selector_of_labels(template.labels),
        template=template,
    )


def read_job(fields: Fields) -> Job:
    """Return the Job of a manifest."""
    spec = fields.child("spec", required=True)
    return Job(
        metadata=read_meta(fields),
        template=read_pod_template(spec),
        completions=_count(spec, "completions", 1),
        parallelism=_count(spec, "parallelism", 1),
    )


def read_service(fields: Fields) -> Service:
    """Return the Service of a manifest."""
    return Service(read_meta(fields), fields.child("spec").labels("selector"))


def _count(fields: Fields, key: str, default: int) -> int:
    count = fields.integer(key, default)
    if count is None or count < 0:
        fields.note((key,), "zero or more", found=str(count))
        return default
    return count
