"""The process of the node agent, from its arguments to its end.

It stays on every GPU node for good, so it loads no more than it needs: neither typer nor other commands, and
no TLS where nothing asks for it. What is imported in functions here comes after that has been decided.
"""

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpuscale.agent.exporter import FLAGS
from gpuscale.base.flags import Flag
from gpuscale.cli.logs import PLAIN_LOG, JsonFormatter, set_up_log
from gpuscale.cli.options import go_flags

if TYPE_CHECKING:
    from gpuscale.agent.exporter import ExporterSettings

_BY_NAME = {**FLAGS, **{flag.alias: flag for flag in FLAGS.values() if flag.alias}}


def plain_arguments(args: Sequence[str]) -> list[str]:
    """Return Go-style arguments as click reads them; a long name may have one dash."""
    return go_flags.plain_arguments(args, _flag)


def given_texts(args: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the texts of flags by name; None where there is more than those: help, or what is wrong."""
    return go_flags.given_texts(plain_arguments(args), _flag)


def _flag(name: str) -> Flag | None:
    return _BY_NAME.get(name.lstrip("-")) if name.startswith("-") else None


def run(texts: Mapping[str, Sequence[str]]) -> None:
    """Serve this node's GPUs until the process gets a signal to end.

    Args:
        texts: of flags, by name.

    Raises:
        GpuscaleError: a flag, a variable or a file is wrong; GPUs can't be read; the address is unavailable.
    """
    from gpuscale.agent.exporter import read_settings

    settings = read_settings(texts, os.environ, socket.gethostname())
    if not _needs_tls(settings):
        _leave_out_tls()
    set_up_log(
        logging.DEBUG if settings.is_debugging else logging.INFO,
        JsonFormatter() if settings.log_format == "json" else PLAIN_LOG,
    )
    import asyncio

    asyncio.run(_serve(settings))
    _leave_hung_driver()


def _needs_tls(settings: "ExporterSettings") -> bool:
    """Return whether the agent needs TLS: as a server, or as a client of the API server."""
    web = (settings.web_config_file, settings.web_users_folder)
    if web != (None, None) or settings.counters_map is not None or settings.ready_taint is not None:
        return True
    return settings.attribution is not None and settings.attribution.kubernetes is not None


def _leave_out_tls() -> None:
    """Keep OpenSSL out of this process, a fifth of its memory.

    asyncio loads it wherever it is, and does without in a Python that was built without it; here, that is
    what it finds. So it has to be said before asyncio is imported. `hashlib`, which simulated GPUs need, has
    hashes of its own, but not in every Python: where they are left to OpenSSL, it may have them.
    """
    absent = ("ssl", "_hashlib") if find_spec("_sha1") else ("ssl",)
    for name in absent:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # None: not to be imported


async def _serve(settings: "ExporterSettings") -> None:
    import asyncio

    from gpuscale.agent.exporter import ExporterService, counters_text
    from gpuscale.cli.exits import stop_event

    service = ExporterService(settings, counters_text=await counters_text(settings))
    stop = stop_event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.reload)
    # Objects made so far will stay, so that the garbage collector need not scan them again.
    gc.collect()
    gc.freeze()
    await service.run(stop, _announce)


def _announce(port: int) -> None:
    logging.getLogger("gpuscale").info("listening on port %d", port)


def _leave_hung_driver() -> None:
    """End the process at once where a thread is still inside the driver: it may never come back."""
    if any(
        each is not threading.main_thread() for each in threading.enumerate() if not each.daemon
    ):
        logging.shutdown()
        os._exit(0)
