"""Prometheus: its address in the metrics servers, its scrapes of the agents, and the labels it keeps."""

import json
from collections.abc import Iterator, Mapping

from yarl import URL

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import ObjectMetric, PodsMetric
from gpuscale.base.words import counted
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.scraping import (
    SCRAPING_CHECKS,
    left_out_findings,
    refused_findings,
)
from gpuscale.ops.doctor.facts import UTILIZATION
from gpuscale.ops.doctor.judges import PROMETHEUS, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.snapshot import PrometheusLook, Row, Snapshot

_CHECKS = Checks(PROMETHEUS, including=(SCRAPING_CHECKS,))
WRONG_PROMETHEUS_ADDRESS = _CHECKS.add(
    "wrong-prometheus-address",
    Severity.ERROR,
    "A metrics server that is set to a Service or port that is not there.",
    "Set --prometheus-url to a Service and port that are there.",
)
PROMETHEUS_UNREACHABLE = _CHECKS.add(
    "prometheus-unreachable",
    Severity.WARNING,
    "A Prometheus that can't be asked from here.",
    "Allow the request, or forward its port and name it with --prometheus-url.",
)
NO_SCRAPE_TARGET = _CHECKS.add(
    "no-scrape-target",
    Severity.ERROR,
    "A Prometheus that does not scrape the agents.",
    "Add a scrape job, or a ServiceMonitor with the label `release` that the operator's "
    "Prometheus selects (prometheus.release).",
)
TARGET_DOWN = _CHECKS.add(
    "target-down",
    Severity.ERROR,
    "An agent that Prometheus can't scrape.",
    "Its page /targets says why; a NetworkPolicy that keeps it out is one reason.",
)
NO_SERIES = _CHECKS.add(
    "no-series",
    Severity.ERROR,
    "Agents are scraped, and there are no GPU series.",
    "See what an agent serves; a metricRelabeling may drop it.",
)
POD_IS_EXPORTED_POD = _CHECKS.add(
    "pod-is-exported-pod",
    Severity.ERROR,
    "The workload's pod is in exported_pod, and pod is the agent's: honorLabels is off.",
    "Set honorLabels: true where the agents are scraped, or map exported_pod in "
    "the rules' resources.overrides.",
)
OLD_SERIES = _CHECKS.add(
    "old-series",
    Severity.WARNING,
    "Series whose last sample is older than two minutes.",
    "Lower the scrape interval, or see whether the target is still there.",
)

