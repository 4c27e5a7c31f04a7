"""Files of a node pool, assembled from comments, commands and data."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.base.objects.taints import Taint

_WIDTH = 110


@dataclass(frozen=True, slots=True)
class PoolFile:
    """A file for creating a node pool."""

    name: str
    text: str


def comments(paragraphs: Sequence[str]) -> str:
    """Return paragraphs as comment lines of shells and YAML."""
    lines = [
        line
        for paragraph in paragraphs
        for line in textwrap.wrap(
            paragraph,
            _WIDTH,
            initial_indent="# ",
            subsequent_indent="#   ",
            break_on_hyphens=False,
            break_long_words=False,
        )
    ]
    return "\n".join(lines) + "\n"


def command(words: Sequence[str], *arguments: str) -> str:
    """Return a shell command with one argument per line."""
    return " \\\n  ".join([" ".join(words), *arguments]) + "\n"


def script(name: str, notes: Sequence[str], *commands: str) -> PoolFile:
    """Return a Bash script that stops at the first failure."""
    head = f"#!/usr/bin/env bash\n{comments(notes)}set -euo pipefail\n"
    return PoolFile(name, "\n".join([head, *commands]))


def yaml_file(name: str, notes: Sequence[str], *documents: object) -> PoolFile:
    """Return YAML documents below comments."""
    # Imported late: providers' names and labels are needed far more often than files, and without
    # PyYAML.
    from gpuscale.base.documents.documents import dump_documents

    return PoolFile(name, comments(notes) + dump_documents(documents))


def taint_object(taint: Taint) -> dict[str, object]:
    """Return a taint in manifest form."""
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def ready_taint_notes(taint: Taint | None, how: str) -> tuple[str, ...]:
    """Return the note on the taint that new nodes have until their GPUs are of use; none without one.

    Args:
        taint: that taint.
        how: what is special about it in this cloud.
    """
    if taint is None:
        return ()
    return (
        f"The node agent takes {taint.key} off once the GPUs are of use. Workloads must not tolerate it; "
        f"device plugin and driver installer have to. {how}",
    )
