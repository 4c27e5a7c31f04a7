"""`gpuscale metrics-api`: the custom and external metrics APIs for a cluster.

The flags come from one table, so this command has no parameters of its own: its signature is made from
the table, which is what typer reads.
"""

import inspect
from typing import Any

import typer

from gpuscale.cli.help import Command, CommandGroup, wants_all
from gpuscale.cli.options.go_flags import texts_of_server
from gpuscale.cli.options.parameters import parameters
from gpuscale.cli.servers import serving, why
from gpuscale.server.metricsapi import COMMON, GROUPS


class MetricsApiGroup(CommandGroup):
    """The server, and what can be asked of one.

    Takes arguments as Go's programs do: `--profiling=false`, `--permit-port-sharing`, `-v=6`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer keeps its class to itself
        """Return what is left of the arguments once they are read."""
        return super().parse_args(ctx, wants_all(self, serving.plain_arguments(args)))


def metrics_api(ctx: typer.Context, **given: str | list[str] | None) -> None:
    """Serve custom and external metrics to a cluster: a drop-in for prometheus-adapter.

    --help-all shows every flag, all of prometheus-adapter's included.

    Example:  gpuscale metrics-api --config rules.yaml --prometheus-url http://prometheus:9090

    Example:  gpuscale metrics-api --source streams --agent 127.0.0.1:9400 --insecure-loopback-port 8080
    """
    texts = texts_of_server(given, ctx.invoked_subcommand)
    if ctx.invoked_subcommand is None:
        serving.run(texts)


_CONTEXT = inspect.Parameter(
    "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
)
metrics_api.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_CONTEXT, *parameters(GROUPS, COMMON)]
)

app = typer.Typer(cls=MetricsApiGroup, invoke_without_command=True, add_completion=False)
app.callback()(metrics_api)
app.command("why", cls=Command)(why.why)
