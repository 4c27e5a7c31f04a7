"""The collector of all feeds: discovers targets, follows each one, and fills the store."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial

from gpuscale.base.clock import Clock
from gpuscale.kube.client import JsonObject, KubeClient, KubeSettings
from gpuscale.kube.informers import Reflector, ReflectorState
from gpuscale.series import WantedNames, WantedSeries
from gpuscale.series.storage import SeriesStore
from gpuscale.server.sources.feeds import annotated_pods, endpoint_slices
from gpuscale.server.sources.feeds.scraper import Scraper
from gpuscale.server.sources.feeds.selected_pods import selected_targets
from gpuscale.server.sources.feeds.settings import FeedSettings
from gpuscale.server.sources.feeds.sharing import ReplicaSharing
from gpuscale.server.sources.feeds.stream import Seat, StreamFollower, new_seat
from gpuscale.server.sources.feeds.targets import FeedState, FeedTarget, agent_page, told_apart
from gpuscale.server.sources.http.access import SecretFile, SourceAccess, tls_to
from gpuscale.server.sources.http.session import MAX_RESPONSE_BYTES, HttpSession
from gpuscale.server.sources.remote_write.sender import RemoteWriter
from gpuscale.server.sources.saving.saver import StoreSaver
from gpuscale.signals import range_of

_LOG = logging.getLogger(__name__)
MAX_TARGETS = 10_000
"""A guard against a cluster where everything is annotated."""
_LARGE_PAGES = 4
"""Pages that are read at a time beyond their first MiB; any pod may answer without an end."""
_TIDY_S = 5.0
"""How often the store is looked at."""

_MODEL_SERVERS = WantedNames(patterns=frozenset({"(vllm|sglang):.*"}))
"""What the dashboards of model servers show, a few hundred series of a target. Those that are named one by
one are scraped on purpose; of pods that come by a selector or an annotation there may be thousands."""

Targets = tuple[FeedTarget, ...]


class FeedCollector:
    """Fills a store from targets.

    Args:
        settings: what to follow, and how.
        clock: gives the samples their times.
        kube: to the API server, which names targets; None for those of the settings alone.
        kube_settings: waits and sizes.

    Raises:
        UsageError: a certificate that can't be used.
    """

    def __init__(
        self,
        settings: FeedSettings,
        clock: Clock,
        kube: KubeClient | None = None,
        kube_settings: KubeSettings | None = None,
    ) -> None:
        self.store = SeriesStore(
            settings.retention_ms, settings.max_series, settings.max_samples, range_of
        )
        self.wanted = WantedSeries()
        """Says which series are kept: all of them, until it gets a list."""
        self._wanted_on_purpose = WantedSeries()
        self._settings = settings
        self._clock = clock
        self._agents_http = HttpSession(access=agent_access(settings), max_connections=0)
        self._http = HttpSession(
            max_connections=0,
            max_response_bytes=settings.limits.body_bytes or MAX_RESPONSE_BYTES,
            large_at_once=_LARGE_PAGES,
        )
        self._watches: dict[str, Reflector[Targets]] = {}
        self._running: dict[FeedTarget, tuple[StreamFollower | Scraper, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        self._changed.set()  # nothing is followed before the first `_follow`
        self.saver = (
            None if settings.saving is None else StoreSaver(self.store, settings.saving, clock)
        )
        self.writers = tuple(
            RemoteWriter(self.store, endpoint, clock) for endpoint in settings.remote_write
        )
        self.sharing = (
            None
            if settings.peers is None
            else ReplicaSharing(
                settings.peers,
                clock,
                self.wanted,
                self._seat,
                self._changed.set,
                kube,
                kube_settings,
            )
        )
        """With other replicas; None where this one follows all agents."""
        if kube is not None:
            self._watch(kube, kube_settings or KubeSettings())

    def states(self) -> tuple[FeedState, ...]:
        """Return the state of each target, sorted."""
        found = (feed.state for feed, _ in self._running.values())
        return tuple(sorted(found, key=lambda state: (state.kind, state.instance)))

    def targets(self) -> tuple[tuple[FeedTarget, FeedState], ...]:
        """Return the current targets with their states."""
        return tuple((target, feed.state) for target, (feed, _) in self._running.items())

    def watches(self) -> dict[str, ReflectorState]:
        """Return the state of each watch that discovers targets, by name."""
        found = {name: watch.state for name, watch in self._watches.items()}
        if self.sharing is not None and self.sharing.watch is not None:
            found["peers"] = self.sharing.watch.reflector.state
        return found

    def want(self, wanted: WantedNames) -> None:
        """Keep these series from now on; of targets given one by one, the dashboards' series too."""
        self.wanted.change(wanted)
        self._wanted_on_purpose.change(WantedNames.joined((wanted, _MODEL_SERVERS)))

    def unread(self) -> str:
        """Return in words which series can't be there yet; empty once each target was tried."""
        unlisted = [
            name
            for name, state in self.watches().items()
            if not state.listed and state.error is None
        ]
        if unlisted:
            return f"{' and '.join(sorted(unlisted))} are not listed yet"
        if self._changed.is_set():
            return "targets were found that are not followed yet"
        tried = {
            target for target, state in self.targets() if state.up or state.failures or state.error
        }
        known = set(self._running)
        if self.sharing is not None:
            known |= self.sharing.discovered
            tried |= self.sharing.delivered()
        waiting = len(known - tried)
        return f"{waiting} of {len(known)} targets were not read yet" if waiting else ""

    async def open(self) -> None:
        """Restore the saved store; until then queries would miss its samples."""
        if self.saver is not None:
            await self.saver.open()
        for writer in self.writers:
            writer.skip()

    async def run(self) -> None:
        """Follow all targets until cancelled, then save and send what is new."""
        async with AsyncExitStack() as stack:
            keepers = (*self.writers, *(() if self.saver is None else (self.saver,)))
            for keeper in keepers:
                stack.push_async_callback(keeper.close)
            for session in (self._http, self._agents_http):
                stack.push_async_callback(session.close)
            async with asyncio.TaskGroup() as group:
                for name, watch in self._watches.items():
                    group.create_task(watch.run(), name=f"watch {name}")
                group.create_task(self._tidy(), name="store")
                if self.sharing is not None:
                    group.create_task(self.sharing.run(), name="replicas")
                for keeper in keepers:
                    group.create_task(keeper.run(), name=type(keeper).__name__)
                try:
                    await self._follow(group)
                finally:
                    # A stopping collector does not end its targets' series: they go on after a
                    # restart, or in another collector.
                    for feed, _ in self._running.values():
                        feed.ends_series = False

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        """Start and end followers as targets come and go."""
        while True:
            self._changed.clear()
            wanted = self._wanted()
            for target in self._running.keys() - wanted.keys():
                feed, task = self._running.pop(target)
                task.cancel()
                if self.sharing is not None and target.is_agent:
                    # An agent that still exists is followed by another replica.
                    feed.ends_series = target not in self.sharing.discovered
                    self.sharing.released(target)
            for target in wanted:
                if target not in self._running:
                    feed = self._feed(target)
                    task = group.create_task(feed.run(), name=f"feed {target.url}")
                    self._running[target] = (feed, task)
            await self._changed.wait()

    def _wanted(self) -> dict[FeedTarget, None]:
        """Return the targets, each agent once; an agent that is followed is not scraped too."""
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
        kept = kept[:MAX_TARGETS]
        if self.sharing is not None:
            self.sharing.discover(each for each in kept if each.is_agent)
            kept = [
                each
                for each in kept
                if not each.is_agent
                or self.sharing.follows(each, is_followed=each in self._running)
            ]
        pages = self._settings.agent_pages
        kept += [agent_page(each, path) for each in kept if each.is_agent for path in pages]
        return dict.fromkeys(told_apart(kept))

    def _seat(self, target: FeedTarget) -> Seat:
        return new_seat(
            target,
            self.store,
            honor_labels=self._settings.honor_labels,
            resolution_ms=self._settings.resolution_ms,
            limits=self._settings.limits,
            wanted=self.wanted,
        )

    def _feed(self, target: FeedTarget) -> StreamFollower | Scraper:
        honor_labels = self._settings.honor_labels
        if target.is_agent:
            sharing = self.sharing
            seat = self._seat(target) if sharing is None else sharing.seat(target)
            follower = StreamFollower(target, self._agents_http, self.store, self._clock, seat=seat)
            if sharing is not None:
                follower.on_lost = partial(sharing.lost, target)
            return follower
        return Scraper(
            target,
            self._agents_http if target.is_page else self._http,
            self.store,
            self._clock,
            self._settings.scrape_interval_s,
            honor_labels=honor_labels,
            limits=self._settings.limits,
            wanted=self._wanted_on_purpose if target in self._settings.static else self.wanted,
        )

    def _watch(self, kube: KubeClient, kube_settings: KubeSettings) -> None:
        agents = self._settings.agents
        self._watches["endpointslices"] = Reflector(
            kube,
            kube_settings,
            agents.path(),
            agents.parameters(),
            lambda body: _some(endpoint_slices.slice_targets(body, agents)),
            self._clock,
            self._changed.set,
        )
        if self._settings.scrapes_pods or self._settings.selected:
            self._watches["pods"] = Reflector(
                kube,
                kube_settings,
                annotated_pods.PATH,
                annotated_pods.PARAMETERS,
                self._pod_targets,
                self._clock,
                self._changed.set,
            )

    def _pod_targets(self, body: JsonObject) -> Targets | None:
        settings = self._settings
        found = dict.fromkeys(selected_targets(body, settings.selected, settings.exporters))
        if settings.scrapes_pods:
            found |= dict.fromkeys(annotated_pods.pod_targets(body, settings.exporters))
        return _some(found)

    async def _tidy(self) -> None:
        """Log when the store starts to drop samples before the retention, and when it stops doing so."""
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


def _preference(target: FeedTarget) -> tuple[bool, str]:
    """Return a sort key for a pod's addresses, in which IPv4 ranks higher."""
    return "[" not in target.instance, target.url


def _some(targets: Iterable[FeedTarget]) -> Targets | None:
    return tuple(targets) or None


def agent_access(settings: FeedSettings) -> SourceAccess:
    """Return the access to agents; it is not used for other targets.

    Raises:
        UsageError: a certificate that can't be used.
    """
    token, password = settings.agent_token_file, settings.agent_password_file
    return SourceAccess(
        token=None if token is None else SecretFile(token),
        username=settings.agent_username,
        password=None if password is None else SecretFile(password),
        tls=tls_to("node agents", settings.agent_ca_file, settings.agent_client_files),
        server_name=settings.agent_server_name,
    )
