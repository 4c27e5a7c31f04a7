"""The process of `gpuscale metrics-api`, from its arguments to its end.

It runs in every cluster for good, and starts again wherever a node goes. Plain flags take no more than the
table of them; typer and the other commands, 20 ms and 6 MiB, are loaded only for help and for what is wrong.
"""

import asyncio
import gc
import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpuscale.cli.exits import stop_events
from gpuscale.cli.logs import set_up_log
from gpuscale.cli.options import go_flags
from gpuscale.server.metricsapi import FLAGS
from gpuscale.server.sources.http import import_aiohttp

if TYPE_CHECKING:
    from gpuscale.server.metricsapi import MetricsApiSettings

_DEBUG_FROM = 4
_COLLECT_AFTER = (5_000, 20, 1_000)
"""New objects, and collections of each generation, before the next older one is looked at."""
_BY_NAME = go_flags.names_of(FLAGS)


def plain_arguments(args: Sequence[str]) -> list[str]:
    """Return Go-style arguments as click reads them."""
    if "why" not in args:  # which has its own --kubeconfig
        args = [re.sub("^--kubeconfig(?==|$)", "--lister-kubeconfig", arg) for arg in args]
    return go_flags.plain_arguments(args, _BY_NAME.get)


def given_texts(args: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the texts of flags by name; None where there is more than flags with values: help, a command."""
    return go_flags.given_texts(plain_arguments(args), _BY_NAME.get)


def run(texts: Mapping[str, Sequence[str]]) -> None:
    """Serve until the process gets a signal to end.

    Args:
        texts: of flags, by name.

    Raises:
        GpuscaleError: a flag or a file is wrong; an address or the API server is not there.
    """
    # Objects loaded at the start will stay; scanning them for garbage would take a tenth of the
    # time.
    gc.disable()
    import_aiohttp()
    from gpuscale.server.metricsapi import read_settings

    settings = read_settings(texts)
    if settings.prints_preset:
        from gpuscale.server.rules import preset_text

        print(preset_text(), end="")
        return
    set_up_log(logging.DEBUG if settings.verbosity >= _DEBUG_FROM else logging.INFO)
    asyncio.run(_serve(settings))


async def _serve(settings: "MetricsApiSettings") -> None:
    from gpuscale.server.metricsapi import MetricsApiServer

    collect_rarely()
    stop, hurry = stop_events()
    await MetricsApiServer(settings).run(stop, announce, hurry)


def collect_rarely() -> None:
    """Keep the garbage collector from going through everything while requests wait.

    A cluster of ten thousand pods is some hundred thousand objects, which takes 50 ms; next to none of
    them are in cycles. The young ones are still looked at all the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    gc.enable()


def announce(address: str) -> None:
    """Log where a server listens."""
    logging.getLogger("gpuscale").info("listening on %s", address)
