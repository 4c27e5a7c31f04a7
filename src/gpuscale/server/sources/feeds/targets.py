"""Targets: their URL, the labels of their series, and their state.

Labels are those that a Prometheus would give: `job` and `instance`, and for pods what the widely used job
for annotated pods gives (namespace, pod, node and the pod's own labels). A node agent's series say themselves
which pod they are of, so with `honor_labels` the agent's own pod and namespace are left out: a GPU that
no pod uses would else count as the agent's.

Source: prometheus documentation, kubernetes_sd_config; prometheus-community/helm-charts, charts/prometheus
27, values.yaml (the job kubernetes-pods).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from yarl import URL

from gpuscale.base.errors import UsageError

AGENT_JOB = "gpuscale-exporter"
POD_JOB = "kubernetes-pods"
SCRAPE_JOB = "scrape"
_PATH = re.compile(r"/[A-Za-z0-9._~/-]{1,200}")
_UNFIT = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class FeedTarget:
    """A URL to scrape or follow, and the labels that its series get."""

    url: str
    """Where to go, path included."""
    labels: tuple[tuple[str, str], ...]
    is_agent: bool = False
    """Whether it is followed as a stream of a node agent, rather than scraped."""
    pod: str = ""
    """Namespace and name of an agent's pod, where they are known; it may have several addresses."""
    own_labels: tuple[str, ...] = ()
    """Labels that are the target's whatever it exposes."""
    is_page: bool = False
    """Whether it is scraped of a node agent, which is reached with the agents' credentials."""

    @property
    def instance(self) -> str:
        return dict(self.labels).get("instance", "")


def instance_of(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def port_number(value: object) -> int:
    """Return a port number; 0 for anything invalid."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536:
        return value
    return 0


def label_name(text: str) -> str:
    """Return the Prometheus form of a Kubernetes label key."""
    return _UNFIT.sub("_", text)


def agent_target(
    scheme: str,
    host: str,
    port: int,
    node: str = "",
    pod: tuple[str, str] | None = None,
    job: str = AGENT_JOB,
    *,
    service: str = "",
    honor_labels: bool = True,
) -> FeedTarget:
    """Return the target of a node agent.

    Args:
        scheme: http or https.
        host: name or address.
        port: of the agent.
        node: the agent's node, where it is known.
        pod: namespace and name of the agent's pod, where they are known.
        job: the Service's name.
        service: the same where it is known from the cluster, as a ServiceMonitor gives it.
        honor_labels: whether the agent's labels win over those of the target.
    """
    instance = instance_of(host, port)
    labels = {"job": job, "instance": instance, "node": node, "service": service}
    if not honor_labels and pod is not None:
        labels |= {"namespace": pod[0], "pod": pod[1]}
    known = "/".join(pod) if pod is not None and all(pod) else ""
    return FeedTarget(f"{scheme}://{instance}/stream", _sorted(labels), is_agent=True, pod=known)


def agent_page(agent: FeedTarget, path: str) -> FeedTarget:
    """Return the target of another metrics page of an agent."""
    labels = {**dict(agent.labels), "metrics_path": path}
    url = str(URL(agent.url, encoded=True).with_path(path))
    return FeedTarget(url, _sorted(labels), is_page=True)


def told_apart(targets: Iterable[FeedTarget]) -> list[FeedTarget]:
    """Return the targets with distinct labels: paths of one address get a label for their path.

    Several paths of one address have their path as a label, as the pages of an agent do.
    """
    found = list(targets)
    times = Counter(each.labels for each in found)
    return [
        each
        if times[each.labels] == 1
        else replace(
            each,
            labels=_sorted(
                {**dict(each.labels), "metrics_path": URL(each.url, encoded=True).raw_path_qs}
            ),
        )
        for each in found
    ]


def page_path(text: str) -> str:
    """Return a page's URL path.

    Raises:
        UsageError: it is none, or that of a page which agents' streams have already.
    """
    if not _PATH.fullmatch(text) or text in {"/metrics", "/stream"}:
        raise UsageError(f"found {text!r}, expected a path such as /metrics/azure")
    return text


def static_agent(text: str) -> FeedTarget:
    """Return the agent at an address such as `127.0.0.1:9400` or `https://gpu-1:9400`.

    Raises:
        UsageError: not an address.
    """
    url = _url(text if "://" in text else f"http://{text}", text)
    return agent_target(url.scheme, url.host or "", url.port or 0)


def static_scrape(text: str) -> FeedTarget:
    """Return the target of a URL such as `http://127.0.0.1:8000/metrics`.

    Raises:
        UsageError: not an address.
    """
    url = _url(text if "://" in text else f"http://{text}", text)
    if url.path in {"", "/"}:
        url = url.with_path("/metrics")
    instance = instance_of(url.host or "", url.port or 0)
    return FeedTarget(str(url), _sorted({"job": SCRAPE_JOB, "instance": instance}))


def pod_target(
    url: str, instance: str, labels: Mapping[str, str], own_labels: tuple[str, ...] = ()
) -> FeedTarget:
    """Return the target of an annotated pod."""
    labels = {**labels, "job": POD_JOB, "instance": instance}
    return FeedTarget(url, _sorted(labels), own_labels=own_labels)


def _url(text: str, shown: str) -> URL:
    wrong = f"found {shown!r}, expected an address such as 127.0.0.1:9400"
    try:
        url = URL(text)
        is_good = url.scheme in {"http", "https"} and bool(url.host) and url.port is not None
    except ValueError:
        raise UsageError(wrong) from None
    if not is_good:
        raise UsageError(wrong)
    return url


def _sorted(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in labels.items() if value))


Kind = Literal["stream", "scrape"]


@dataclass(slots=True)
class FeedState:
    """The state of one target."""

    kind: Kind
    instance: str
    up: bool = False
    """Whether it answers now."""
    error: str | None = None
    """Why it does not, or what it says is wrong; None where all is well."""
    series: int = 0
    unwanted: int = 0
    """Series that it offers and that are not kept."""
    samples: int = 0
    """Stored so far."""
    failures: int = 0
    """Connections or scrapes that failed."""
    limited: dict[str, int] = field(default_factory=dict)
    """Scrapes that failed because they brought too much, by limit, or what is not supported: `format` and
    `native_histograms`."""
    measured_ms: int | None = None
    """When the newest samples were measured; None before the first."""
    arrival_lag_s: float | None = None
    """From the measurement to the arrival here; below zero where the target's clock is ahead."""
    store_lag_s: float | None = None
    """From the arrival to being in the store."""
