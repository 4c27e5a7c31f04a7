"""All commands of `gpuscale`, as typer has them. Heavy libraries load only when a command needs them."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpuscale import __version__
from gpuscale.cli import (
    decide,
    doctor,
    exporter,
    init,
    install,
    lint,
    metrics_api,
    rehearse,
    render,
    schema,
    simulate,
    up,
)


class _Group(TyperGroup):
    """The commands, with a help flag that has a value without typer loading pydantic to make one."""

    def get_help_option(self, ctx: Any) -> Any:  # noqa: ANN401 - typer keeps its classes to itself
        """Return the help flag, which is false unless it is given."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


app = typer.Typer(
    name="gpuscale",
    cls=_Group,
    help="Scale GPU workloads on Kubernetes by what their GPUs really do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.command("simulate")(simulate.simulate)
app.command("rehearse")(rehearse.rehearse)
app.command("decide")(decide.decide)
app.command("exporter", cls=exporter.ExporterCommand)(exporter.exporter)
app.add_typer(metrics_api.app, name="metrics-api")
app.command("lint")(lint.lint)
app.command("init")(init.init)
app.command("render")(render.render)
app.command("install")(install.install)
app.command("uninstall")(install.uninstall)
app.command("doctor")(doctor.doctor)
app.command("schema")(schema.schema)


def _version(*, wanted: bool) -> None:
    if wanted:
        print(f"gpuscale {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=lambda value: _version(wanted=value), help="Print the version."
        ),
    ] = False,
) -> None:
    """Scale GPU workloads on Kubernetes by what their GPUs really do."""
