"""A metrics API server as its settings describe it, with all that runs beside it.

What nothing expected ends the whole server: a part that is missing unseen would answer wrongly.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gpuscale.core.clock import Clock, WallClock
from gpuscale.core.errors import GpuscaleError, UnavailableError, UsageError
from gpuscale.core.pki import names_of_service
from gpuscale.exposition.families import Family
from gpuscale.exposition.write import CONTENT_TYPE, render_text
from gpuscale.kube.client.api import ApiClient, MetadataClient
from gpuscale.kube.client.errors import ApiStatusError
from gpuscale.kube.client.kubeconfig import SERVICE_ACCOUNT
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.informers.directory import CopyState, ObjectCopies
from gpuscale.metricsapi.cluster import ClusterObjects, NoObjects, read_mapper
from gpuscale.metricsapi.collector.feed_metrics import collector_families, value_families
from gpuscale.metricsapi.connections.counted_log import CountedLog
from gpuscale.metricsapi.connections.http import without_server
from gpuscale.metricsapi.connections.limits import LOOPBACK_LIMITS
from gpuscale.metricsapi.connections.port import Port, shown
from gpuscale.metricsapi.health import Check
from gpuscale.metricsapi.prometheus_tls import make_source
from gpuscale.metricsapi.provider import MetricsProvider
from gpuscale.metricsapi.routes import SeesReasons, add_routes, everybody
from gpuscale.metricsapi.rulebook.rule_book import RuleBook
from gpuscale.metricsapi.rulebook.team_rules import TeamRules
from gpuscale.metricsapi.security.audit import AuditLog, audit_families
from gpuscale.metricsapi.security.authentication import Authenticator
from gpuscale.metricsapi.security.authorization import Authorizer
from gpuscale.metricsapi.security.client_tls import TlsRules
from gpuscale.metricsapi.security.guard import Guard, Inner, counted, unguarded
from gpuscale.metricsapi.security.named_certificates import NamedCertificates, NamedFiles
from gpuscale.metricsapi.security.reviews import AccessReviewer, TokenReviewer, TrustConfigMap
from gpuscale.metricsapi.security.serving_certificate import (
    CertificateFiles,
    OwnCertificate,
    ServingCertificate,
    given_in,
)
from gpuscale.metricsapi.security.trust import TrustSources
from gpuscale.metricsapi.settings import MetricsApiSettings, ServingSettings
from gpuscale.metricsapi.telemetry.connections import LoopLag, connection_families
from gpuscale.metricsapi.telemetry.hop_lag import HopLag
from gpuscale.metricsapi.telemetry.own_metrics import (
    ServerMetrics,
    cache_families,
    cache_family,
    discovery_families,
    object_families,
    rule_families,
    with_samples,
)
from gpuscale.metricsapi.telemetry.timed_source import TimedSource
from gpuscale.metricsapi.usage.measured import UsageProvider
from gpuscale.rules.resources import KUBERNETES, ResourceMapper
from gpuscale.sources.asking.single_flight import Sharing
from gpuscale.sources.feeds.settings import FeedSettings
from gpuscale.sources.source import MetricSource, SourceRequest

if TYPE_CHECKING:
    from gpuscale.metricsapi.collector.client import CollectorClient
    from gpuscale.metricsapi.collector.process import CollectorProcess

_LOG = logging.getLogger(__name__)
_RULES_LOOK_S = 5.0
_WATCH_S = 45
"""After so long the API server ends a watch; one that has not ended ten seconds later is dead."""
_MAX_RETRY_S = 5.0
_TRUST_WAIT_S = 10.0
"""How long the start waits for the cluster's trust, in the machine's seconds."""
_CHEAPLY_RENEWED_FROM = 0.2
"""Share of the time of freshness; questions to the collector cost little."""
_BUSY_SHARE = 10
"""Discovery because of new series takes at most one part in so many of the time."""
_LONGEST_PAUSE_S = 5.0
Task = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The API server behind the metrics API server."""

    objects: ApiClient
    tokens: ApiClient
    access: ApiClient