MAX_SERIES_AGE_S = 120
_AGENT_WORDS = ("node-agent", "dcgm", "gpu")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def prometheus_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the faults between the agents, Prometheus and the metrics servers."""
    yield from _addresses(snapshot)
    look = snapshot.prometheus
    yield from refused_findings(snapshot)
    if look.fault and not look.refused:
        yield _unreachable(look)
    elif look.address and not look.unasked and not look.fault:
        yield from left_out_findings(snapshot)
        yield from _scraping(snapshot)
        yield from _labels(snapshot)
        yield from _age(snapshot)


def _unreachable(look: PrometheusLook) -> ClusterFinding:
    forward = "gpuscale doctor --prometheus-url http://127.0.0.1:9090"
    service = service_in(look.address)
    if look.needs:
        say = (
            f"Allow whom the kubeconfig names to get {look.needs}, or forward its port and name it."
        )
        fix = Fix(say, facts.allowing(look.needs.replace("/", "-"), look.needs, "get"))
    elif service is None:
        fix = Fix("Name where it answers, such as a forwarded port.", forward)
    else:
        namespace, name, port = service
        fix = Fix(
            "See that pods are behind its Service and listen where it leads; else forward its port and "
            "name it.",
            f"kubectl get endpointslices -n {namespace} -l kubernetes.io/service-name={name}; "
            f"kubectl port-forward -n {namespace} svc/{name} 9090:{port}  # and: {forward}",
        )
    return PROMETHEUS_UNREACHABLE.found(
        f"prometheus/{look.address}",
        "Prometheus can't be asked from here, so nothing is known of targets and series.",
        look.fault,
        fix,
    )


def service_in(address: str) -> tuple[str, str, int] | None:
    """Return namespace, name and port of the Service in a URL; None if its host is no Service."""
    try:
        url = URL(address)
        port = url.port or _DEFAULT_PORTS.get(url.scheme, 0)
    except ValueError:
        return None
    match (url.host or "").split("."):
        case [name, namespace] | [name, namespace, "svc", *_]:
            return namespace, name, port
        case _:
            return None


def _addresses(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    services = {
        (facts.namespace(each), facts.name(each)): each for each in snapshot.all("services")
    }
    if snapshot.hides("services"):
        return
    for body, _, flags in facts.metrics_servers(snapshot):
        address = flags.get("--prometheus-url", "")
        wanted = service_in(address)
        if wanted is None:
            continue
        namespace, name, port = wanted
        service = services.get((namespace, name))
        ports = [] if service is None else [*_ports(service)]
        if service is not None and port in ports:
            continue
        evidence = f"--prometheus-url={address}; "
        evidence += (
            f"there is no Service {namespace}/{name}"
            if service is None
            else f"Service {namespace}/{name} has port {', '.join(map(str, ports))}"
        )
        known = [*_prometheuses(services, same=service)]
        yield WRONG_PROMETHEUS_ADDRESS.found(
            f"deployment/{facts.full_name(body)}",
            "The metrics server asks for its values where no Prometheus is.",
            evidence,
            Fix(
                f"Set --prometheus-url={known[0] if known else 'http://SERVICE.NAMESPACE.svc:PORT'}"
                + (f" (there is also {', '.join(known[1:])})" if known[1:] else ""),
                f"kubectl edit deployment -n {facts.namespace(body)} {facts.name(body)}",
            ),
        )


def _ports(service: Fields) -> Iterator[int]:
    for each in service.child("spec").items("ports"):
        yield each.integer("port") or 0


def _prometheuses(services: Mapping[tuple[str, str], Fields], same: Fields | None) -> Iterator[str]:
    """Yield addresses that may be the right one: of the same Service, or of one named prometheus."""
    for (namespace, name), service in services.items():
        is_named = "prometheus" in name and not any(
            word in name for word in ("adapter", "alertmanager", "exporter", "operator")
        )
        if service is same or (same is None and is_named):
            yield from (f"http://{name}.{namespace}.svc:{port}" for port in _ports(service))


# Targets and series


def _agents_targets(snapshot: Snapshot) -> list[Row]:
    """Return the scrape targets that are agents, judged by their labels."""
    pods = {facts.name(pod) for pod in facts.agent_pods(snapshot)}
    jobs = {usage.get("job") for usage, _ in snapshot.prometheus.usage}

    def is_agents(labels: Mapping[str, str]) -> bool:
        text = f"{labels.get('job', '')} {labels.get('service', '')}"
        return (
            labels.get("pod") in pods
            or labels.get("job") in jobs
            or labels.get("instance", "").endswith(":9400")
            or any(word in text for word in _AGENT_WORDS)
        )

    return [(labels, value) for labels, value in snapshot.prometheus.targets if is_agents(labels)]


def _scraping(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    look = snapshot.prometheus
    about = f"prometheus/{look.address}"
    targets = _agents_targets(snapshot)
    if not targets and not look.usage and facts.agent_pods(snapshot):
        yield NO_SCRAPE_TARGET.found(
            about,
            "Prometheus does not scrape the agents.",
            f"{counted(len(look.targets), 'target')}, none of them an agent",
            Fix(
                NO_SCRAPE_TARGET.fix,
                "gpuscale install values.yaml",
            ),
        )
    for labels, value in targets:
        if value == 0:
            yield TARGET_DOWN.found(
                about,
                f"Prometheus can't scrape the agent at {labels.get('instance', '')}.",
                ", ".join(f"{key}={text}" for key, text in sorted(labels.items())),
                Fix(
                    TARGET_DOWN.fix,
                    "kubectl get networkpolicy -A",
                ),
            )
    if any(value == 1 for _, value in targets) and not look.usage:
        names = ", ".join(labels.get("__name__", "") for labels, _ in look.names[:5])
        yield NO_SERIES.found(
            about,
            f"The agents are scraped, and there are no series {UTILIZATION}.",
            f"there are {names}" if names else "there are no series DCGM_*",
            Fix(
                NO_SERIES.fix,
                "kubectl get servicemonitor -A -o yaml",
            ),
        )


def _labels(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    renamed = [labels for labels, _ in snapshot.prometheus.usage if labels.get("exported_pod")]
    blind = [
        look
        for look in snapshot.hpas
        for metric in look.metrics
        if isinstance(metric.spec, PodsMetric | ObjectMetric) and not metric.values
    ]
    if not renamed or not blind:
        return
    first = renamed[0]
    yield POD_IS_EXPORTED_POD.found(
        f"prometheus/{snapshot.prometheus.address}",
        "The label pod is the agent's own; that of the workload is exported_pod, and rules for "
        "pod find nothing.",
        f"pod={first.get('pod', '')}, exported_pod={first['exported_pod']}; "
        f"{blind[0].about} has no value",
        _honor_labels(snapshot),
    )


def _honor_labels(snapshot: Snapshot) -> Fix:
    say = (
        "Set honorLabels: true where the agents are scraped, or map exported_pod and "
        "exported_namespace in the rules' resources.overrides."
    )
    for monitor in snapshot.all("servicemonitors"):
        ends = [*monitor.child("spec").items("endpoints")]
        words = f"{facts.name(monitor)} {' '.join(facts.labels(monitor).values())}"
        is_agents = any(word in words for word in _AGENT_WORDS)
        if is_agents and not all(end.boolean("honorLabels") for end in ends):
            patch = [
                {"op": "add", "path": f"/spec/endpoints/{index}/honorLabels", "value": True}
                for index in range(len(ends))
            ]
            place = ("-n", facts.namespace(monitor), "--type=json", "-p", json.dumps(patch))
            return Fix(
                say,
                facts.quoted("kubectl", "patch", "servicemonitor", facts.name(monitor), *place),
            )
    return Fix(say, "honor_labels: true")


def _age(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    old = [
        (age_s, labels) for labels, age_s in snapshot.prometheus.usage if age_s > MAX_SERIES_AGE_S
    ]
    if old:
        age_s, labels = max(old, key=lambda each: each[0])
        yield OLD_SERIES.found(
            f"prometheus/{snapshot.prometheus.address}",
            f"{len(old)} series of {UTILIZATION} are older than {MAX_SERIES_AGE_S} s.",
            f"{age_s:.0f} s: {', '.join(f'{k}={v}' for k, v in sorted(labels.items()))}",
            Fix(
                OLD_SERIES.fix,
                "kubectl get servicemonitor -A -o yaml",
            ),
        )


JUDGE = ClusterJudge("prometheus", _CHECKS, prometheus_findings)
