"""All feeds together: finds targets, follows each of them, and fills the store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack

from gpuscale.core.clock import Clock
from gpuscale.core.errors import UsageError
from gpuscale.kube.connection import KubeConnection
from gpuscale.kube.reflect import Reflector, ReflectorState
from gpuscale.kube.settings import KubeSettings
from gpuscale.series.store import SeriesStore
from gpuscale.sources.access import Access, SecretFile, TlsFiles, tls_of_files
from gpuscale.sources.feeds import annotated_pods, endpoint_slices
from gpuscale.sources.feeds.scraper import Scraper
from gpuscale.sources.feeds.settings import FeedSettings
from gpuscale.sources.feeds.states import FeedState
from gpuscale.sources.feeds.stream import StreamFollower
from gpuscale.sources.feeds.targets import Target
from gpuscale.sources.http import MAX_RESPONSE_BYTES, HttpSession

_LOG = logging.getLogger(__name__)
MAX_TARGETS = 10_000
"""A guard against a cluster where everything is annotated."""
_TIDY_S = 5.0
"""How often the store is looked at."""
_LOOK_S = 0.1
"""How often new series are looked for; they are usable within a second."""
_BUSY_SHARE = 10
"""Discovery takes at most one part in so many of the time."""
_LONGEST_PAUSE_S = 5.0

Targets = tuple[Target, ...]


class FeedCollector:
    """Fills a store from targets.

    Args:
        settings: what to follow, and how.
        clock: of the samples.
        kube: to the API server, which names targets; None for those of the settings alone.
        kube_settings: waits and sizes.

    Raises:
        UsageError: a certificate that can't be used.
    """

    def __init__(
        self,
        settings: FeedSettings,
        clock: Clock,
        kube: KubeConnection | None = None,
        kube_settings: KubeSettings | None = None,
    ) -> None:
        self.store = SeriesStore(settings.retention_ms, settings.max_series, settings.max_samples)
        self._settings = settings
        self._clock = clock
        self._agents_http = HttpSession(access=_agent_access(settings), max_connections=0)
        self._http = HttpSession(
            max_connections=0, max_response_bytes=settings.limits.body_bytes or MAX_RESPONSE_BYTES
        )
        self._watches: dict[str, Reflector[Targets]] = {}
        self._running: dict[Target, tuple[StreamFollower | Scraper, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        if kube is not None:
            self._watch(kube, kube_settings or KubeSettings(node_name=""))

    def states(self) -> tuple[FeedState, ...]:
        """Return how each target does, sorted."""
        found = (feed.state for feed, _ in self._running.values())
        return tuple(sorted(found, key=lambda state: (state.kind, state.instance)))

    def watches(self) -> dict[str, ReflectorState]:
        """Return how the lists of targets are kept up, by name."""
        return {name: watch.state for name, watch in self._watches.items()}

    async def run(self) -> None:
        """Follow all targets until cancelled."""
        async with AsyncExitStack() as stack:
            for session in (self._http, self._agents_http):
                stack.push_async_callback(session.close)
            async with asyncio.TaskGroup() as group:
                for name, watch in self._watches.items():
                    group.create_task(watch.run(), name=f"watch {name}")
                group.create_task(self._tidy(), name="store")
                await self._follow(group)

    async def follow_new_series(self, relist: Callable[[], Awaitable[None]]) -> None:
        """Call `relist` soon after series came or went, until cancelled."""
        seen = self.store.generation
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_S)
            if self.store.generation == seen:
                continue
            seen = self.store.generation
            began = loop.time()
            await relist()
            took_s = loop.time() - began
            await asyncio.sleep(min(_BUSY_SHARE * took_s, _LONGEST_PAUSE_S))

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        """Start and end followers as targets come and go."""
        while True:
            self._changed.clear()
            wanted = self._wanted()
            for target in self._running.keys() - wanted.keys():
                self._running.pop(target)[1].cancel()
            for target in wanted:
                if target not in self._running:
                    feed = self._feed(target)
                    task = group.create_task(feed.run(), name=f"feed {target.url}")
                    self._running[target] = (feed, task)
            await self._changed.wait()

    def _wanted(self) -> dict[Target, None]:
        """Return the targets, each agent once, and not scraped too where it is followed."""
        found = dict.fromkeys(self._settings.static)
        for watch in self._watches.values():
            for targets in watch.items.values():
                found |= dict.fromkeys(targets)
        streamed = {target.instance for target in found if target.is_agent}
        agents = {each.pod: each for each in sorted(found, key=_preference) if each.pod}
        kept = [
            each
            for each in found
            if (each.is_agent or each.instance not in streamed)
            and agents.get(each.pod, each) is each
        ]
        if len(kept) > MAX_TARGETS:
            _LOG.warning("found %s targets, only %s are followed", len(kept), MAX_TARGETS)
        return dict.fromkeys(kept[:MAX_TARGETS])

    def _feed(self, target: Target) -> StreamFollower | Scraper:
        honor_labels = self._settings.honor_labels
        if target.is_agent:
            return StreamFollower(
                target,
                self._agents_http,
                self.store,
                self._clock,
                honor_labels=honor_labels,
                resolution_ms=self._settings.resolution_ms,
            )
        return Scraper(
            target,
            self._http,
            self.store,
            self._clock,
            self._settings.scrape_interval_s,
            honor_labels=honor_labels,
            limits=self._settings.limits,
        )

    def _watch(self, kube: KubeConnection, kube_settings: KubeSettings) -> None:
        agents, exporters = self._settings.agents, self._settings.exporters
        self._watches["endpointslices"] = Reflector(
            kube,
            kube_settings,
            agents.path(),
            agents.parameters(),
            lambda body: _some(endpoint_slices.slice_targets(body, agents)),
            self._clock,
            self._changed.set,
        )
        if self._settings.scrapes_pods:
            self._watches["pods"] = Reflector(
                kube,
                kube_settings,
                annotated_pods.PATH,
                annotated_pods.PARAMETERS,
                lambda body: _some(annotated_pods.pod_targets(body, exporters)),
                self._clock,
                self._changed.set,
            )

    async def _tidy(self) -> None:
        """Log when the store begins to drop samples early, and when all are kept again."""
        store = self.store
        is_short = False
        while True:
            await asyncio.sleep(_TIDY_S)
            covered_ms = store.stats().covered_ms
            if (covered_ms < store.retention_ms) == is_short:
                continue
            is_short = not is_short
            if is_short:
                _LOG.warning(
                    "the store is full: it covers the last %s s of %s s, and queries of more have no value",
                    covered_ms // 1000,
                    store.retention_ms // 1000,
                )
            else:
                _LOG.info("the store covers its whole retention again")


def _preference(target: Target) -> tuple[bool, str]:
    """Return what is highest for the address of a pod to use: of two families, IPv4's."""
    return "[" not in target.instance, target.url


def _some(targets: Iterable[Target]) -> Targets | None:
    return tuple(targets) or None


def _agent_access(settings: FeedSettings) -> Access:
    """Return how agents are come to; other targets get none of it."""
    token, password = settings.agent_token_file, settings.agent_password_file
    return Access(
        token=None if token is None else SecretFile(token),
        username=settings.agent_username,
        password=None if password is None else SecretFile(password),
        tls=_agent_tls(settings),
    )


def _agent_tls(settings: FeedSettings) -> TlsFiles | None:
    ca_file, client_files = settings.agent_ca_file, settings.agent_client_files
    if ca_file is None and client_files is None:
        return None
    try:
        return tls_of_files(ca_file, client_files)
    except (OSError, ValueError) as error:
        where = ca_file or "the client certificate"
        raise UsageError(f"{where}: can't go to node agents with it: {error}") from error
