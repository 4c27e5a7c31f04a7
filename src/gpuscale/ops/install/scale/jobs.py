"""Jobs that KEDA makes of a template, as many as there is work for: a ScaledJob on gpuscale's scaler.

Source: KEDA v2.21 apis/keda/v1alpha1/scaledjob_types.go, pkg/scaling/executor/scale_jobs.go.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from gpuscale.base.documents.documents import Document, Path, load_documents
from gpuscale.base.documents.models import Model, refused
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.kube import job_faults
from gpuscale.ops.install.fields import Target
from gpuscale.ops.install.helm.rendering import of_jobs
from gpuscale.ops.install.pods import Object
from gpuscale.ops.install.scale.metrics import Query
from gpuscale.ops.install.scale.scale import Label, Subdomain
from gpuscale.ops.install.scale.wake import FIELDS, Wake
from gpuscale.triggers import read_metadata


def _ratio(text: str) -> str:
    try:
        is_ratio = 0 <= float(text) <= 1
    except ValueError:
        is_ratio = False
    if not is_ratio:
        raise ValueError(f"found {text!r}, expected a ratio from 0 to 1 as text, such as '0.5'")
    return text


class JobMetric(Model):
    """A PromQL query of the work that waits, such as the length of a queue."""

    query: Query
    """PromQL with one number as its answer."""
    target: Target = 1
    """How much of it is for one Job."""


class ScalingStrategy(Model):
    """How many Jobs are made beside those that run, by KEDA's names."""

    strategy: Literal["default", "custom", "accurate", "eager"] = "default"
    """`default`: the query counts work that runs too; `accurate`: it counts only work that nobody took;
    `eager`: up to maxReplicas at once."""
    custom_scaling_queue_length_deduction: int | None = Field(default=None, ge=0)
    """With `custom`: what is taken off the query's answer."""
    custom_scaling_running_job_percentage: Annotated[str, AfterValidator(_ratio)] | None = None
    """With `custom`: the part of the running Jobs that is taken off, as text, such as "0.5"."""
    pending_pod_conditions: tuple[str, ...] = ()
    """Conditions of a pod that make its Job count as one that runs, such as PodScheduled."""
    multiple_scalers_calculation: Literal["max", "min", "avg", "sum"] = "max"
    """What several metrics come to."""

    @model_validator(mode="after")
    def _is_custom(self) -> "ScalingStrategy":
        given = (
            self.custom_scaling_queue_length_deduction,
            self.custom_scaling_running_job_percentage,
        )
        if self.strategy != "custom" and given != (None, None):
            text = f"found a field of custom with strategy {self.strategy}"
            raise ValueError(f"{text}, expected strategy: custom")
        return self


class ScaledJob(Model):
    """Jobs of one template: what asks for them, and how many there may be."""

    name: Subdomain
    """Name of the ScaledJob, and the first part of the names of its Jobs."""
    namespace: Label = "default"
    """Where the Jobs run."""
    job: Object | None = None
    """Spec of each Job, as `batch/v1` has it: `template`, `backoffLimit` and so on."""
    job_file: str | None = Field(default=None, min_length=1, max_length=1024)
    """In place of `job`: file with a Job, beside the values file. Helm reads no such files."""
    metrics: tuple[JobMetric, ...] = Field(default=(), max_length=16)
    """What there is to do; the metric that asks for most Jobs counts."""
    wake: Wake | None = None
    """What asks for `wake.replicas` Jobs while it is active, and what holds while a source is away."""
    min_replicas: int = Field(default=0, ge=0, le=10_000)
    """Jobs at least."""
    max_replicas: int = Field(ge=1, le=10_000)
    """Jobs at most."""
    polling_interval_seconds: int | None = Field(default=None, ge=1, le=3600)
    """How often KEDA looks; absent: `keda.pollingIntervalSeconds`."""
    scaling_strategy: ScalingStrategy = ScalingStrategy()
    rollout: Literal["gradual", "immediate"] = "gradual"
    """When the ScaledJob changes. `gradual`: Jobs that run go on; `immediate`, KEDA's default: they are
    removed."""
    successful_jobs_history_limit: int = Field(default=100, ge=0, le=10_000)
    """Finished Jobs that stay to be looked at."""
    failed_jobs_history_limit: int = Field(default=100, ge=0, le=10_000)
    """Failed Jobs that stay to be looked at."""

    @property
    def trigger_keys(self) -> list[dict[str, str]]:
        """The keys of each trigger, in the order of the metrics; the first one wakes too."""
        given = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        keys: list[dict[str, str]] = of_jobs("gpuscale.jobTriggerKeys", given)
        return keys

    @model_validator(mode="after")
    def _fits(self) -> "ScaledJob":
        faults = [*self._faults()]
        if faults:
            raise refused(type(self), faults)
        return self

    def _faults(self) -> Iterator[tuple[Path, str]]:
        if (self.job is None) == (self.job_file is None):
            found = "neither of job and jobFile" if self.job is None else "job and jobFile"
            yield (), f"found {found}, expected one of them"
        if self.min_replicas > self.max_replicas:
            text = f"found minReplicas {self.min_replicas} above maxReplicas {self.max_replicas}"
            yield (), f"{text}, expected minReplicas <= maxReplicas"
        if self.job is not None:
            yield from ((("job", *path), text) for path, text in job_faults(self.job))
        if not self.metrics and self.wake is None:
            yield (), "found neither metrics nor wake, expected what asks for Jobs"
        elif self.wake is not None and self.wake.deadline is not None:
            text = "found it with a Job, expected none: a Job that was made stays until it ends"
            yield ("wake", "deadline"), text
        else:
            yield from self._refused_triggers()

    def _refused_triggers(self) -> Iterator[tuple[Path, str]]:
        """Return what the reader of triggers finds in those of these Jobs."""
        for keys in self.trigger_keys:
            try:
                read_metadata(keys, self.namespace)
            except ConfigError as error:
                for problem in error.problems:
                    field = FIELDS.get(problem.field or "")
                    text = str(replace(problem, source="", line=None, field=None))
                    yield ("wake",) if field is None else ("wake", field), text.removeprefix(": ")


def read_job(text: str, source: str) -> Object:
    """Return the spec of a Job from a file with a Job, or with its spec alone.

    Raises:
        ConfigError: not one document, or no Job; all faults.
    """
    documents = load_documents(text, source)
    if len(documents) != 1:
        found = f"{len(documents)} documents"
        raise ConfigError(Problem(source, None, None, found, "one Job"))
    (document,) = documents
    path, spec = _spec_of(document)
    problems = [document.problem((*path, *below), fault) for below, fault in job_faults(spec)]
    if problems:
        raise ConfigError(*problems)
    job: Object = spec
    return job


def _spec_of(document: Document) -> tuple[Path, Any]:
    data = document.data
    if not isinstance(data, dict) or "kind" not in data:
        return (), data
    if data["kind"] != "Job":
        raise ConfigError(document.problem(("kind",), "Job", found=str(data["kind"])))
    return ("spec",), data.get("spec")
