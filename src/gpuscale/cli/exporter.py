"""`gpuscale exporter`: the node agent.

The flags come from one table, so this command has no parameters of its own: its signature is made from
the table, which is what typer reads.
"""

import asyncio
import inspect
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from gpuscale.cli import go_flags
from gpuscale.cli.go_flags import PLAIN_LOG, parameter, parameter_name, set_up_log, stop_event
from gpuscale.exporter.flags import FLAGS, GROUPS, Flag

if TYPE_CHECKING:
    from gpuscale.exporter.settings import ExporterSettings


class ExporterCommand(TyperCommand):
    """Takes arguments as Go's programs do: `-collectors FILE`, `--kubernetes`, `--kubernetes=false`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer keeps its class to itself
        """Return what is left of the arguments once they are read.

        Every flag is a text, and settings check them. So typer is only asked for its help and its messages:
        its own way through the values would load pydantic, 8 MiB that a node agent keeps for good.
        """
        plain = plain_arguments(args)
        given, rest, _ = self.make_parser(ctx).parse_args(list(plain))
        if rest or "help" in given:
            return super().parse_args(ctx, plain)
        ctx.params.update({name: given.get(name) for name in _PARAMETERS})
        ctx.args = []
        return []


def exporter(**given: str | None) -> None:
    """Serve this node's GPUs to Prometheus: a drop-in for dcgm-exporter, with pods and a stream.

    Example:  gpuscale exporter --gpu "simulated:NVIDIA H200:8" --collect-interval 1s
    """
    from gpuscale.exporter.settings import read_settings

    named = {name.replace("_", "-"): text for name, text in given.items() if text is not None}
    settings = read_settings(named, os.environ, socket.gethostname())
    formatter = _JsonFormatter() if settings.log_format == "json" else PLAIN_LOG
    set_up_log(logging.DEBUG if settings.is_debugging else logging.INFO, formatter)
    asyncio.run(_serve(settings))
    _leave_hung_driver()


async def _serve(settings: "ExporterSettings") -> None:
    from gpuscale.exporter.service import ExporterService

    service = ExporterService(settings)
    stop = stop_event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.reload)
    await service.run(stop, _announce)


def _leave_hung_driver() -> None:
    """End the process at once where a thread is still inside the driver: it may never come back."""
    if any(
        each is not threading.main_thread() for each in threading.enumerate() if not each.daemon
    ):
        logging.shutdown()
        os._exit(0)


def _announce(port: int) -> None:
    logging.getLogger("gpuscale").info("listening on port %d", port)


def plain_arguments(args: Sequence[str]) -> list[str]:
    """Return Go-style arguments as click reads them; a long name may have one dash."""
    return go_flags.plain_arguments(args, _flag)


def _flag(name: str) -> Flag | None:
    return _BY_NAME.get(name.lstrip("-")) if name.startswith("-") else None


_BY_NAME = {**FLAGS, **{flag.alias: flag for flag in FLAGS.values() if flag.alias}}
_METAVARS = {"bool": "[true|false]", "duration": "DURATION", "list": "A,B,…"}


def _parameter(flag: Flag, group: str) -> inspect.Parameter:
    names = [f"--{flag.name}"]
    if flag.alias:
        names.append(f"-{flag.alias}" if len(flag.alias) == 1 else f"--{flag.alias}")
    metavar = _METAVARS.get(flag.kind, "|".join(flag.choices) or "TEXT")
    return parameter(flag, names, group, metavar, note=f" Variable: {flag.env}.")


exporter.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_parameter(flag, group) for group, flags in GROUPS.items() for flag in flags]
)
_PARAMETERS = tuple(parameter_name(flag) for flags in GROUPS.values() for flag in flags)


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": at, "level": record.levelname.lower(), "msg": record.getMessage()}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
