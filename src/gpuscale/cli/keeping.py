"""Keeping a history for as long as a command runs: of a Prometheus, or of a cluster."""

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.errors import GpuscaleError
from gpuscale.cli.options.prices import price_book
from gpuscale.cli.texts import printable

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeSettings
    from gpuscale.ops.history import HistoryWriter, PrometheusTaker
    from gpuscale.ops.money import PriceBook
    from gpuscale.ops.top import TopSettings

MIB = 1024 * 1024
DEFAULT_MIB = 10_240
DEFAULT_FOLDER = "gpuscale-history"
MINUTE_S = 60
_CATCH_UP_S = 7200
"""How far back the minutes and hours are looked at again that could not be kept."""
_LATE_S = 15
"""After the end of a minute, until a Prometheus has what was scraped in it."""
_LOOK_EVERY_S = 15


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
    from gpuscale.ops.history import PictureTaker
    from gpuscale.ops.top import ClusterReader

    taker, faults, minute = PictureTaker(book), Faults(), int(time.time()) // MINUTE_S
    async with KubeClient(cluster) as client:
        reader = ClusterReader(client, str(cluster_name(cluster)), WallClock(), settings)
        while True:
            try:
                taker.add(await reader.look())
                faults.over()
            except GpuscaleError as error:
                faults.tell(error)
            await wait(stop, _LOOK_EVERY_S - time.time() % _LOOK_EVERY_S)
            now = int(time.time()) // MINUTE_S
            if now != minute or stop.is_set():
                try:
                    writer.write(taker.take(minute * MINUTE_S * 1000))
                except GpuscaleError as error:
                    faults.tell(error)
                minute = now
            if stop.is_set():
                return
