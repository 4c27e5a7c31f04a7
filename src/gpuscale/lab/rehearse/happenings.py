"""Kubernetes' events, translated into events of a run.

A run's log has a warning once per object and text, as Kubernetes counts repetitions instead of listing
them, and a count before and after for what changes one.
"""

import re
from collections.abc import Mapping

from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import JsonObject
from gpuscale.lab.sim.events import SimulationEvent
from gpuscale.triggers.keda import ACTIVATED, DEACTIVATED

_NEW_SIZE = re.compile(r"New size: (\d+);")
"""Source: kubernetes pkg/controller/podautoscaler/horizontal.go (SuccessfulRescale)."""


_STEP = re.compile(r" from (\d+) to (\d+)(,|$)")
"""Source: KEDA pkg/scaling/executor/scale_scaledobjects.go (KEDAScaleTargetActivated, ...Deactivated)."""


class Happenings:
    """Translates events of the API server, each as often as it happened.

    Args:
        targets: HPA or ScaledObject, as `Kind/namespace/name`, to the key of the Deployment that it scales.
        sizes: Deployment key to its count before the first change.
    """

    def __init__(self, targets: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        self._targets = targets
        self._sizes = dict(sizes)
        self._counted: dict[str, int] = {}
        self._warned: set[tuple[str, str, str]] = set()

    def read(self, body: JsonObject, now_ms: int) -> SimulationEvent | None:
        """Return the run event for an API event; None if it adds nothing new."""
        uid = text_of(mapping_of(body.get("metadata")).get("uid"))
        # An event's number of occurrences; newer recorders use a series from the second on.
        counts = (mapping_of(body.get("series")).get("count"), body.get("count"))
        times = max([1, *(each for each in counts if isinstance(each, int))])
        if times <= self._counted.get(uid, 0):
            return None
        self._counted[uid] = times
        about = mapping_of(body.get("involvedObject"))
        kind, name = text_of(about.get("kind")), text_of(about.get("name"))
        key = f"{kind}/{text_of(about.get('namespace'))}/{name}"
        reason, message = text_of(body.get("reason")), text_of(body.get("message"))
        before, after = self._change(key, reason, message)
        event = SimulationEvent(now_ms, reason, f"{kind}/{name}", message, before, after)
        if text_of(body.get("type")) == "Warning":
            warning = (event.object, event.kind, event.reason)
            if warning in self._warned:
                return None
            self._warned.add(warning)
        return event

    def _change(self, key: str, reason: str, message: str) -> tuple[int | None, int | None]:
        target = self._targets.get(key, "")
        before = self._sizes.get(target)
        if reason == "SuccessfulRescale" and (found := _NEW_SIZE.match(message)):
            after = int(found[1])
        elif reason in (ACTIVATED, DEACTIVATED) and (found := _STEP.search(message)):
            before, after = int(found[1]), int(found[2])
        else:
            return None, None
        self._sizes[target] = after
        return before, after
