"""`gpuscale lint`: what of rule files and autoscalers can't work."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from gpuscale.cli.texts import Output, printable, read_text, shown_name
from gpuscale.core.errors import ConfigError, Problem


def lint(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Rule files and manifests, in any order; - is standard input.",
        ),
    ],
    *,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="json prints one document.")
    ] = Output.TEXT,
    strict: Annotated[bool, typer.Option("--strict", help="Fail for notes too.")] = False,
) -> None:
    """Hold prometheus-adapter rules and HPAs against each other, before they run.

    Exit code 0: nothing to do; 1: errors or warnings were found; 2: the input is wrong.

    Example:  gpuscale lint rules.yaml hpa.yaml
    """
    from gpuscale.lint.lint import lint as linted
    from gpuscale.lint.report import document, text_lines

    report = linted(_texts(files))
    if output is Output.JSON:
        print(json.dumps(document(report)))
    else:
        for line in text_lines(report):
            print(printable(line))
    if report.fails(strict=strict):
        raise typer.Exit(1)


def _texts(files: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and text of each file, once.

    Raises:
        ConfigError: with every file that can't be read.
    """
    texts: list[tuple[str, str]] = []
    problems: list[Problem] = []
    for name in dict.fromkeys(files):
        try:
            texts.append((shown_name(name), read_text(name)))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(*problems)
    return texts
