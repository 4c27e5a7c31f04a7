"""Reads what goes into the archive. What can't be read is named in it, and ends nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from gpuscale.base.clock import Clock
from gpuscale.base.documents.documents import Document
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.findings import with_plugins
from gpuscale.hpa.decisions import answer, decide_request, read_decision
from gpuscale.kube import fields_of
from gpuscale.kube.client import KubeClient
from gpuscale.ops.bundle.archive import Archive
from gpuscale.ops.doctor import (
    ClusterJudge,
    Gatherer,
    GatherSettings,
    diagnose,
)
from gpuscale.ops.doctor.checks import JUDGES
from gpuscale.ops.doctor.facts import asks_for_gpus
from gpuscale.ops.findings_text import chain_document
from gpuscale.ops.observe import Observer, find_hpas
from gpuscale.ops.observe.document import decision_document
from gpuscale.series import Matrix, Vector
from gpuscale.server.sources.prometheus import PrometheusSource

_OURS = ("app.kubernetes.io/part-of", "gpuscale")
_KINDS = (
    "hpas", "scaledobjects", "scaledjobs", "nodes", "nodepools", "nodeclaims", "deployments", "statefulsets",
    "daemonsets", "pods", "apiservices",
)  # fmt: skip
_LOG_LINES, _LOG_BYTES, _LOG_CONTAINERS = 2_000, 300_000, 30
"""Of a container, and containers: those of a node agent on each of many nodes say much the same."""
_RANGE_MS, _STEP_MS = 3_600_000, 60_000
_MOST_SERIES = 3_000
"""Of a name: an hour of them is about 3 MB."""
_METRICS = {
    "up": 'up{job=~".*(gpuscale|dcgm|kube-state|keda|adapter).*"}',
    "alerts": 'ALERTS{alertstate="firing"}',
    "gpuscale": '{__name__=~"gpuscale_.+",__name__!~".*_bucket"}',
    "hpas": '{__name__=~"kube_horizontalpodautoscaler_.+"}',
    "pending": 'kube_pod_status_phase{phase="Pending"} == 1',
    "utilization": "DCGM_FI_DEV_GPU_UTIL",
    "engine-active": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "memory": "DCGM_FI_DEV_FB_USED",
    "xid": "DCGM_FI_DEV_XID_ERRORS",
}


async def add_cluster(
    archive: Archive,
    client: KubeClient,
    clock: Clock,
    settings: GatherSettings,
    report: Callable[[str], None],
) -> None:
    """Add findings, decisions, objects and logs of a cluster, without a look at any Secret.

    Raises:
        ApiUnreachableError: the API server does not answer, or is not ready.
        ApiStatusError: it does not accept us, or lets us see nothing at all.
    """
    seen = await Gatherer(client, clock, settings, report).snapshot()
    findings = diagnose(seen, with_plugins(JUDGES, ClusterJudge))
    archive.add("findings.json", chain_document(findings), "what `gpuscale doctor` finds")
    report("reading what HPAs see")
    await _add_decisions(archive, client, clock, settings.namespace)
    for plural in _KINDS:
        look = seen.looks[plural]
        if look.fault:
            archive.leave_out(f"objects/{plural}.json", look.fault)
        elif items := [_shortened(plural, each) for each in look.items if _matters(plural, each)]:
            archive.add(f"objects/{plural}.json", items, f"{len(items)} of {len(look.items)}")
    try:
        ours = await client.get("/api/v1/configmaps", {"labelSelector": "=".join(_OURS)})
        archive.add("objects/configmaps.json", ours.get("items") or [], "gpuscale's own")
    except GpuscaleError as error:
        archive.leave_out("objects/configmaps.json", error)
    await _add_logs(archive, client, seen.looks["pods"].items, report)


async def _add_decisions(
    archive: Archive, client: KubeClient, clock: Clock, namespace: str | None
) -> None:
    try:
        bodies = await find_hpas(client, namespace)
    except GpuscaleError as error:
        archive.leave_out("decisions", error)
        return
    observer = Observer(client, clock)
    answers = []
    for body in bodies:
        meta = body["metadata"]
        name = f"decisions/{meta['namespace']}-{meta['name']}.json"
        try:
            document = decision_document(await observer.look(body))
            request = read_decision(Document(name, 0, document, {}))
        except GpuscaleError as error:
            archive.leave_out(name, error)
            continue
        answers.append({"hpa": name, **answer(request, decide_request(request))})
        archive.add(name, document, "what the HPA sees; `gpuscale decide FILE` answers as then")
    archive.add("decisions.json", answers, "what `gpuscale decide` says of each HPA")


async def _add_logs(
    archive: Archive,
    client: KubeClient,
    pods: Sequence[Mapping[str, Any]],
    report: Callable[[str], None],
) -> None:
    """Add the ends of the logs of our pods: first those that are not ready, or were restarted."""
    containers = sorted(_containers(pods))
    for number, (_, place, pod, container, was_restarted) in enumerate(containers):
        name = f"logs/{place}/{pod}/{container}"
        if number >= _LOG_CONTAINERS:
            archive.leave_out(name, f"{_LOG_CONTAINERS} containers' logs are in it")
            continue
        report(f"reading logs: {number / len(containers):.0%}")
        for previous in (False, True)[: 1 + was_restarted]:
            query = {
                "container": container,
                "previous": str(previous).lower(),
                "tailLines": _LOG_LINES,
                "limitBytes": _LOG_BYTES,
                "timestamps": "true",
            }
            file = f"{name}{'.before' if previous else ''}.log"
            path = f"/api/v1/namespaces/{place}/pods/{pod}/log?{urlencode(query)}"
            try:
                archive.add(file, await client.text(path), f"the last {_LOG_LINES} lines")
            except GpuscaleError as error:
                archive.leave_out(file, error)


def _containers(pods: Sequence[Mapping[str, Any]]) -> Iterator[tuple[bool, str, str, str, bool]]:
    """Yield for each of our containers whether it is well, where it is, and whether it was restarted."""
    for pod in pods:
        meta = pod["metadata"]
        if not _is_ours(pod):
            continue
        states = {
            each["name"]: each
            for key in ("containerStatuses", "initContainerStatuses")
            for each in pod.get("status", {}).get(key) or ()
        }
        spec = pod["spec"]
        for each in (*(spec.get("initContainers") or ()), *spec["containers"]):
            state = states.get(each["name"], {})
            restarted = state.get("restartCount", 0) > 0
            is_well = bool(state.get("ready")) and not restarted
            yield is_well, meta["namespace"], meta["name"], each["name"], restarted


def _is_ours(body: Mapping[str, Any]) -> bool:
    key, value = _OURS
    return bool((body["metadata"].get("labels") or {}).get(key) == value)


def _matters(plural: str, body: Mapping[str, Any]) -> bool:
    """Return whether an object says something about GPU autoscaling."""
    if plural == "pods":
        return _is_ours(body) or asks_for_gpus(fields_of(dict(body)))
    if plural in ("deployments", "statefulsets", "daemonsets"):
        return _is_ours(body) or asks_for_gpus(fields_of(body["spec"]["template"]))
    if plural == "apiservices":
        return "metrics" in body["metadata"]["name"]
    return True


def _shortened(plural: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is of use of an object: of a node its labels, taints, amounts and conditions."""
    if plural != "nodes":
        return body
    meta, spec, status = (body.get(key) or {} for key in ("metadata", "spec", "status"))
    return {
        "metadata": {key: meta.get(key) for key in ("name", "creationTimestamp", "labels")},
        "spec": {key: spec.get(key) for key in ("taints", "unschedulable")},
        "status": {
            key: status.get(key) for key in ("capacity", "allocatable", "conditions", "nodeInfo")
        },
    }


async def add_metrics(
    archive: Archive, source: PrometheusSource, end_ms: int, report: Callable[[str], None]
) -> None:
    """Add the last hour of the series that scaling depends on, a sample a minute."""
    for number, (called, query) in enumerate(_METRICS.items()):
        report(f"asking Prometheus: {number / len(_METRICS):.0%}")
        name = f"metrics/{called}.json"
        try:
            count = await source.query(f"count({query})", end_ms)
            series = count.samples[0].value if isinstance(count, Vector) and count.samples else 0
            if series > _MOST_SERIES:
                archive.leave_out(name, f"{query}: {series:.0f} series, more than {_MOST_SERIES}")
                continue
            value = await source.query_range(query, end_ms - _RANGE_MS, end_ms, _STEP_MS)
        except GpuscaleError as error:
            archive.leave_out(name, f"{query}: {error}")
            continue
        rows = [
            {"metric": dict(each.labels), "values": [[ms / 1000, str(v)] for ms, v in each.points]}
            for each in (value.series if isinstance(value, Matrix) else ())
        ]
        archive.add(name, {"query": query, "result": rows}, f"{len(rows)} series of `{query}`")
