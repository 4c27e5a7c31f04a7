"""One workload that is scaled: on which metrics, between which limits, how fast, by whom."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from gpuscale.base.documents.documents import Document, Path, parts_of
from gpuscale.base.documents.models import Model, refused
from gpuscale.base.documents.validation import LABEL_PATTERN, SUBDOMAIN_PATTERN
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import read_hpa
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.terms import UNITS, MetricUnit, unit_fault
from gpuscale.ops.install.fields import Target
from gpuscale.ops.install.helm.rendering import of_scale
from gpuscale.ops.install.scale.azure_monitor import AzureMonitorMetric
from gpuscale.ops.install.scale.behavior import Behavior
from gpuscale.ops.install.scale.metrics import (
    CombinedMetric,
    ContainerResourceMetric,
    ExternalMetric,
    MetricEntry,
    ObjectMetric,
    PodsMetric,
    Query,
    QueryMetric,
    ResourceMetric,
    SignalMetric,
    SignalName,
    SignalObject,
    as_written,
)
from gpuscale.ops.install.scale.policies import has_policy, policies_refused
from gpuscale.ops.install.scale.wake import (
    FIELDS,
    Wake,
    served_entries,
)
from gpuscale.signals import SIGNALS, Signal
from gpuscale.triggers import read_metadata

V2BETA1 = "autoscaling/v2beta1"
HpaVersion = Literal["autoscaling/v2", "autoscaling/v2beta2", "autoscaling/v2beta1"]
DEFAULT_WINDOW_S = 300
"""Kubernetes' own."""
_KEDA_RESOURCES = ("cpu", "memory")
_OF_CREDIT = frozenset({"waiting", "throughput", "startTime", "drain"})
_MOST_CHARACTERS = 63
"""Of the names of ScaledObjects and of their HPAs, which are values of labels."""

Label = Annotated[str, Field(pattern=LABEL_PATTERN, max_length=63)]
Subdomain = Annotated[str, Field(pattern=SUBDOMAIN_PATTERN, max_length=63)]
"""Kubernetes allows 253 characters; KEDA and labels made of names allow 63."""


def keda_hpa_name(scale: "Scale") -> str:
    """Return the name that KEDA gives a workload's HPA."""
    return f"keda-hpa-{autoscaler_name(scale)}"


def autoscaler_name(scale: "Scale") -> str:
    """Return the name of a workload's autoscaler."""
    return f"{scale.workload.name}-gpu"


class Workload(Model):
    """What is scaled."""

    kind: Literal["Deployment", "StatefulSet"] = "Deployment"
    """Its kind."""
    name: Subdomain
    """Its name."""
    namespace: Label = "default"
    """Its namespace."""


