"""`gpuscale scaler`: KEDA's external scaler, and what KEDA would get from one.

The flags of the server come from one table, as those of the metrics API do.
"""

import asyncio
import inspect
from typing import Annotated, Any

import typer

from gpuscale.base.errors import UsageError
from gpuscale.cli.help import Command, CommandGroup, wants_all
from gpuscale.cli.options.go_flags import texts_of_server
from gpuscale.cli.options.parameters import parameters
from gpuscale.cli.servers import scaling
from gpuscale.cli.texts import Output, print_document, printable
from gpuscale.server.scaler import COMMON, GROUPS


class ScalerGroup(CommandGroup):
    """The server, and what can be asked of one; takes arguments as Go's programs do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer keeps its class to itself
        """Return what is left of the arguments once they are read."""
        return super().parse_args(ctx, wants_all(self, scaling.plain_arguments(args)))


def scaler(ctx: typer.Context, **given: str | list[str] | None) -> None:
    """Serve GPU metrics and wake sources to KEDA, as an external scaler.

    ScaledObjects name it as scalerAddress in triggers of type external or external-push. Their metadata says
    what to scale on; docs/scaler.md has all keys. --help-all shows every flag.

    Example:  gpuscale scaler --prometheus-url http://prometheus:9090

    Example:  gpuscale scaler --tls-cert-file tls.crt --tls-private-key-file tls.key --client-ca-file ca.crt
    """
    texts = texts_of_server(given, ctx.invoked_subcommand)
    if ctx.invoked_subcommand is None:
        scaling.run(texts)


def ask(
    server: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="The scalerAddress of the trigger.")
    ],
    metadata: Annotated[
        list[str],
        typer.Option(
            "--metadata", "-m", metavar="KEY=VALUE", help="An entry of the trigger's metadata."
        ),
    ],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Of the ScaledObject.")
    ] = "default",
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Of the ScaledObject.")
    ] = "ask",
    ca_file: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="CAs of the server's certificate; without it, plain text."
        ),
    ] = "",
    cert_file: Annotated[
        str, typer.Option(metavar="FILE", help="Client certificate, for mutual TLS.")
    ] = "",
    key_file: Annotated[str, typer.Option(metavar="FILE", help="Key of that certificate.")] = "",
    output: Annotated[
        Output, typer.Option("--output", "-o", metavar="text|json|yaml", help="What is printed.")
    ] = Output.TEXT,
) -> None:
    """Show what KEDA would get for a trigger: metric, activity, value, and how long a source has been away.

    Exit code 0: there is a value; 1: there is none, or no scaler answers; 2: the metadata is wrong.

    Example:  gpuscale scaler ask localhost:6000 -m workload=deployment/web -m metric=gpu_util -m target=60
    """
    scaling.check_grpc()
    from gpuscale.server.scaler import Channel, ask_scaler, lines_of

    pairs = [each.partition("=") for each in metadata]
    faults = [
        f"--metadata: found {key!r}, expected KEY=VALUE" for key, equals, _ in pairs if not equals
    ]
    if faults:
        raise UsageError("\n".join(faults))
    channel = Channel(server, ca_file, cert_file, key_file)
    texts = {key: value for key, _, value in pairs}
    found = asyncio.run(ask_scaler(channel, namespace, name, texts))
    if output is not Output.TEXT:
        print_document(found, output)
    else:
        for line in lines_of(found):
            print(printable(line))
    if found["value"] is None:
        raise typer.Exit(1)


_CONTEXT = inspect.Parameter(
    "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
)
scaler.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_CONTEXT, *parameters(GROUPS, COMMON)]
)

app = typer.Typer(cls=ScalerGroup, invoke_without_command=True, add_completion=False)
app.callback()(scaler)
app.command("ask", cls=Command)(ask)
