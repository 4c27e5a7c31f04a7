"""Kubernetes' events as events of a run.

A run's log has a warning once per object and text, as Kubernetes counts repetitions instead of listing
them, and a count before and after for what changes one.
"""

import re
from collections.abc import Mapping

from gpuscale.kube.client.client import JsonObject
from gpuscale.kube.json_values import mapping_of, text_of
from gpuscale.sim.events import Event

_NEW_SIZE = re.compile(r"New size: (\d+);")
"""Source: kubernetes pkg/controller/podautoscaler/horizontal.go (SuccessfulRescale)."""


class Happenings:
    """Reads events of the API server, each as often as it happened.

    Args:
        sizes: HPA key to the count of its Deployment before the first rescale.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)
        self._counted: dict[str, int] = {}
        self._warned: set[tuple[str, str, str]] = set()

    def read(self, body: JsonObject, now_ms: int) -> Event | None:
        """Return what an event that was seen now says; None for one that says nothing new."""
        uid = text_of(mapping_of(body.get("metadata")).get("uid"))
        times = _count(body)
        if times <= self._counted.get(uid, 0):
            return None
        self._counted[uid] = times
        event = self._event(body, now_ms)
        if text_of(body.get("type")) == "Warning":
            warning = (event.object, event.kind, event.reason)
            if warning in self._warned:
                return None
            self._warned.add(warning)
        return event

    def _event(self, body: JsonObject, now_ms: int) -> Event:
        about = mapping_of(body.get("involvedObject"))
        kind, name = text_of(about.get("kind")), text_of(about.get("name"))
        key = f"{text_of(about.get('namespace'))}/{name}"
        reason, message = text_of(body.get("reason")), text_of(body.get("message"))
        before, after = self._change(key, reason, message)
        return Event(now_ms, reason, f"{kind}/{name}", message, before, after)

    def _change(self, key: str, reason: str, message: str) -> tuple[int | None, int | None]:
        found = _NEW_SIZE.match(message) if reason == "SuccessfulRescale" else None
        if found is None:
            return None, None
        before, after = self._sizes.get(key), int(found[1])
        self._sizes[key] = after
        return before, after


def _count(body: JsonObject) -> int:
    """Return how often it happened; newer recorders count in a series, from the second time on."""
    in_series = mapping_of(body.get("series")).get("count")
    plain = body.get("count")
    counts = [each for each in (in_series, plain) if isinstance(each, int)]
    return max([1, *counts])
