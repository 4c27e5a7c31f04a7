"""`gpuscale schema`: the JSON schema of the files that users write."""

import json
from enum import Enum
from typing import Annotated

import typer

from gpuscale.cli.texts import Output, print_document


class FileKind(Enum):
    """Which file."""

    SCENARIO = "scenario"
    VALUES = "values"


def schema(
    kind: Annotated[
        FileKind, typer.Argument(help="scenario: of simulate and up; values: of install.")
    ] = FileKind.SCENARIO,
    *,
    output: Annotated[Output, typer.Option("--output", "-o", help="How.")] = Output.JSON,
) -> None:
    """Print the JSON schema of scenario files or values files, for editors to complete and check them.

    Example:  gpuscale schema values > values.schema.json
    """
    from gpuscale.base.documents.described import described_schema
    from gpuscale.base.documents.models import Model

    model: type[Model]
    if kind is FileKind.VALUES:
        from gpuscale.ops.install import Values as model
    else:
        from gpuscale.lab.sim.scenario import Scenario as model
    described = described_schema(model)
    if output is Output.YAML:
        print_document(described, output)
    else:
        print(json.dumps(described, indent=2, sort_keys=True))
