"""All commands of `gpuscale`, grouped by what one wants.

Heavy libraries load only when a command needs them.
"""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from gpuscale import __version__
from gpuscale.cli.commands import (
    calibrate,
    completion,
    decide,
    doctor,
    init,
    install,
    lint,
    load,
    rehearse,
    render,
    schema,
    simulate,
    up,
)
from gpuscale.cli.commands.tuning import tune
from gpuscale.cli.help import Command, Group
from gpuscale.cli.servers import exporter, metrics_api, scaler

app = typer.Typer(
    name="gpuscale",
    cls=Group,
    help="Scale GPU workloads on Kubernetes by what their GPUs really do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_TRY = "Try it, without a GPU or a cluster"
_LOOK = "Look: what is wrong, and why"
_CLUSTER = "Put it on a cluster"
_SERVE = "Serve: what runs in the cluster"
_OTHER = "Other"

_COMMANDS: Sequence[tuple[str, str, Callable[..., None], str]] = (
    (_TRY, "up", up.up, "Run the whole loop live, with simulated GPUs."),
    (_TRY, "simulate", simulate.simulate, "Run a scenario in virtual time: hours in seconds."),
    (_TRY, "rehearse", rehearse.rehearse, "Run a scenario on a real cluster, GPU nodes simulated."),
    (_TRY, "calibrate", calibrate.calibrate, "Find what one replica can take, and its threshold."),
    (_TRY, "tune", tune.tune, "Find an HPA's settings that cost least and keep enough pods."),
    (_LOOK, "lint", lint.lint, "Check rules, HPAs, values and scenarios before they run."),
    (_LOOK, "decide", decide.decide, "Explain what an HPA would do now, and why."),
    (_LOOK, "doctor", doctor.doctor, "Find what is wrong on a live cluster, each with its fix."),
    (_CLUSTER, "init", init.init, "Write a values file, from questions or flags."),
    (
        _CLUSTER,
        "render",
        render.render,
        "Write the Kubernetes objects and node pool of a values file.",
    ),
    (_CLUSTER, "install", install.install, "Apply a values file, and wait until it works."),
    (_CLUSTER, "uninstall", install.uninstall, "Remove an installation, and what it changed."),
    (_SERVE, "exporter", exporter.exporter, "Serve this node's GPUs, in place of dcgm-exporter."),
    (_OTHER, "schema", schema.schema, "Print the JSON schema of a file that users write."),
    (_OTHER, "completion", completion.completion, "Print the completion script of a shell."),
)
for _panel, _name, _function, _summary in _COMMANDS:
    _class = exporter.ExporterCommand if _name == "exporter" else Command
    app.command(_name, cls=_class, short_help=_summary, rich_help_panel=_panel)(_function)
app.add_typer(
    load.app,
    name="load",
    short_help="Put bounded load on a service, GPUs or a cluster, and see what comes of it.",
    rich_help_panel=_TRY,
)
app.add_typer(
    metrics_api.app,
    name="metrics-api",
    short_help="Serve metrics to HPAs, in place of prometheus-adapter; 'why' explains one.",
    rich_help_panel=_SERVE,
)
app.add_typer(
    scaler.app,
    name="scaler",
    short_help="Serve GPU metrics and wake sources to KEDA; 'ask' shows what KEDA gets.",
    rich_help_panel=_SERVE,
)


def _version(*, wanted: bool) -> None:
    if wanted:
        print(f"gpuscale {__version__}")
        raise typer.Exit


@app.callback(
    epilog="Exit code 0: done; 1: the answer is no, or a part failed; 2: wrong input; 70: a bug. "
    "--debug, anywhere, shows the trace of an error.",
)
def options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=lambda value: _version(wanted=value), help="Print the version."
        ),
    ] = False,
) -> None:
    """Scale GPU workloads on Kubernetes by what their GPUs really do.

    Example:  gpuscale up
    """
