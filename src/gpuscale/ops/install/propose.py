"""The proposal that `init` writes: the user's answers and the cluster's facts, without defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuscale.ops.install.cluster.detection import TEAM_RULES, Detected, FoundWorkload
from gpuscale.ops.install.image import parse_image
from gpuscale.ops.install.settings.metrics_api import MetricSourceName
from gpuscale.ops.providers import Provider, taint_object
from gpuscale.signals import SIGNALS, Signal
from gpuscale.triggers import PRESETS


@dataclass(frozen=True, slots=True)
class Answers:
    """The user's answers; None where there is none."""

    workload: FoundWorkload | None = None
    signal: str | None = None
    target: float | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    provider: Provider | None = None
    autoscaler: str | None = None
    namespace: str | None = None
    image: str | None = None
    """`REPOSITORY:TAG`."""
    is_image_present: bool = False
    """Whether every node has the image already, so that none is pulled."""
    prometheus_url: str | None = None
    source: MetricSourceName | None = None
    """Where the metrics API gets its values."""
    scrapes_pods: bool = False
    selected_pods: tuple[Mapping[str, Any], ...] = ()
    """Pods that are scraped without an annotation, as a values file has them."""
    otlp_clients: tuple[Mapping[str, str], ...] = ()
    """Service accounts that push OTLP metrics."""
    serves_resource: bool | None = None
    """Whether the metrics API serves metrics.k8s.io."""
    team_rules: str | None = None
    """Labels of ConfigMaps with rules of teams; empty for none."""
    of: str | None = None
    """Of signals of gateways, proxies and queues: name of the object there."""
    query: str | None = None
    """In place of a signal: PromQL of the whole load."""
    combined: Mapping[str, Any] | None = None
    """In place of a signal: several limits as one metric, as a values file has it."""
    wake: str | None = None
    """What wakes the workload from zero: PromQL, or SOURCE/NAME of a known wake source."""
    more: dict[str, Any] = field(default_factory=dict)


DEFAULT_SIGNAL: str = "gpu-utilization"
DEFAULT_MIN_REPLICAS, DEFAULT_MAX_REPLICAS = 1, 10


def signal_of(answers: Answers) -> Signal:
    """Return the answered signal, else the usual one."""
    return SIGNALS[answers.signal or DEFAULT_SIGNAL]


def signals_of(answers: Answers) -> list[Signal]:
    """Return the signals to scale on."""
    if answers.combined is None:
        return [signal_of(answers)]
    return [SIGNALS[part["signal"]] for part in answers.combined["parts"]]


def proposed(answers: Answers, found: Detected) -> dict[str, Any]:
    """Return a values file as data: the user's answers and the cluster's facts, without defaults.

    Raises:
        ValueError: workload or provider are neither said nor to be seen, or the image is no reference.
    """
    provider = answers.provider or found.provider
    if answers.workload is None or provider is None:
        raise ValueError("found neither workload nor provider, expected both")
    spec: dict[str, Any] = {"provider": provider.name}
    if answers.namespace is not None:
        spec["namespace"] = answers.namespace
    if answers.image is not None:
        repository, tag = parse_image(answers.image)
        spec["image"] = {"repository": repository, "tag": tag}
    if answers.is_image_present:
        spec.setdefault("image", {})["pullPolicy"] = "Never"
    spec["scale"] = [_scale(answers, answers.workload, found)]
    spec["taint"] = taint_object(provider.taint)
    agent = _agent(answers, found, provider.device_access)
    if agent:
        spec["agent"] = agent
    prometheus = _prometheus(answers, found)
    if prometheus:
        spec["prometheus"] = prometheus
    api = _metrics_api(answers, found)
    if api:
        spec["metricsApi"] = api
    if not provider.has_device_plugin and found.device_plugin is None:
        spec["devicePlugin"] = {"enabled": True}
    head = {"apiVersion": "gpuscale.dev/v1alpha1", "kind": "Values"}
    return {**head, "spec": {**spec, **answers.more}}


def _load(answers: Answers) -> dict[str, Any]:
    target = answers.target if answers.target is not None else signal_of(answers).target
    shown = {"target": int(target) if float(target).is_integer() else target}
    if answers.combined is not None:
        is_said = answers.target is not None  # the default is 1, which is full
        return {"metrics": [{**answers.combined, **(shown if is_said else {})}]}
    if answers.query is not None:
        return {"query": answers.query, **shown}
    of = {} if answers.of is None else {"of": answers.of}
    return {"signal": answers.signal or DEFAULT_SIGNAL, **of, **shown}


