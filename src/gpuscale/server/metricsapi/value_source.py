"""Where a metrics API server's values come from: a Prometheus, a plug-in, or a collector of its own."""

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuscale.base.clock import Origin
from gpuscale.base.errors import UsageError
from gpuscale.server.metricsapi.api_servers import kube_settings
from gpuscale.server.metricsapi.backend_settings import BackendSettings
from gpuscale.server.metricsapi.prometheus_tls import make_source
from gpuscale.server.metricsapi.rulebook.rule_book import RuleBook
from gpuscale.server.sources.asking.single_flight import AnswerSharing
from gpuscale.server.sources.prometheus.possible import PossibleSource
from gpuscale.server.sources.source import MetricSource, SourceRequest

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.collector.client import CollectorClient
    from gpuscale.server.metricsapi.collector.process import CollectorProcess
    from gpuscale.server.sources.feeds.settings import FeedSettings

_LOG = logging.getLogger(__name__)
_CHEAPLY_RENEWED_FROM = 0.2
"""Share of the time of freshness; questions to the collector cost little."""


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """A source of values, and how questions to it are shared."""

    source: MetricSource
    sharing: AnswerSharing
    collector: "CollectorProcess | None" = None
    """What follows targets and holds their series; None where something else does."""
    client: "CollectorClient | None" = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Of a Prometheus: impossible values by the name of their series."""


def open_source(
    settings: BackendSettings,
    rules: RuleBook,
    origin: Origin,
    stack: AsyncExitStack,
    *,
    is_clustered: bool,
) -> OpenedSource:
    """Return the source that the settings name; the stack closes it.

    Args:
        settings: of the server.
        rules: those in force; a collector keeps what they can ask for.
        origin: of the server's clock, which a collector shares.
        stack: closes what is opened.
        is_clustered: whether there is an API server.
    """
    if settings.feeds is not None:
        return _open_collector(
            settings, settings.feeds, rules, origin, stack, is_clustered=is_clustered
        )
    if (kind := settings.plugin) is not None:
        asked = settings.source
        plugged = kind.open(SourceRequest(url=asked.url, timeout_s=asked.timeout_s))
        stack.push_async_callback(plugged.close)
        return OpenedSource(plugged, sharing_of(settings))
    source = PossibleSource(make_source(settings.source))
    stack.push_async_callback(source.close)
    sharing = replace(sharing_of(settings), fits=source.takes)
    return OpenedSource(source, sharing, left_out=source.left_out)


def _open_collector(
    settings: BackendSettings,
    feeds: "FeedSettings",
    rules: RuleBook,
    origin: Origin,
    stack: AsyncExitStack,
    *,
    is_clustered: bool,
) -> OpenedSource:
    # With a Prometheus, the store and its modules are not imported.
    from gpuscale.server.metricsapi.collector.client import CollectorClient
    from gpuscale.server.metricsapi.collector.process import CollectorProcess
    from gpuscale.server.sources.feeds.collector import agent_access
    from gpuscale.server.sources.feeds.messages import CollectorSettings
    from gpuscale.server.sources.feeds.needs import wanted_by_rules
    from gpuscale.server.sources.feeds.sharing_settings import peer_access
    from gpuscale.server.sources.remote_write.sender import endpoint_access
    from gpuscale.server.sources.ruler.alertmanager import AlertmanagerSender
    from gpuscale.server.sources.ruler.files import PrometheusRuleFiles

    agent_access(feeds)  # the user should learn of an unusable certificate now
    if feeds.peers is not None:
        peer_access(feeds.peers)
        if feeds.peers.service is not None and not is_clustered:
            raise UsageError(
                "--peers-service: found no API server that lists the replicas, expected "
                "--lister-kubeconfig beside it, or --peers"
            )
    if feeds.otlp is not None:
        import gpuscale.series.otlp.message  # noqa: F401 - a package that is missing is known now
    for endpoint in feeds.remote_write:
        endpoint_access(endpoint)
    ruler = settings.ruler
    PrometheusRuleFiles(ruler.paths)  # and of faults in rules
    AlertmanagerSender(ruler.alertmanagers)
    collector_settings = CollectorSettings(
        feeds,
        origin,
        kube_settings(settings, settings.kubeconfig) if is_clustered else None,
        _LOG.getEffectiveLevel(),
        wanted_by_rules(rules.config),
        ruler,
    )
    collector = CollectorProcess(collector_settings)
    client = CollectorClient(collector)
    stack.push_async_callback(client.close)
    fitted = replace(sharing_of(settings), fits=client.takes, renewed_from=_CHEAPLY_RENEWED_FROM)
    return OpenedSource(client, fitted, collector, client)


def sharing_of(settings: BackendSettings) -> AnswerSharing:
    """Return how questions are shared, whichever source they go to."""
    return AnswerSharing(
        settings.freshness_ms, settings.most_freshness_ms, widens=settings.widens_queries
    )
