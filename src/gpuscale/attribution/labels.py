"""Labels of Kubernetes as labels of Prometheus."""

import re
from collections.abc import Mapping

_UNFIT = re.compile("[^a-zA-Z0-9_]")


def safe_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels under names that Prometheus takes; of two that become one, the first by key stays.

    Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/transformation. Difference: a name that would begin
        with a digit gets `_` before it.
    """
    safe: dict[str, str] = {}
    for key in sorted(labels):
        safe.setdefault(_safe_name(key), labels[key])
    return safe


def _safe_name(key: str) -> str:
    name = _UNFIT.sub("_", key)
    return f"_{name}" if name[:1].isdigit() or not name else name
