"""`gpuscale doctor --pulse`: how long load takes to become a ready pod."""

import asyncio
from typing import TYPE_CHECKING

import typer

from gpuscale.base.errors import UsageError
from gpuscale.cli.texts import Output, print_document, printable

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeSettings
    from gpuscale.ops.doctor import GatherSettings
    from gpuscale.ops.doctor.pulse import Pulse, PulseSettings


def check_pulse(*, pulse: bool, url: str | None, waits: bool, hpa: str | None, fixes: bool) -> None:
    """Check the options that go with --pulse.

    Raises:
        UsageError: they don't go together, or one is malformed.
    """
    if not pulse:
        if url is not None or waits or hpa is not None:
            raise UsageError("--pulse-url, --pulse-wait, --pulse-hpa: expected --pulse beside them")
        return
    if fixes:
        raise UsageError("--pulse: expected no --fix beside it")
    if (url is None) != waits:
        raise UsageError("--pulse: expected either --pulse-url or --pulse-wait beside it")
    if url is not None and not url.startswith(("http://", "https://")):
        raise UsageError(f"--pulse-url: found {url!r}, expected http://... or https://...")
    if hpa is not None and hpa.count("/") != 1:
        raise UsageError(f"--pulse-hpa: found {hpa!r}, expected NAMESPACE/NAME")


def run_pulse(
    server: "KubeSettings", around: "GatherSettings", settings: "PulseSettings", output: Output
) -> None:
    """Run one pulse and print what became of it.

    Raises:
        typer.Exit: with code 1, a hop did not move.
        UsageError: there is no such HPA, or more than one to choose from.
        UnavailableError: the HPA can't scale up now.
    """
    from gpuscale.ops.doctor.pulse import pulse_document, pulse_lines

    found = asyncio.run(_pulse(server, around, settings))
    if output is not Output.TEXT:
        print_document(pulse_document(found), output)
    else:
        for line in pulse_lines(found):
            print(printable(line))
    if found.stuck is not None:
        raise typer.Exit(1)


async def _pulse(
    server: "KubeSettings", around: "GatherSettings", settings: "PulseSettings"
) -> "Pulse":
    from gpuscale.base.clock import WallClock
    from gpuscale.kube.client import KubeClient
    from gpuscale.ops.doctor import Gatherer
    from gpuscale.ops.doctor.pulse import ChainReader, PulseWatch, choose

    clock = WallClock()
    async with KubeClient(server) as client:
        snapshot = await Gatherer(client, clock, around).snapshot()
        look = choose(snapshot, settings.hpa)
        urls, access = around.agent_urls, around.agent_access
        reader = ChainReader(client, clock, snapshot, look, urls, access)
        watch = PulseWatch(reader, clock, look)
        load = "the load begins" if settings.url else "start the load now"
        notice = printable(f"{look.about}: {load}; this ends within {settings.for_s:g} s or so")
        # On standard error, as programs read the output.
        return await watch.pulse(settings, lambda: typer.echo(notice, err=True))