class Scale(Model):
    """One workload, its metrics, and its limits."""

    workload: Workload
    signal: SignalName = "gpu-utilization"
    """Short for one metric; `metrics` takes several. `gpuscale init --signal list` shows all."""
    of: SignalObject | None = None
    """Of signals of gateways, proxies and queues: name of the InferencePool, the Ingress, the queue."""
    query: Query | None = None
    """In place of `signal`: PromQL with one number as its answer, the load of the whole workload."""
    target: Target | None = None
    """Per pod, in the signal's unit: percent, MiB, a ratio from 0 to 1, requests, messages or seconds. Needed
    without `metrics`."""
    metrics_port: int | None = Field(default=None, ge=1, le=65_535)
    """Where the pods serve the metrics of a model server; absent: the server's own default. The container
    has to name the port."""
    metrics: tuple[MetricEntry, ...] = Field(default=(), max_length=16)
    """In place of `signal` and `target`: several metrics; the one that asks for most replicas counts. Each is
    a signal with its target, a metric as an HPA of `autoscaling/v2` has it, a query, or KEDA's own metric of
    type AzureMonitor."""
    min_replicas: int = Field(default=1, ge=0, le=10_000)
    """0 takes something that is there without pods: `wake`, a query, or an Object or External metric."""
    max_replicas: int = Field(ge=1, le=10_000)
    """Replicas at most."""
    wake: Wake | None = None
    """What wakes the workload from zero. Its signals and queries are then served as totals, which are there
    without pods too: with `hpa` as External metrics, with `keda` by the scaler."""
    autoscaler: Literal["hpa", "keda"] = "hpa"
    """`hpa`: a HorizontalPodAutoscaler on the metrics API; `keda`: a ScaledObject on gpuscale's scaler."""
    metric: Literal["pods", "object"] = "pods"
    """With `hpa`. `pods`: the mean of the pods; `object`: the recorded mean of the workload's GPUs."""
    hpa_version: HpaVersion = "autoscaling/v2"
    """The older two are for clusters before Kubernetes 1.23."""
    behavior: Behavior | None = None
    """How fast it scales, as an HPA of `autoscaling/v2` has it."""
    scale_down_stabilization_seconds: int = Field(default=DEFAULT_WINDOW_S, ge=0, le=3600)
    """How long less has to be enough before pods go; the default is Kubernetes' own."""

    @property
    def entries(self) -> tuple[MetricEntry, ...]:
        """The metrics, however they were given."""
        if self.metrics:
            return self.metrics
        if self.query is not None:
            return (QueryMetric(query=self.query, target=self.target or 1),)
        given = {"target": self.target or 1, "metric": self.metric, "of": self.of}
        return (SignalMetric(signal=self.signal, **given),)  # type: ignore[arg-type]

    @property
    def has_policy(self) -> bool:
        """Whether one of its metrics is what a policy wants."""
        return any(map(has_policy, self.entries))

    @property
    def has_credit(self) -> bool:
        """Whether one of its metrics counts pods that are starting."""
        return any(
            isinstance(each, QueryMetric) and each.credit is not None for each in self.entries
        )

    @cached_property
    def trigger_keys(self) -> list[dict[str, str]]:
        """The keys of the trigger of each signal and query, in their order."""
        made: list[dict[str, str]] = self._made("gpuscale.triggerKeys")
        return [{key: text for key, text in keys.items() if key != "entry"} for keys in made]

    @property
    def hpa_spec(self) -> dict[str, Any]:
        """The spec of its HorizontalPodAutoscaler."""
        spec: dict[str, Any] = self._made("gpuscale.hpaSpec")
        return spec

    def _made(self, template: str) -> Any:  # noqa: ANN401 - whatever the template makes
        return of_scale(template, self.model_dump(mode="json", by_alias=True, exclude_unset=True))

    @property
    def has_served_triggers(self) -> bool:
        """Whether the metrics API serves its signals and queries by triggers."""
        has_query = any(
            isinstance(each, QueryMetric)
            or (isinstance(each, SignalMetric) and each.source.kind == "external")
            for each in self.entries
        )
        return self.autoscaler == "hpa" and (self.wake is not None or has_query)

    @property
    def signal_metrics(self) -> tuple[SignalMetric, ...]:
        return tuple(each for each in self.entries if isinstance(each, SignalMetric))

    @property
    def combined_metrics(self) -> tuple[CombinedMetric, ...]:
        return tuple(each for each in self.entries if isinstance(each, CombinedMetric))

    @property
    def signal_names(self) -> tuple[SignalName, ...]:
        """The names of its signals, those inside of combined metrics too."""
        found = (
            each.parts if isinstance(each, CombinedMetric) else (each,)
            for each in self.entries
            if isinstance(each, SignalMetric | CombinedMetric)
        )
        return tuple(dict.fromkeys(part.signal for parts in found for part in parts))

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals, each once."""
        return tuple(SIGNALS[name] for name in self.signal_names)

    @model_validator(mode="before")
    @classmethod
    def _has_metrics(cls, data: Any) -> Any:  # noqa: ANN401 - whatever a file has
        if isinstance(data, dict) and not data.get("metrics") and data.get("target") is None:
            raise refused(cls, [(("target",), "this field is required, unless there are metrics")])
        return data

    @model_validator(mode="after")
    def _fits(self) -> "Scale":
        limits = [*self._limits(), *self._objects()]
        faults = [*self._short_form(), *limits, *self._units(), *self._older_version()]
        if not limits:
            faults += self._keda() if self.autoscaler == "keda" else self._hpa()
        places = [i for i, each in enumerate(self.entries) if each in served_entries([each])]
        keys = {} if faults else dict(zip(places, self.trigger_keys, strict=True))
        if not faults and (self.wake is not None or self.has_served_triggers or self.has_credit):
            faults += self._refused_triggers(keys)
        if not faults and self.has_policy:
            faults += policies_refused(self.entries, keys, self.workload.namespace)
        if faults:
            raise refused(type(self), faults)
        return self

    def _short_form(self) -> Iterator[tuple[Path, str]]:
        if self.query is not None and self.signal != type(self).model_fields["signal"].default:
            yield ("query",), "found query beside signal, expected one of them"
        if self.metrics:
            for name in ("signal", "of", "query", "target", "metric"):
                # A program may have written out the default values.
                if getattr(self, name) != type(self).model_fields[name].default:
                    yield (name,), f"found {name} beside metrics, expected it inside of metrics"
        window = self.behavior and self.behavior.scale_down
        is_twice = window and window.stabilization_window_seconds is not None
        if is_twice and self.scale_down_stabilization_seconds != DEFAULT_WINDOW_S:
            text = "found scaleDownStabilizationSeconds beside behavior.scaleDown."
            path = ("scaleDownStabilizationSeconds",)
            yield path, f"{text}stabilizationWindowSeconds, expected one of them"

    def _limits(self) -> Iterator[tuple[Path, str]]:
        if self.min_replicas > self.max_replicas:
            text = f"found minReplicas {self.min_replicas} above maxReplicas {self.max_replicas}"
            yield (), f"{text}, expected minReplicas <= maxReplicas"
        wakes = ObjectMetric | ExternalMetric | QueryMetric | AzureMonitorMetric
        has_source = self.wake is not None or any(
            isinstance(each, wakes)
            or (isinstance(each, SignalMetric) and each.source.is_there_at_zero)
            for each in self.entries
        )
        if self.min_replicas == 0 and self.has_policy:
            yield ("minReplicas",), "found 0 with a policy, expected at least 1: it keeps a pod up"
        if self.min_replicas == 0 and not has_source:
            text = (
                "expected at least 1: without a pod there is no reading that could bring the first"
            )
            yield (
                ("minReplicas",),
                f"found 0, {text} one back; 0 takes wake, or a metric of the load itself",
            )

    def _objects(self) -> Iterator[tuple[Path, str]]:
        """Return the signals that lack a needed object, or have one they don't need."""
        for path, metric in self._placed_signals():
            names = metric.source.family.names if metric.source.kind != "pods" else ""
            if names and metric.of is None:
                yield path, f"found signal {metric.signal} without of, expected the name of {names}"
            if metric.of is not None and not names:
                text = f"found of with signal {metric.signal}, which is read from the pods"
                yield (*path, "of"), f"{text}, expected none"

    def _units(self) -> Iterator[tuple[Path, str]]:
        for path, metric in self._placed_signals():
            if metric.metric == "object" and metric.signal != "gpu-utilization":
                text = f"found metric object with signal {metric.signal}"
                yield path, f"{text}, expected signal gpu-utilization, whose mean is recorded"
            for fault in _unit_faults(metric.signal, metric.target):
                yield (*path, "target"), fault
        for index, entry in enumerate(self.entries):
            if isinstance(entry, CombinedMetric):
                for number, part in enumerate(entry.parts):
                    for fault in _unit_faults(part.signal, part.threshold):
                        yield ("metrics", index, "parts", number, "threshold"), fault

    def _placed_signals(self) -> Iterator[tuple[Path, SignalMetric]]:
        for index, metric in enumerate(self.entries):
            if isinstance(metric, SignalMetric):
                yield (("metrics", index) if self.metrics else ()), metric

    def _older_version(self) -> Iterator[tuple[Path, str]]:
        if self.autoscaler == "keda" or self.behavior is None:
            return
        if self.hpa_version == V2BETA1:
            text = "found behavior with hpaVersion autoscaling/v2beta1"
            yield ("behavior",), f"{text}, expected autoscaling/v2, or none"
        for key, rules in as_written(self.behavior).items():
            if "tolerance" in rules and self.hpa_version == "autoscaling/v2beta2":
                text = "found tolerance with hpaVersion autoscaling/v2beta2"
                yield ("behavior", key, "tolerance"), f"{text}, expected autoscaling/v2, or none"

    def _hpa(self) -> Iterator[tuple[Path, str]]:
        """Return what the API server would refuse, in its words, and metrics that no trigger can serve."""
        for index, metric in enumerate(self.metrics):
            if isinstance(metric, QueryMetric) and metric.target_type == "Value":
                text = "found targetType Value with autoscaler hpa, expected AverageValue"
                yield ("metrics", index, "targetType"), f"{text}: a query is of the whole workload"
            if isinstance(metric, AzureMonitorMetric):
                text = "found a metric of type AzureMonitor with autoscaler hpa"
                yield ("metrics", index, "type"), f"{text}, expected keda: no metrics API has it"
        for place, signal in self._placed_signals():
            if self.has_served_triggers and signal.metric == "object":
                text = "found metric object beside wake or a query"
                yield (*place, "metric"), f"{text}, expected pods: a total is served"
        if self.wake is not None and not served_entries(self.entries):
            yield (
                ("wake",),
                "found it without a signal or a query, expected one that it brings back",
            )
        manifest = {
            "apiVersion": self.hpa_version,
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "some", "namespace": "default"},
            "spec": self.hpa_spec,
        }
        fields = Fields(Document("values", 0, manifest, {}), manifest)
        read_hpa(fields)
        for problem in fields.problems:
            _, *path = parts_of(problem.field or "")
            old = f" ({path[-1]} of {V2BETA1})" if self.hpa_version == V2BETA1 else ""
            text = (
                problem.expected
                if problem.found is None
                else f"found {problem.found}, expected {problem.expected}"
            )
            yield tuple(path), f"{text}{old}"

    def _keda(self) -> Iterator[tuple[Path, str]]:
        if len(keda_hpa_name(self)) > _MOST_CHARACTERS:
            most = len(self.workload.name) - len(keda_hpa_name(self)) + _MOST_CHARACTERS
            text = f"found a name of {len(self.workload.name)} characters with autoscaler keda"
            why = "KEDA's HPA is named after it"
            yield ("workload", "name"), f"{text}, expected at most {most}: {why}"
        if self.wake is not None and not served_entries(self.entries):
            yield (
                ("wake",),
                "found it without a signal or a query, expected one that it brings back",
            )
        for index, metric in enumerate(self.metrics):
            path = ("metrics", index)
            if isinstance(metric, PodsMetric | ObjectMetric | ExternalMetric):
                text = f"found a metric of type {metric.type} with autoscaler keda"
                yield (*path, "type"), f"{text}, expected a query, a signal or autoscaler: hpa"
            if isinstance(metric, ResourceMetric | ContainerResourceMetric):
                yield from self._keda_resource(path, metric)

    def _refused_triggers(
        self, keys_by_place: Mapping[int, Mapping[str, str]]
    ) -> Iterator[tuple[Path, str]]:
        """Return the trigger reader's faults of this scale."""
        for index, keys in keys_by_place.items():
            if "policy" in keys:
                continue
            try:
                read_metadata(keys, self.workload.namespace)
            except ConfigError as error:
                for problem in error.problems:
                    key = problem.field or ""
                    path: Path = ("wake", FIELDS[key]) if key in FIELDS else ("wake",)
                    if key in _OF_CREDIT:
                        path = ("metrics", index, "credit", key)
                    text = str(replace(problem, source="", line=None, field=None))
                    yield path, text.removeprefix(": ")

    def _keda_resource(
        self, path: Path, metric: ResourceMetric | ContainerResourceMetric
    ) -> Iterator[tuple[Path, str]]:
        source = metric.source
        is_of_container = isinstance(metric, ContainerResourceMetric)
        path = (*path, "containerResource" if is_of_container else "resource")
        if source.name not in _KEDA_RESOURCES:
            text = f"found resource {source.name} with autoscaler keda, expected"
            yield (*path, "name"), f"{text} {' or '.join(_KEDA_RESOURCES)}"
        target, key = source.target, "averageUtilization"
        value: object = target.average_utilization
        if target.type != "Utilization":
            key, value = "averageValue", target.average_value
        if target.type == "Value" or value is None:
            text = f"found a target of type {target.type} without its value"
            yield (*path, "target"), f"{text}, expected Utilization or AverageValue with {key}"


def _unit_faults(name: SignalName, value: float) -> Iterator[str]:
    """Yield why a number can't be a value of a signal in its unit."""
    signal = SIGNALS[name]
    known = UNITS.get(signal.unit)
    if known is not None:
        unit = MetricUnit(known, is_sum=signal.is_sum)
        fault = unit_fault(name, parse_quantity(f"{value:.3f}"), unit)
        if fault is not None:
            yield f"{fault.what} {fault.fix(as_number=True)}"
