"""`gpuscale decide`: what the HPA would do, and why."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.cli.texts import Output, printable, read_text, shown_name
from gpuscale.core.errors import ConfigError, Problem

if TYPE_CHECKING:
    from gpuscale.hpa.documents import DecisionRequest
    from gpuscale.hpa.types import Decision
    from gpuscale.views.decision import Line


def decide(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Files with Decision documents; - is standard input."),
    ],
    *,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="json prints one line per document.")
    ] = Output.TEXT,
) -> None:
    """Tell what the HPA controller would do with what it sees, and why.

    Exit code 0: it knows how many replicas there should be; 1: for some document it can't decide;
    2: the input is wrong.

    Example:  gpuscale decide why.yaml
    """
    from gpuscale.hpa.conditions import could_decide
    from gpuscale.hpa.documents import decide_request

    requests = _requests(files)
    decided = [(request, decide_request(request)) for request in requests]
    if output is Output.JSON:
        _print_json(decided)
    else:
        _print_text(decided)
    if not all(could_decide(decision) for _, decision in decided):
        raise typer.Exit(1)


def _requests(files: Sequence[str]) -> "list[DecisionRequest]":
    """Return what all files ask, in their order.

    Raises:
        ConfigError: with every fault of every file.
    """
    requests: list[DecisionRequest] = []
    problems: list[Problem] = []
    for name in files:
        try:
            requests.extend(_requests_of(name, problems))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(*problems)
    return requests


def _requests_of(name: str, problems: list[Problem]) -> "list[DecisionRequest]":
    from gpuscale.core.documents import load_documents
    from gpuscale.hpa.documents import read_decision

    source = shown_name(name)
    documents = load_documents(read_text(name), source)
    if not documents:
        problems.append(Problem(source, None, None, "no document", "at least one Decision"))
    requests: list[DecisionRequest] = []
    for document in documents:
        try:
            requests.append(read_decision(document))
        except ConfigError as error:
            problems.extend(error.problems)
    return requests


def _print_json(decided: "Sequence[tuple[DecisionRequest, Decision]]") -> None:
    from gpuscale.hpa.answers import answer

    for request, decision in decided:
        print(json.dumps(answer(request, decision)))


def _print_text(decided: "Sequence[tuple[DecisionRequest, Decision]]") -> None:
    from gpuscale.views.decision import Line, decision_lines

    show = _show_styled() if sys.stdout.isatty() else _show_plain
    for index, (request, decision) in enumerate(decided):
        if index:
            show(Line(""))
        for line in decision_lines(request, decision):
            show(line)


def _show_plain(line: "Line") -> None:
    print(printable(line.text))


def _show_styled() -> "Callable[[Line], None]":
    from rich.console import Console
    from rich.text import Text

    console = Console()
    return lambda line: console.print(Text(printable(line.text), line.style), soft_wrap=True)
