"""External scalers: the Services in KEDA's triggers, the pods behind them, and their metrics."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from gpuscale.base.errors import GpuscaleError, UnavailableError
from gpuscale.base.exposition.parse import parse_text
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.selectors import selector_of_labels
from gpuscale.kube.client import KubeClient
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.direct import at_once, pod_path
from gpuscale.ops.doctor.snapshot import ScalerLook, Snapshot

_EXTERNAL = ("external", "external-push")
_MOST = 16
"""Pods of scalers that are asked."""
_ONE_S = 3.0
_METRICS_PORT = 8080
_STREAMS = "gpuscale_scaler_streams"
_PUSHES = ("method", "StreamIsActive")


@dataclass(frozen=True, slots=True)
class ScaledTrigger:
    """A trigger of type external."""

    about: str
    """`scaledobject/namespace/name`."""
    index: int
    kind: str
    address: str
    service: tuple[str, str] | None
    """Namespace and name of the Service; None for an address outside the cluster."""
    fault: str = ""
    """Why there is no such Service; empty where there is, or where that can't be known."""
    is_paused: bool = False

    @property
    def edit(self) -> str:
        kind, namespace, name = self.about.split("/")
        return f"kubectl edit {kind} -n {namespace} {name}"


@facts.once
def triggers(snapshot: Snapshot) -> tuple[ScaledTrigger, ...]:
    """Return the triggers of type external of all ScaledObjects and ScaledJobs."""
    services = facts.by_full_name(snapshot, "services")
    keda, _ = operator_of(snapshot)
    return tuple(
        _trigger(services, keda, f"{kind[:-1]}/{facts.full_name(body)}", index, each, body)
        for kind in ("scaledobjects", "scaledjobs")
        for body in snapshot.all(kind)
        for index, each in enumerate(body.child("spec").items("triggers"))
        if each.text("type") in _EXTERNAL
    )


@facts.once
def triggers_by_object(snapshot: Snapshot) -> Mapping[str, tuple[ScaledTrigger, ...]]:
    """Return the external triggers by the object they belong to."""
    found: dict[str, tuple[ScaledTrigger, ...]] = {}
    for each in triggers(snapshot):
        found[each.about] = (*found.get(each.about, ()), each)
    return found


def scaler_services(snapshot: Snapshot) -> Mapping[str, tuple[ScaledTrigger, ...]]:
    """Return the triggers of each scaler Service, by `namespace/name`."""
    found: dict[str, list[ScaledTrigger]] = {}
    for each in triggers(snapshot):
        if each.service is not None and not each.fault:
            found.setdefault("/".join(each.service), []).append(each)
    return {name: tuple(users) for name, users in found.items()}


def scaler_pods(snapshot: Snapshot, service: str) -> tuple[Fields, ...]:
    """Return the active pods behind a scaler's Service."""
    body = facts.by_full_name(snapshot, "services").get(service)
    wanted = {} if body is None else body.child("spec").labels("selector")
    if not wanted:
        return ()
    return facts.selected(snapshot, service.partition("/")[0], selector_of_labels(wanted))


class ScalerReader:
    """Reads the metrics of gpuscale's scalers through the API server.

    Args:
        connection: to the API server.
    """

    def __init__(self, connection: KubeClient) -> None:
        self._connection = connection

    async def read(self, seen: Snapshot) -> tuple[ScalerLook, ...]:
        """Return the metrics of each ready pod of a scaler."""
        asked = [
            (service, pod)
            for service in scaler_services(seen)
            for pod in scaler_pods(seen, service)
            if facts.is_ready(pod)
        ]
        return await at_once(self._look(*each) for each in asked[:_MOST])

    async def _look(self, service: str, pod: Fields) -> ScalerLook:
        name = facts.full_name(pod)
        path = pod_path(facts.namespace(pod), facts.name(pod), _port(pod), "/metrics")
        try:
            async with asyncio.timeout(_ONE_S):
                text = await self._connection.text(path)
            families = {each.name: each for each in parse_text(text, source=name)}
        except TimeoutError:
            fault = UnavailableError(f"scaler {name} gave no answer within {_ONE_S:g} s")
            return ScalerLook(service, name, fault=str(fault))
        except GpuscaleError as error:
            return ScalerLook(service, name, fault=str(error))
        if not any(each.startswith("gpuscale_scaler_") for each in families):
            return ScalerLook(service, name)
        streams = families.get(_STREAMS)
        samples = streams.samples if streams is not None else ()
        return ScalerLook(
            service, name, sum(each.value for each in samples if _PUSHES in each.labels)
        )


def _trigger(
    services: Mapping[str, Fields], keda: str, about: str, index: int, trigger: Fields, body: Fields
) -> ScaledTrigger:
    address = trigger.child("metadata").text("scalerAddress")
    kind = trigger.text("type")
    annotations = body.child("metadata").labels("annotations")
    is_paused = annotations.get("autoscaling.keda.sh/paused", "false") != "false"
    host, _, port = address.rpartition(":")
    service = _service(host, keda)
    found = services.get("/".join(service)) if service is not None else None
    fault = ""
    if service is not None and found is None:
        fault = f"there is no Service {'/'.join(service)}"
    elif found is not None:
        ports = [each.integer("port") for each in found.child("spec").items("ports")]
        # A headless Service has the ports that its pods listen on.
        is_headless = found.child("spec").text("clusterIP") == "None"
        if port.isdecimal() and int(port) not in ports and not is_headless:
            fault = f"Service {facts.full_name(found)} has no port {port}"
    return ScaledTrigger(about, index, kind, address, service, fault, is_paused)


def _service(host: str, keda: str) -> tuple[str, str] | None:
    """Return namespace and name of the Service that a host name means to KEDA's operator."""
    parts = host.removeprefix("dns:///").split(".")
    if parts == [""] or parts[-1].isdecimal() or parts == ["localhost"] or ":" in host:
        return None
    if len(parts) == 1:
        return keda, parts[0]
    if len(parts) == 2 or parts[2:] in (["svc"], ["svc", "cluster", "local"]):
        return parts[1], parts[0]
    return None


@facts.once
def keda_deployments(snapshot: Snapshot) -> tuple[Fields, ...]:
    """Return the Deployments of KEDA."""
    return tuple(body for body in snapshot.all("deployments") if "keda" in facts.name(body))


def operator_of(snapshot: Snapshot) -> tuple[str, str]:
    """Return namespace and name of KEDA's operator; the default ones if it is not found."""
    for body in keda_deployments(snapshot):
        if facts.name(body).endswith("keda-operator"):
            return facts.namespace(body), facts.name(body)
    return "keda", "keda-operator"


def _port(pod: Fields) -> int:
    for container in pod.child("spec").items("containers"):
        for port in container.items("ports"):
            if port.text("name") == "metrics":
                return port.integer("containerPort") or _METRICS_PORT
    return _METRICS_PORT
