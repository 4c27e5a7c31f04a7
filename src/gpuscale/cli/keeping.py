"""Keeping a history for as long as a command runs: of a Prometheus, or of a cluster."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.errors import GpuscaleError
from gpuscale.cli.options.prices import price_book
from gpuscale.cli.texts import printable

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeSettings
    from gpuscale.ops.history import HistoryWriter, PrometheusTaker
    from gpuscale.ops.money import PriceBook
    from gpuscale.ops.top import EventRow, Picture, Reader, TopSettings

MIB = 1024 * 1024
DEFAULT_MIB = 10_240
DEFAULT_FOLDER = "gpuscale-history"
MINUTE_S = 60
_CATCH_UP_S = 7200
"""How far back the minutes and hours are looked at again that could not be kept."""
_LATE_S = 15
"""After the end of a minute, until a Prometheus has what was scraped in it."""
_LOOK_EVERY_S = 15
_CLOSEST_MS = 5000
"""Between two pictures that are kept: a page may be looked at every second."""


class Faults:
    """Says a fault once, and again after it was over."""

    def __init__(self) -> None:
        self._told = ""

    def tell(self, error: GpuscaleError) -> None:
        """Say it on standard error, unless it was the last that was said."""
        if str(error) != self._told:
            self._told = str(error)
            print(f"gpuscale: {printable(self._told)}; trying again", file=sys.stderr, flush=True)

    def over(self) -> None:
        """Note that it went well."""
        self._told = ""


async def wait(stop: asyncio.Event, seconds: float) -> None:
    """Wait until the time is over or the event is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await stop.wait()


async def follow_prometheus(
    taker: "PrometheusTaker", writer: "HistoryWriter", stop: asyncio.Event
) -> None:
    """Keep the last hours, and then each minute once it is over; what can't be had is tried again."""
    from gpuscale.ops.history import History, keep_range, spans_kept

    with History(str(writer.folder)) as before:
        known = spans_kept(before)
    faults = Faults()
    async with taker.source:
        while not stop.is_set():
            end_s = int(time.time() - _LATE_S) // MINUTE_S * MINUTE_S
            try:
                await keep_range(taker, writer, known, end_s - _CATCH_UP_S, end_s, lambda _: None)
                faults.over()
            except GpuscaleError as error:
                faults.tell(error)
            await wait(stop, end_s + MINUTE_S + _LATE_S - time.time())


class MinuteKeeper:
    """Writes each minute of what pictures show, once it is over.

    Args:
        book: prices of nodes.
        writer: to the history.
        now: seconds since the epoch.
    """

    def __init__(
        self, book: "PriceBook", writer: "HistoryWriter", now: Callable[[], float] = time.time
    ) -> None:
        from gpuscale.ops.history import PictureTaker

        self._taker = PictureTaker(book)
        self._writer = writer
        self._now = now
        self._minute = int(now()) // MINUTE_S
        self._added_ms = 0
        self._faults = Faults()

    def add(self, picture: "Picture") -> None:
        """Take a picture into the minute that goes on; of many, some."""
        if picture.at_ms - self._added_ms >= _CLOSEST_MS:
            self._added_ms = picture.at_ms
            self._taker.add(picture)

    def decided(self, event: "EventRow", why: Sequence[str]) -> None:
        """Take why an HPA has the new size that an event tells."""
        self._taker.decided(event, why)

    async def keep(self, *, at_end: bool = False) -> None:
        """Write the minute that is over, or at the end the one that goes on; a fault is said."""
        minute = int(self._now()) // MINUTE_S
        if minute == self._minute and not at_end:
            return
        batch, self._minute = self._taker.take(self._minute * MINUTE_S * 1000), minute
        try:
            await asyncio.to_thread(self._writer.write, batch)
            self._faults.over()
        except GpuscaleError as error:
            self._faults.tell(error)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep minute after minute, and at the end the one that goes on."""
        while not stop.is_set():
            await wait(stop, MINUTE_S - self._now() % MINUTE_S)
            await self.keep(at_end=stop.is_set())


class KeptReader:
    """Takes pictures as another reader does, and keeps them; it satisfies `Reader`."""

    def __init__(self, reader: "Reader", keeper: MinuteKeeper) -> None:
        self._reader = reader
        self._keeper = keeper

    async def look(self) -> "Picture":
        picture = await self._reader.look()
        self._keeper.add(picture)
        return picture


def default_writer(folder: Path) -> "HistoryWriter":
    """Return the writer to a folder, up to the size that a history has by itself.

    Raises:
        UsageError, UnavailableError: as `HistoryWriter`.
    """
    from gpuscale.ops.history import HistoryWriter

    return HistoryWriter(folder, DEFAULT_MIB * MIB)


async def follow_run(kubeconfig: Path | None, writer: "HistoryWriter", stop: asyncio.Event) -> None:
    """Keep minutes of a live run, at the catalogue's prices."""
    from gpuscale.kube.client import KubeSettings
    from gpuscale.ops.top import TopSettings

    cluster = KubeSettings(kubeconfig)
    await follow_cluster(cluster, TopSettings(), price_book(None), writer, stop)


async def follow_cluster(
    cluster: "KubeSettings",
    settings: "TopSettings",
    book: "PriceBook",
    writer: "HistoryWriter",
    stop: asyncio.Event,
) -> None:
    """Look at a cluster every 15 seconds, and keep each minute of that."""
    from gpuscale.base.clock import WallClock
    from gpuscale.kube.client import KubeClient, cluster_name
    from gpuscale.ops.top import ClusterReader

    keeper, faults = MinuteKeeper(book, writer), Faults()
    async with KubeClient(cluster) as client:
        reader = ClusterReader(client, str(cluster_name(cluster)), WallClock(), settings)
        while True:
            try:
                keeper.add(await reader.look())
                faults.over()
            except GpuscaleError as error:
                faults.tell(error)
            await wait(stop, _LOOK_EVERY_S - time.time() % _LOOK_EVERY_S)
            await keeper.keep(at_end=stop.is_set())
            if stop.is_set():
                return
