"""The process of `gpuscale scaler`, from its arguments to its end.

As that of the metrics API, it loads typer and the other commands only for help and for what is wrong.
"""

import asyncio
import gc
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpuscale.base.errors import UsageError
from gpuscale.base.memory import share_one_arena
from gpuscale.cli.exits import stop_events
from gpuscale.cli.logs import set_up_log
from gpuscale.cli.options import go_flags
from gpuscale.cli.servers.serving import announce, collect_rarely
from gpuscale.server.scaler import FLAGS
from gpuscale.server.sources.http import import_aiohttp

if TYPE_CHECKING:
    from gpuscale.server.scaler import ScalerSettings

_DEBUG_FROM = 4
_COLLECT_AFTER = (2_000, 10, 10)
"""As of the metrics API, but for shorter pauses: gRPC leaves a cycle behind with each call."""
_BY_NAME = go_flags.names_of(FLAGS)
_PACKAGES = ("grpc", "grpc_health", "grpc_reflection", "google")
"""Where those of the extra `keda` are imported from."""


def plain_arguments(args: Sequence[str]) -> list[str]:
    """Return Go-style arguments as click reads them."""
    if "ask" in args:
        return list(args)
    args = [arg.replace("--kubeconfig", "--lister-kubeconfig", 1) for arg in args]
    return go_flags.plain_arguments(args, _BY_NAME.get)


def given_texts(args: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the texts of flags by name; None where there is more than flags with values: help, a command."""
    return go_flags.given_texts(plain_arguments(args), _BY_NAME.get)


def run(texts: Mapping[str, Sequence[str]]) -> None:
    """Serve until the process gets a signal to end.

    Args:
        texts: of flags, by name.

    Raises:
        GpuscaleError: a flag or a file is wrong; an address is taken; gRPC is not installed.
    """
    gc.disable()  # as in the metrics API
    share_one_arena()
    import_aiohttp()
    from gpuscale.server.scaler import read_settings

    settings = read_settings(texts)
    set_up_log(logging.DEBUG if settings.verbosity >= _DEBUG_FROM else logging.INFO)
    check_grpc()
    asyncio.run(_serve(settings))


def check_grpc() -> None:
    """Find the packages of the extra.

    Raises:
        UsageError: one is not installed.
    """
    from importlib.util import find_spec

    for name in _PACKAGES:
        if find_spec(name) is None:
            raise UsageError(
                f"gpuscale scaler needs the Python package {name}; "
                "install it with: pip install 'gpuscale[keda]'"
            )


async def _serve(settings: "ScalerSettings") -> None:
    from gpuscale.server.scaler import scaler_server

    collect_rarely()
    gc.set_threshold(*_COLLECT_AFTER)
    stop, hurry = stop_events()
    await scaler_server(settings).run(stop, announce, hurry)
