"""Metadata of metrics, as targets expose it, in the JSON form of Prometheus' API.

Source: prometheus web/api/v1/api.go (metricMetadata, targetMetadata).
"""

import re
from typing import Any

from gpuscale.series.labels import label_set
from gpuscale.series.promapi.body import bad_data
from gpuscale.series.promapi.parameters import Parameters
from gpuscale.series.storage.metadata import MetadataBook, MetricMetadata

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def metric_metadata(book: MetadataBook, parameters: Parameters) -> dict[str, list[dict[str, str]]]:
    """Return type, help and unit by metric; different versions are listed once each.

    Raises:
        ApiError: a limit is no number.
    """
    limit, per_metric = _limit(parameters, "limit"), _limit(parameters, "limit_per_metric")
    found = book.by_metric(parameters.text("metric"))
    names = list(found) if limit is None else list(found)[:limit]
    return {name: [_said(each) for each in found[name][: per_metric or None]] for name in names}


def target_metadata(book: MetadataBook, parameters: Parameters) -> list[dict[str, Any]]:
    """Return type, help and unit by target and metric.

    Raises:
        ApiError: a limit is no number, or `match_target` is no selector.
    """
    limit, metric = _limit(parameters, "limit"), parameters.text("metric")
    matchers = parameters.selector("match_target")
    fits = [(matcher.name, matcher.predicate()) for matcher in matchers or ()]
    found: list[dict[str, Any]] = []
    for labels, kept in book.targets():
        # Prometheus checks the limit between targets.
        if limit is not None and len(found) >= limit:
            break
        own = label_set(labels)
        if not all(fit(own.value(name)) for name, fit in fits):
            continue
        for each in kept:
            if not metric:
                found.append({"target": dict(own), "metric": each.name, **_said(each)})
            elif each.name == metric:
                found.append({"target": dict(own), **_said(each)})
    return found


def _said(metadata: MetricMetadata) -> dict[str, str]:
    return {"type": metadata.type, "help": metadata.help, "unit": metadata.unit}


def _limit(parameters: Parameters, name: str) -> int | None:
    """Return a limit; None for a negative number, which means no limit."""
    text = parameters.text(name)
    if not text:
        return None
    if not _INTEGER.fullmatch(text):
        raise bad_data(f"{name} must be a number")
    return int(text) if int(text) >= 0 else None
