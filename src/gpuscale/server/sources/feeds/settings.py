"""The settings of feeds: discovery, access, limits, retention."""

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscale.base.flags import FlagReader
from gpuscale.base.settings import (
    MILLISECONDS,
    NUMBER,
    PATH,
    SECONDS,
    SWITCH,
    TEXT,
    each_item,
    made,
)
from gpuscale.server.panels import STREAMS

if TYPE_CHECKING:
    from gpuscale.series.storage import ScrapeLimits
    from gpuscale.server.sources.feeds.annotated_pods import Exporters
    from gpuscale.server.sources.feeds.endpoint_slices import AgentChoice
    from gpuscale.server.sources.feeds.selected_pods import PodChoice
    from gpuscale.server.sources.feeds.sharing_settings import PeerSettings
    from gpuscale.server.sources.feeds.targets import FeedTarget
    from gpuscale.server.sources.otlp.settings import OtlpSettings
    from gpuscale.server.sources.remote_write.settings import RemoteWriteEndpoint
    from gpuscale.server.sources.saving.settings import SavingSettings


def _of(module: str) -> Any:  # noqa: ANN401 - a module
    """Import a module of this package late, so that a server with a Prometheus starts without it."""
    return import_module(f"gpuscale.server.sources.{module}")


def _agents(flags: FlagReader) -> "AgentChoice":
    namespace, _, service = flags.text("agent-service").rpartition("/")
    is_https = flags.text("agent-ca-file") or flags.text("agent-client-tls-cert-file")
    choice: AgentChoice = _of("feeds.endpoint_slices").AgentChoice(
        service=service,
        namespace=namespace,
        selector=flags.text("agent-selector"),
        port=flags.text("agent-port"),
        scheme="https" if is_https else "",
        honor_labels=flags.boolean("honor-labels"),
    )
    return choice


def _usual_agents() -> "AgentChoice":
    choice: AgentChoice = _of("feeds.endpoint_slices").AgentChoice()
    return choice


def _static(flags: FlagReader) -> "tuple[FeedTarget, ...]":
    targets = _of("feeds.targets")
    return (
        *flags.each("agent", flags.every("agent"), targets.static_agent),
        *flags.each("scrape", flags.every("scrape"), targets.static_scrape),
    )


def _selected_pods(flags: FlagReader) -> "tuple[PodChoice, ...]":
    pods, name = _of("feeds.selected_pods"), "scrape-selected-pods"
    texts = flags.every(name)
    if len(texts) > pods.MAX_CHOICES:
        flags.fault(f"--{name}: found {len(texts)} of them, expected at most {pods.MAX_CHOICES}")
    return flags.each(name, texts[: pods.MAX_CHOICES], pods.pod_choice)


def _exporters(text: str) -> "Exporters":
    found: Exporters = _of("feeds.annotated_pods").exporters(text)
    return found


def _page_path(text: str) -> str:
    path: str = _of("feeds.targets").page_path(text)
    return path


def _limits(flags: FlagReader) -> "ScrapeLimits":
    from gpuscale.series.storage import ScrapeLimits

    return ScrapeLimits(
        samples=flags.number("scrape-sample-limit"),
        series=flags.number("scrape-series-limit"),
        labels=flags.number("scrape-label-limit"),
        label_name_chars=flags.number("scrape-label-name-length-limit"),
        label_value_chars=flags.number("scrape-label-value-length-limit"),
        body_bytes=flags.number("scrape-body-size-limit"),
    )


def _saving(flags: FlagReader) -> "SavingSettings | None":
    settings = _of("saving.settings")
    directory = flags.path("store-directory")
    name = "store-directory-size-limit"
    limit = flags.converted(name, settings.size_limit, settings.MIN_BYTES)
    found: SavingSettings = settings.SavingSettings(directory, limit)
    return None if directory is None else found


