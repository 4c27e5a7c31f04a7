"""What a collector process runs: the feeds, the store they fill, and the Prometheus HTTP API over it.

It listens on a Unix socket alone. Two forms of the API are there: as Prometheus answers, for people, and
under `/measured` with the times of the measurements, for the metrics API.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from aiohttp import web

from gpuscale.base.clock import WallClock
from gpuscale.base.exposition.families import Family
from gpuscale.base.exposition.write import CONTENT_TYPE, render_text
from gpuscale.kube.client import KubeClient
from gpuscale.series import EVERYTHING, WantedNames, wanted_by
from gpuscale.series.promapi import QueryPool, add_routes
from gpuscale.series.rules import RuleGroups
from gpuscale.server.collector.keeping_metrics import keeping_families
from gpuscale.server.collector.metrics import feed_families, feed_remark
from gpuscale.server.collector.peers import add_peer_route, peer_families, peer_remark
from gpuscale.server.collector.view import collector_view
from gpuscale.server.sources.feeds.collector import FeedCollector
from gpuscale.server.sources.feeds.messages import CollectorSettings, CollectorStatus
from gpuscale.server.sources.ruler.alertmanager import AlertmanagerSender
from gpuscale.server.sources.ruler.files import PrometheusRuleFiles
from gpuscale.server.sources.ruler.report import ruler_families, ruler_remark
from gpuscale.server.sources.ruler.ruler import Ruler

if TYPE_CHECKING:
    from gpuscale.server.sources.otlp.receiver import OtlpReceiver

_LOOK_S = 0.1
"""How often new series are looked for; they are usable within a second."""
_REMARK_S = 1.0
_RULES_AT_ONCE = 2
"""Groups of rules that ask at one time; the queries of others have places of their own."""
_GOODBYE_S = 2.0
"""How long requests may take to end when the process stops."""

Say = Callable[[CollectorStatus], None]


class CollectorServer:
    """One collector process: its feeds, store, ruler and HTTP API.

    Args:
        settings: from the metrics API.
    """

    def __init__(self, settings: CollectorSettings) -> None:
        self._settings = settings
        self._wanted = settings.wanted
        self._rules_wanted: tuple[RuleGroups, WantedNames] | None = None
        self._clock = WallClock(origin=settings.origin)

    async def run(self, stop: asyncio.Event, say: Say) -> None:
        """Serve until `stop` is set.

        Args:
            stop: ends it.
            say: gets the collector's state, first when it listens, then each second and when series change.

        Raises:
            UsageError: a certificate that can't be used.
        """
        settings = self._settings
        async with AsyncExitStack() as stack:
            kube = None
            if settings.kube is not None:
                kube = KubeClient(settings.kube)
                stack.push_async_callback(kube.close)
            feeds = FeedCollector(settings.feeds, self._clock, kube, settings.kube)
            await feeds.open()
            files = PrometheusRuleFiles(settings.rules.paths, must_be_good=False)
            url = settings.rules.external_url
            sender = AlertmanagerSender(settings.rules.alertmanagers, url)
            ruler = Ruler(
                files.groups,
                feeds.store,
                QueryPool(at_once=_RULES_AT_ONCE),
                self._clock,
                settings.rules.interval_ms,
                restores=True,
                notify=sender.notify if sender.urls else None,
                external_url=url,
            )
            feeds.want(self._all_wanted(ruler))
            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(feeds.run(), name="feeds"),
                    group.create_task(ruler.run(files), name="rules"),
                    group.create_task(sender.run(), name="alerts"),
                ]
                listening = AsyncExitStack()
                try:
                    await self._listen(listening, feeds, ruler, files, sender)
                    reporting = self._report(feeds, ruler, files, sender, say)
                    running.append(group.create_task(reporting, name="status"))
                    await stop.wait()
                finally:
                    await listening.aclose()
                    for task in running:
                        task.cancel()

    async def _listen(
        self,
        stack: AsyncExitStack,
        feeds: FeedCollector,
        ruler: Ruler,
        files: PrometheusRuleFiles,
        sender: AlertmanagerSender,
    ) -> None:
        pool, receiver = QueryPool(), self._otlp_receiver(feeds)
        app, measured = web.Application(), web.Application()
        view = collector_view(self._settings, feeds, ruler, files, sender.urls)
        add_routes(app, feeds.store, self._clock, pool=pool, view=view)
        add_routes(measured, feeds.store, self._clock, pool=pool, shows_measured=True)
        app.add_subapp("/measured", measured)

        async def metrics(_request: web.Request) -> web.Response:
            families = (
                *feed_families(feeds),
                *peer_families(feeds),
                *keeping_families(feeds),
                *ruler_families(ruler, files),
                *(sender.families() if sender.urls else ()),
                *_otlp_families(receiver),
            )
            text = render_text(family for family in families if family.samples)
            return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

        app.router.add_get("/metrics", metrics)
        if receiver is not None:
            from gpuscale.server.collector.otlp import add_otlp_route

            add_otlp_route(app, receiver)
        if feeds.sharing is not None:
            add_peer_route(app, feeds.sharing.relay)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_GOODBYE_S)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        socket = self._settings.socket
        # If the metrics API was killed, no other process can remove it.
        stack.callback(shutil.rmtree, socket.parent, ignore_errors=True)
        await web.UnixSite(runner, str(socket)).start()

    def _otlp_receiver(self, feeds: FeedCollector) -> "OtlpReceiver | None":
        settings = self._settings.feeds
        if settings.otlp is None:
            return None
        from gpuscale.server.sources.otlp.receiver import OtlpReceiver

        return OtlpReceiver(settings.otlp, feeds.store, feeds.wanted, settings.limits, self._clock)

    def change_wanted(self, wanted: WantedNames) -> None:
        """Set the series that the adapter rules can ask for."""
        self._wanted = wanted

    async def _report(
        self,
        feeds: FeedCollector,
        ruler: Ruler,
        files: PrometheusRuleFiles,
        sender: AlertmanagerSender,
        say: Say,
    ) -> None:
        """Log the state of feeds and rules, and update the list of wanted series, until cancelled."""
        now = asyncio.get_running_loop().time
        generation, remark_at, unread = -1, now(), "nothing was looked for yet"
        while True:
            before, unread = unread, unread and feeds.unread()  # once all are read, they stay so
            is_whole = bool(before) and not unread
            if feeds.store.generation != generation or now() >= remark_at or is_whole:
                generation, remark_at = feeds.store.generation, now() + _REMARK_S
                remarks = filter(None, (ruler_remark(ruler, files), sender.remark()))
                remark = "; ".join(filter(None, (feed_remark(feeds), peer_remark(feeds))))
                say(CollectorStatus(generation, remark, "; ".join(remarks), unread))
            feeds.want(self._all_wanted(ruler))
            await asyncio.sleep(_LOOK_S)

    def _all_wanted(self, ruler: Ruler) -> WantedNames:
        """Return the names of the series to keep: those of adapter rules and Prometheus rules, or all."""
        feeds = self._settings.feeds
        if feeds.keeps_all_series or feeds.remote_write:
            return EVERYTHING
        if self._rules_wanted is None or self._rules_wanted[0] is not ruler.groups:
            queries = (wanted_by(rule.query) for rule in ruler.groups.rules())
            self._rules_wanted = (ruler.groups, WantedNames.joined(queries))
        return WantedNames.joined((self._wanted, self._rules_wanted[1]))


def _otlp_families(receiver: "OtlpReceiver | None") -> Sequence[Family]:
    if receiver is None:
        return ()
    from gpuscale.server.collector.otlp import otlp_families

    return otlp_families(receiver)
