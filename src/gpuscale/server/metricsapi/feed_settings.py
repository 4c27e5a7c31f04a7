"""What a server follows and keeps by itself where there is no Prometheus, from its flags."""

from dataclasses import replace

from gpuscale.base.flags import FlagReader
from gpuscale.base.quantity import parse_quantity
from gpuscale.series.storage.limits import RESOLUTION_MS, ScrapeLimits
from gpuscale.server.sources.feeds.annotated_pods import exporters
from gpuscale.server.sources.feeds.endpoint_slices import AgentChoice
from gpuscale.server.sources.feeds.selected_pods import MAX_CHOICES, PodChoice, pod_choice
from gpuscale.server.sources.feeds.settings import FeedSettings
from gpuscale.server.sources.feeds.sharing_settings import (
    MAX_PEERS,
    PeerSettings,
    peer_service,
    peer_url,
)
from gpuscale.server.sources.feeds.targets import page_path, static_agent, static_scrape
from gpuscale.server.sources.otlp.settings import OtlpSettings
from gpuscale.server.sources.remote_write.settings import (
    LABEL_NAME,
    RemoteWriteEndpoint,
    endpoint_of_url,
)
from gpuscale.server.sources.saving.settings import MIB, MIN_BYTES, SavingSettings


def feed_settings(flags: FlagReader) -> FeedSettings:
    """Return which targets are followed by these flags; their faults are the reader's to raise."""
    honor_labels = flags.boolean("honor-labels")
    namespace, _, service = flags.text("agent-service").rpartition("/")
    ca_file = flags.path("agent-ca-file")
    client_files = flags.pair("agent-client-tls-cert-file", "agent-client-tls-key-file")
    agents = AgentChoice(
        service=service,
        namespace=namespace,
        selector=flags.text("agent-selector"),
        port=flags.text("agent-port"),
        scheme="" if ca_file is None and client_files is None else "https",
        honor_labels=honor_labels,
    )
    return FeedSettings(
        agents=agents,
        agent_pages=tuple(flags.each("agent-pages", flags.items("agent-pages"), page_path)),
        static=(
            *flags.each("agent", flags.every("agent"), static_agent),
            *flags.each("scrape", flags.every("scrape"), static_scrape),
        ),
        scrapes_pods=flags.boolean("scrape-annotated-pods"),
        selected=_selected_pods(flags),
        exporters=flags.each("exporter-pods", flags.items("exporter-pods"), exporters),
        scrape_interval_s=flags.seconds("scrape-interval") or 5.0,
        honor_labels=honor_labels,
        agent_ca_file=ca_file,
        agent_server_name=flags.text("agent-server-name") or None,
        agent_client_files=client_files,
        agent_username=flags.text("agent-username") or None,
        agent_password_file=flags.path("agent-password-file"),
        agent_token_file=flags.path("agent-token-file"),
        retention_ms=round(flags.seconds("store-retention") * 1000) or 900_000,
        max_series=flags.number("store-max-series") or 200_000,
        max_samples=flags.number("store-max-samples") or 20_000_000,
        limits=ScrapeLimits(
            samples=flags.number("scrape-sample-limit"),
            series=flags.number("scrape-series-limit"),
            labels=flags.number("scrape-label-limit"),
            label_name_chars=flags.number("scrape-label-name-length-limit"),
            label_value_chars=flags.number("scrape-label-value-length-limit"),
            body_bytes=flags.number("scrape-body-size-limit"),
        ),
        keeps_all_series=flags.boolean("keep-all-series"),
        resolution_ms=round(flags.seconds("stream-resolution") * 1000) or RESOLUTION_MS,
        saving=_saving(flags),
        remote_write=_remote_write(flags),
        otlp=_otlp(flags),
        peers=_peers(flags),
    )


def _otlp(flags: FlagReader) -> OtlpSettings | None:
    if flags.boolean("receive-otlp"):
        return OtlpSettings(flags.items("otlp-promote"))
    return None


def _selected_pods(flags: FlagReader) -> tuple[PodChoice, ...]:
    name = "scrape-selected-pods"
    texts = flags.every(name)
    if len(texts) > MAX_CHOICES:
        flags.fault(f"--{name}: found {len(texts)} of them, expected at most {MAX_CHOICES}")
    return tuple(flags.each(name, texts[:MAX_CHOICES], pod_choice))


def _peers(flags: FlagReader) -> PeerSettings | None:
    texts, service_text = flags.items("peers"), flags.text("peers-service")
    if not texts and not service_text:
        for name in ("peers-ca-file", "peers-token-file", "peers-server-name"):
            if flags.text(name):
                flags.fault(
                    f"--{name}: found it alone, expected --peers or --peers-service beside it"
                )
        return None
    if texts and service_text:
        flags.fault("--peers and --peers-service: found both, expected one")
    if len(texts) > MAX_PEERS:
        flags.fault(f"--peers: found {len(texts)} addresses, expected at most {MAX_PEERS}")
    urls = flags.each("peers", texts, peer_url)
    services = flags.each("peers-service", [service_text] if service_text else [], peer_service)
    service = services[0] if services else None
    token_file = flags.path("peers-token-file")
    if token_file is not None and any(url.startswith("http:") for url in urls):
        flags.fault("--peers: found http beside --peers-token-file, expected https")
    server_name = flags.text("peers-server-name") or (service and service.server_name)
    return PeerSettings(urls, service, flags.path("peers-ca-file"), token_file, server_name or None)


def _saving(flags: FlagReader) -> SavingSettings | None:
    directory = flags.path("store-directory")
    limit = flags.converted("store-directory-size-limit", _bytes, MIN_BYTES)
    return None if directory is None else SavingSettings(directory, limit)


def _bytes(text: str) -> int:
    try:
        limit = parse_quantity(text).value()
    except ValueError:
        limit = 0
    if limit < MIN_BYTES:
        expected = f"bytes such as 512Mi, {MIN_BYTES // MIB}Mi at least"
        raise ValueError(f"found {text!r}, expected {expected}")
    return limit


def _remote_write(flags: FlagReader) -> tuple[RemoteWriteEndpoint, ...]:
    path = flags.path("remote-write-config")
    endpoints: list[RemoteWriteEndpoint] = []
    if path is not None:
        from gpuscale.server.sources.remote_write.file import read_file

        endpoints += read_file(path)
    name = "remote-write-url"
    endpoints += flags.each(name, flags.every(name), endpoint_of_url)
    name = "remote-write-label"
    labels = dict(flags.each(name, flags.every(name), _external_label))
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


def _external_label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not LABEL_NAME.fullmatch(name) or not value:
        raise ValueError(f"found {text!r}, expected NAME=VALUE")
    return name, value