def _remote_write(flags: FlagReader) -> "tuple[RemoteWriteEndpoint, ...]":
    path = flags.path("remote-write-config")
    endpoints: list[RemoteWriteEndpoint] = []
    if path is not None:
        endpoints += _of("remote_write.file").read_file(path)
    settings = _of("remote_write.settings")
    name = "remote-write-url"
    endpoints += flags.each(name, flags.every(name), settings.endpoint_of_url)
    name = "remote-write-label"
    labels = dict(flags.each(name, flags.every(name), settings.external_label))
    if labels and path is None and not endpoints:
        flags.fault("--remote-write-label: found it alone, expected --remote-write-url beside it")
    names = [endpoint.name or endpoint.shown_url for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            flags.fault(
                f"--remote-write-url: found {name} twice, expected different addresses, or names for them in "
                "--remote-write-config"
            )
    return tuple(
        replace(each, external_labels=tuple({**dict(each.external_labels), **labels}.items()))
        for each in endpoints
    )


def _otlp(flags: FlagReader) -> "OtlpSettings | None":
    settings: OtlpSettings = _of("otlp.settings").OtlpSettings(flags.items("otlp-promote"))
    return settings if flags.boolean("receive-otlp") else None


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """All settings of feeds."""

    agents: "AgentChoice" = made(
        _agents,
        STREAMS.flag(
            "agent-service",
            "Service of gpuscale's node agents, NAME or NAMESPACE/NAME; its EndpointSlices name them.",
            default="gpuscale-exporter",
        ),
        STREAMS.flag(
            "agent-selector", "Labels of the agents' EndpointSlices, in place of a Service's name."
        ),
        STREAMS.flag(
            "agent-port", "Name of the agents' port; metrics, or else the first, if empty."
        ),
        usual=_usual_agents,
    )
    static: "tuple[FeedTarget, ...]" = made(
        _static,
        STREAMS.flag(
            "agent", "Address of a node agent, as 127.0.0.1:9400 or as a URL.", repeats=True
        ),
        STREAMS.flag("scrape", "URL of something else to scrape.", repeats=True),
        usual=tuple,
    )
    """Targets that are there whatever the cluster says."""
    agent_ca_file: Path | None = STREAMS.option(
        PATH,
        "agent-ca-file",
        "CAs of the agents' certificates; agents are then reached by HTTPS.",
    )
    agent_server_name: str | None = STREAMS.option(
        TEXT.unless_zero(None),
        "agent-server-name",
        "Name that the agents' certificates are checked against; the address's host if empty.",
    )
    agent_client_files: tuple[Path, Path] | None = STREAMS.pair(
        "agent-client-tls-cert-file",
        "Client certificate to go to the agents with.",
        "agent-client-tls-key-file",
    )
    agent_username: str | None = STREAMS.option(
        TEXT.unless_zero(None),
        "agent-username",
        "User of basic authentication at the agents.",
    )
    agent_password_file: Path | None = STREAMS.option(
        PATH, "agent-password-file", "Password of that user; renewed passwords are used."
    )
    agent_token_file: Path | None = STREAMS.option(
        PATH, "agent-token-file", "Bearer token for the agents; renewed tokens are used."
    )
    agent_pages: tuple[str, ...] = STREAMS.option(
        each_item(_page_path),
        "agent-pages",
        "Paths that are scraped of each node agent beside its stream, such as /metrics/azure.",
    )
    scrapes_pods: bool = STREAMS.option(
        SWITCH,
        "scrape-annotated-pods",
        "Scrape pods with the annotation prometheus.io/scrape.",
        "true",
    )
    selected: "tuple[PodChoice, ...]" = made(
        _selected_pods,
        STREAMS.flag(
            "scrape-selected-pods",
            "Scrape pods without an annotation: NAMESPACE/LABELS:PORT, such as ml/app=vllm:8000, or with "
            "SCHEME:PORT/PATH; NAMESPACE and LABELS may be *, PORT the name of a port.",
            repeats=True,
        ),
        usual=tuple,
    )
    exporters: "tuple[Exporters, ...]" = STREAMS.option(
        each_item(_exporters),
        "exporter-pods",
        "Scraped pods whose series may name other pods: NAMESPACE or NAMESPACE/LABEL=VALUE, "
        "separated by commas.",
        "kube-system,gpu-operator,kube-amd-gpu,gke-managed-system,monitoring",
    )
    scrape_interval_s: float = STREAMS.option(
        SECONDS.or_default(), "scrape-interval", "From one scrape to the next.", "5s"
    )
    limits: "ScrapeLimits" = made(
        _limits,
        STREAMS.flag(
            "scrape-sample-limit",
            "A scrape of more samples, or a stream of more series, fails; 0 is no limit.",
            "int",
            "100000",
        ),
        STREAMS.flag(
            "scrape-series-limit",
            "Series that are kept of one target at most; 0 is its share of the store.",
            "int",
            "0",
        ),
        STREAMS.flag(
            "scrape-label-limit",
            "A scrape with more labels on a series fails; 0 is no limit.",
            "int",
            "128",
        ),
        STREAMS.flag(
            "scrape-label-name-length-limit",
            "A scrape with a longer name of a label fails; 0 is no limit.",
            "int",
            "512",
        ),
        STREAMS.flag(
            "scrape-label-value-length-limit",
            "A scrape with a longer value of a label fails; 0 is no limit.",
            "int",
            "4096",
        ),
        STREAMS.flag(
            "scrape-body-size-limit",
            "A scrape of more bytes fails; 0 is 64 MiB.",
            "int",
            str(32 * 1024 * 1024),
        ),
    )
    """Of each target, scraped or streamed."""
    honor_labels: bool = STREAMS.option(
        SWITCH,
        "honor-labels",
        "An exposed label wins over the target's of the same name; otherwise it becomes exported_<name>.",
        "true",
    )
    otlp: "OtlpSettings | None" = made(
        _otlp,
        STREAMS.flag(
            "receive-otlp",
            "Take OTLP metrics that are pushed to /otlp/v1/metrics, where RBAC allows that path.",
            "bool",
            "false",
        ),
        STREAMS.flag(
            "otlp-promote",
            "Attributes of OTLP resources that are labels of all their series, separated by commas.",
            "list",
            "k8s.namespace.name,k8s.pod.name,k8s.deployment.name,k8s.statefulset.name,k8s.node.name",
        ),
        usual=lambda: None,
    )
    """None takes none."""
    keeps_all_series: bool = STREAMS.option(
        SWITCH,
        "keep-all-series",
        "Keep series that no rule can ask for too, for queries of people.",
        "false",
    )
    retention_ms: int = STREAMS.option(
        MILLISECONDS.or_default(), "store-retention", "How long samples are kept.", "15m"
    )
    max_series: int = STREAMS.option(
        NUMBER.or_default(), "store-max-series", "Series that are kept at most.", "200000"
    )
    max_samples: int = STREAMS.option(
        NUMBER.or_default(),
        "store-max-samples",
        "Samples that are kept at most; beyond that, the oldest make room.",
        "20000000",
    )
    """8 bytes each, 16 where a series comes alone."""
    saving: "SavingSettings | None" = made(
        _saving,
        STREAMS.flag(
            "store-directory",
            "Directory that the samples are saved in, so that a restart keeps them; none are if empty.",
        ),
        STREAMS.flag(
            "store-directory-size-limit",
            "Bytes of the files there, such as 512Mi; beyond that, the oldest go.",
            default="1Gi",
        ),
        usual=lambda: None,
    )
    """None saves nothing."""
    remote_write: "tuple[RemoteWriteEndpoint, ...]" = made(
        _remote_write,
        STREAMS.flag(
            "remote-write-url",
            "Address that all samples are sent to by Prometheus' remote write.",
            repeats=True,
        ),
        STREAMS.flag(
            "remote-write-config",
            "File with remote_write as in Prometheus' configuration, for credentials, relabelling and the "
            "like; or folder that may have one as remote-write.yaml.",
        ),
        STREAMS.flag(
            "remote-write-label",
            "NAME=VALUE that every series gets on the way there, unless it has a label of that name.",
            repeats=True,
        ),
        usual=tuple,
    )
    resolution_ms: int = STREAMS.option(
        MILLISECONDS.or_default(),
        "stream-resolution",
        "Of agents' streams, the newest value of each such step of time is kept.",
        "1s",
    )
    peers: "PeerSettings | None" = None
    """The other replicas that share the agents; None where this one follows all of them."""
