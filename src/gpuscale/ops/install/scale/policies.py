"""Faults of a scale's policies, reported at the fields of the values file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpuscale.base.documents.documents import Path
from gpuscale.base.errors import ConfigError
from gpuscale.ops.install.scale.metrics import MetricEntry, QueryMetric
from gpuscale.triggers import read_metadata
from gpuscale.triggers.policies import policy_faults

_OF_POLICY = frozenset({"startTime", "lag", "learn"})


def has_policy(entry: MetricEntry) -> bool:
    """Return whether a metric uses a policy."""
    return isinstance(entry, QueryMetric) and entry.policy is not None


def policies_refused(
    entries: Sequence[MetricEntry], keys: Mapping[int, Mapping[str, str]], namespace: str
) -> Iterator[tuple[Path, str]]:
    """Return the trigger reader's faults of metrics with a policy.

    Args:
        entries: the metrics of a scale.
        keys: of the trigger of each, by its place.
        namespace: of the workload.
    """
    for index, entry in enumerate(entries):
        if not isinstance(entry, QueryMetric) or entry.policy is None:
            continue
        if entry.target_type == "Value":
            text = "found targetType Value with a policy, expected AverageValue"
            yield ("metrics", index, "targetType"), f"{text}: its value is a count of replicas"
            continue
        try:
            read_metadata(keys[index], namespace, check=policy_faults)
        except ConfigError as error:
            for problem in error.problems:
                text = str(replace(problem, source="", line=None, field=None))
                path: Path = ("metrics", index, *_field(problem.field or ""))
                yield path, text.removeprefix(": ")


def _field(key: str) -> tuple[str, ...]:
    """Return the field of a metric that a trigger key comes from."""
    if key == "policy":
        return ("policy", "name")
    if key in _OF_POLICY:
        return ("policy", key)
    return ("target",) if key == "podLoad" else tuple(key.split("."))
