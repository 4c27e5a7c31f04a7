"""`gpuscale shadow`: another HPA beside a real one, on its live data; it changes nothing."""

import asyncio
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.clock import Clock, WallClock
from gpuscale.base.errors import GpuscaleError, NotFoundError, UsageError
from gpuscale.cli.commands.decide import SYNC_PERIOD_S, named_hpa
from gpuscale.cli.exits import stop_event
from gpuscale.cli.keeping import Faults, wait
from gpuscale.cli.options.cluster import (
    Context,
    Kubeconfig,
    cluster_settings,
    context_namespace,
    looking,
    namespace_option,
)
from gpuscale.cli.options.durations import seconds_of
from gpuscale.cli.options.instance_types import InstanceTypes
from gpuscale.cli.options.prices import GpuCurrency, GpuPrices, price_book
from gpuscale.cli.progress import working
from gpuscale.cli.texts import Output, print_document, printable

if TYPE_CHECKING:
    from gpuscale.hpa.decisions import DecisionRequest
    from gpuscale.kube.client import KubeSettings
    from gpuscale.ops.dashboard import Change
    from gpuscale.ops.money import PriceBook
    from gpuscale.ops.shadow import Shadow, ShadowReader


def shadow(
    hpa: Annotated[
        str, typer.Argument(metavar="hpa/NAME", help="The real HPA, which goes on as it is.")
    ],
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="The HPA that is imagined in its place, as a manifest; - for standard input.",
        ),
    ] = None,
    *,
    change: Annotated[
        str | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE,...",
            help="Instead of a file: the real HPA with another target (of the metric that decides at first), "
            "min or max.",
        ),
    ] = None,
    namespace: Annotated[
        str | None, namespace_option("Namespace of the HPA.", "the context's")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="DURATION", help="End after this time.", show_default="Ctrl-C"
        ),
    ] = None,
    every: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=3600,
            metavar="SECONDS",
            help="Between two syncs, as the controller's flag has it.",
        ),
    ] = SYNC_PERIOD_S,
    gpu_price: GpuPrices = None,
    currency: GpuCurrency = "USD",
    instance_types: InstanceTypes = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="json and yaml print one document, at the end.")
    ] = Output.TEXT,
) -> None:
    """Run another HPA beside a real one, on its live data, and report what it would have done.

    It decides at every sync with its own count and its own stabilization windows, changes nothing, and says
    each step of both with the reasons. Ctrl-C ends it with what both cost and missed. Values are those of the
    pods that run, which are the real HPA's.

    Exit code 0: it ran; 2: the input is wrong, or the cluster could not be looked at.

    Example:  gpuscale shadow hpa/vision --set target=30,max=12

    Example:  gpuscale shadow hpa/vision new.yaml --for 1h -o json
    """
    from gpuscale.ops.shadow import other_spec

    name = named_hpa(hpa)
    if (file is None) == (change is None):
        raise UsageError("FILE, --set: expected one of them")
    other = other_spec(file) if file is not None else _read_set(change or "")
    length_s = None if duration is None else seconds_of("--for", duration)
    book = price_book(instance_types, gpu_price, currency)
    settings = cluster_settings(kubeconfig, context)
    place = namespace or context_namespace(settings), name
    with looking():
        asyncio.run(_run(settings, place, other, book, every, length_s, output))


def _read_set(text: str) -> "Change":
    from gpuscale.ops.dashboard import read_change

    given: dict[str, str] = {}
    for each in text.split(","):
        key, equals, value = each.partition("=")
        if key not in ("target", "min", "max") or not equals or not value or key in given:
            raise UsageError(
                f"--set: found {text!r}, expected some of target, min and max, such as target=30,max=12"
            )
        given[key] = value
    try:
        return read_change(given)
    except ValueError as error:
        raise UsageError(f"--set: {error}") from None


async def _run(
    settings: "KubeSettings",
    place: tuple[str, str],
    other: "Mapping[str, object] | Change",
    book: "PriceBook",
    every_s: float,
    length_s: float | None,
    output: Output,
) -> None:
    from gpuscale.kube.client import KubeClient
    from gpuscale.ops.shadow import Shadow, ShadowReader, shadow_document, shadow_lines

    stop, clock = stop_event(), WallClock()
    books = Shadow(longest_ms=round(3 * every_s * 1000))
    async with KubeClient(settings) as client:
        reader = ShadowReader(client, clock, *place, other, book)
        with working("reading the HPA, its pods and its metrics"):
            try:
                first = await reader.look()
            except NotFoundError as error:
                raise UsageError(str(error)) from None
        if output is Output.TEXT:
            print(f"hpa/{place[1]} and its shadow, each step of one of both; Ctrl-C ends it")
        _sync(books, clock, first, output)
        await _follow(reader, books, stop, every_s, length_s, output)
    if output is not Output.TEXT:
        names = {"name": place[1], "namespace": place[0]}
        print_document({**names, **shadow_document(books, reader.gpus, reader.price)}, output)
        return
    print()
    for line in shadow_lines(books, reader.gpus, reader.price):
        print(printable(line))


async def _follow(
    reader: "ShadowReader",
    books: "Shadow",
    stop: asyncio.Event,
    every_s: float,
    length_s: float | None,
    output: Output,
) -> None:
    """Sync until it is stopped; what can't be read is said, and tried again."""
    clock, loop, faults = WallClock(), asyncio.get_running_loop(), Faults()
    next_s = loop.time() + every_s
    end_s = math.inf if length_s is None else loop.time() + length_s
    while next_s <= end_s:
        await wait(stop, next_s - loop.time())
        if stop.is_set():
            return
        next_s = max(next_s + every_s, loop.time())
        try:
            found = await reader.look()
        except GpuscaleError as error:
            faults.tell(error)
            books.fault(str(error))
            continue
        faults.over()
        _sync(books, clock, found, output)


def _sync(
    books: "Shadow",
    clock: Clock,
    found: "tuple[DecisionRequest, DecisionRequest]",
    output: Output,
) -> None:
    """Let the shadow decide, and tell a step of one of both."""
    from gpuscale.ops.shadow import step_lines

    step = books.sync(clock.now_ms(), *found)
    if step is not None and output is Output.TEXT:
        for line in step_lines(step):
            print(printable(line))
    sys.stdout.flush()
