"""Checks that a rehearsal may use a cluster: it was named, and nothing is in the way."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from gpuscale.base.errors import UsageError
from gpuscale.kube import api_service_name, mapping_of, text_of
from gpuscale.kube.client import JsonObject, KubeClient, KubeSettings
from gpuscale.lab.rehearse.manifests import PATHS
from gpuscale.lab.rehearse.mark import LABEL
from gpuscale.lab.sim.scenario.setup import Setup

MAX_NAMESPACE = 63
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class RehearsalTarget:
    """The cluster and namespaces to rehearse in."""

    cluster: KubeSettings
    namespace: str
    """To make, for what the scenario has in `default`."""
    is_named: bool = False
    """Whether its kubeconfig was named; otherwise it is the one that kubectl would use."""
    is_confirmed: bool = False
    """Whether somebody said that it is the right cluster, wherever it is."""
    options: str = ""
    """What leads kubectl and our own commands to the same cluster, beginning with a blank."""
    advertise_address: str | None = None
    """Where the API server finds this machine; None is loopback."""


def make_target(
    cluster: KubeSettings,
    namespace: str,
    advertise_address: str | None,
    *,
    is_named: bool,
    is_confirmed: bool,
    options: str = "",
) -> RehearsalTarget:
    """Return the target given by a command line, whose arguments are its fields.

    Raises:
        UsageError: the namespace or the address can't be one.
    """
    if len(namespace) > MAX_NAMESPACE or not _LABEL.fullmatch(namespace):
        raise UsageError(
            f"--namespace: found {namespace!r}, expected up to {MAX_NAMESPACE} lower-case letters, "
            "digits and dashes"
        )
    try:
        is_usable = advertise_address is None or not ip_address(advertise_address).is_loopback
    except ValueError:
        is_usable = False
    if not is_usable:
        raise UsageError(
            f"--advertise-address: found {advertise_address!r}, expected an IP address of this machine that "
            "is not loopback, which endpoints can't name"
        )
    return RehearsalTarget(cluster, namespace, is_named, is_confirmed, options, advertise_address)


def is_loopback(server: str) -> bool:
    """Return whether an API server's address is on this machine."""
    host = urlsplit(server).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_named(target: RehearsalTarget, server: str) -> None:
    """Raise unless the user named this cluster explicitly.

    Raises:
        UsageError: no kubeconfig was named, or it leads to another machine; and neither a context nor a
            yes was given.
    """
    if target.cluster.context is not None or target.is_confirmed:
        return
    if is_loopback(server) and target.is_named:
        return
    reason = "" if is_loopback(server) else ", which is not this machine"
    raise UsageError(
        f"the current context of {target.cluster.kubeconfig or 'this pod'} leads to {server}{reason}; "
        "name the context with --context, or say --yes"
    )


def check_reachable(target: RehearsalTarget, server: str) -> None:
    """Raise unless the API server can reach this machine.

    Raises:
        UsageError: it is on another one, and does not know where this one is.
    """
    if target.advertise_address is None and not is_loopback(server):
        raise UsageError(
            f"the API server at {server} has to reach the metrics API on this machine; give an address "
            "of this machine that it can reach with --advertise-address"
        )


def check_triggers(setup: Setup) -> None:
    """Raise unless the rehearsal's series can answer all of KEDA's triggers.

    Raises:
        UsageError: one asks a scaler, which would ask the cluster's own series; or there is a trigger file.
    """
    if setup.triggers:
        raise UsageError(
            "spec.triggers: found a trigger file, expected none: a rehearsal serves no triggers; "
            "simulate the scenario, or run it with gpuscale up"
        )
    for scaled in setup.scaled_objects:
        for index, trigger in enumerate(scaled.triggers):
            if trigger.kind.startswith("external"):
                raise UsageError(
                    f"ScaledObject/{scaled.metadata.name} spec.triggers[{index}].type: found {trigger.kind}, "
                    "expected prometheus, cron, cpu or memory: a rehearsal serves no external scaler"
                )


async def check_keda(client: KubeClient) -> None:
    """Raise unless the cluster has KEDA.

    Raises:
        UsageError: it is not.
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    if await client.find("/apis/keda.sh/v1alpha1") is None:
        raise UsageError(
            "the scenario has ScaledObjects: found no KEDA on the cluster (keda.sh/v1alpha1), expected its "
            "operator and metrics server; install KEDA, or rehearse a scenario with HPAs"
        )


async def check_free(
    client: KubeClient, namespaces: Iterable[str], group_versions: Iterable[str]
) -> None:
    """Raise if an object exists where the rehearsal would create one.

    Raises:
        UsageError: a namespace or an APIService is there already.
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    for group_version in group_versions:
        name = api_service_name(group_version)
        _check_absent(await client.find(f"{PATHS['APIService']}/{name}"), f"APIService {name}")
    for name in namespaces:
        _check_absent(await client.find(f"{PATHS['Namespace']}/{name}"), f"Namespace {name}")


def _check_absent(body: JsonObject | None, what: str) -> None:
    if body is None:
        return
    metadata = mapping_of(body.get("metadata"))
    mark = text_of(mapping_of(metadata.get("labels")).get(LABEL))
    if mark:
        raise UsageError(
            f"{what} belongs to rehearsal {mark}; end that one, or remove what it left: "
            "gpuscale rehearse --clean"
        )
    service = mapping_of(mapping_of(body.get("spec")).get("service"))
    name, served_by = text_of(service.get("name")), ""
    if name:
        served_by = f", served by {text_of(service.get('namespace'))}/{name}"
    advice = "rehearse on a cluster without a metrics adapter"
    if what.startswith("Namespace"):
        advice = "name another one with --namespace"
    raise UsageError(f"{what} is there already{served_by}, and is left alone; {advice}")
