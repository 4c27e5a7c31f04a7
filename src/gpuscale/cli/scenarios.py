"""Options of commands that take a scenario."""

from pathlib import Path
from typing import Annotated

import typer

from gpuscale.lab import shipped_names

PrometheusRules = Annotated[
    list[Path] | None,
    typer.Option(
        "--prometheus-rules",
        metavar="FILE",
        help="Prometheus rule file, or folder with such files, beside the scenario's. May be given again.",
    ),
]


def scenario_help() -> str:
    """Return the help of an argument that names a scenario."""
    return f"A file, - for standard input, or the name of a shipped scenario: {', '.join(shipped_names())}."
