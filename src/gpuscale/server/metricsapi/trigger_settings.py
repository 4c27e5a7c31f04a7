"""Limits and intervals of trigger evaluation, and where decisions are saved."""

from dataclasses import dataclass
from pathlib import Path

from gpuscale.base.flags import FlagReader
from gpuscale.base.settings import made
from gpuscale.server.panels import METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """How many triggers are watched, how often they are evaluated, and how often the source is asked."""

    max_triggers: int = 5_000
    max_namespace_triggers: int = 2_000
    """Of one namespace."""
    max_bytes: int = 32 * 1024 * 1024
    """Of all triggers' texts."""
    asleep_interval_s: float = 1.0
    """Between evaluations of a trigger whose workload is at zero, where the wake sources count."""
    interval_s: float = 5.0
    """Between evaluations of another."""
    forget_s: float = 600.0
    """A trigger that nobody asked for so long is no longer watched; those of a trigger file always are."""
    questions_per_s: float = 300.0
    """To the source, of all triggers; with more to ask, all namespaces wait for their turn alike."""
    at_once: int = 32
    """Evaluations under way."""
    question_timeout_s: float = 8.0
    """After so long a source without an answer is away."""
    stale_s: float = 30.0
    """An answer that could not be renewed for so long is held, not measured."""


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """Where decisions are saved: a file or a ConfigMap. With neither, a restart loses them."""

    file: Path | None = None
    config_map: tuple[str, str] | None = None
    """Namespace and name."""


def _held_place(flags: FlagReader) -> HeldPlace:
    file, name = flags.path("held-file"), flags.text("held-configmap")
    if file is not None and name:
        flags.fault("--held-file: found it with --held-configmap, expected one of them")
    namespace, slash, name = name.partition("/")
    if (namespace or slash) and not (namespace and name and "/" not in name):
        flags.fault(f"--held-configmap: found {namespace}{slash}{name}, expected NAMESPACE/NAME")
    return HeldPlace(file, (namespace, name) if name else None)


def held_place() -> HeldPlace:
    """Return the settings field for the place where triggers' last decisions are saved."""
    return made(
        _held_place,
        METRICS.flag(
            "held-file",
            "File that the last decisions of triggers are kept in, for a start while a source is away.",
            is_ours=True,
        ),
        METRICS.flag(
            "held-configmap",
            "ConfigMap that replicas keep them in together, NAMESPACE/NAME.",
            is_ours=True,
        ),
    )
