"""How a workload's HPA changed within a recording, as a scenario's `hpaChanges`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.golang.durations import format_duration
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.words import counted
from gpuscale.lab.sim.history.recording import Column, Recording, metric_of


@dataclass(frozen=True, slots=True)
class HpaHistory:
    """An HPA's changes that are replayed, and notes on those that are not."""

    changes: tuple[Mapping[str, Any], ...] = ()
    """Of a scenario; the first is what held before any change. Empty where nothing changed."""
    notes: tuple[str, ...] = ()
    """What was recorded and is not replayed."""


def hpa_history(recording: Recording, objects: Sequence[Mapping[str, Any]]) -> HpaHistory:
    """Return how the HPA in the manifests changed during the recording.

    What stayed the same is as the manifests have it, whatever was recorded.

    Args:
        recording: with what the HPA said at each moment.
        objects: manifests of the workload.

    Raises:
        ConfigError: one is none that Kubernetes would take.
    """
    steps = {name: _steps(column) for name, column in recording.hpa.items()}
    changed = {name: found for name, found in steps.items() if len(found) > 1}
    bodies = [dict(each) for each in objects if each.get("kind") == "HorizontalPodAutoscaler"]
    read = load_manifests(dump_documents(bodies), "--manifests")
    hpas = [each for each in read if isinstance(each, HorizontalPodAutoscaler)]
    if changed and len(hpas) != 1:
        count = sum(len(found) - 1 for found in changed.values())
        said = (
            f"one autoscaler throughout; recorded were {counted(count, 'change')} of minReplicas, maxReplicas"
            f" or targets, and the manifests have {counted(len(hpas), 'HPA')}: ask for the range before or"
            " after them"
        )
        return HpaHistory(notes=(said,))
    notes: list[str] = []
    of_name = Counter(metric.name for hpa in hpas for metric in hpa.metrics)
    moments: dict[int, dict[str, Any]] = {}
    for name, found in changed.items():
        metric = metric_of(name)
        if metric is not None and of_name[metric] != 1:
            notes.append(
                f"no change of the target of {metric}: recorded was one, and the HPA of the manifests has "
                f"{counted(of_name[metric], 'metric')} of this name"
            )
            continue
        for index, value in found:
            change = moments.setdefault(index, {})
            number = int(value) if value.is_integer() else value
            if metric is None:
                change[name] = number
            else:
                change.setdefault("targets", {})[metric] = number
    notes += _partly_there(recording)
    key = f"{hpas[0].metadata.namespace}/{hpas[0].metadata.name}" if hpas else ""
    return HpaHistory(
        tuple(
            {"at": format_duration(index * recording.step_ms), "hpa": key, **moments[index]}
            for index in sorted(moments)
        ),
        tuple(notes),
    )


def _steps(column: Column) -> list[tuple[int, float]]:
    """Return a column's first value, at 0, and each that differs from the one before; gaps say nothing."""
    known = [(index, value) for index, value in enumerate(column) if value is not None]
    later = [after for before, after in pairwise(known) if after[1] != before[1]]
    return [(0, known[0][1]), *later] if known else []


def _partly_there(recording: Recording) -> list[str]:
    """Return a note for each metric that the HPA had only some of the time."""
    whole = _ends(recording.hpa.get("maxReplicas", ()))
    return [
        f"the metrics of the manifests' HPA throughout; recorded was {metric} for a part of the time only"
        for name, column in recording.hpa.items()
        if (metric := metric_of(name)) is not None and whole is not None and _ends(column) != whole
    ]


def _ends(column: Column) -> tuple[int, int] | None:
    known = [index for index, value in enumerate(column) if value is not None]
    return (known[0], known[-1]) if known else None
