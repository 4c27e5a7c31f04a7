"""What commands print: documents for programs, and what standard output can carry."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from gpuscale.base.pages.columns import Table, aligned, markdown
from gpuscale.base.words import printable as visible


class Output(Enum):
    """What is printed."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class TicketOutput(Enum):
    """What is printed of what may go into a ticket."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    YAML = "yaml"


class ReportOutput(Enum):
    """What is printed of a report about files."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"
    SARIF = "sarif"
    JUNIT = "junit"


def print_document(document: Mapping[str, object], output: Output | TicketOutput) -> None:
    """Print a document for programs: JSON on one line, or YAML."""
    if output.value == Output.YAML.value:
        from gpuscale.base.documents.documents import dump_documents

        print(dump_documents([document]), end="", flush=True)
    else:
        print(json.dumps(document), flush=True)


def print_ticket(
    output: TicketOutput,
    document: Callable[[], Mapping[str, object]],
    lines: Callable[[Table], Iterable[str]],
) -> None:
    """Print the document for programs, or the lines with tables as text or Markdown has them."""
    if output in (TicketOutput.JSON, TicketOutput.YAML):
        print_document(document(), output)
        return
    for line in lines(markdown if output is TicketOutput.MARKDOWN else aligned):
        print(printable(line))


def deprecated(old: str, new: str) -> None:
    """Say on standard error that an option has another spelling now."""
    print(f"gpuscale: {old} is deprecated; use {new}", file=sys.stderr)


def printable(text: str) -> str:
    """Return the text with escapes for what standard output can't carry, or a terminal would act on."""
    encoding = sys.stdout.encoding or "utf-8"
    return visible(text).encode(encoding, "backslashreplace").decode(encoding)