def _scale(answers: Answers, workload: FoundWorkload, found: Detected) -> dict[str, Any]:
    fewest, most = answers.min_replicas, answers.max_replicas
    scale: dict[str, Any] = {
        "workload": {
            "kind": workload.kind,
            "name": workload.name,
            "namespace": workload.namespace,
        },
        **_load(answers),
        "minReplicas": DEFAULT_MIN_REPLICAS if fewest is None else fewest,
        "maxReplicas": DEFAULT_MAX_REPLICAS if most is None else most,
        "autoscaler": answers.autoscaler or "hpa",
    }
    if answers.wake:
        scale["wake"] = wake_of(answers.wake)
    if found.hpa_version not in (None, "autoscaling/v2"):
        scale["hpaVersion"] = found.hpa_version
    return scale


def wake_of(text: str) -> dict[str, Any]:
    """Return a workload's wake source: a known kind with its object's name, else a query."""
    source, slash, name = text.partition("/")
    if slash and source in PRESETS:
        return {"sources": [source], "name": name}
    return {"query": text}


def _agent(answers: Answers, found: Detected, access: str) -> dict[str, Any]:
    signals = signals_of(answers)
    of_processes = any(each.of_processes for each in signals)
    agent: dict[str, Any] = {}
    has_its_series = _has_prometheus(answers, found) and source_for(answers, found) == "prometheus"
    if found.dcgm_exporter is not None and has_its_series and not of_processes:
        return {"enabled": False}
    if of_processes:
        agent["attribution"] = "processes"
    if any(each.is_alibabas for each in signals):
        agent["style"] = "both"
    if access == "host":
        agent["deviceAccess"] = "host"
    elif found.runtime_class is not None:
        agent["runtimeClass"] = found.runtime_class
    return agent


def _prometheus(answers: Answers, found: Detected) -> dict[str, Any]:
    if answers.prometheus_url is not None:
        return {"kind": "plain", "url": answers.prometheus_url}
    if found.prometheus is None:
        return {}
    kind = "operator" if found.prometheus.is_operated else "plain"
    release = {"release": found.prometheus.release} if found.prometheus.release else {}
    return {"kind": kind, "url": found.prometheus.url, **release}


def _metrics_api(answers: Answers, found: Detected) -> dict[str, Any]:
    api: dict[str, Any] = {}
    if source_for(answers, found) == "streams":
        api["source"] = "streams"
    if answers.scrapes_pods:
        api["scrapePods"] = True
    if answers.selected_pods:
        api["scrapeSelectedPods"] = [dict(each) for each in answers.selected_pods]
    if answers.otlp_clients:
        api["otlp"] = {"enabled": True, "clients": [dict(each) for each in answers.otlp_clients]}
        api["replicas"] = 1  # replicas don't share pushed samples
    if serves_resource(answers, found):
        api["resource"] = True
    is_query = bool(answers.wake or answers.query) or signal_of(answers).kind == "external"
    if is_query and answers.autoscaler != "keda":
        api["external"] = True
    if rules := team_rules(answers, found):
        api["rulesConfigMaps"] = rules
    return api


def source_for(answers: Answers, found: Detected) -> MetricSourceName:
    """Return the answered metric source, else streams if the cluster has no Prometheus.

    A query that wakes a workload asks a Prometheus in any case.
    """
    if answers.source is not None:
        return answers.source
    has_none = found.is_known and not _has_prometheus(answers, found)
    return "streams" if has_none and not answers.wake else "prometheus"


def serves_resource(answers: Answers, found: Detected) -> bool:
    """Return whether to serve metrics.k8s.io: the answer, else yes if nobody else does and we can.

    It takes a Prometheus that is there, because the installation's own does not scrape kubelets.
    """
    if answers.serves_resource is not None:
        return answers.serves_resource
    is_free = found.is_known and found.resource_metrics_by is None
    can = _has_prometheus(answers, found) and source_for(answers, found) == "prometheus"
    return is_free and can


def team_rules(answers: Answers, found: Detected) -> str:
    """Return the label selector of teams' rule ConfigMaps; unanswered, the usual one if any exist."""
    if answers.team_rules is not None:
        return answers.team_rules
    return TEAM_RULES if found.has_team_rules else ""


def _has_prometheus(answers: Answers, found: Detected) -> bool:
    return answers.prometheus_url is not None or found.prometheus is not None
