"""`gpuscale metrics-api`: the custom and external metrics APIs for a cluster.

The flags come from one table, so this command has no parameters of its own: its signature is made from
the table, which is what typer reads.
"""

import asyncio
import gc
import inspect
import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from gpuscale.cli import go_flags, why
from gpuscale.cli.help import Command, Group, wants_all
from gpuscale.cli.logs import set_up_log
from gpuscale.cli.parameters import parameter
from gpuscale.cli.signals import stop_event
from gpuscale.core.errors import UsageError
from gpuscale.metricsapi.flags import COMMON, FLAGS, GROUPS, Flag

if TYPE_CHECKING:
    from gpuscale.metricsapi.settings import MetricsApiSettings

_DEBUG_FROM = 4
_COLLECT_AFTER = (5_000, 20, 1_000)
"""New objects, and collections of each generation, before the next older one is looked at."""


class MetricsApiGroup(Group):
    """The server, and what can be asked of one.

    Takes arguments as Go's programs do: `--profiling=false`, `--permit-port-sharing`, `-v=6`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer keeps its class to itself
        """Return what is left of the arguments once they are read."""
        return super().parse_args(ctx, wants_all(self, plain_arguments(args)))


def metrics_api(ctx: typer.Context, **given: str | list[str] | None) -> None:
    """Serve custom and external metrics to a cluster: a drop-in for prometheus-adapter.

    --help-all shows every flag, all of prometheus-adapter's included.

    Example:  gpuscale metrics-api --config rules.yaml --prometheus-url http://prometheus:9090

    Example:  gpuscale metrics-api --source streams --agent 127.0.0.1:9400 --insecure-loopback-port 8080
    """
    from gpuscale.metricsapi.settings import read_settings

    texts = {
        name.replace("_", "-"): [value] if isinstance(value, str) else value
        for name, value in given.items()
        if value is not None and value != []
    }
    if ctx.invoked_subcommand is not None:
        if texts:
            flag = f"--{next(iter(texts))}"
            raise UsageError(f"found {flag} before {ctx.invoked_subcommand}, expected it after")
        return
    settings = read_settings(texts)
    if settings.prints_preset:
        from gpuscale.sources.preset import preset_text

        print(preset_text(), end="")
        return
    set_up_log(logging.DEBUG if settings.verbosity >= _DEBUG_FROM else logging.INFO)
    asyncio.run(_serve(settings))


async def _serve(settings: "MetricsApiSettings") -> None:
    from gpuscale.metricsapi.server import MetricsApiServer

    _collect_rarely()
    await MetricsApiServer(settings).run(stop_event(), _announce)


def _collect_rarely() -> None:
    """Keep the garbage collector from going through everything while requests wait.

    A cluster of ten thousand pods is some hundred thousand objects, which takes 50 ms; next to none of
    them are in cycles. The young ones are still looked at all the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def _announce(address: str) -> None:
    logging.getLogger("gpuscale").info("listening on %s", address)


def plain_arguments(args: Sequence[str]) -> list[str]:
    """Return Go-style arguments as click reads them."""
    if "why" not in args:  # which has a --kubeconfig of its own
        args = [re.sub("^--kubeconfig(?==|$)", "--lister-kubeconfig", arg) for arg in args]
    return go_flags.plain_arguments(args, _BY_NAME.get)


_BY_NAME = {f"--{name}": flag for name, flag in FLAGS.items()} | {
    f"-{flag.alias}": flag for flag in FLAGS.values() if flag.alias
}


def _parameter(flag: Flag, group: str) -> inspect.Parameter:
    names = [f"--{flag.name}", *([f"-{flag.alias}"] if flag.alias else [])]
    kind: Any = list[str] | None if flag.repeats else str | None
    return parameter(flag, names, group, kind=kind, is_hidden=flag.name not in COMMON)


_CONTEXT = inspect.Parameter(
    "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
)
metrics_api.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_CONTEXT, *(_parameter(flag, group) for group, flags in GROUPS.items() for flag in flags)]
)

app = typer.Typer(cls=MetricsApiGroup, invoke_without_command=True)
app.callback()(metrics_api)
app.command("why", cls=Command)(why.why)
