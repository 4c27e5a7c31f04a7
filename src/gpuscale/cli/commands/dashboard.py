"""`gpuscale dashboard`: a page of what a cluster does now, and did in the last hours."""

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.cli.exits import stop_event
from gpuscale.cli.keeping import KeptReader, MinuteKeeper, default_writer
from gpuscale.cli.options.cluster import Context, Kubeconfig, looking
from gpuscale.cli.options.prices import price_book
from gpuscale.cli.options.prometheus import (
    PrometheusIdentity,
    PrometheusTokenFile,
    PrometheusUrl,
)
from gpuscale.cli.pictures import Every, GpuSource, Looked, OnlyNamespace, Urls, looked_at, opened
from gpuscale.cli.progress import working

if TYPE_CHECKING:
    from gpuscale.ops.dashboard import Dashboard, Point
    from gpuscale.ops.history import HistoryWriter
    from gpuscale.ops.top import Picture
    from gpuscale.server.page import Front

DEFAULT_PORT = 9490


def dashboard(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: OnlyNamespace = None,
    url: Urls = None,
    gpu: GpuSource = None,
    prometheus_url: PrometheusUrl = None,
    prometheus_token_file: PrometheusTokenFile = None,
    prometheus_identity: PrometheusIdentity = None,
    every: Every = 5,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep minutes of what is seen there, for gpuscale history and report; charts begin with the "
            "hours that it has.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on. Whoever reaches it sees the page: there is no password.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            help=f"Port of the page, 0 for any free one; without it {DEFAULT_PORT}, or another where that "
            "is taken.",
            metavar="N",
            min=0,
            max=65535,
        ),
    ] = None,
) -> None:
    """Serve a page of what a cluster's GPUs do: a map, workloads with what their HPAs decide and why, charts.

    Looks at what `gpuscale top` looks at, and only reads. It keeps the charts of the last hours in memory,
    and with --history DIR minutes of all it sees for months.
    Ctrl-C ends it.

    Exit code 2: the input is wrong, or nothing could be looked at.

    Example:  gpuscale dashboard

    Example:  gpuscale dashboard --gpu nvml

    Example:  gpuscale dashboard --history gpuscale-history
    """
    looked = looked_at(
        kubeconfig,
        context,
        namespace,
        url or (),
        gpu,
        prometheus_url,
        prometheus_token_file,
        prometheus_identity,
    )
    with looking(), contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        writer = None if history is None else stack.enter_context(default_writer(history))
        asyncio.run(_serve(looked, every, writer, host, port))


async def _serve(
    looked: Looked, every_s: float, writer: "HistoryWriter | None", host: str, port: int | None
) -> None:
    from gpuscale.base.clock import WallClock
    from gpuscale.ops.dashboard import Dashboard, Decider, recorded_points
    from gpuscale.ops.doctor import PrometheusReader
    from gpuscale.server.page import openable_hosts, url_host

    stop = stop_event()
    clock = WallClock()
    async with opened(looked) as (reader, client):
        decider = None if client is None else Decider(client, clock)
        past, keeper = None, None
        if writer is not None:
            past, keeper = partial(_kept, writer.folder), MinuteKeeper(price_book(None), writer)
            reader = KeptReader(reader, keeper)
        if client is not None and looked.prometheus_url is not None:
            prometheus = PrometheusReader(client, looked.prometheus_url, looked.prometheus_access)
            past = partial(recorded_points, prometheus)
        decided = None if keeper is None else keeper.decided
        board = Dashboard(reader, clock, every_s, decider, past, decided)
        with working("looking at GPUs, nodes and workloads"):
            await board.look()
        front, taken = await _opened_port(board, host, port)
        for name in openable_hosts(host):
            print(f"page  http://{url_host(name)}:{taken}", flush=True)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(front.run()), group.create_task(board.run())]
            if keeper is not None:
                group.create_task(keeper.run(stop))
            await stop.wait()
            for task in tasks:
                task.cancel()
        await front.close()


async def _kept(folder: Path, picture: "Picture") -> "Sequence[Point]":
    """Return the hours before a picture, as a history has them."""
    from gpuscale.ops.dashboard import PAST_S
    from gpuscale.ops.history import History, recall_charts

    end_s = picture.at_ms // 1000
    with History(str(folder)) as history:
        return recall_charts(history, end_s - PAST_S, end_s)


async def _opened_port(board: "Dashboard", host: str, port: int | None) -> "tuple[Front, int]":
    """Return what serves the page, and its port: the usual one or another, unless one is asked for."""
    from aiohttp import web

    from gpuscale.server.page import Front, PortTakenError, add_page, only_host

    for each in (DEFAULT_PORT, 0) if port is None else (port,):
        app = web.Application(middlewares=[only_host(host)])
        add_page(app, board, what_if=board.what_if)
        front = Front(app, host)
        try:
            return front, await front.open(each)
        except PortTakenError as error:
            if port is not None:
                advice = "choose another with --port, or --port 0 for any that is free"
                raise UsageError(f"port {error}: {advice}") from None
        except UnavailableError as error:
            raise UsageError(f"{error}; --host takes an address of this machine") from None
    raise UsageError(f"found no free port on {host}; name one with --port")
