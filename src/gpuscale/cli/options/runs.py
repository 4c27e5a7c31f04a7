"""Options that `load http` and `load gpu` share: how long, what is watched meanwhile, where results go."""

from typing import Annotated

import typer

from gpuscale.cli.options.cluster import PANEL, namespace_option

Duration = Annotated[str, typer.Option("--for", metavar="DURATION", help="How long, such as 2m.")]
TimeColumn = Annotated[str, typer.Option(help="Of the trace: when.")]
OutputFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write the result as JSON to a file.")
]
Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write charts of the run as a page to a file."),
]
WatchHpa = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Show what this HPA, its metric, pods and nodes do meanwhile.",
        rich_help_panel=PANEL,
    ),
]
HpaNamespace = Annotated[str | None, namespace_option("Of the HPA.", "the context's")]
