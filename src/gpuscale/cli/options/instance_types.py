"""The option that adds instance types to the catalogue."""

from typing import Annotated

import typer

InstanceTypes = Annotated[
    str | None,
    typer.Option(
        "--instance-types",
        metavar="FILE",
        help="CSV file of instance types and prices, which go before known ones.",
    ),
]