class MetricsApiServer:
    """Everything that one `gpuscale metrics-api` process runs.

    Args:
        settings: from the command line.
        clock: of all waits and times.
        drain_s: how long it still serves HTTPS after the order to stop, in the machine's seconds; None is
            the settings'.
        source: of the values; None is the Prometheus of the settings.
    """

    def __init__(
        self,
        settings: MetricsApiSettings,
        clock: Clock | None = None,
        drain_s: float | None = None,
        source: MetricSource | None = None,
    ) -> None:
        self._settings = settings
        self._source = source
        delay_s = settings.serving.shutdown_delay_s if drain_s is None else drain_s
        self._drain_s = delay_s if settings.serving.secure_port else 0.0
        self._ports: dict[str, Port] = {}
        self._malformed = CountedLog("malformed request")
        self._lag = LoopLag()
        self._audit_log: AuditLog | None = None
        self._wall_clock = WallClock()
        self._clock = clock or self._wall_clock
        self._metrics = ServerMetrics(self._clock)
        self._tasks: list[tuple[str, Task]] = []
        self._stopping = False
        self._mapper: ResourceMapper = KUBERNETES
        self._copies: ObjectCopies | None = None
        self._certificate: ServingCertificate | None = None
        self._trust: TrustSources | None = None
        self._published: TrustConfigMap | None = None
        self._caches: dict[str, TokenReviewer | AccessReviewer] = {}
        self._collector: CollectorProcess | None = None
        self._collector_client: CollectorClient | None = None
        self._sharing = Sharing(
            settings.freshness_ms, settings.most_freshness_ms, widens=settings.widens_queries
        )

    async def run(
        self,
        stop: asyncio.Event,
        announce: Callable[[str], None],
        hurry: asyncio.Event | None = None,
    ) -> None:
        """Serve until `stop` is set.

        Args:
            stop: ends it.
            announce: called with each address that is listened on.
            hurry: ends it without a delay.

        Raises:
            ConfigError: the rule file is wrong.
            UsageError: a file or a folder can't be used.
            UnavailableError: an address can't be listened on; or the API server is not there.
        """
        for note in self._settings.notes:
            _LOG.info("%s", note)
        async with AsyncExitStack() as stack:
            await self._prepare(stack)
            try:
                await self._serve(stop, announce, hurry or asyncio.Event())
            except BaseExceptionGroup as group:
                known, _ = group.split(GpuscaleError)
                if known is None:
                    raise
                raise known.exceptions[0] from None

    async def _serve(
        self, stop: asyncio.Event, announce: Callable[[str], None], hurry: asyncio.Event
    ) -> None:
        """Serve; what answers is needed until the last request is done, connections until that is gone."""
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task(), name=name) for name, task in self._tasks]
            try:
                await self._wait_for_trust()
                await self._listen(announce)
                running += [
                    group.create_task(port.lobby.run(), name=f"connections of {name}")
                    for name, port in self._ports.items()
                ]
                await stop.wait()
                self._stopping = True
                await self._delay(hurry)
            finally:
                in_haste = not self._drain_s or hurry.is_set()
                for port in self._ports.values():
                    await port.close(in_haste=in_haste)
                for task in running:
                    task.cancel()

    async def _delay(self, hurry: asyncio.Event) -> None:
        """Go on serving for a while, so that those who balance load can see it go."""
        if not self._drain_s:
            return
        _LOG.info("stopping: serving goes on for %g s", self._drain_s)
        try:
            async with asyncio.timeout(self._drain_s):
                await hurry.wait()
        except TimeoutError:
            return

    async def _prepare(self, stack: AsyncExitStack) -> None:
        """Make all parts, read the rules, and note what has to run."""
        cluster = await self._connect(stack)
        if cluster is not None:
            self._mapper = await read_mapper(cluster.objects)
        self._rules = self._open_rules(stack, cluster)
        source = self._open_source(stack, is_clustered=cluster is not None)
        timed = TimedSource(source, self._metrics)
        self._provider = self._make_provider(cluster, timed)
        self._usage = UsageProvider(
            lambda: self._provider.config.resource_rules,
            self._provider.ask,
            NoObjects() if self._copies is None else ClusterObjects(self._copies),
            self._clock,
            self._provider.age_limit,
        )
        self._provider.team_faults = self._rules.faults_in
        stack.push_async_callback(self._provider.close)
        self._tasks.append(("discovery", self._provider.run))
        self._tasks.append(("event loop's lag", self._lag.run))
        if (collector := self._collector) is not None:
            self._tasks.append(("new series", lambda: self._follow_new_series(collector)))
        if interval_s := self._settings.hop_lag_interval_s:
            lag = HopLag(self._provider, timed, self._metrics, self._clock, interval_s)
            self._tasks.append(("hop lag", lag.run))
        self._tasks.append(("rules", self._follow_rules))
        if cluster is not None:
            self._tasks.append(("resources", lambda: self._follow_resources(cluster.objects)))
        if self._settings.serving.secure_port:
            self._guard = self._make_guard(cluster)
            for cache in self._caches.values():
                stack.push_async_callback(cache.close)
            self._certificate = self._make_certificate()

    def _open_rules(self, stack: AsyncExitStack, cluster: _Cluster | None) -> RuleBook:
        settings = self._settings.rules
        teams = None
        if settings.config_maps and cluster is None:
            _LOG.warning("there is no API server: no rules are read from ConfigMaps")
        elif settings.config_maps and cluster is not None:
            kube = self._kube_settings(self._settings.kubeconfig)
            client = ApiClient(kube)
            stack.push_async_callback(client.close)
            teams = TeamRules(
                client,
                kube,
                settings.config_maps,
                settings.namespace_labels,
                self._clock,
                settings.namespaces,
                settings.budget,
            )
            self._tasks.append(("teams' rules", teams.run))
        return RuleBook(
            settings.paths,
            self._mapper,
            self._clock.now_ms(),
            has_preset=settings.has_preset,
            teams=teams,
        )

    def _open_source(self, stack: AsyncExitStack, *, is_clustered: bool) -> MetricSource:
        if self._source is not None:
            return self._source
        if self._settings.feeds is not None:
            return self._open_collector(stack, self._settings.feeds, is_clustered=is_clustered)
        if (kind := self._settings.plugin) is not None:
            asked = self._settings.source
            plugged = kind.open(SourceRequest(url=asked.url, timeout_s=asked.timeout_s))
            stack.push_async_callback(plugged.close)
            return plugged
        source = make_source(self._settings.source)
        self._sharing = replace(self._sharing, fits=source.takes)
        stack.push_async_callback(source.close)
        return source

    def _open_collector(
        self, stack: AsyncExitStack, feeds: FeedSettings, *, is_clustered: bool
    ) -> MetricSource:
        # The store and all around it are not imported where there is a Prometheus.
        from gpuscale.metricsapi.collector.client import CollectorClient
        from gpuscale.metricsapi.collector.process import CollectorProcess
        from gpuscale.sources.feeds.collector import agent_access
        from gpuscale.sources.feeds.messages import CollectorSettings
        from gpuscale.sources.feeds.needs import wanted_by_rules
        from gpuscale.sources.feeds.sharing.settings import peer_access
        from gpuscale.sources.remote_write.sender import endpoint_access
        from gpuscale.sources.ruler.alertmanager import AlertmanagerSender
        from gpuscale.sources.ruler.files import PrometheusRuleFiles

        agent_access(feeds)  # a certificate that can't be used is the user's to know now
        if feeds.peers is not None:
            peer_access(feeds.peers)
            if feeds.peers.service is not None and not is_clustered:
                raise UsageError(
                    "--peers-service: found no API server that lists the replicas, expected "
                    "--lister-kubeconfig beside it, or --peers"
                )
        for endpoint in feeds.remote_write:
            endpoint_access(endpoint)
        ruler = self._settings.ruler
        PrometheusRuleFiles(ruler.paths)  # as are faults of rules
        AlertmanagerSender(ruler.alertmanagers)
        settings = CollectorSettings(
            feeds,
            self._wall_clock.origin,
            self._kube_settings(self._settings.kubeconfig) if is_clustered else None,
            _LOG.getEffectiveLevel(),
            wanted_by_rules(self._rules.config),
            ruler,
        )
        self._collector = CollectorProcess(settings)
        self._tasks.append(("collector", self._collector.run))
        self._collector_client = CollectorClient(self._collector)
        stack.push_async_callback(self._collector_client.close)
        self._sharing = replace(
            self._sharing, fits=self._collector_client.takes, renewed_from=_CHEAPLY_RENEWED_FROM
        )
        return self._collector_client

    async def _connect(self, stack: AsyncExitStack) -> _Cluster | None:
        """Return connections; None without HTTPS and without a cluster, as on a laptop."""
        settings = self._settings
        paths = (
            settings.kubeconfig,
            settings.auth.authentication_kubeconfig,
            settings.auth.authorization_kubeconfig,
        )
        is_alone = settings.kubeconfig is None and not SERVICE_ACCOUNT.exists()
        if is_alone and not settings.serving.secure_port:
            _LOG.warning("there is no API server: single objects can be asked for, * can't")
            return None
        made = (MetadataClient, ApiClient, ApiClient)
        clients = []
        for make, path in zip(made, paths, strict=True):
            client = make(self._kube_settings(path))
            stack.push_async_callback(client.close)
            clients.append(client)
        return _Cluster(*clients)

    def _make_provider(self, cluster: _Cluster | None, source: TimedSource) -> MetricsProvider:
        settings = self._settings
        if cluster is None:
            return MetricsProvider(
                self._rules.config,
                source,
                NoObjects(),
                self._clock,
                settings.relist_interval_s,
                settings.max_age_s,
                self._mapper,
                sharing=self._sharing,
                max_value_age_s=settings.max_value_age_s,
            )
        self._copies = ObjectCopies(
            cluster.objects,
            self._kube_settings(settings.kubeconfig),
            self._clock,
            max_age_s=settings.max_object_age_s,
        )
        self._tasks.append(("objects", self._copies.run))
        objects = ClusterObjects(self._copies)
        return MetricsProvider(
            self._rules.config,
            source,
            objects,
            self._clock,
            settings.relist_interval_s,
            settings.max_age_s,
            self._mapper,
            objects.ready,
            self._sharing,
            settings.max_value_age_s,
        )

    def _make_guard(self, cluster: _Cluster | None) -> Guard:
        auth = self._settings.auth
        tokens = access = published = None
        if cluster is not None:
            tokens = TokenReviewer(cluster.tokens, self._clock, auth.token_ttl_s)
            access = AccessReviewer(
                cluster.access, self._clock, auth.allowed_ttl_s, auth.denied_ttl_s
            )
            self._caches = {"token": tokens, "access": access}
            published = self._make_published(cluster)
        self._trust = TrustSources(auth, published, self._clock)
        self._tasks.append(("CA files", self._trust.run))
        return Guard(
            Authenticator(self._trust.trust, tokens),
            Authorizer(access, auth.always_allowed),
            self._metrics,
            audit_log=self._open_audit_log(),
        )

    def _open_audit_log(self) -> AuditLog | None:
        if self._settings.audit is None:
            return None
        self._audit_log = AuditLog(self._settings.audit)
        self._tasks.append(("audit log", self._audit_log.run))
        return self._audit_log

    def _make_published(self, cluster: _Cluster) -> TrustConfigMap | None:
        auth = self._settings.auth
        if auth.skips_lookup or (auth.client_ca_file and auth.proxy_ca_file):
            return None
        kube = self._kube_settings(auth.authentication_kubeconfig)
        self._published = TrustConfigMap(cluster.tokens, kube, self._clock)
        self._tasks.append(("trust", self._published.run))
        return self._published

    def _make_certificate(self) -> ServingCertificate:
        serving = self._settings.serving
        rules = TlsRules(serving.tls_min_version, serving.ciphers)
        if serving.certificate is not None:
            files = CertificateFiles(*serving.certificate)
        else:
            folder = serving.certificate_folder
            files = given_in(folder) or self._own_certificate(serving)
        pairs = [
            NamedFiles(CertificateFiles(pair.certificate, pair.key), pair.names)
            for pair in serving.named_certificates
        ]
        self._named = NamedCertificates(pairs, rules, self._clock)
        certificate = ServingCertificate(files, rules, self._clock, self._named.context)
        self._tasks.append(("certificate", certificate.run))
        self._tasks.append(("certificates of single names", self._named.run))
        return certificate

    def _own_certificate(self, serving: ServingSettings) -> CertificateFiles:
        names = names_of_service(serving.service_name, _namespace(serving))
        own = OwnCertificate(serving.certificate_folder, names, self._clock)
        self._tasks.append(("renewal", own.run))
        _LOG.info("made a certificate for %s in %s", names[0], serving.certificate_folder)
        if serving.ca_bundle_file is not None:
            _write(serving.ca_bundle_file, own.ca_bundle)
        else:
            _LOG.info("its CA, for the caBundle of an APIService:\n%s", own.ca_bundle)
        return own.files

    async def _wait_for_trust(self) -> None:
        """Return once the cluster's trust is known, or where it is no matter.

        Raises:
            UnavailableError: it is unavailable.
        """
        if self._trust is None or self._published is None or self._trust.is_known():
            return
        try:
            async with asyncio.timeout(_TRUST_WAIT_S):
                await self._published.tried.wait()
        except TimeoutError:
            _LOG.debug("there is no answer about trust yet")
        if self._trust.is_known() or self._settings.auth.tolerates_lookup_failure:
            return
        reason = "; ".join(self._trust.faults())
        raise UnavailableError(
            f"it is not known whom to trust: {reason}; bind the Role "
            "extension-apiserver-authentication-reader in kube-system, or give "
            "--authentication-tolerate-lookup-failure to start without it"
        )

    async def _listen(self, announce: Callable[[str], None]) -> None:
        serving = self._settings.serving
        if self._certificate is not None:
            guard = self._guard
            port = Port(
                self._application(guard.check, guard.sees_reasons),
                serving.limits,
                self._malformed,
                self._certificate.context,
                lambda connection: guard.is_front_proxy(connection.presented()),
            )
            self._ports["https"] = port
            await port.open(
                serving.host,
                serving.secure_port,
                shares_port=serving.shares_port,
                shares_address=serving.shares_address,
            )
            announce(f"https://{shown(serving.host)}:{serving.secure_port}")
        if serving.insecure_loopback_port:
            port = Port(self._application(unguarded), LOOPBACK_LIMITS, self._malformed)
            self._ports["loopback"] = port
            await port.open("127.0.0.1", serving.insecure_loopback_port)
            announce(f"http://127.0.0.1:{serving.insecure_loopback_port}")

    def _application(self, guard: Inner, sees_reasons: SeesReasons = everybody) -> web.Application:
        app = web.Application(middlewares=[counted(self._metrics, guard, lambda: self._stopping)])
        app.on_response_prepare.append(without_server)
        answered = self._metrics.answered
        add_routes(app, self._provider, self._checks, answered, self._usage, sees_reasons)
        app.router.add_get("/metrics", self._get_metrics)
        if self._collector_client is not None and self._settings.serves_prometheus_api:
            from gpuscale.metricsapi.collector.prometheus_api import PrometheusApi

            PrometheusApi(self._collector_client).add_routes(app)
        feeds = self._settings.feeds
        if self._collector_client is not None and feeds is not None and feeds.peers is not None:
            from gpuscale.metricsapi.collector.peers_api import PeersApi

            PeersApi(self._collector_client, lambda: self._stopping).add_routes(app)
        app.router.add_get("/", _get_index)
        return app

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        body = render_text(self._families()).encode()
        if self._collector_client is not None:
            body += await self._collector_client.metrics()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    def _families(self) -> tuple[Family, ...]:
        counts = {
            name: (cache.counts.hits, cache.counts.misses) for name, cache in self._caches.items()
        }
        states = self._copies.states() if self._copies is not None else ()
        objects = {
            str(each.collection): (each.objects, each.state.error is None, each.state.age_s())
            for each in states
        }
        return with_samples(
            self._metrics.families(),
            discovery_families(self._provider),
            rule_families(self._rules.state, self._rules.states),
            [cache_family(counts)],
            cache_families(),
            object_families(objects),
            connection_families(self._ports, self._malformed),
            self._lag.families(),
            () if self._audit_log is None else audit_families(self._audit_log),
            value_families(self._provider),
            () if self._collector is None else collector_families(self._collector),
        )

    def _kube_settings(self, path: Path | None) -> KubeSettings:
        # A watch begins again, and so proves itself, before what it keeps up is too old.
        watch_s = min(_WATCH_S, 0.75 * self._settings.max_object_age_s)
        return KubeSettings(
            node_name="",
            kubeconfig=path,
            context=self._settings.context,
            watch_s=max(1, round(watch_s)),
            max_retry_s=_MAX_RETRY_S,
        )

    def _checks(self, endpoint: str) -> Sequence[Check]:
        if endpoint == "livez":
            return ()
        checks = [self._rules_check(), *self._watch_checks()]
        if self._collector is not None:
            checks.append(Check("feeds", remark=self._collector.remark))
            checks.append(Check("prometheus-rules", remark=self._collector.rules_remark))
        if self._trust is not None:
            checks.append(_remarked("authentication", self._trust.faults()))
        if self._certificate is not None:
            faults = [self._certificate.fault, *self._named.faults()]
            checks.append(_remarked("certificate", faults))
        if endpoint == "readyz":
            checks.append(Check("shutdown", "the server is stopping" if self._stopping else None))
        return checks

    def _rules_check(self) -> Check:
        return _remarked("rules", self._rules.remarks)

    def _watch_checks(self) -> list[Check]:
        """Return a check for each resource that was asked for; `*` of the others still works."""
        states = self._copies.states() if self._copies is not None else ()
        return [_copy_check(each) for each in states]

    async def _follow_new_series(self, collector: "CollectorProcess") -> None:
        """Discover soon after series came or went."""
        loop = asyncio.get_running_loop()
        seen = collector.generation
        while True:
            await collector.changed(seen)
            seen, began = collector.generation, loop.time()
            await self._provider.relist()
            took_s = loop.time() - began
            await asyncio.sleep(min(_BUSY_SHARE * took_s, _LONGEST_PAUSE_S))

    async def _follow_rules(self) -> None:
        while True:
            await self._clock.sleep(_RULES_LOOK_S)
            config = self._rules.look(self._mapper, self._clock.now_ms())
            if config is not None:
                if self._collector is not None:
                    from gpuscale.sources.feeds.needs import wanted_by_rules

                    await self._collector.want(wanted_by_rules(config))
                await self._provider.replace_config(config, self._rules.mapper)

    async def _follow_resources(self, client: ApiClient) -> None:
        while True:
            await self._clock.sleep(self._settings.discovery_interval_s)
            try:
                self._mapper = await read_mapper(client)
            except GpuscaleError as error:
                _LOG.warning("the cluster's resources are kept as they were: %s", error)


def _remarked(name: str, told: Sequence[str | None]) -> Check:
    return Check(name, remark="; ".join(text for text in told if text))


def _copy_check(copy: CopyState) -> Check:
    """Return how a copy does; another replica may do better where this one is cut off from the API server.

    A right that is missing is missing everywhere, and single objects and external metrics still work.
    """
    name, error = f"watch-{copy.collection}", copy.state.error
    if not copy.is_withheld:
        return _remarked(name, [str(error) if error else None])
    reason = f"nothing is answered from it: {error or 'the API server is silent'}"
    if copy.state.listed and not isinstance(error, ApiStatusError):
        return Check(name, reason)
    return Check(name, remark=reason)


def _namespace(serving: ServingSettings) -> str:
    if serving.service_namespace:
        return serving.service_namespace
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--ca-bundle-file: can't write {path}: {error.strerror}") from error


async def _get_index(_request: web.Request) -> web.Response:
    paths = ["/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz"]
    return web.json_response({"paths": [*paths, "/version"]})
