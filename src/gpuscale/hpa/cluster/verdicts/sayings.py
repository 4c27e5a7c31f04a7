"""Node autoscalers' messages about pods as reasons.

Source: karpenter 1.15 pkg/controllers/provisioning/scheduling (scheduler.go, nodeclaim.go), with the messages
    of 0.32 to 1.0; cluster-autoscaler core/scaleup/orchestrator (skippedreasons.go) and the scheduler's
    filters, from 1.15 on.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace

from gpuscale.base.objects.gpu_resources import GpuKind, gpu_kind
from gpuscale.hpa.cluster.verdicts.reasons import Reason, Why

ZONE_LABEL = "topology.kubernetes.io/zone"
_OF_POOL = re.compile(
    r"incompatible with nodepool[ =:]+\"?(?P<pool>[\w.-]+)\"?,?\s*(?P<why>.*?)"
    r"(?=;? (?:incompatible with nodepool|all available instance types)|$)|"
    r"(?P<limit>all available instance types exceed limits for nodepool)[: (]+(?:NodePool=)?\"?"
    r"(?P<limited>[\w.-]+)",
    re.DOTALL,
)
_OVERHEAD = re.compile(r"^daemonset overhead=\{[^}]*\},?\s*")
_ASKED = re.compile(r"resources[= ](\{[^{}]*\})")
_NO_OFFERING = r"has the required offering|(?<! or) had a required offering"


def _plain(why: Why) -> Callable[[re.Match[str]], Reason]:
    return lambda _: Reason(why)


def _of_taint(found: re.Match[str]) -> Reason:
    taint = found["taint"].strip()
    key, _, value = re.sub(r":\s*$", "", taint).partition(": ")
    text = f"{key}={value}" if value else key
    return Reason(Why.TAINT, key=re.split("[=:]", key)[0], has=(text,))


def _of_requirement(found: re.Match[str]) -> Reason:
    why = Why.ZONE if found["key"] == ZONE_LABEL else Why.LABEL
    wanted, has = (tuple(found[name].split()) for name in ("wanted", "has"))
    return Reason(why, key=found["key"], wanted=wanted, has=has)


_KARPENTERS: tuple[tuple[str, Callable[[re.Match[str]], Reason]], ...] = (
    (r"Dynamic Resource Allocation", _plain(Why.CLAIMS)),
    (r"did not tolerate (?:taint \(taint=)?(?P<taint>[^\s,;)]+)", _of_taint),
    (
        r"label \"(?P<key>[^\"]+)\" does not have known values",
        lambda found: Reason(Why.UNKNOWN_LABEL, key=found["key"]),
    ),
    (
        r"key (?P<key>[^\s,]+), \S+ In \[(?P<wanted>[^\]]*)\] not in \S+ In \[(?P<has>[^\]]*)\]",
        _of_requirement,
    ),
    (_NO_OFFERING, _plain(Why.NO_OFFERING)),
    (r"(?:enough|required) resources", _plain(Why.TOO_LARGE)),
    (r"no instance type met all requirements", _plain(Why.LABEL)),
)
_CLUSTER_AUTOSCALERS: tuple[tuple[str, Callable[[re.Match[str]], Reason]], ...] = (
    (r"max (?:node group size|limit) reached", _plain(Why.AT_MAX)),
    (r"max total nodes in cluster", lambda _: Reason(Why.CLUSTER_LIMIT, key="nodes")),
    (
        r"max cluster (?P<key>.+) limit reached",
        lambda found: Reason(Why.CLUSTER_LIMIT, key=found["key"]),
    ),
    (r"in backoff after failed scale-up", _plain(Why.BACKOFF)),
    (r"not ready for scale-up", _plain(Why.NOT_READY)),
    (r"(?:untolerated taint|had taint) \{(?P<taint>[^}]+)\}", _of_taint),
    (r"volume node affinity", _plain(Why.ZONE)),
    (r"node affinity|node selector", _plain(Why.LABEL)),
    (r"Too many pods", _plain(Why.MAX_PODS)),
    (r"Insufficient (?P<key>\S+)", lambda found: Reason(Why.TOO_LARGE, key=found["key"])),
)


def karpenters_reasons(message: str) -> tuple[Reason, ...]:
    """Return Karpenter's reasons for adding no node, one for each pool that it names.

    Args:
        message: of an event FailedScheduling that Karpenter wrote.
    """
    found = []
    for each in _OF_POOL.finditer(message):
        if each["limit"]:
            found.append(Reason(Why.LIMIT, each["limited"], each["limit"]))
        else:
            text = _OVERHEAD.sub("", each["why"]).strip().rstrip(";,")
            found.append(replace(_understood(text, _KARPENTERS), pool=each["pool"]))
    if found:
        return tuple(found)
    is_karpenters = re.search("karpenter|nodepool|instance type", message, re.IGNORECASE)
    return (_understood(message, _KARPENTERS),) if is_karpenters else ()


def cluster_autoscalers_reasons(message: str) -> tuple[Reason, ...]:
    """Return Cluster Autoscaler's reasons for adding no node; it names no group.

    Args:
        message: of an event NotTriggerScaleUp.
    """
    said = re.sub(r"^pod didn't trigger scale-up(?: \([^)]*\))?: ?", "", message)
    each = re.split(r", (?=\d+ )", said)
    return tuple(_understood(one, _CLUSTER_AUTOSCALERS) for one in each if one)


def _understood(
    text: str, patterns: tuple[tuple[str, Callable[[re.Match[str]], Reason]], ...]
) -> Reason:
    for pattern, read in patterns:
        found = re.search(pattern, text)
        if found is not None:
            reason = replace(read(found), text=text, asked=_asked(text))
            is_late = any(
                gpu_kind(key) in (GpuKind.SHARE, GpuKind.PARTITION) for key, _ in reason.asked
            )
            if reason.why is Why.TOO_LARGE and is_late:
                return replace(reason, why=Why.UNKNOWN_RESOURCE)
            return reason
    return Reason(Why.OTHER, text=text)


def _asked(text: str) -> tuple[tuple[str, str], ...]:
    found = _ASKED.search(text)
    try:
        listed = json.loads(found[1]) if found is not None else {}
    except ValueError:
        return ()
    return tuple((str(key), str(value)) for key, value in listed.items())
