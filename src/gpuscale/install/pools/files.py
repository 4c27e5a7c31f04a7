"""Files of a node pool: comments, commands and data put together as text."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.core.documents import dump_documents
from gpuscale.install.values import NodePool, Values

_WIDTH = 110


@dataclass(frozen=True, slots=True)
class PoolFile:
    """One file."""

    name: str
    text: str


def pool_of(values: Values) -> NodePool:
    """Return the node pool of values that have one.

    Raises:
        ValueError: they have none.
    """
    pool = values.spec.node_pool
    if pool is None:
        raise ValueError("found values without nodePool, expected one")
    return pool


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
    return PoolFile(name, comments(notes) + dump_documents(documents))


def taint_text(values: Values) -> str:
    """Return the taint of GPU nodes as commands take it."""
    taint = values.spec.taint
    return f"{taint.key}={taint.value}:{taint.effect}"


def taint_object(values: Values) -> dict[str, object]:
    """Return the taint of GPU nodes as manifests have it."""
    taint = values.spec.taint
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def shared_gpus(values: Values) -> int:
    """Return how many `nvidia.com/gpu` a node of the pool will have once the device plugin runs."""
    plugin = values.spec.device_plugin
    return pool_of(values).gpus * (plugin.replicas if plugin.enabled else 1)
