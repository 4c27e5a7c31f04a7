"""The YAML configuration of dcgm-exporter: which metrics, how often, and how often which group of them.

It is read once, at the start. What the agent has too is taken; the log names the rest.

Source: NVIDIA dcgm-exporter 4.8.3 and 4.8.4 (`--config-file`); DCGM documentation, "dcgm-exporter",
    CONFIGURATION SOURCES.
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from gpuscale.agent.exporter.counters_file import read_text
from gpuscale.agent.panels import MAX_INTERVAL_MS, MIN_INTERVAL_MS
from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.objects.fields import Fields

MAX_BYTES = 1024 * 1024

_KEYS = {1: ("version", "metrics", "collection"), 2: ("version", "metrics", "collections")}
_GROUPS = "its watch groups change nothing: each value has a pace of its own here"
_COLLECTIONS = "its collections change nothing: give the interval with --collect-interval"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The settings in such a file."""

    counters_path: str = ""
    """Of a counters file; empty where there is none."""
    counters_text: str | None = None
    """The metrics that it lists itself, as a counters file; None where it lists none."""
    interval_ms: int | None = None
    notes: tuple[str, ...] = ()
    """What to say of what changes nothing here."""


def read_config_file(path: Path) -> ConfigFile:
    """Parse the file.

    Raises:
        NotFoundError: it can't be read.
        ConfigError: it is not of the format.
    """
    text = read_text(path, MAX_BYTES + 1)
    if len(text.encode()) > MAX_BYTES:
        expected = f"at most {MAX_BYTES // 1024} KiB"
        raise ConfigError(Problem(str(path), None, None, "a larger file", expected))
    documents = load_documents(text, str(path))
    if len(documents) != 1:
        raise ConfigError(Problem(str(path), None, None, f"{len(documents)} documents", "one"))
    top = Fields(documents[0], documents[0].data)
    version = top.integer("version")
    known = _KEYS.get(version or 0)
    if known is None:
        top.note(("version",), "1 or 2", found="nothing" if version is None else str(version))
    else:
        _check_keys(top, known)
    counters_path, counters_text = _metrics(top)
    interval_ms, notes = _collection(top)
    top.finish()
    if "collections" in top:
        notes = (_COLLECTIONS,)
    return ConfigFile(
        counters_path,
        counters_text,
        interval_ms,
        tuple(f"--config-file: {note}" for note in notes),
    )


def _metrics(top: Fields) -> tuple[str, str | None]:
    metrics = top.child("metrics")
    _check_keys(metrics, ("file", "fields"))
    path = metrics.text("file")
    if "fields" not in metrics:
        return path, None
    if path:
        metrics.note(("fields",), "either file or fields", found="both")
    lines = io.StringIO()
    line = 1
    writer = csv.writer(lines, lineterminator="\n")
    for row in metrics.items("fields"):
        # Rows keep their line numbers in this file, for error messages.
        ahead = max(0, (row.document.line(row.path) or 1) - line)
        lines.write("\n" * ahead)
        line += ahead + 1
        _check_keys(row, ("name", "prometheusType", "help"))
        texts = [row.text(key, required=True) for key in ("name", "prometheusType", "help")]
        writer.writerow([" ".join(text.split()) for text in texts])
    return path, lines.getvalue()


def _collection(top: Fields) -> tuple[int | None, tuple[str, ...]]:
    collection = top.child("collection")
    _check_keys(collection, ("interval", "watchGroups"))
    interval = collection.data.get("interval")
    notes = (_GROUPS,) if collection.data.get("watchGroups") else ()
    if interval is None:
        return None, notes
    if isinstance(interval, int) and not isinstance(interval, bool):
        interval_ms = interval
    else:
        try:
            interval_ms = parse_duration_ms(str(interval))
        except ValueError:
            expected = "milliseconds or a duration such as 30s"
            collection.note(("interval",), expected, found=str(interval))
            return None, notes
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        expected = f"{MIN_INTERVAL_MS} to {MAX_INTERVAL_MS} milliseconds"
        collection.note(("interval",), expected, found=str(interval))
    return interval_ms, notes


def _check_keys(fields: Fields, known: tuple[str, ...]) -> None:
    for key in fields.data:
        if key not in known:
            fields.note((key,), f"one of {', '.join(known)}", found=key)
